"""Dedupe keys made of a payload: the same for the same content, whatever its order."""

from typing import Any

import msgspec

from fairlead.model.access import GLOBAL_TENANT
from fairlead.model.payload import encode, whole

DEEPEST = 500

_ENCODER = msgspec.json.Encoder(order="sorted")


def dedupe_key(definition: str, tenant: str | None, payload: Any = None) -> str:
    """`<definition>::<tenant or global>::<canonical JSON>`: the key that stands for this payload."""
    return f"{definition}::{tenant or GLOBAL_TENANT}::{canonical(payload).decode()}"


def canonical(payload: Any) -> bytes:
    """A payload as JSON with sorted keys, no spaces, and whole numbers as integers."""
    # how large and deep it may be is for whoever takes it to say
    plain, _ = encode({} if payload is None else payload, max_bytes=2**31, max_depth=DEEPEST)
    # to JSON 1 and 1.0 are one number, and they should make one key
    return _ENCODER.encode(whole(plain))
