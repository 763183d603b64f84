"""Advance workflow runs when their jobs end, in the transaction that ends the jobs.

The transaction that ends a job locks the run's row and decrements the counter of the job's step. A step whose jobs have
ended starts the steps that wait for it; a run without a live step ends. So any number of workers advance a run, and
none of them owns it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
import structlog

from fairlead.actions import bulk_cancel
from fairlead.actions.workflow_release import build_context, release_steps
from fairlead.db.tx import Tx
from fairlead.errors import KEY_ERRORS, Refused, SealBroken
from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Change
from fairlead.model.secrets.redact import build_mask
from fairlead.model.template.spec import compile_template
from fairlead.model.workflow.run import RunStatus, StepState
from fairlead.model.workflow.secrets import mask_output
from fairlead.model.workflow.step import ROOTS, STEPS
from fairlead.store import audit, bulk, bulk_jobs, durable, queue, sealed_runs, sealing, workflows
from fairlead.store.workflows import AdvancedRuns, EndedStep, LockedRun, StartedStep

log = structlog.get_logger(__name__)

# A run with more leaves has no output: the outputs are in their jobs.
MOST_LEAVES = 1000
ENDED = {
    RunStatus.SUCCEEDED: "WORKFLOW_RUN_SUCCEEDED",
    RunStatus.FAILED: "WORKFLOW_RUN_FAILED",
    RunStatus.CANCELED: "WORKFLOW_RUN_CANCELED",
}


async def finish_attempts(
    tx: Tx, ends: Sequence[tuple[Lease, Change]], *, actor: str, lock_seconds: float | None = None
) -> dict[UUID, JobStatus]:
    """Write the ends of attempts like `queue.finish`, and advance their runs, in one transaction.

    With `lock_seconds` it waits no longer than that for a lock. Of durable functions that wait, it does what
    `queue.suspend` does.
    """
    waits = [(lease.job_id, place) for lease, change in ends for place in change.waits]
    async with tx.whole():
        if lock_seconds is not None:
            await tx.wait_for_locks(lock_seconds)
        if waits:
            await durable.lock_waits(tx, waits)
        ended = await queue.end_attempts(tx, ends, actor=actor)
        if waits:
            await durable.wake_completed(tx, waits)
        await settle_or_leave(tx, ended)
    # the runs of attempts that ended before, and whose answer was lost, were advanced then
    return ended | await queue.find_ended_before(tx, [end for end in ends if end[0].job_id not in ended])


async def settle_or_leave(tx: Tx, jobs: Mapping[UUID, JobStatus]) -> int:
    """Advance the runs of these jobs, of any tenants. A run whose key cannot be had now is left for later.

    The number of jobs whose runs were not left.
    """
    if not jobs or not await sealing.is_on(tx):
        await settle_jobs(tx, jobs)
        return len(jobs)
    try:
        async with tx.connection.transaction():
            await settle_jobs(tx, jobs)
    except KEY_ERRORS:
        return sum([await _settle_one_or_leave(tx, job_id, status) for job_id, status in jobs.items()])
    return len(jobs)


async def _settle_one_or_leave(tx: Tx, job_id: UUID, status: JobStatus) -> bool:
    try:
        async with tx.connection.transaction():
            await settle_jobs(tx, {job_id: status})
    except KEY_ERRORS as error:
        log.warning("run_left_for_later", job_id=str(job_id), why=error.message)
        await workflows.leave_ended_step(tx, job_id)
        return False
    return True


async def settle_jobs(tx: Tx, jobs: Mapping[UUID, JobStatus]) -> None:
    """Advance the runs of jobs that ended or went back to the queue, and the runs that these jobs wait for."""
    if not jobs:
        return
    if advanced := await workflows.move_on(tx, jobs):
        await advance_runs(tx, advanced)
        if advanced.back:  # the cancel of the run could not reach a job that was locked
            canceled = await bulk_jobs.cancel_queued(tx, advanced.back)
            await settle_jobs(tx, dict.fromkeys(canceled, JobStatus.CANCELED))
    if may_wait := {job_id: status for job_id, status in jobs.items() if _may_wait(status)}:
        await _settle_waiting(tx, may_wait)


def _may_wait(status: JobStatus) -> bool:
    return status not in (JobStatus.SUCCEEDED, JobStatus.RUNNING)


async def _settle_waiting(tx: Tx, jobs: Mapping[UUID, JobStatus]) -> None:
    """For jobs that wait for runs: wake a job whose run has ended, and stop the run of a job that has ended."""
    for run_id, job_id in await workflows.list_awaited_runs(tx, jobs):
        run = (await workflows.lock_runs(tx, [run_id]))[run_id]
        if jobs[job_id] is JobStatus.QUEUED:
            # a job that failed and will be retried comes back by itself
            if run.status is not RunStatus.RUNNING and await workflows.was_released(tx, job_id):
                await _wake_job(tx, run_id, job_id)
            continue
        await workflows.forget_waiting_job(tx, run_id)
        if run.status is RunStatus.RUNNING:
            await stop_run(tx, run)


async def advance_runs(tx: Tx, advanced: AdvancedRuns, *, alone: bool = False) -> None:
    """Release free steps, and the steps that these free in turn; end runs without a live step.

    In a transaction for these steps `alone`, none of them is left because it is much work.
    """
    now: AdvancedRuns | None = advanced
    await sealing.fetch_keys(tx, [run.input for run in advanced.runs if run.secret_paths])
    while now is not None:
        over = await release_steps(tx, now, alone=alone) if now.free else []
        alone = False
        for run in now.runs:
            if not run.live and run.status is RunStatus.RUNNING:
                await _end_run(tx, run)
        now = await workflows.move_on(tx, {}, over=over) if over else None


async def _end_run(tx: Tx, run: LockedRun) -> None:
    status = RunStatus.SUCCEEDED
    output = None
    broken = await _open_input(tx, run)
    if run.is_canceling:
        status, run.error = RunStatus.CANCELED, None
    elif run.failing:
        status = RunStatus.FAILED
        run.error = await _explain_failure(tx, run)
    elif broken is not None:
        status, run.error = RunStatus.FAILED, {"code": broken.code, "message": broken.message}
    else:
        try:
            output = await _build_output(tx, run)
        except Refused as refusal:
            status, run.error = RunStatus.FAILED, {"code": refusal.code, "message": refusal.message}
    run.status = status
    if mask := build_mask(run.input, run.secret_paths):
        run.error = mask.value(run.error)
    await workflows.end_run(tx, run, status, output=output)
    await audit.write(
        tx,
        actor=f"workflow:{run.key}",
        action=ENDED[status],
        resource_type="workflow_run",
        resource_id=run.id,
        tenant_id=run.tenant_id,
        details={"workflow": run.key},
    )
    await _emit_end(tx, run)
    if run.parent_job_id is not None:
        await _wake_job(tx, run.id, run.parent_job_id)


async def _open_input(tx: Tx, run: LockedRun) -> SealBroken | None:
    """Give the run its input with its secrets; or why it cannot be opened."""
    try:
        await sealed_runs.open_input(tx, run)
    except SealBroken as error:
        return error
    return None


async def _emit_end(tx: Tx, run: LockedRun) -> None:
    """Store an event for triggers, with the secrets of the run's input masked."""
    why = run.error or {}
    if mask := build_mask(run.input, run.secret_paths, tx.redact_patterns):
        why = mask.value(why)
    await workflows.emit_end(tx, run.id, failed_step=why.get("step"), last_error=why.get("message"))


