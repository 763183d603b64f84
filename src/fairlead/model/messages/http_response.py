"""The part of an HTTP response that is stored: within limits, and without secrets."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from fairlead.errors import FairleadError
from fairlead.model.payload import MAX_DEPTH, encode
from fairlead.model.secrets.redact import Mask

MAX_HEADERS = 50
LONGEST_VALUE = 1000

_SECRET_HEADER = re.compile(r"cookie|token|secret|password|passwd|api-?key|session|auth|credential|signature")
_JSON_TYPE = re.compile(r"application/(?:[\w.+-]+\+)?json")
_CHARSET = re.compile(r"\bcharset=\"?([a-z0-9-]+)")
# All other charsets are read as UTF-8: some of Python's codecs are slow for malicious input.
_CHARSETS = frozenset({"utf-8", "us-ascii", "iso-8859-1", "iso-8859-15", "windows-1252"})
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def select_headers(headers: Iterable[tuple[str, str]], mask: Mask | None = None) -> dict[str, str]:
    """The headers without secret ones, by lower-case name; repeated headers are joined."""
    found: dict[str, str] = {}
    for name, value in headers:
        lower = name.lower()
        if _SECRET_HEADER.search(lower) or (lower not in found and len(found) == MAX_HEADERS):
            continue
        joined = f"{found[lower]}, {value}" if lower in found else value
        found[lower] = _CONTROLS.sub("\ufffd", joined)
    # mask before truncating: the mask does not find a truncated secret
    return {
        name: (value if mask is None else mask.text(value))[:LONGEST_VALUE] for name, value in found.items()
    }


def decode_body(content: bytes, headers: dict[str, str], *, truncated: bool, mask: Mask | None = None) -> Any:
    """The body as JSON if it is storable JSON, else as text; None for binary and compressed bodies."""
    if not content or headers.get("content-encoding", "identity") != "identity":
        return None
    kind, charset = _parse_content_type(headers.get("content-type", ""))
    if _JSON_TYPE.fullmatch(kind) and not truncated:
        try:
            # in the output it is nested one level deeper
            return encode(msgspec.json.decode(content), max_bytes=len(content) * 8, max_depth=MAX_DEPTH - 1)[
                0
            ]
        except (msgspec.DecodeError, FairleadError, RecursionError):
            pass  # store it as text
    if b"\x00" in content:
        return None
    text = _CONTROLS.sub("\ufffd", content.decode(charset, errors="replace"))
    return mask.mask_beginning(text) if truncated and mask is not None else text


def _parse_content_type(header: str) -> tuple[str, str]:
    kind, _, parameters = header.partition(";")
    found = _CHARSET.search(parameters.lower())
    return kind.strip().lower(), found[1] if found and found[1] in _CHARSETS else "utf-8"
