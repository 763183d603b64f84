"""Advance workflow runs when their jobs end, in the transaction that ends the jobs.

The transaction that ends a job locks the run's row and decrements the counter of the job's step. A step whose jobs have
ended starts the steps that wait for it; a run without a live step ends. So any number of workers advance a run, and
none of them owns it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from fairlead.actions import canceling
from fairlead.actions.releasing import context_of, release
from fairlead.db.tx import Tx
from fairlead.errors import Refused
from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Change
from fairlead.model.redact import build_mask
from fairlead.model.template import compile_template
from fairlead.model.workflow_run import RunStatus
from fairlead.model.workflow_secrets import mask_output
from fairlead.model.workflow_step import ROOTS, STEPS
from fairlead.store import audit, bulk, bulk_jobs, queue, workflows
from fairlead.store.workflows import Advanced, Held

# A run with more leaves has no output: the outputs are in their jobs.
MOST_LEAVES = 1000
ENDED = {
    RunStatus.SUCCEEDED: "WORKFLOW_RUN_SUCCEEDED",
    RunStatus.FAILED: "WORKFLOW_RUN_FAILED",
    RunStatus.CANCELED: "WORKFLOW_RUN_CANCELED",
}


async def finish(
    tx: Tx, ends: Sequence[tuple[Lease, Change]], *, actor: str, lock_seconds: float | None = None
) -> dict[UUID, JobStatus]:
    """Write the ends of attempts like `queue.finish`, and advance their runs, in one transaction.

    With `lock_seconds` it waits no longer than that for a lock.
    """
    async with tx.whole():
        if lock_seconds is not None:
            await tx.wait_for_locks(lock_seconds)
        ended = await queue.end(tx, ends, actor=actor)
        await settle(tx, ended)
    # the runs of attempts that ended before, and whose answer was lost, were advanced then
    return ended | await queue.ended_before(tx, [end for end in ends if end[0].job_id not in ended])


async def settle(tx: Tx, jobs: Mapping[UUID, JobStatus]) -> None:
    """Advance the runs of jobs that ended or went back to the queue, and the runs that these jobs wait for."""
    if not jobs:
        return
    if advanced := await workflows.move_on(tx, jobs):
        await advance(tx, advanced)
        if advanced.back:  # the cancel of the run could not reach a job that was locked
            canceled = await bulk_jobs.cancel_queued(tx, advanced.back)
            await settle(tx, dict.fromkeys(canceled, JobStatus.CANCELED))
    if may_wait := {job_id: status for job_id, status in jobs.items() if _may_wait(status)}:
        await _settle_waiting(tx, may_wait)


def _may_wait(status: JobStatus) -> bool:
    return status not in (JobStatus.SUCCEEDED, JobStatus.RUNNING)


async def _settle_waiting(tx: Tx, jobs: Mapping[UUID, JobStatus]) -> None:
    """For jobs that wait for runs: wake a job whose run has ended, and stop the run of a job that has ended."""
    for run_id, job_id in await workflows.waited_for_by(tx, jobs):
        run = (await workflows.hold(tx, [run_id]))[run_id]
        if jobs[job_id] is JobStatus.QUEUED:
            # a job that failed and will be retried comes back by itself
            if run.status is not RunStatus.RUNNING and await workflows.gave_itself_back(tx, job_id):
                await _wake(tx, run_id, job_id)
            continue
        await workflows.forgo(tx, run_id)
        if run.status is RunStatus.RUNNING:
            await stop(tx, run)


async def advance(tx: Tx, advanced: Advanced) -> None:
    """Release free steps, and the steps that these free in turn; end runs without a live step."""
    now: Advanced | None = advanced
    while now is not None:
        over = await release(tx, now) if now.free else []
        for run in now.runs:
            if not run.live and run.status is RunStatus.RUNNING:
                await _end(tx, run)
        now = await workflows.move_on(tx, {}, over=over) if over else None


async def _end(tx: Tx, run: Held) -> None:
    status = RunStatus.SUCCEEDED
    output = None
    if run.is_canceling:
        status, run.error = RunStatus.CANCELED, None
    elif run.failing:
        status = RunStatus.FAILED
        run.error = await _explained(tx, run)
    else:
        try:
            output = await _output(tx, run)
        except Refused as refusal:
            status, run.error = RunStatus.FAILED, {"code": refusal.code, "message": refusal.message}
    run.status = status
    await workflows.end(tx, run, status, output=output)
    await audit.write(
        tx,
        actor=f"workflow:{run.key}",
        action=ENDED[status],
        resource_type="workflow_run",
        resource_id=run.id,
        tenant_id=run.tenant_id,
        details={"workflow": run.key},
    )
    await _tell(tx, run)
    if run.parent_job_id is not None:
        await _wake(tx, run.id, run.parent_job_id)


async def _tell(tx: Tx, run: Held) -> None:
    """Store an event for triggers, with the secrets of the run's input masked."""
    why = run.error or {}
    if mask := build_mask(run.input, run.secret_paths, tx.redact_patterns):
        why = mask.value(why)
    await workflows.tell_end(tx, run.id, failed_step=why.get("step"), last_error=why.get("message"))


async def _explained(tx: Tx, run: Held) -> Any:
    """The error of a failed run: its step, and the job's message."""
    if run.error is None or "message" in run.error:
        return run.error
    step = run.error["step"]
    seen = (await _seen(tx, run, [step]))[step]
    return {**run.error, "message": seen.get("error") or f"the step is {seen['status']}"}


async def _output(tx: Tx, run: Held) -> Any:
    """The rendered output template; without one, the outputs of the leaves, unless they are too large."""
    most = tx.settings.max_payload_bytes
    if run.output_template is not None:
        template = compile_template(run.output_template, ROOTS)
        looked_at = {path.segments[1] for path in template.paths if path.segments[0] == STEPS}
        output = template.render(context_of(run, await _seen(tx, run, looked_at)), max_bytes=most)
        return mask_output(
            output, given=run.input, secret_paths=run.secret_paths, patterns=tx.redact_patterns
        )
    leaves = await workflows.leaves(tx, run.id)
    # the stored size may be compressed, so it is checked again below
    if len(leaves) > MOST_LEAVES or await workflows.stored_output(tx, run.id) > most:
        return None
    seen = await _seen(tx, run, leaves)
    output = {name: seen[name]["output"] for name in leaves if "output" in seen[name]}
    return output if len(msgspec.json.encode(output)) <= most else None


async def _seen(tx: Tx, run: Held, names: Collection[str]) -> dict[str, Any]:
    return (await workflows.ends(tx, [(run.id, name) for name in names])).get(run.id, {})


async def _wake(tx: Tx, run_id: UUID, job_id: UUID) -> None:
    if await workflows.wake(tx, run_id, job_id):
        await bulk.notify(tx, "ready")


async def wake_sleepers(tx: Tx, *, limit: int) -> int:
    """Wake the jobs that their ended runs could not wake. The number of runs checked."""
    found = await workflows.sleepers(tx, limit=limit)
    for run_id, job_id in found:
        await _wake(tx, run_id, job_id)
    return len(found)


async def stop(tx: Tx, run: Held) -> None:
    """Stop a locked run: cancel its waiting jobs, and request the cancel of its running jobs; then the run ends."""
    run.is_canceling = True
    await workflows.ask_to_stop(tx, run.id)
    # a job that is locked now and goes back to the queue later is canceled by `settle`
    canceled, asked = await canceling.cancel(tx, await workflows.active_jobs(tx, run.id))
    if asked:
        await bulk.notify(tx, "cancel")
    await settle(tx, dict.fromkeys(canceled, JobStatus.CANCELED))