async def _explain_failure(tx: Tx, run: LockedRun) -> Any:
    """The error of a failed run: its step, and the job's message."""
    if run.error is None or "message" in run.error:
        return run.error
    step = run.error["step"]
    seen = (await _get_step_ends(tx, run, [step]))[step]
    return {**run.error, "message": seen.get("error") or f"the step is {seen['status']}"}


async def _build_output(tx: Tx, run: LockedRun) -> Any:
    """The rendered output template; without one, the outputs of the leaves, unless they are too large."""
    most = tx.settings.max_payload_bytes
    if run.output_template is not None:
        template = compile_template(run.output_template, ROOTS)
        looked_at = {path.segments[1] for path in template.paths if path.segments[0] == STEPS}
        output = template.render(build_context(run, await _get_step_ends(tx, run, looked_at)), max_bytes=most)
        return _mask_output(tx, run, output)
    leaves = await workflows.list_leaves(tx, run.id)
    # the stored size may be compressed, so it is checked again below
    if len(leaves) > MOST_LEAVES or await workflows.measure_output(tx, run.id) > most:
        return None
    seen = await _get_step_ends(tx, run, leaves)
    output = {name: seen[name]["output"] for name in leaves if "output" in seen[name]}
    return _mask_output(tx, run, output) if len(msgspec.json.encode(output)) <= most else None


