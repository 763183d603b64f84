"""Gates stop claiming for the system, a tenant, a definition or a host."""

from uuid import UUID

from msgspec.structs import replace

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.gate import Gate, GateKind

sql = queries_beside(__file__)


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
