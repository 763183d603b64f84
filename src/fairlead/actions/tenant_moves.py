"""Move a tenant to another cell: the steps, each in one transaction of one cell. library/tenant_moves.py puts them in order."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from fairlead.db.tx import Tx
from fairlead.errors import Fault, MoveRefused, TenantUnknown
from fairlead.model.access import GLOBAL_TENANT, Permission, Principal
from fairlead.model.cells import HOME, TenantCell
from fairlead.model.payload import find_storage_flaw
from fairlead.model.request import unknown_tenant
from fairlead.model.tenant_move import REVERSIBLE, CopyProgress, MoveStep, OpenTransaction, TenantMove
from fairlead.placement import Placement
from fairlead.store import audit, cells, resealing, tenant_copy, tenant_moves
from fairlead.store.tenant_copy import Tell

MOST_LISTED = 1000
# Loops of all kinds look at the tenant's rows in its new cell.
WORDS = ("ready", "later", "event", "schedule", "step")

# The directory, in the home cell


async def list_moves(tx: Tx, principal: Principal) -> list[TenantMove]:
    """Moves that have begun and not ended."""
    principal.require(Permission.READ_TENANTS)
    return await tenant_moves.list_all(tx, limit=MOST_LISTED)


async def begin(tx: Tx, principal: Principal, name: str, *, target: str) -> TenantMove:
    """Begin the move of a tenant to a cell, or return the move there that has begun already."""
    principal.require(Permission.MANAGE_TENANTS)
    tenant = await _identify(tx, name)
    entry = await plan(tx, principal, name, target=target)
    if (there := await tenant_moves.get(tx, tenant.id)) is not None:
        return there
    began = await tenant_moves.begin(
        tx,
        tenant_id=tenant.id,
        slug=tenant.slug,
        source=entry.cell,
        target=target,
        epoch=entry.epoch + 1,
        started_by=principal.actor,
    )
    if began is None:  # another process has begun one at this moment
        return await begin(tx, principal, name, target=target)
    await _audit(tx, principal, began, "tenant_move_began")
    return began


async def plan(tx: Tx, principal: Principal, name: str, *, target: str) -> TenantCell:
    """Where the tenant lives now; the same errors as `begin`, and nothing changes."""
    principal.require(Permission.MANAGE_TENANTS)
    tenant = await _identify(tx, name)
    if tenant.slug == GLOBAL_TENANT:
        raise MoveRefused(
            f"The tenant {GLOBAL_TENANT!r} is in every cell: it cannot be moved.", [Fault("tenant", "global")]
        )
    entry = await _find_entry(tx, tenant)
    if (there := await tenant_moves.get(tx, tenant.id)) is not None:
        _require_target(there, target)
    elif entry.cell == target:
        raise MoveRefused(
            f"The tenant {tenant.slug!r} lives in the cell {target!r} already.",
            [Fault("to", "the same cell")],
        )
    return entry


def _require_target(move: TenantMove, target: str) -> None:
    if move.target != target or move.step is MoveStep.REOPEN:
        what = "back" if move.step is MoveStep.REOPEN else f"to the cell {move.target!r}"
        raise MoveRefused(
            f"The tenant {move.slug!r} is being moved {what}. Let this move end, or take it back with: "
            f"fairlead tenants move {move.slug} --cancel",
            [Fault("to", "another move has begun")],
        )


class NamedTenant(NamedTuple):
    """A tenant of any cell."""

    id: UUID
    slug: str


async def _identify(tx: Tx, name: str) -> NamedTenant:
    found = None if find_storage_flaw(name) else await tenant_moves.identify(tx, name)
    if found is None:
        raise unknown_tenant(name)
    return NamedTenant(*found)


async def _find_entry(tx: Tx, tenant: NamedTenant) -> TenantCell:
    found = await cells.locate(tx, [str(tenant.id)])
    if found:
        return found[0]
    home = next((cell.name for cell in await cells.list_all(tx) if cell.is_home), HOME)
    return TenantCell(tenant_id=tenant.id, slug=tenant.slug, cell=home, epoch=0)


async def read(tx: Tx, move: TenantMove) -> TenantMove | None:
    """The move as it is now; None if it has ended."""
    now = await tenant_moves.get(tx, move.tenant_id)
    return now if now is not None and now.started_at == move.started_at else None


async def advance(tx: Tx, move: TenantMove, next_step: MoveStep) -> None:
    """Set the next step. Another process may have taken the move back meanwhile: then nothing changes."""
    if await tenant_moves.advance(tx, move, [move.step], next_step) and next_step is MoveStep.OPEN:
        await tenant_moves.flip(tx, move)


async def note_progress(tx: Tx, move: TenantMove, progress: CopyProgress) -> bool:
    """Show how many rows have been copied; False if the move is no longer at this step."""
    return await tenant_moves.note(tx, move, progress)


async def is_canceled(tx: Tx, move: TenantMove) -> bool:
    """Whether the move is no longer at this step: it is being taken back, or another process goes on with it."""
    now = await read(tx, move)
    return now is None or now.step is not move.step


async def note_error(tx: Tx, move: TenantMove, why: str) -> None:
    """Show why a process could not go on."""
    await tenant_moves.note_error(tx, move, why)


async def take_back(tx: Tx, move: TenantMove) -> bool:
    """Let a move that failed be taken back; False if it is too late for that."""
    return await tenant_moves.advance(tx, move, REVERSIBLE, MoveStep.REOPEN)


async def cancel(tx: Tx, principal: Principal, name: str) -> TenantMove:
    """Take a move back. MoveRefused if there is none, or the tenant lives in the target already."""
    principal.require(Permission.MANAGE_TENANTS)
    tenant = await _identify(tx, name)
    move = await tenant_moves.get(tx, tenant.id)
    if move is None:
        raise MoveRefused(
            f"The tenant {tenant.slug!r} is not being moved.", [Fault("tenant", "not being moved")]
        )
    if move.step is not MoveStep.REOPEN and not await tenant_moves.advance(
        tx, move, REVERSIBLE, MoveStep.REOPEN
    ):
        raise MoveRefused(
            f"The tenant {tenant.slug!r} lives in the cell {move.target!r} already; the rest of the move cannot be taken "
            f"back. Finish it with: fairlead tenants move {tenant.slug} --to {move.target}",
            [Fault("tenant", "moved already")],
        )
    await _audit(tx, principal, move, "tenant_move_canceled")
    return await read(tx, move) or move


async def finish(tx: Tx, principal: Principal, move: TenantMove) -> None:
    """End the move, after its last step."""
    if await tenant_moves.finish(tx, move, [MoveStep.REMOVE, MoveStep.REOPEN]):
        await _audit(
            tx,
            principal,
            move,
            "tenant_move_ended",
            ended="moved" if move.step is MoveStep.REMOVE else "taken back",
        )


async def _audit(tx: Tx, principal: Principal, move: TenantMove, action: str, **more: str) -> None:
    # an entry of the system: the tenant's own entries move with it
    await audit.write(
        tx,
        actor=principal.actor,
        action=action,
        resource_type="tenant",
        resource_id=move.slug,
        details={"source": move.source, "target": move.target, **more},
    )


# In the source


async def close_gate(tx: Tx, move: TenantMove) -> None:
    """Refuse new writes and claims of the tenant. Transactions that have read it before may still write."""
    if not await tenant_moves.close_gate(tx, move):
        raise TenantUnknown(
            f"The tenant {move.slug!r} does not live in the cell {move.source!r}, although the directory says so.",
            [Fault("tenant", "not there")],
        )


async def use_up_room(tx: Tx, move: TenantMove) -> None:
    """Close also the quick way to enqueue, which reads no tenant: see store/jobs.sql, enqueue_plain."""
    await tenant_moves.use_up_room(tx, move.tenant_id)


async def list_transactions(tx: Tx, ids: Sequence[str] | None = None) -> list[OpenTransaction]:
    """Transactions of the database that run now; with `ids`, those of these that still run."""
    return await tenant_moves.list_transactions(tx, ids)


async def count_running(tx: Tx, move: TenantMove) -> int:
    """How many of the tenant's jobs run."""
    return await tenant_moves.count_running(tx, move.tenant_id)


