"""Know every metric: its two events, its formula, its unit and its percentiles."""
