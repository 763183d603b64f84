"""One worker: what it runs and serves; and its drain."""

import msgspec

from fairlead.actions.system import STALE_LEASES
from fairlead.db.tx import Tx
from fairlead.errors import Fault, WorkerUnknown
from fairlead.model.access import Permission, Principal
from fairlead.model.payload import find_storage_flaw
from fairlead.model.summary import RunningJobSummary
from fairlead.store import audit, workers
from fairlead.store.workers import LostLeases, RegisteredWorker

MOST_JOBS = 100


class WorkerDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A worker, the jobs that it runs (the longest running first), and the leases that it lost lately."""

    worker: RegisteredWorker
    jobs: list[RunningJobSummary]
    lost: LostLeases | None


async def get_details(tx: Tx, principal: Principal, worker_id: str) -> WorkerDetails:
    """A worker with its jobs."""
    principal.require(Permission.READ_WORKERS)
    return WorkerDetails(
        worker=await _require_worker(tx, worker_id),
        jobs=await workers.list_jobs(tx, worker_id, limit=MOST_JOBS),
        lost=await workers.find_lost(tx, worker_id),
    )


async def drain(tx: Tx, principal: Principal, worker_id: str) -> RegisteredWorker:
    """Ask a worker to claim nothing more and to finish its jobs. It reads that within a third of a lease."""
    principal.require(Permission.MANAGE_SYSTEM)
    found = await _require_worker(tx, worker_id)
    if found.drain_requested_at is None:
        await workers.request_drain(tx, worker_id, actor=principal.actor)
        await _audit(tx, principal, found, "worker_drained")
    return await _require_worker(tx, worker_id)


async def resume(tx: Tx, principal: Principal, worker_id: str) -> RegisteredWorker:
    """Let a worker that drains claim again."""
    principal.require(Permission.MANAGE_SYSTEM)
    found = await _require_worker(tx, worker_id)
    if found.drain_requested_at is not None:
        await workers.end_drain(tx, worker_id)
        await _audit(tx, principal, found, "worker_resumed")
    return await _require_worker(tx, worker_id)


async def _require_worker(tx: Tx, worker_id: str) -> RegisteredWorker:
    seconds = STALE_LEASES * tx.settings.lease_seconds
    found = None if find_storage_flaw(worker_id) else await workers.find(tx, worker_id, stale_seconds=seconds)
    if found is None:
        raise WorkerUnknown(
            f"There is no worker {worker_id[:120]!r}. A worker that stopped is no longer listed; see: fairlead workers",
            [Fault("worker", "unknown")],
        )
    return found


async def _audit(tx: Tx, principal: Principal, worker: RegisteredWorker, action: str) -> None:
    await audit.write(
        tx,
        actor=principal.actor,
        action=action,
        resource_type="worker",
        resource_id=worker.worker_id,
        details={"hostname": worker.hostname, "running": worker.running_count},
    )
