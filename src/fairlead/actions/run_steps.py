"""Views of runs that a principal may read: their drawing, and the items of their steps."""

from collections.abc import Collection
from uuid import UUID

from fairlead.db.tx import Tx
from fairlead.model.access import Permission, Principal
from fairlead.model.job import JobStatus
from fairlead.model.page import Page
from fairlead.model.workflow_run import Run
from fairlead.store import run_steps, workflows
from fairlead.store.run_steps import Item, RunMark, StepMark


async def recent(
    tx: Tx, principal: Principal, keys: Collection[str], *, each: int
) -> dict[str, list[RunMark]]:
    """The last few runs of workflows of the principal's tenant, newest first; empty for a principal of all tenants."""
    principal.require(Permission.READ_RUNS, principal.tenant_id)
    found: dict[str, list[RunMark]] = {key: [] for key in keys}
    if principal.tenant_id is not None:
        for run in await run_steps.recent(tx, tenant_id=principal.tenant_id, keys=list(found), each=each):
            found[run.key].append(run)
    return found


async def shape(tx: Tx, principal: Principal, run: Run) -> list[StepMark]:
    """Every step of a run, with only the fields of the drawing."""
    principal.require(Permission.READ_RUNS, run.tenant_id)
    return await run_steps.shape(tx, run.id)


async def items(
    tx: Tx,
    principal: Principal,
    run: Run,
    place: int,
    *,
    first: int = 0,
    status: JobStatus | None = None,
    limit: int,
) -> Page[Item]:
    """The jobs of a for_each step, from an item on."""
    principal.require(Permission.READ_RUNS, run.tenant_id)
    return await run_steps.items(tx, run.id, place, first=first, status=status, limit=limit)


async def waited_for(tx: Tx, principal: Principal, job_id: UUID) -> UUID | None:
    """The run that a job, which this principal may read, has started and waits for."""
    principal.require(Permission.READ_RUNS, principal.tenant_id)
    return await workflows.of_job(tx, job_id)
