"""Know the metrics that engines and hardware publish, and their canonical names."""
