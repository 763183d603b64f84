"""Dedupe keys derived from a payload: equal for equal content, whatever the order of its keys."""

from typing import Any

import msgspec

from fairlead.model.access import GLOBAL_TENANT
from fairlead.model.payload import encode, normalize_integers

DEEPEST = 500

_ENCODER = msgspec.json.Encoder(order="sorted")


def dedupe_key(definition: str, tenant: str | None, payload: Any = None) -> str:
    """`<definition>::<tenant or global>::<canonical JSON>`: the dedupe key of this payload."""
    return f"{definition}::{tenant or GLOBAL_TENANT}::{canonical_json(payload).decode()}"


def canonical_json(payload: Any) -> bytes:
    """A payload as JSON with sorted keys, no spaces, and whole numbers as integers."""
    # enqueue checks the size and depth
    plain, _ = encode({} if payload is None else payload, max_bytes=2**31, max_depth=DEEPEST)
    # in JSON 1 and 1.0 are the same number, and must give the same key
    return _ENCODER.encode(normalize_integers(plain))
