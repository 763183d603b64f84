"""Secrets of 256 bits: shown once, known afterwards by their hash."""

import hashlib
import secrets
from typing import NamedTuple

PREFIX = "fl_"
SHOWN = 11


class Secret(NamedTuple):
    """A new secret: its text for whoever asked, its beginning for lists, its hash to keep."""

    text: str
    prefix: str
    hash: bytes


def new_secret() -> Secret:
    """One that nobody has had before."""
    text = PREFIX + secrets.token_urlsafe(32)
    return Secret(text, text[:SHOWN], secret_hash(text))


def secret_hash(text: str) -> bytes:
    """What is kept of a secret. 256 random bits need no salt and no slow hash."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
