"""Gates stop claiming for the system, a tenant, a definition or a host."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx

sql = queries_beside(__file__)


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


async def lock(tx: Tx, kind: GateKind, name: str = "", *, tenant_id: UUID | None = None) -> list[Gate]:
    """Lock the gates of that name until the transaction ends. Only hosts may be several."""
    return await tx.all(Gate, getattr(sql, f"hold_{kind}"), {"name": name, "tenant_id": tenant_id})


async def close(tx: Tx, gate: Gate, *, actor: str, note: str | None) -> Gate:
    """Close a locked gate. A closed gate keeps its time, and its note unless a new one is given."""
    values = {"id": gate.id, "actor": actor, "note": note}
    [(at, by, kept)] = await tx.values(getattr(sql, f"close_{gate.kind}"), values)
    return replace(gate, paused_at=at, paused_by=by, note=kept, changed=gate.paused_at is None)


async def reopen(tx: Tx, gate: Gate, *, actor: str, note: str | None) -> Gate:
    """Open a locked gate."""
    await tx.run(getattr(sql, f"open_{gate.kind}"), {"id": gate.id, "actor": actor, "note": note})
    return replace(gate, paused_at=None, paused_by=None, note=None, changed=True)


async def notify(tx: Tx) -> None:
    """Tell every claimer to look again, after this transaction has committed."""
    tx.notify("gate")