async def count_limited(tx: Tx, move: TenantMove) -> int:
    """How many of them are of definitions with `max_running`: their leases cannot move, or the limit would be exceeded."""
    return await tenant_moves.count_limited(tx, move.tenant_id)


async def park_leases(tx: Tx, move: TenantMove) -> int:
    """Take the leases away from their workers, which get them back in the target; how many."""
    await _require(tx, move, Placement.LEAVING, move.epoch - 1)
    return await tenant_moves.park_leases(tx, move.tenant_id)


async def reopen_gate(tx: Tx, move: TenantMove) -> None:
    """Let the tenant be changed in the source again, and give the leases back."""
    await tenant_moves.unpark_leases(tx, move.tenant_id, lease_seconds=tx.settings.lease_seconds)
    await tenant_moves.open_gate(tx, move.tenant_id, placement=Placement.LEAVING, epoch=move.epoch - 1)
    _wake(tx)


async def leave_source(tx: Tx, move: TenantMove) -> None:
    """Leave only the tenant's row, which says where it lives, and remove its queue: the rest follows in parts."""
    left = await tenant_moves.leave(
        tx,
        move.tenant_id,
        placements=[Placement.LEAVING],
        epochs=[move.epoch - 1],
        epoch=move.epoch,
        cell=move.target,
    )
    if left:
        await tenant_copy.remove_unfinished(tx, move.tenant_id)


