"""Gates: the pauses of tenants, definitions and hosts."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec


class GateKind(StrEnum):
    SYSTEM = "system"
    TENANT = "tenant"
    DEFINITION = "definition"
    HOST = "host"


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a gate: open when `paused_at` is None. `changed`: the call that returned it changed it."""

    kind: GateKind
    id: UUID | None
    name: str
    tenant_id: UUID | None
    paused_at: datetime | None
    paused_by: str | None
    note: str | None
    changed: bool = False
