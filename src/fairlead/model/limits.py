"""Rates and limits by key in use: how much of each is left, and what it holds back."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

import msgspec

from fairlead.model.field import Internal
from fairlead.model.flow import KeyLimit, Rate
from fairlead.model.secrets.redact import Patterns, mask_payload

# Held jobs are counted up to this.
MOST_HELD = 1000
# How many tenants or keys a limit names: those that hold back most.
MOST_PARTS = 5


class LimitScope(StrEnum):
    """The jobs that share a limit."""

    SYSTEM = "system"
    TENANT = "tenant"
    DEFINITION = "definition"
    # each tenant has its own
    DEFINITION_TENANT = "definition_tenant"
    # each value in the payload has its own, for each tenant
    KEY = "key"


class LimitPart(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant or key that holds jobs back by its own part of a limit."""

    tenant: str
    tenant_id: UUID
    value: Annotated[
        str | None,
        msgspec.Meta(description="Of a limit by key: the value; null if it is secret, or not a plain value."),
    ] = None
    running: Annotated[
        int | None, msgspec.Meta(description="Of a limit by key: the running jobs of the key.")
    ] = None
    opens_at: Annotated[
        datetime | None, msgspec.Meta(description="When the rate allows the next start; null: now.")
    ] = None
    held: Annotated[int, msgspec.Meta(description="How many jobs wait for it; counted up to 1000.")]
    has_more: Annotated[bool, msgspec.Meta(description="Whether more jobs wait than `held`.")] = False
    first_job: Annotated[UUID, msgspec.Meta(description="One of these jobs: of a key, the next one.")]


class LimitUse(msgspec.Struct, frozen=True, kw_only=True):
    """A rate or a limit by key, what is left of it, and what it holds back."""

    place: Internal[str]
    scope: LimitScope
    definition_id: Internal[UUID | None] = None
    definition_key: str | None = None
    tenant: str | None = None
    tenant_id: UUID | None = None
    rate: Rate | None = None
    by_key: KeyLimit | None = None
    tokens: Annotated[
        int | None,
        msgspec.Meta(
            description="How many jobs may start now. Null where each tenant or key has its own, and for a tenant where "
            "it shares the rate with others."
        ),
    ] = None
    opens_at: Annotated[
        datetime | None, msgspec.Meta(description="When the rate allows the next start; null: now.")
    ] = None
    held: Annotated[
        int, msgspec.Meta(description="How many jobs are due and wait for it; counted up to 1000.")
    ] = 0
    has_more: Annotated[bool, msgspec.Meta(description="Whether more jobs wait than `held`.")] = False
    parts: Annotated[
        tuple[LimitPart, ...],
        msgspec.Meta(description="Where each tenant or key has its own: those that hold back most, up to 5."),
    ] = ()
    # in a list over several cells
    cell: str | None = None


class FoundPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a limit as the database has it."""

    definition_id: UUID
    tenant: str
    tenant_id: UUID
    held: int
    first_job: UUID
    # of all parts of the limit, and whether there are more parts than were counted
    total: int
    is_cut: bool
    opens_at: datetime | None = None
    running: int | None = None
    # of a key: the value if it is plain, and what of the payload is secret
    value: Any = None
    pointer: str | None = None
    secret_paths: tuple[str, ...] = ()

    def to_part(self, patterns: Patterns) -> LimitPart:
        """The part, with its value masked."""
        return LimitPart(
            tenant=self.tenant,
            tenant_id=self.tenant_id,
            value=mask_value(self.value, self.pointer, self.secret_paths, patterns),
            running=self.running,
            opens_at=self.opens_at,
            held=min(self.held, MOST_HELD),
            has_more=self.held > MOST_HELD,
            first_job=self.first_job,
        )


def mask_value(value: Any, pointer: str | None, paths: Sequence[str], patterns: Patterns) -> str | None:
    """A plain value at a place of a payload, as text; None if it is secret, or no plain value."""
    if pointer is None or not isinstance(value, str | int | float):
        return None
    names = [one.replace("~1", "/").replace("~0", "~") for one in pointer.split("/")[1:]]
    if paths and any(one.isdecimal() for one in names):
        return None  # it may be an item of a list, and lists have other secret paths
    payload: Any = value
    for name in reversed(names):
        payload = {name: payload}
    shown = mask_payload(payload, paths, patterns)
    for name in names:
        shown = shown.get(name) if isinstance(shown, dict) else None
    if shown != value or type(shown) is not type(value):
        return None
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
