"""Bounds of what a tool returns: an AI agent reads all of it, and pays for it."""

from typing import Any

import msgspec

# The most characters of a line in a list, of a text of a single object, and of a JSON value.
LONGEST_LINE = 300
LONGEST_TEXT = 2_000
LONGEST_JSON = 8_000
# The most characters of a log.
LONGEST_LOG = 20_000
# The most bytes of a whole answer, as JSON.
MOST_BYTES = 200_000
MOST_ITEMS = 50


def clip(text: str | None, most: int = LONGEST_LINE) -> str | None:
    """The beginning of a text, and how much is missing."""
    if text is None or len(text) <= most:
        return text
    return f"{text[:most]}… [{len(text) - most} more characters]"


def clip_tail(text: str | None, most: int = LONGEST_TEXT) -> str | None:
    """The end of a text, and how much is missing before it."""
    if text is None or len(text) <= most:
        return text
    return f"[{len(text) - most} characters before] …{text[-most:]}"


def clip_json(value: Any, most: int = LONGEST_JSON) -> Any:
    """A JSON value; the beginning of its text if it is too long."""
    text = msgspec.json.encode(value).decode()
    if len(text) <= most:
        return value
    return {"truncated": True, "characters": len(text), "beginning": text[:most]}
