"""Passwords: their rules, and their hashes."""

import asyncio
import secrets
from functools import cache

import argon2

from fairlead.errors import Fault
from fairlead.model.payload import find_storage_flaw

SHORTEST_PASSWORD = 12
LONGEST_PASSWORD = 1024
_hasher = argon2.PasswordHasher()


def find_password_faults(password: str, field: str = "password") -> list[Fault]:
    """Why a text cannot be a password."""
    if SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD and not find_storage_flaw(password):
        return []
    return [Fault(field, f"must have {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters")]


async def hash_password(password: str) -> str:
    """Hash a password with argon2, in a thread, since it is slow on purpose."""
    return await asyncio.to_thread(_hasher.hash, password)


@cache
def hash_random_password() -> str:
    """The hash of a random password: verified for an unknown address or an account without a password, so that the answer takes as long."""
    # lazy, since every command would wait for it at import
    return _hasher.hash(secrets.token_hex())


async def check_password(password_hash: str | None, password: str) -> bool:
    """Whether a password has this hash; slow on purpose, and as slow (False) for an account without a password."""
    if password_hash is None:
        await check_password(await asyncio.to_thread(hash_random_password), password)
        return False
    try:
        # surrogates cannot be encoded otherwise, and match no password
        return await asyncio.to_thread(_hasher.verify, password_hash, password.encode(errors="surrogatepass"))
    except argon2.exceptions.VerificationError:
        return False
