"""Generated secrets of 256 bits: shown once, and stored as a hash."""

import hashlib
import secrets
from typing import NamedTuple

PREFIX = "fl_"
SHOWN = 11


class Secret(NamedTuple):
    """A new secret: its text to show once, its beginning for lists, its hash to store."""

    text: str
    prefix: str
    hash: bytes


def new_secret() -> Secret:
    """Generate a random secret."""
    text = PREFIX + secrets.token_urlsafe(32)
    return Secret(text, text[:SHOWN], secret_hash(text))


def secret_hash(text: str) -> bytes:
    """The hash of a secret to store. 256 random bits need no salt and no slow hash."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
