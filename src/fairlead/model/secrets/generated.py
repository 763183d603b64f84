"""Generated secrets of 256 bits: shown once, and stored as a hash.

A secret of a tenant ends with the tenant's id, so that a server finds the cell that knows the secret.
"""

import base64
import binascii
import hashlib
import secrets
from typing import NamedTuple
from uuid import UUID

PREFIX = "fl_"
PREFIX_LENGTH = 11
# of the prefix and 32 random bytes
RANDOM_LENGTH = 46
# of a tenant's id
TENANT_LENGTH = 22


class GeneratedSecret(NamedTuple):
    """A new secret: its text to show once, its beginning for lists, its hash to store."""

    text: str
    prefix: str
    hash: bytes


def generate_secret(tenant_id: UUID | None = None) -> GeneratedSecret:
    """Generate a random secret, of a tenant or of the whole system."""
    text = PREFIX + secrets.token_urlsafe(32)
    if tenant_id is not None:
        text += base64.urlsafe_b64encode(tenant_id.bytes).decode().rstrip("=")
    return GeneratedSecret(text, text[:PREFIX_LENGTH], hash_secret(text))


def read_tenant_id(secret: str) -> UUID | None:
    """The id of the tenant that a secret names. Anyone can write one: only the whole secret proves something."""
    if len(secret) != RANDOM_LENGTH + TENANT_LENGTH or not secret.startswith(PREFIX):
        return None
    try:
        return UUID(bytes=base64.b64decode(secret[RANDOM_LENGTH:] + "==", altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):  # also characters that are not ASCII
        return None


def hash_secret(text: str) -> bytes:
    """The hash of a secret to store. 256 random bits need no salt and no slow hash."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
