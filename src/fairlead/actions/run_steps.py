"""Views of runs that a principal may read: their drawing, and the items of their steps."""

from collections.abc import Collection
from uuid import UUID

from fairlead.db.tx import Tx
from fairlead.model.access import Permission, Principal
from fairlead.model.job import JobStatus
from fairlead.model.page import Page
from fairlead.model.workflow.run import Run, StepState, StepSummary
from fairlead.store import run_steps, workflows
from fairlead.store.run_steps import ItemJob, RunSummary


async def list_recent_runs(
    tx: Tx, principal: Principal, keys: Collection[str], *, each: int
) -> dict[str, list[RunSummary]]:
    """The last few runs of workflows of the principal's tenant, newest first; empty for a principal of all tenants."""
    principal.require(Permission.READ_RUNS, principal.tenant_id)
    found: dict[str, list[RunSummary]] = {key: [] for key in keys}
    if principal.tenant_id is not None:
        for run in await run_steps.list_recent_runs(
            tx, tenant_id=principal.tenant_id, keys=list(found), each=each
        ):
            found[run.key].append(run)
    return found


async def list_step_summaries(tx: Tx, principal: Principal, run: Run) -> list[StepSummary]:
    """Every step of a run, with only the fields of the drawing."""
    principal.require(Permission.READ_RUNS, run.tenant_id)
    return await run_steps.list_step_summaries(tx, run.id)


async def list_step_groups(tx: Tx, principal: Principal, run: Run) -> list[tuple[list[int], list[int]]]:
    """The places that steps wait for, and the places of the steps that wait for exactly these."""
    principal.require(Permission.READ_RUNS, run.tenant_id)
    return await run_steps.list_step_groups(tx, run.id)


async def list_states(tx: Tx, principal: Principal, run: Run) -> list[StepState]:
    """The state of every step of a run, in order."""
    principal.require(Permission.READ_RUNS, run.tenant_id)
    return await run_steps.list_states(tx, run.id)


async def list_items(
    tx: Tx,
    principal: Principal,
    run: Run,
    place: int,
    *,
    first: int = 0,
    status: JobStatus | None = None,
    limit: int,
) -> Page[ItemJob]:
    """The jobs of a for_each step, from an item on."""
    principal.require(Permission.READ_RUNS, run.tenant_id)
    return await run_steps.list_items(tx, run.id, place, first=first, status=status, limit=limit)


async def find_awaited_run(tx: Tx, principal: Principal, job_id: UUID) -> UUID | None:
    """The run that a job, which this principal may read, has started and waits for."""
    principal.require(Permission.READ_RUNS, principal.tenant_id)
    return await workflows.find_awaited_run(tx, job_id)
