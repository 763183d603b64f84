"""HTTP claims whose answers were lost: the worker repeats the claim's id and gets the same jobs."""

from collections.abc import Mapping, Sequence
from uuid import UUID

import structlog

from fairlead.actions import workflow_progress
from fairlead.db.tx import Tx
from fairlead.errors import ClaimSettled
from fairlead.model.job import Lease
from fairlead.model.outcome import Backoff, Released, RetryBudget, decide
from fairlead.store import bulk, leases, queue, worker_claims, workers
from fairlead.store.queue import Claimed

log = structlog.get_logger(__name__)


async def has_ready_job(tx: Tx, tenant_id: UUID) -> bool:
    """Whether a tenant has a job that could be claimed."""
    return await leases.has_ready_job(tx, tenant_id)


async def record_worker(
    tx: Tx,
    worker: str,
    *,
    tenant_id: UUID | None,
    keys: Sequence[str],
    concurrency: int,
    version: str,
    labels: Mapping[str, str] | None = None,
    counts_slots: bool = False,
    may_add: bool = True,
) -> bool:
    """Record that a worker over HTTP was seen. Whether it is asked to claim nothing more.

    Without `may_add` a worker of one tenant that is not listed yet is not recorded.
    """
    return await workers.register(
        tx,
        worker_id=worker,
        hostname="",
        version=version,
        keys=keys,
        running=0,  # readers count the leases instead
        concurrency=concurrency,
        labels=labels,
        metadata={"transport": "http", **({"slots": concurrency} if counts_slots else {})},
        tenant_id=tenant_id,
        may_add=may_add,
    )


async def repeat_claim(
    tx: Tx, *, worker: str, claim_id: UUID, tenant_id: UUID | None, lease_seconds: float
) -> list[tuple[Lease, Claimed]] | None:
    """The jobs of a repeated claim, of this tenant, with renewed leases; None if the claim may take jobs now.

    It may if it took none, or if all its leases are lost: no job is charged for that, since no work had begun.
    """
    noted = await worker_claims.repeat_claim(tx, worker=worker, claim_id=claim_id)
    if noted is None:
        return None
    if uncharged := await worker_claims.undo_charges(tx, noted, worker=worker):
        log.warning("loss_uncharged", jobs=len(uncharged), why="the worker never got the answer to its claim")
    held = await worker_claims.list_leases(tx, noted, tenant_id=tenant_id)
    alive = await queue.heartbeat(tx, held, lease_seconds=lease_seconds) if held else {}
    if alive:
        jobs = await queue.repeat_claim(tx, list(alive))
        # without those whose keys are missing now: their leases expire
        return [
            (lease, jobs[lease.job_id])
            for lease in alive
            if lease.job_id in jobs and jobs[lease.job_id].trouble is None
        ]
    if not held and not await worker_claims.is_any_lost(tx, noted):
        raise ClaimSettled(
            f"The claim {claim_id} was answered before, and its jobs have ended. "
            "Choose a new claim_id after each answer that has items."
        )
    if held:  # expired, and not rescued yet
        change = decide(RetryBudget(1, 0, 0, Backoff()), Released())
        await workflow_progress.finish_attempts(
            tx, [(lease, change) for lease in held], actor=f"worker:{worker}"
        )
        await bulk.notify(tx, "ready")
    await worker_claims.remove_claim(tx, worker=worker, claim_id=claim_id)
    return None
