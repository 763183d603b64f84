"""The operator's view of the system: its gate, its workers, and every tenant's part of the queue."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from fairlead.actions import gates
from fairlead.db.tx import Tx
from fairlead.model.access import Permission, Principal
from fairlead.model.fairness import ShareInput, compute_shares
from fairlead.model.page import Page
from fairlead.store import system, throughput, workers
from fairlead.store.system import DatabaseFacts, SystemGate, TenantQueue
from fairlead.store.workers import RegisteredWorker

__all__ = [
    "STALE_LEASES",
    "RegisteredWorker",
    "SystemGate",
    "TenantComparison",
    "TenantQueue",
    "change_gate",
    "compare_tenants",
    "get_closed_gate",
    "get_gate",
    "list_queues",
    "list_workers",
    "read_facts",
]

# A worker reports several times within one lease.
STALE_LEASES = 2


async def get_closed_gate(tx: Tx) -> SystemGate | None:
    """The system's gate if it is closed: every user of the console is told why nothing runs."""
    gate = await system.get_gate(tx)
    return None if gate.online else gate


async def read_facts(tx: Tx, principal: Principal) -> DatabaseFacts:
    """The versions and the size of the database."""
    principal.require(Permission.MANAGE_SYSTEM)
    return await system.read_facts(tx)


async def get_gate(tx: Tx, principal: Principal) -> SystemGate:
    """Whether jobs are claimed at all."""
    principal.require(Permission.MANAGE_SYSTEM)
    return await system.get_gate(tx)


async def change_gate(tx: Tx, principal: Principal, *, online: bool, note: str | None) -> SystemGate:
    """Open or close the system's gate. While it is closed no job is claimed; running jobs continue."""
    await (gates.resume if online else gates.pause)(tx, principal, note=note)
    return await system.get_gate(tx)


async def list_queues(tx: Tx, principal: Principal, *, after: str, limit: int) -> Page[TenantQueue]:
    """Every tenant's part of the queue, ordered by slug, after the given slug."""
    principal.require(Permission.READ_QUEUE)
    return await system.list_queues(tx, after=after, limit=limit)


class TenantComparison(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant compared with the others: its part of the queue, its recent ends, and its share of the running jobs."""

    queue: TenantQueue
    succeeded: int
    failed: int
    # of all running jobs; None if there are none
    share: float | None
    # by its weight, among tenants with work; None if it has none
    fair_share: float | None
    # where it lives, if there are several cells
    cell: str | None = None

    @property
    def failure_rate(self) -> float | None:
        """The share of failures in all ends; None without ends."""
        ended = self.succeeded + self.failed
        return self.failed / ended if ended else None


async def compare_tenants(
    tx: Tx, principal: Principal, *, seconds: int, limit: int, after: str = ""
) -> Page[TenantComparison]:
    """Tenants ordered by slug, after the given slug, compared with each other; ends are those of the last `seconds`."""
    parts = await list_queues(tx, principal, after=after, limit=limit)
    ended = {
        one.tenant_id: one
        for one in await throughput.count_ends(tx, [p.tenant_id for p in parts], seconds=seconds)
    }
    shares = dict(
        zip((one.tenant_id for one in parts), compute_shares([_as_share(p) for p in parts]), strict=True)
    )
    return parts.map(
        lambda one: TenantComparison(
            queue=one,
            succeeded=ended[one.tenant_id].succeeded,
            failed=ended[one.tenant_id].failed,
            share=shares[one.tenant_id].share,
            fair_share=shares[one.tenant_id].fair_share,
        )
    )


def _as_share(one: TenantQueue) -> ShareInput:
    return ShareInput(
        weight=one.weight, running=one.running, has_waiting=bool(one.queued) and one.paused_at is None
    )


async def list_workers(
    tx: Tx, principal: Principal, *, lease_seconds: float, after: str, limit: int
) -> Page[RegisteredWorker]:
    """Workers ordered by id, after the given id; stale: not seen for more than two leases."""
    principal.require(Permission.READ_WORKERS)
    return await workers.list_page(tx, stale_seconds=STALE_LEASES * lease_seconds, after=after, limit=limit)


def merge_workers(cells: Sequence[Page[RegisteredWorker]], *, limit: int) -> Page[RegisteredWorker]:
    """Workers of several cells by id. A worker that serves several is one; it runs the sum of what it runs in each."""
    ends = [page.last.worker_id for page in cells if page.last is not None]
    found: dict[str, RegisteredWorker] = {}
    for one in (worker for page in cells for worker in page):
        known = found.get(one.worker_id)
        found[one.worker_id] = one if known is None else _combine_workers(known, one)
    rows = [found[name] for name in sorted(found) if not ends or name <= min(ends)]
    return Page(rows[:limit], more=bool(ends) or len(rows) > limit)


def _combine_workers(one: RegisteredWorker, other: RegisteredWorker) -> RegisteredWorker:
    seen = one if one.last_seen_at >= other.last_seen_at else other
    return replace(
        seen, running_count=one.running_count + other.running_count, stale=one.stale and other.stale
    )
