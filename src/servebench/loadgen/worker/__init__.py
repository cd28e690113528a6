"""Know the worker's side: when each request is due, how one is carried out, and how its row reaches the disk."""
