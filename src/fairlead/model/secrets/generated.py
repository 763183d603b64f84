"""Generated secrets of 256 bits: shown once, and stored as a hash."""

import hashlib
import secrets
from typing import NamedTuple

PREFIX = "fl_"
PREFIX_LENGTH = 11


class GeneratedSecret(NamedTuple):
    """A new secret: its text to show once, its beginning for lists, its hash to store."""

    text: str
    prefix: str
    hash: bytes


def generate_secret() -> GeneratedSecret:
    """Generate a random secret."""
    text = PREFIX + secrets.token_urlsafe(32)
    return GeneratedSecret(text, text[:PREFIX_LENGTH], hash_secret(text))


def hash_secret(text: str) -> bytes:
    """The hash of a secret to store. 256 random bits need no salt and no slow hash."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
