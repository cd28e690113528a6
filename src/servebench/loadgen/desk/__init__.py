"""Know what a person or a monitor sees of a running load: the web page, its forms, the pages of runs, Prometheus."""
