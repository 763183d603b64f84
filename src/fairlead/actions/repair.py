"""Repairs: each is one short transaction that checks again under a lock, fixes the fault if it is still there, and audits it."""

from collections.abc import Awaitable, Callable
from uuid import UUID

from fairlead.actions.workflow_progress import advance_runs, settle_jobs
from fairlead.db.tx import Tx
from fairlead.model.access import Permission, Principal
from fairlead.model.inconsistency import Inconsistency, InconsistencyKind
from fairlead.model.workflow.run import RunStatus
from fairlead.store import audit, bulk, consistency, repair, workflows
from fairlead.store.workflows import AdvancedRuns

ACTION = "REPAIRED"

# Returns the tenant of what it fixed; None if the fault is gone, or another transaction has locked the row.
Mend = Callable[[Tx, UUID], Awaitable[UUID | None]]


async def mend(tx: Tx, principal: Principal, fault: Inconsistency) -> bool:
    """Fix one fault, unless it is gone. Whether it was fixed. Safe while the system runs."""
    principal.require(Permission.MANAGE_SYSTEM)
    if fault.kind not in MENDS:
        return False
    resource_type, work = MENDS[fault.kind]
    tenant_id = await work(tx, fault.id)
    if tenant_id is None:
        return False
    await audit.write(
        tx,
        actor=principal.actor,
        action=ACTION,
        resource_type=resource_type,
        resource_id=fault.id,
        tenant_id=tenant_id,
        details={"kind": fault.kind, "problem": fault.problem},
    )
    return True


def can_mend(fault: Inconsistency) -> bool:
    """Whether there is a repair for this fault."""
    return fault.kind in MENDS


async def _wake_job(tx: Tx, job_id: UUID) -> UUID | None:
    """Wake a job that waits for a run that has ended."""
    run_id = await workflows.find_awaited_run(tx, job_id)
    if run_id is None:
        return None
    run = (await workflows.lock_runs(tx, [run_id]))[run_id]
    if run.status is RunStatus.RUNNING or not await workflows.was_released(tx, job_id):
        return None
    if not await workflows.wake_job(tx, run_id, job_id):
        return None
    await bulk.notify(tx, "ready")
    return run.tenant_id


async def _wake_function(tx: Tx, job_id: UUID) -> UUID | None:
    """Wake a durable function that nothing else would wake: it runs again, and sleeps again if it has to."""
    tenant_id = await repair.wake_function(tx, job_id)
    if tenant_id is not None:
        await bulk.notify(tx, "ready")
    return tenant_id


async def _queue_again(tx: Tx, job_id: UUID) -> UUID | None:
    tenant_id = await repair.lock_job(tx, job_id)
    if tenant_id is None or not await repair.queue_again(tx, job_id):
        return None
    await bulk.notify(tx, "ready")
    await bulk.notify(tx, "later")
    return tenant_id


async def _set_limit_key(tx: Tx, job_id: UUID) -> UUID | None:
    tenant_id = await repair.lock_job(tx, job_id)
    if tenant_id is None or not await repair.set_limit_key(tx, job_id):
        return None
    await bulk.notify(tx, "ready")
    return tenant_id


async def _release_held(tx: Tx, job_id: UUID) -> UUID | None:
    """Let the jobs of a key go that nothing else would let go."""
    tenant_id = await repair.lock_job(tx, job_id)
    if tenant_id is None or not await repair.release_held(tx, job_id):
        return None
    await bulk.notify(tx, "ready")
    return tenant_id


async def _take_key(tx: Tx, job_id: UUID) -> UUID | None:
    """Give an active job its dedupe key again, unless another active job holds it: then an operator has to decide."""
    tenant_id = await repair.lock_job(tx, job_id)
    return tenant_id if tenant_id is not None and await repair.take_key(tx, job_id) else None


async def _free_key(tx: Tx, job_id: UUID) -> UUID | None:
    """Free a dedupe key whose job has ended or was removed."""
    if await repair.lock_job(tx, job_id) is None and await repair.exists(tx, job_id):
        return None  # another transaction is changing the job
    return await repair.free_keys(tx, job_id)


async def _correct_counts(tx: Tx, tenant_id: UUID) -> UUID | None:
    return tenant_id if await repair.correct_counts(tx, tenant_id) else None


async def _recount_run(tx: Tx, run_id: UUID) -> UUID | None:
    """Correct the counters of a run and its steps from its jobs, and continue the run."""
    held = (await workflows.lock_runs(tx, [run_id])).get(run_id)
    if held is None or not await _run_faults(tx, run_id):
        return None
    try:
        async with tx.whole():
            await _recount_held(tx, run_id)
    except _StillWrong:
        return None
    return held.tenant_id


class _StillWrong(Exception):
    """Rolls back a repair that did not help."""


async def _recount_held(tx: Tx, run_id: UUID) -> None:
    uncounted = await repair.recount_run(tx, run_id)
    run = (await workflows.lock_runs(tx, [run_id]))[run_id]
    if run.status is RunStatus.RUNNING:
        stops = run.failing or run.is_canceling
        await advance_runs(tx, AdvancedRuns([run]) if stops else await workflows.start_roots(tx, run))
    await settle_jobs(tx, uncounted)
    if await _run_faults(tx, run_id):
        raise _StillWrong


async def _run_faults(tx: Tx, run_id: UUID) -> list[Inconsistency]:
    just_before = UUID(int=run_id.int - 1)
    return (await consistency.check_runs(tx, just_before, look=1)).faults


MENDS: dict[InconsistencyKind, tuple[str, Mend]] = {
    InconsistencyKind.SLEEPING_PARENT: ("job", _wake_job),
    InconsistencyKind.SLEEPING_FUNCTION: ("job", _wake_function),
    InconsistencyKind.QUEUED_WITHOUT_ROW: ("job", _queue_again),
    InconsistencyKind.STALE_KEY: ("job", _free_key),
    InconsistencyKind.ACTIVE_WITHOUT_KEY: ("job", _take_key),
    InconsistencyKind.LIMIT_KEY: ("job", _set_limit_key),
    InconsistencyKind.HELD_IN_VAIN: ("job", _release_held),
    InconsistencyKind.RUN_COUNTERS: ("workflow_run", _recount_run),
    InconsistencyKind.COUNTS: ("tenant", _correct_counts),
}
