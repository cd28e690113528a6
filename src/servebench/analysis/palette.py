"""Know the colours and line styles of every plot; safe for colour-blind readers (Okabe and Ito)."""

PLANNED = "#8a8f98"
SENT = "#0072b2"
ANSWERED = "#009e73"
FAILED = "#d55e00"
TOKENS = "#aa4499"
IN_FLIGHT = "#b8860b"

CYCLE: tuple[str, ...] = ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#b8860b", "#3aa0dd")
SYMBOLS: tuple[str, ...] = ("circle", "diamond", "square", "triangle-up", "cross", "star")
DASHES = {"p50": "solid", "p95": "dash", "p99": "dot"}
"""One style a quantile, so that lines differ without colour."""
QUANTILE_COLOURS = {"p50": "#0072b2", "p95": "#d55e00", "p99": "#aa4499"}
"""One colour a quantile."""
