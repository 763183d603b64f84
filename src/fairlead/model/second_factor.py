"""The second factor of a password: codes of an authenticator app (TOTP, RFC 6238), and recovery codes."""

import base64
import hashlib
import hmac
import re
import secrets
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

import msgspec
import pyotp

ISSUER = "Fairlead"
STEP_SECONDS = 30
# How many time steps the clock of the authenticator app may be ahead or behind.
DRIFT = 1
RECOVERY_CODES = 10
# 80 random bits, as 16 letters and digits.
RECOVERY_BYTES = 10
LONGEST_CODE = 64
_TOTP_CODE = re.compile(r"[0-9]{6}")
_GROUP = 4


class SignInProof(StrEnum):
    """What a user proved at the sign-in."""

    PASSWORD = "password"  # noqa: S105 - not a password
    # a password, and a code of the second factor
    CODE = "code"
    # an identity at a provider, which is responsible for second factors
    PROVIDER = "provider"


class SecondFactor(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a user has a second factor; the secret is in no record that is shown."""

    is_active: bool
    confirmed_at: datetime | None
    recovery_codes_left: int
    # whether the setting require_second_factor names the user's role
    is_required: bool


class SetupKey(NamedTuple):
    """The secret of a set-up that has begun, which is shown only then."""

    key: str
    uri: str


def generate_key() -> str:
    """A random secret of 160 bits, in base32."""
    return pyotp.random_base32(32)


def write_uri(key: str, email: str) -> str:
    """The URI that authenticator apps read from a QR code."""
    return pyotp.TOTP(key).provisioning_uri(name=email, issuer_name=ISSUER)


def normalise_code(text: str) -> str:
    """A code as people type it, without spaces and dashes."""
    return re.sub(r"[\s-]", "", text).lower()


def is_totp_code(code: str) -> bool:
    """Whether a normalised code is one of an authenticator app; all others are recovery codes."""
    return _TOTP_CODE.fullmatch(code) is not None


def find_step(key: str, code: str, *, now: int, last: int | None) -> int | None:
    """The time step of which this is the code, at most DRIFT from `now` and after `last`; None if there is none.

    The code of a step is accepted once: `last` is the step of the last code that was accepted.
    """
    codes = pyotp.HOTP(key)
    found = None
    for step in range(now - DRIFT, now + DRIFT + 1):
        # compares with all of them: the time must not tell which one was near
        is_same = hmac.compare_digest(codes.at(step).encode(), code.encode(errors="replace"))
        if is_same and (last is None or step > last):
            found = step
    return found


def generate_recovery_codes() -> list[str]:
    """New recovery codes, in groups that people can copy by hand."""
    return [_generate_recovery_code() for _ in range(RECOVERY_CODES)]


def _generate_recovery_code() -> str:
    text = base64.b32encode(secrets.token_bytes(RECOVERY_BYTES)).decode().lower()
    return "-".join(text[at : at + _GROUP] for at in range(0, len(text), _GROUP))


def hash_recovery_code(user_id: UUID, code: str) -> bytes:
    """The hash of a recovery code to store. 80 random bits need no slow hash; the same code of two users has two hashes."""
    text = f"{user_id}:{normalise_code(code)}"
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()
