"""The Retry-After header."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST = 86_400.0


def parse_retry_after(header: str | None, now: datetime) -> float | None:
    """The seconds of a Retry-After header, at most a day; None if it cannot be parsed."""
    if header is None:
        return None
    text = header.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:10]), LONGEST)
    try:
        at = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return min(max((at - now).total_seconds(), 0.0), LONGEST)
