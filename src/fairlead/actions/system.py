"""The system as its operators see it: its gate, its workers, and every tenant's part of the queue."""

import msgspec

from fairlead.actions import gates
from fairlead.db.tx import Tx
from fairlead.model.access import Permission, Principal
from fairlead.model.page import Page
from fairlead.store import flow, system, workers
from fairlead.store.system import SystemGate, TenantQueue
from fairlead.store.workers import Worker

__all__ = [
    "STALE_LEASES",
    "SystemGate",
    "TenantPart",
    "TenantQueue",
    "Worker",
    "change_gate",
    "gate",
    "queue",
    "side_by_side",
    "workers_listed",
]

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


async def queue(tx: Tx, principal: Principal, *, after: str, limit: int) -> Page[TenantQueue]:
    """Every tenant's part of the queue, by slug, after this one."""
    principal.require(Permission.READ_QUEUE)
    return await system.queue(tx, after=after, limit=limit)


class TenantPart(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant beside the others: its part of the queue, what ended lately, and its share of all that runs."""

    queue: TenantQueue
    succeeded: int
    failed: int
    # of all that runs; None where nothing does
    share: float | None
    # what its weight gives it among those with work; None where it has none
    fair_share: float | None

    @property
    def failure_rate(self) -> float | None:
        """Of what ended; None where nothing did."""
        ended = self.succeeded + self.failed
        return self.failed / ended if ended else None


async def side_by_side(
    tx: Tx, principal: Principal, *, seconds: int, limit: int, after: str = ""
) -> Page[TenantPart]:
    """Tenants by slug, after this one, each beside the others; failures are those of the last so many seconds."""
    parts = await queue(tx, principal, after=after, limit=limit)
    ended = {
        one.tenant_id: one for one in await flow.ended(tx, [p.tenant_id for p in parts], seconds=seconds)
    }
    running = sum(one.running for one in parts)
    weights = sum(one.weight for one in parts if _has_work(one))
    return parts.map(
        lambda one: TenantPart(
            queue=one,
            succeeded=ended[one.tenant_id].succeeded,
            failed=ended[one.tenant_id].failed,
            share=one.running / running if running else None,
            fair_share=one.weight / weights if _has_work(one) else None,
        )
    )


def _has_work(one: TenantQueue) -> bool:
    """Whether it takes part: something of it runs, or could."""
    return bool(one.running or (one.queued and one.paused_at is None))


async def workers_listed(
    tx: Tx, principal: Principal, *, lease_seconds: float, after: str, limit: int
) -> Page[Worker]:
    """Workers by id, after this one; stale are those that were silent for more than two leases."""
    principal.require(Permission.READ_WORKERS)
    return await workers.page(tx, stale_seconds=STALE_LEASES * lease_seconds, after=after, limit=limit)
