"""Know how a run is laid down on disk: the one schema, parts, manifest and run folder."""
