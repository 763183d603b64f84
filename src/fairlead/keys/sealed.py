"""Sealed values: AES-GCM with a data key, bound to a tenant and a purpose, as text that says its version and its key.

`sealed:1:<key id>:<nonce and ciphertext>` is sealed; `plain:<text>` was stored before the database had keys.
"""

import base64
import binascii
import os
from typing import NamedTuple
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fairlead.errors import SealBroken

PREFIX = "sealed:"
PLAIN = "plain:"
VERSION = "1"
KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16


class DataKey(NamedTuple):
    """A data key of a tenant, or (None) of the platform."""

    id: UUID
    tenant_id: UUID | None
    cipher: AESGCM

    def __repr__(self) -> str:
        return f"DataKey({self.id})"


class Sealed(NamedTuple):
    """The parts of a sealed text."""

    key_id: UUID
    nonce: bytes
    ciphertext: bytes


def is_sealed(text: object) -> bool:
    """Whether a stored text is sealed, as far as its beginning says."""
    return isinstance(text, str) and text.startswith(PREFIX)


def seal_text(key: DataKey, tenant_id: UUID | None, purpose: str, text: str) -> str:
    """The sealed text; only the same tenant and purpose open it."""
    nonce = os.urandom(NONCE_BYTES)
    ciphertext = key.cipher.encrypt(
        nonce, text.encode("utf-8", "surrogatepass"), _bind(key.id, tenant_id, purpose)
    )
    encoded = base64.urlsafe_b64encode(nonce + ciphertext).decode().rstrip("=")
    return f"{PREFIX}{VERSION}:{key.id.hex}:{encoded}"


def open_text(key: DataKey, tenant_id: UUID | None, purpose: str, sealed: Sealed) -> str:
    """The text that was sealed; SealBroken if it was changed, or sealed for another tenant or purpose."""
    try:
        found = key.cipher.decrypt(sealed.nonce, sealed.ciphertext, _bind(key.id, tenant_id, purpose))
    except InvalidTag:
        raise SealBroken(
            "A sealed value was changed, or belongs to another tenant, field or job: it cannot be opened. "
            "Restore the row from a backup, or enter the secret again."
        ) from None
    return found.decode("utf-8", "surrogatepass")


def parse_sealed(text: str) -> Sealed:
    """The parts of a sealed text; SealBroken if it has another version or was cut."""
    parts = text.split(":")
    if len(parts) != 4 or parts[0] != PREFIX[:-1]:
        raise _malformed_error("it has not the form of one")
    if parts[1] != VERSION:
        raise SealBroken(
            f"A sealed value has the version {parts[1][:20]!r}, which this Fairlead does not know: upgrade it."
        )
    try:
        key_id = UUID(hex=parts[2])
        content = base64.b64decode(parts[3] + "=" * (-len(parts[3]) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        raise _malformed_error("it has characters that none has") from None
    if len(content) < NONCE_BYTES + TAG_BYTES:
        raise _malformed_error("it was cut")
    return Sealed(key_id, content[:NONCE_BYTES], content[NONCE_BYTES:])


def _malformed_error(why: str) -> SealBroken:
    return SealBroken(f"A sealed value cannot be opened: {why}. Restore the row from a backup.")


def _bind(key_id: UUID, tenant_id: UUID | None, purpose: str) -> bytes:
    """The associated data: a ciphertext cannot be moved to another tenant or purpose."""
    owner = b"-" if tenant_id is None else tenant_id.bytes
    return b"\x00".join((b"fairlead sealed", VERSION.encode(), key_id.bytes, owner, purpose.encode()))
