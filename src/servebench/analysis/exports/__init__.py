"""Know the forms in which a run leaves servebench: its events as rows, and the result files of other tools."""
