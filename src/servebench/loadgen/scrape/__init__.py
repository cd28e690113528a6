"""Know what engines and hardware say of themselves while the load runs: where to read it, and how it is kept."""
