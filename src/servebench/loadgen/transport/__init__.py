"""Know how requests reach a server and answers are read: one epoll for all streams of a worker, behind a gevent hub."""
