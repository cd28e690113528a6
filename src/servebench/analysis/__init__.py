"""Know what recorded runs say: merge, tables, curves, verdict and report."""