async def remove_some(tx: Tx, move: TenantMove, *, target: bool = False) -> bool:
    """Remove some of the rows that the tenant left in the source (or, taken back, in the target); False if there are none."""
    held = await tenant_moves.hold(tx, move.tenant_id)
    if held != (Placement.MOVED, move.epoch):
        if target:
            return False  # nothing has been copied there, or the tenant has been there later
        raise MoveRefused(f"The tenant {move.slug!r} has come back to the cell {move.source!r} meanwhile.")
    return await tenant_copy.remove_some(tx, move.tenant_id)


# In the target


async def require_same_schema(source: Tx, target: Tx) -> None:
    """CellInvalid if the cells have tables of different versions."""
    await tenant_copy.require_same_schema(source, target)


async def require_same_keys(source: Tx, target: Tx, tenant_id: UUID) -> None:
    """MoveRefused if the target could not open what the tenant has sealed: its data keys move, and no master key does."""
    used = {key.master_key for key in await resealing.list_keys(source, tenant_id)}
    known = {
        key.master_key
        for key in await resealing.list_keys(target)
        if key.tenant_id is None and key.is_current
    }
    if used and not used <= known:
        have = ", ".join(sorted(known)) or "none: encryption is not enabled there"
        raise MoveRefused(
            f"The tenant's secrets are encrypted with data keys of the master key {', '.join(sorted(used))}, and the other "
            f"cell has {have}. Give both cells the same encryption_key, run `fairlead keys enable` there, and "
            "`fairlead keys rotate` in both.",
            [Fault("to", "another master key")],
        )


async def copy_rows(source: Tx, target: Tx, move: TenantMove, tell: Tell) -> int:
    """Copy the tenant's rows from a snapshot of the source, and compare them; how many."""
    await _require(source, move, Placement.LEAVING, move.epoch - 1, is_snapshot=True)
    return await tenant_copy.copy_tenant(source, target, move.tenant_id, epoch=move.epoch, tell=tell)


async def open_target(tx: Tx, principal: Principal, move: TenantMove) -> None:
    """Let the tenant be changed in the target: its jobs are claimed there, and its leases are valid again."""
    if await tenant_moves.open_gate(tx, move.tenant_id, placement=Placement.ARRIVING, epoch=move.epoch):
        await tenant_moves.unpark_leases(tx, move.tenant_id, lease_seconds=tx.settings.lease_seconds)
        await audit.write(
            tx,
            actor=principal.actor,
            action="tenant_moved",
            resource_type="tenant",
            resource_id=move.slug,
            tenant_id=move.tenant_id,
            details={"source": move.source, "target": move.target},
        )
    else:
        await _require(tx, move, Placement.HERE, move.epoch)
    _wake(tx)


async def clear_target(tx: Tx, move: TenantMove) -> None:
    """Note in the target that the tenant did not come."""
    await tenant_moves.leave(
        tx,
        move.tenant_id,
        placements=[Placement.ARRIVING],
        epochs=[move.epoch],
        epoch=move.epoch,
        cell=move.source,
    )


async def _require(
    tx: Tx, move: TenantMove, placement: Placement, epoch: int, *, is_snapshot: bool = False
) -> None:
    """Raise unless the tenant is so in this cell: another process may have gone on with the move."""
    if is_snapshot:
        placed = await tenant_moves.find_placed(tx, move.tenant_id)
        found = None if placed is None else (placed.placement, placed.epoch)
    else:
        found = await tenant_moves.hold(tx, move.tenant_id)
    if found != (placement, epoch):
        raise MoveRefused(
            f"The move of the tenant {move.slug!r} was continued by another process. Its state: fairlead cells moves"
        )


def _wake(tx: Tx) -> None:
    for word in WORDS:
        tx.notify(word)
