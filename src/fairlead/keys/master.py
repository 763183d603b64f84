"""Master keys, which wrap data keys: 32 bytes from a file or a variable, or functions of the application for a KMS."""

import asyncio
import base64
import binascii
import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fairlead.errors import EncryptionKeyUnavailable
from fairlead.keys.sealed import KEY_BYTES, NONCE_BYTES

# How long a KMS may take: leases run meanwhile, and transactions hold their locks.
CALL_SECONDS = 3.0
# What a master key is told about a data key: `key`, its id, and `tenant`, the tenant's id, or `-` for the platform's.
Context = Mapping[str, str]


class KeyWrapper(Protocol):
    """An object of the application that wraps data keys with a key in a KMS."""

    def wrap(self, key: bytes, context: Context) -> Awaitable[bytes]:
        """The wrapped form of 32 bytes, bound to the context."""

    def unwrap(self, wrapped: bytes, context: Context) -> Awaitable[bytes]:
        """The 32 bytes again."""


class MasterKey(Protocol):
    """A key that wraps data keys. `id` is stored beside what it has wrapped."""

    id: str

    async def wrap(self, key: bytes, context: Context) -> bytes: ...

    async def unwrap(self, wrapped: bytes, context: Context) -> bytes: ...


class LocalMasterKey:
    """A master key of 32 bytes in this process's memory."""

    def __init__(self, key: bytes) -> None:
        self.id = hashlib.sha256(b"fairlead master key\x00" + key).hexdigest()[:16]
        self._cipher = AESGCM(key)

    def __repr__(self) -> str:
        return f"LocalMasterKey({self.id})"

    async def wrap(self, key: bytes, context: Context) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, key, _encode_context(context))

    async def unwrap(self, wrapped: bytes, context: Context) -> bytes:
        try:
            return self._cipher.decrypt(
                wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], _encode_context(context)
            )
        except (InvalidTag, ValueError):
            raise EncryptionKeyUnavailable(
                f"The data key {context['key']} cannot be unwrapped: its row in tenant_keys was changed. Restore it from "
                "a backup."
            ) from None


class CalledMasterKey:
    """A master key in a KMS, which the application's object calls."""

    def __init__(self, id: str, find: Callable[[], KeyWrapper]) -> None:  # noqa: A002 - as its field
        self.id = id
        self._find = find

    def __repr__(self) -> str:
        return f"CalledMasterKey({self.id})"

    async def wrap(self, key: bytes, context: Context) -> bytes:
        return await self._call("wrap", key, context)

    async def unwrap(self, wrapped: bytes, context: Context) -> bytes:
        key = await self._call("unwrap", wrapped, context)
        if len(key) != KEY_BYTES:
            raise self._unavailable("unwrap", f"returned {len(key)} bytes instead of {KEY_BYTES}")
        return key

    async def _call(self, name: str, given: bytes, context: Context) -> bytes:
        limit = asyncio.timeout(CALL_SECONDS)
        try:
            async with limit:
                found = await getattr(self._find(), name)(given, context)
        except EncryptionKeyUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - its message may have a key
            why = f"raised {type(error).__name__}"
            if limit.expired():
                why = f"did not answer within {CALL_SECONDS:g} seconds"
            raise self._unavailable(name, why) from None
        if not isinstance(found, bytes):
            raise self._unavailable(name, "returned no bytes")
        return found

    def _unavailable(self, name: str, why: str) -> EncryptionKeyUnavailable:
        return EncryptionKeyUnavailable(
            f"The master key {self.id} is not available: its {name} {why}. Fairlead tries again; jobs wait meanwhile."
        )


def build_context(key_id: UUID, tenant_id: UUID | None) -> dict[str, str]:
    """What a wrapped data key is bound to."""
    return {"key": str(key_id), "tenant": "-" if tenant_id is None else str(tenant_id)}


def _encode_context(context: Context) -> bytes:
    return "\x00".join(("fairlead wrapped", context["key"], context["tenant"])).encode()


def decode_master_key(text: str) -> bytes | None:
    """The 32 bytes of a master key, written as base64 or hex; None if it is neither."""
    text = text.strip()
    try:
        found = (
            bytes.fromhex(text)
            if len(text) == 2 * KEY_BYTES
            else base64.b64decode(text.translate(_URL_SAFE) + "=" * (-len(text) % 4), validate=True)
        )
    except (ValueError, binascii.Error):
        return None
    return found if len(found) == KEY_BYTES else None


_URL_SAFE = str.maketrans("-_", "+/")
