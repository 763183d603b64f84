"""Jobs that run a workflow: they start a run, release themselves, and are woken when the run ends."""

from typing import Any
from uuid import UUID

from fairlead.actions.workflows import RunRequest, reopen, start
from fairlead.db.tx import Tx
from fairlead.model.access import Principal
from fairlead.model.workflow.run import Run, RunStatus
from fairlead.model.workflow.secrets import mask_run
from fairlead.store import jobs, workflows


async def continue_job(
    tx: Tx,
    principal: Principal,
    job_id: UUID,
    *,
    tenant: str,
    workflow: str,
    version: int | None = None,
    input: Any = None,  # noqa: A002 - the word that users know
    correlation_id: str | None = None,
) -> Run | None:
    """The run of this job if it has ended; None while it runs.

    The first call starts the run. If the job was retried after its run failed, the run continues from its failed steps.
    """
    if not await workflows.lock_running_job(tx, job_id):
        return None  # it was canceled or lost meanwhile, and nothing would stop a run that it starts
    run_id = await workflows.find_awaited_run(tx, job_id)
    if run_id is None:
        asked = RunRequest(
            tenant=tenant,
            input=input,
            version=version,
            correlation_id=correlation_id,
            parent_job_id=job_id,
        )
        await start(tx, principal, workflow, asked)
        return None
    held = (await workflows.lock_runs(tx, [run_id]))[run_id]
    if held.status is RunStatus.RUNNING:
        return None
    if held.answered and held.status is not RunStatus.SUCCEEDED:
        await reopen(tx, run_id)
        return None
    if held.status is RunStatus.CANCELED:
        await jobs.request_cancel(tx, job_id)  # so that the job, which can only fail, ends as its run did
    run = await workflows.get_run(tx, run_id, tenant_id=None)
    return None if run is None else mask_run(run, tx.redact_patterns)
