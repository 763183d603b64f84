"""The system as its operators see it: its gate, its workers, and every tenant's part of the queue."""

from fairlead.actions import gates
from fairlead.db.tx import Tx
from fairlead.model.access import Permission, Principal
from fairlead.store import system, workers
from fairlead.store.system import SystemGate, TenantQueue
from fairlead.store.workers import Worker

# A worker says that it is there several times within one.
STALE_LEASES = 2


async def gate(tx: Tx, principal: Principal) -> SystemGate:
    """Whether jobs are claimed at all."""
    principal.require(Permission.MANAGE_SYSTEM)
    return await system.gate(tx)


async def change_gate(tx: Tx, principal: Principal, *, online: bool, note: str | None) -> SystemGate:
    """Open the system's gate, or close it: then nothing is claimed, and what runs goes on."""
    await (gates.resume if online else gates.pause)(tx, principal, note=note)
    return await system.gate(tx)


async def queue(tx: Tx, principal: Principal, *, after: str, limit: int) -> list[TenantQueue]:
    """Every tenant's part of the queue, by slug, after this one."""
    principal.require(Permission.READ_QUEUE)
    return await system.queue(tx, after=after, limit=limit)


async def workers_listed(
    tx: Tx, principal: Principal, *, lease_seconds: float, after: str, limit: int
) -> list[Worker]:
    """Workers by id, after this one; stale are those that were silent for more than two leases."""
    principal.require(Permission.READ_WORKERS)
    return await workers.page(tx, stale_seconds=STALE_LEASES * lease_seconds, after=after, limit=limit)
