"""Dead letters, grouped by error."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from fairlead.actions import bulk_jobs, failed_jobs
from fairlead.actions.failed_jobs import ErrorReport
from fairlead.errors import Fault, InvalidInput, NotFound, QueueFull, QuotaExceeded
from fairlead.model.access import Permission
from fairlead.model.error_groups import ErrorGroup
from fairlead.model.job import JobStatus
from fairlead.server.auth import GuardedRoute
from fairlead.server.console.visit import RequiresVisit, Visit

router = APIRouter(route_class=GuardedRoute)

Reader = Annotated[Visit, Depends(RequiresVisit(Permission.READ_JOBS))]
Writer = Annotated[Visit, Depends(RequiresVisit(Permission.WRITE_JOBS))]

ROWS = 100
STATUSES = (JobStatus.DEAD_LETTER, JobStatus.FAILED)


@router.get("/dead-letters")
async def list_groups(request: Request, visit: Reader) -> Response:
    """The groups of errors and their counts."""
    status = _read_status(request)
    found = await _find_groups(visit, status)
    groups = found.groups
    if top := [one for one in request.query_params.get("top", "").split(",") if one]:
        # keep the order of the first load while counts change
        place = {mark: number for number, mark in enumerate(top)}
        groups = sorted(groups, key=lambda one: place.get(one.mark, len(place)))
    return visit.page(
        "dead_letters.html",
        status=200,
        of=status,
        statuses=STATUSES,
        found=found,
        groups=groups[:ROWS],
        left=max(0, len(groups) - ROWS),
    )


@router.post("/dead-letters/{mark}/retry")
async def retry(request: Request, mark: str, visit: Writer) -> Response:
    """Retry all jobs of a group."""
    status = _read_status(request)
    group = _require_group(await _find_groups(visit, status), mark)
    told = {"definition_key": group.definition_key, "status": [status], "error": group.pattern}
    done = skipped = 0
    why = (
        "Retry steps of workflows with their run. Jobs that run a workflow need the permission to run workflows; other "
        "jobs need an active definition."
    )
    for start in range(0, group.count, bulk_jobs.BATCH):
        ids = group.job_ids[start : start + bulk_jobs.BATCH]
        try:
            async with visit.transaction() as tx:
                did = await bulk_jobs.retry_chosen(tx, visit.principal, ids, told=told)
        except (QueueFull, QuotaExceeded) as error:
            if not done:
                raise
            skipped, why = group.count - done, error.message
            break
        done += did.count
        skipped += did.skipped
    left = f" Left as they are: {skipped:,}. {why}" if skipped else ""
    return visit.respond(f"Queued again: {done:,}.{left}")


async def _find_groups(visit: Visit, status: JobStatus) -> ErrorReport:
    async with visit.transaction() as tx:
        return await failed_jobs.group_by_error(tx, visit.principal, status=status)


def _require_group(found: ErrorReport, mark: str) -> ErrorGroup:
    for one in found.groups:
        if one.mark == mark:
            return one
    raise NotFound("There are no more jobs with this error: they were retried or removed.")


def _read_status(request: Request) -> JobStatus:
    text = request.query_params.get("status") or JobStatus.DEAD_LETTER
    if text not in STATUSES:
        raise InvalidInput(
            f"There is no such list. Use one of: {', '.join(STATUSES)}.", [Fault("status", "unknown")]
        )
    return JobStatus(text)