def _mask_output(tx: Tx, run: LockedRun, output: Any) -> Any:
    """The output to store, without the secrets of the run's input."""
    return mask_output(output, given=run.input, secret_paths=run.secret_paths, patterns=tx.redact_patterns)


async def _get_step_ends(tx: Tx, run: LockedRun, names: Collection[str]) -> dict[str, Any]:
    return (await workflows.get_step_ends(tx, [(run.id, name) for name in names])).get(run.id, {})


async def _wake_job(tx: Tx, run_id: UUID, job_id: UUID) -> None:
    if await workflows.wake_job(tx, run_id, job_id):
        await bulk.notify(tx, "ready")


async def wake_sleepers(tx: Tx, *, limit: int) -> int:
    """Wake the jobs that their ended runs could not wake. The number of runs checked."""
    found = await workflows.take_sleeping_jobs(tx, limit=limit)
    for run_id, job_id in found:
        await _wake_job(tx, run_id, job_id)
    return len(found)


async def settle_ended_steps(tx: Tx, *, limit: int) -> int:
    """Advance the runs of steps whose handlers ended them in their own transactions, or whose keys could not be had. The
    number of jobs.
    """
    return await settle_or_leave(tx, await workflows.take_ended_steps(tx, limit=limit))


async def release_left_step(
    tx: Tx, after: UUID, *, taken: Callable[[UUID], None], but: Collection[UUID] = ()
) -> bool:
    """Create the jobs of a step that was left because it is much work, of the next tenant after that one, `but` these.

    False if no step is left, or only to processes that have the key of its secrets. Tenants take turns, however many steps
    one of them has: `taken` gets the step's tenant before anything is done, so that a step that fails delays no other tenant.
    """
    if not await workflows.has_left_step(tx):  # almost always: nothing else is read
        return False
    has_key = tx.keyring.current_master is not None or not await sealing.is_on(tx)
    left = await workflows.lock_left_step(tx, after, has_key=has_key, but=but)
    if left is None:
        return False
    taken(left.tenant_id)
    [run] = (await workflows.lock_runs(tx, [left.run_id])).values()
    if await workflows.take_left_steps(tx, run.id, left.place):
        begun = await workflows.release_begun(tx, run, [left.place], [left.ran])
        await advance_runs(tx, begun, alone=True)
    return True


async def stop_run(tx: Tx, run: LockedRun) -> None:
    """Stop a locked run: cancel its waiting jobs, and request the cancel of its running jobs; then the run ends."""
    run.is_canceling = True
    await workflows.request_cancel(tx, run.id)
    if left := await workflows.take_left_steps(tx, run.id):
        await _end_left_steps(tx, run, left)
    # a job that is locked now and goes back to the queue later is canceled by `settle_jobs`
    canceled, asked = await bulk_cancel.cancel_jobs(tx, await workflows.list_active_jobs(tx, run.id))
    if asked:
        await bulk.notify(tx, "cancel")
    await settle_jobs(tx, dict.fromkeys(canceled, JobStatus.CANCELED))


async def _end_left_steps(tx: Tx, run: LockedRun, places: Sequence[int]) -> None:
    """End steps without jobs as canceled: each counts as a canceled job, so that it runs when the run is retried."""
    canceled = StepState.CANCELED
    await workflows.correct_steps(tx, [StartedStep(run.id, place, canceled, canceled=1) for place in places])
    over = [EndedStep(run.id, place, canceled) for place in places]
    if advanced := await workflows.move_on(tx, {}, over=over):
        await advance_runs(tx, advanced)
