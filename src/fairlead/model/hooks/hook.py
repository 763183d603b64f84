"""A hook: how its deliveries are signed, and the name of the event that each becomes."""

import re
import secrets
from base64 import b64encode
from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec

from fairlead.errors import Fault, HookInvalid
from fairlead.model.event import EVENT_NAME, RESERVED
from fairlead.model.messages.webhook import PREFIX, decode_key
from fairlead.model.template.path import Flaw

NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
# The place in an event's name for the sender's type of a delivery.
TYPE = "{type}"
NO_TYPE = "untyped"
LONGEST_EVENT_NAME = 255
LONGEST_TYPE = 100
SHORTEST_SECRET = 16
LONGEST_SECRET = 256
SECRET_BYTES = 32
DEFAULT_TOLERANCE = 300
LONGEST_TOLERANCE = 3600
# Deliveries are remembered for this long: longer than any sender repeats one.
REMEMBERED_DAYS = 30
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._:/@+-]")


class Scheme(StrEnum):
    """How a sender signs its deliveries."""

    STANDARD = "standard"
    GITHUB = "github"
    STRIPE = "stripe"
    SLACK = "slack"


# The sender chooses these secrets: they cannot be generated here.
SENDERS_SECRET = (Scheme.STRIPE, Scheme.SLACK)


class UniqueBy(StrEnum):
    """What identifies a delivery: a second one with the same becomes no second event."""

    ID = "id"
    BODY = "body"


class Refusal(StrEnum):
    """Why a hook refused a delivery. Its tenant sees it; the sender of a delivery with a wrong signature does not."""

    SIGNATURE_MISSING = "signature_missing"
    SIGNATURE_WRONG = "signature_wrong"
    TOO_OLD = "too_old"
    DISABLED = "disabled"
    RATE_LIMITED = "rate_limited"
    BODY_TOO_LARGE = "body_too_large"
    BODY_INVALID = "body_invalid"
    EVENT_REFUSED = "event_refused"


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """A hook without its secrets."""

    id: UUID
    tenant_id: UUID
    tenant: str
    name: str
    scheme: Scheme
    event_name: str
    unique_by: UniqueBy
    tolerance_seconds: int
    is_enabled: bool
    created_by: str
    created_at: datetime
    updated_at: datetime
    # until when the secret before the current one is valid, too
    old_secret_until: datetime | None
    last_received_at: datetime | None
    last_refused_at: datetime | None
    last_refusal: Refusal | None

    @property
    def path(self) -> str:
        """The path of the URL to which the sender sends its deliveries."""
        return f"/hooks/{self.tenant}/{self.name}"


class KeyedHook(msgspec.Struct, frozen=True, kw_only=True):
    """What is needed to verify a delivery. It has the secrets: never shown."""

    id: UUID
    tenant_id: UUID
    name: str
    scheme: Scheme
    event_name: str
    unique_by: UniqueBy
    tolerance_seconds: int
    is_enabled: bool
    secrets: tuple[str, ...]

    def __repr__(self) -> str:
        return f"KeyedHook({self.id})"


def check_hook(*, name: str, event_name: str, tolerance_seconds: int) -> None:
    """Raise HookInvalid with every invalid field."""
    faults = list[Fault]()
    if not NAME.fullmatch(name):
        faults.append(
            Fault("name", "must begin with a letter and have up to 63 of a-z 0-9 _ -, such as github")
        )
    if flaw := _find_event_name_flaw(event_name):
        faults.append(Fault("event_name", flaw))
    if not 1 <= tolerance_seconds <= LONGEST_TOLERANCE:
        faults.append(Fault("tolerance_seconds", f"must be 1 to {LONGEST_TOLERANCE}"))
    _refuse(faults)


def check_secret(scheme: Scheme, secret: str) -> str:
    """The secret itself; HookInvalid, which never contains the secret, if it cannot be one of the scheme."""
    flaw = None
    if scheme is Scheme.STANDARD:
        try:
            decode_key(secret)
        except Flaw as found:
            flaw = found.message
    elif not (SHORTEST_SECRET <= len(secret) <= LONGEST_SECRET and secret.isascii() and secret.isprintable()):
        flaw = f"must have {SHORTEST_SECRET} to {LONGEST_SECRET} printable ASCII characters"
    if flaw:
        _refuse([Fault("secret", flaw)])
    return secret


def generate_secret(scheme: Scheme) -> str:
    """A new secret; HookInvalid if the sender chooses the scheme's secrets."""
    if scheme in SENDERS_SECRET:
        _refuse(
            [Fault("secret", f"is required: {scheme} shows it to you when you enter the hook's URL there")]
        )
    if scheme is Scheme.STANDARD:
        return PREFIX + b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
    return secrets.token_urlsafe(SECRET_BYTES)


def default_event_name(name: str) -> str:
    """The event name of a hook that names none."""
    return f"{name}.{TYPE}"


def build_event_name(template: str, sent_type: str) -> str:
    """The name of the event for a delivery of this type; characters that names cannot have become `_`."""
    clean = _NOT_IN_NAMES.sub("_", sent_type[:LONGEST_TYPE]) or NO_TYPE
    return template.replace(TYPE, clean)


def _find_event_name_flaw(template: str) -> str | None:
    longest = template.replace(TYPE, "x" * LONGEST_TYPE)
    if not EVENT_NAME.fullmatch(longest) or template.startswith(TYPE):
        return (
            f"must begin with a letter and have up to {LONGEST_EVENT_NAME} letters, digits and . _ : / @ + -; "
            f"{TYPE} in it is replaced by the sender's type, of up to {LONGEST_TYPE} characters"
        )
    if template.startswith(RESERVED):
        return f"must not begin with {', '.join(RESERVED)}: these are reserved for the system"
    return None


def _refuse(faults: list[Fault]) -> None:
    if faults:
        raise HookInvalid(f"Invalid hook: {faults[0].path} {faults[0].message}.", faults)
