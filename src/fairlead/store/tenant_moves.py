"""Moves of tenants: their rows in the home cell, and the gate of a tenant in a cell."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.model.tenant_move import MoveStep, OpenTransaction, TenantMove
from fairlead.placement import Placement

sql = queries_beside(__file__)

# The author of a pause that a move has set.
MARK = "tenant move"
# The end of leases that no worker has: never, but a time that Python can read.
PARKED = datetime(9999, 1, 1, tzinfo=UTC)


class PlacedTenant(msgspec.Struct, frozen=True, kw_only=True):
    """Where a tenant lives, as one cell has it."""

    tenant_id: UUID
    slug: str
    placement: Placement
    moved_to: str | None
    epoch: int


# In the home cell


async def list_all(tx: Tx, *, limit: int) -> list[TenantMove]:
    """Moves that have not ended, the oldest first."""
    return await tx.all(TenantMove, sql.every, {"limit": limit})


async def get(tx: Tx, tenant_id: UUID) -> TenantMove | None:
    """The move of a tenant that has not ended."""
    return await tx.first(TenantMove, sql.get, {"tenant_id": tenant_id})


async def identify(tx: Tx, name: str) -> tuple[UUID, str] | None:
    """The id and the slug of a tenant of any cell, by slug or id."""
    rows = await tx.values(sql.identify, {"name": name})
    return (rows[0][0], rows[0][1]) if rows else None


async def begin(
    tx: Tx, *, tenant_id: UUID, slug: str, source: str, target: str, epoch: int, started_by: str
) -> TenantMove | None:
    """Begin a move; None if the tenant is being moved already."""
    values = {
        "tenant_id": tenant_id,
        "slug": slug,
        "source": source,
        "target": target,
        "epoch": epoch,
        "started_by": started_by,
    }
    return await tx.first(TenantMove, sql.begin, values)


async def advance(tx: Tx, move: TenantMove, steps: Collection[MoveStep], next_step: MoveStep) -> bool:
    """Set the next step; False if the move is not at one of `steps`."""
    return await tx.run(sql.advance, {**_key(move), "steps": list(steps), "next": next_step}) > 0


async def flip(tx: Tx, move: TenantMove) -> None:
    """Write into the directory that the tenant lives in the target."""
    values = {"tenant_id": move.tenant_id, "slug": move.slug, "target": move.target, "epoch": move.epoch}
    await tx.run(sql.flip, values)


async def note(tx: Tx, move: TenantMove, detail: Any) -> bool:
    """Note how far the step is; False if the move is at another step."""
    return await tx.run(sql.note, {**_key(move), "step": move.step, "detail": json_text(detail)}) > 0


async def note_error(tx: Tx, move: TenantMove, why: str) -> None:
    """Note why the last process could not go on."""
    await tx.run(sql.note_error, {**_key(move), "why": why})


async def finish(tx: Tx, move: TenantMove, steps: Collection[MoveStep]) -> bool:
    """Remove the move, which has ended; False if it is not at one of `steps`."""
    return await tx.run(sql.finish, {**_key(move), "steps": list(steps)}) > 0


def _key(move: TenantMove) -> dict[str, Any]:
    return {"tenant_id": move.tenant_id, "started_at": move.started_at}


# In the source and in the target


async def find_placed(tx: Tx, tenant_id: UUID) -> PlacedTenant | None:
    """Where the tenant lives, as this cell has it."""
    return await tx.first(PlacedTenant, sql.placed, {"tenant_id": tenant_id})


async def close_gate(tx: Tx, move: TenantMove) -> bool:
    """Refuse writes and claims of the tenant in the source; False if the tenant is not there."""
    note = f"The tenant is being moved to the cell {move.target}."
    return await tx.run(sql.close_gate, {**_where(move), "mark": MARK, "note": note}) > 0


async def use_up_room(tx: Tx, tenant_id: UUID) -> None:
    """Let no enqueue pass that has not read the tenant."""
    await tx.run(sql.use_up_room, {"tenant_id": tenant_id})


async def list_transactions(tx: Tx, ids: Sequence[str] | None = None) -> list[OpenTransaction]:
    """The transactions of this database that run now, or those of these ids."""
    values = {"schema": tx.schema, "ids": None if ids is None else list(ids)}
    return await tx.all(OpenTransaction, sql.transactions, values)


async def count_running(tx: Tx, tenant_id: UUID) -> int:
    """How many leases workers have."""
    [[running]] = await tx.values(sql.running, {"tenant_id": tenant_id, "parked": PARKED})
    return int(running)


async def count_limited(tx: Tx, tenant_id: UUID) -> int:
    """How many leases workers have of definitions whose limit is for all cells."""
    [[running]] = await tx.values(sql.running_limited, {"tenant_id": tenant_id, "parked": PARKED})
    return int(running)


async def park_leases(tx: Tx, tenant_id: UUID) -> int:
    """Take the tenant's leases away from their workers, and keep them; how many."""
    return await tx.run(sql.park_leases, {"tenant_id": tenant_id, "parked": PARKED})


async def unpark_leases(tx: Tx, tenant_id: UUID, *, lease_seconds: float) -> int:
    """Give the leases back to their workers; how many."""
    values = {"tenant_id": tenant_id, "parked": PARKED, "lease_seconds": lease_seconds}
    return await tx.run(sql.unpark_leases, values)


async def open_gate(tx: Tx, tenant_id: UUID, *, placement: Placement, epoch: int) -> bool:
    """Let the tenant be changed in this cell; False if it is not in this placement and epoch."""
    values = {"tenant_id": tenant_id, "placement": placement, "epoch": epoch, "mark": MARK}
    return await tx.run(sql.open_gate, values) > 0


async def leave(
    tx: Tx,
    tenant_id: UUID,
    *,
    placements: Collection[Placement],
    epochs: Collection[int],
    epoch: int,
    cell: str,
) -> bool:
    """Note that the tenant lives in another cell; False if it is in none of these placements and epochs here."""
    values = {
        "tenant_id": tenant_id,
        "placements": list(placements),
        "epochs": list(epochs),
        "epoch": epoch,
        "cell": cell,
    }
    return await tx.run(sql.leave, values) > 0


async def hold(tx: Tx, tenant_id: UUID) -> tuple[Placement, int] | None:
    """The tenant's placement and epoch here, which stay until the transaction ends."""
    rows = await tx.values(sql.hold, {"tenant_id": tenant_id})
    return (Placement(rows[0][0]), int(rows[0][1])) if rows else None


def _where(move: TenantMove) -> dict[str, Any]:
    return {"tenant_id": move.tenant_id, "epoch": move.epoch}
