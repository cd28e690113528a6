"""Know how a moment is written on a page."""

from datetime import UTC, datetime


def utc(text: str) -> str:
    """Return an ISO time in UTC to the second, or the text as it is where it is no such time."""
    try:
        return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    except ValueError:
        return text
