"""Cancel or retry many jobs: those that a search finds, or the selected ones."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from msgspec.structs import replace

from fairlead.actions import bulk_jobs, jobs
from fairlead.actions.jobs import JobFilter
from fairlead.db.tx import Tx
from fairlead.errors import FairleadError, Fault, InvalidInput, QueueFull, QuotaExceeded
from fairlead.model.access import Permission
from fairlead.server.auth import GuardedRoute
from fairlead.server.console.forms import uuid_of
from fairlead.server.console.pages.jobs import JobsPageQuery, build_filter
from fairlead.server.console.visit import RequiresVisit, Visit

router = APIRouter(route_class=GuardedRoute)

Writer = Annotated[Visit, Depends(RequiresVisit(Permission.WRITE_JOBS))]

ACTIONS = {"cancel": bulk_jobs.cancel, "retry": bulk_jobs.retry}
# Jobs per request: the page shows the progress between requests.
BATCH = bulk_jobs.BATCH


@router.get("/bulk-jobs/{action}")
async def count_matching(request: Request, action: str, visit: Writer) -> Response:
    """Count the jobs that match and that the action would change, and explain which ones it would not."""
    cursor = JobsPageQuery.of(request).cursor
    async with visit.transaction() as tx:
        wanted = await _read_filter(tx, request, action, visit)
        did = await ACTIONS[action](
            tx, visit.principal, wanted, limit=bulk_jobs.MOST, dry_run=True, cursor=cursor
        )
        why = Counter(did.reasons)
        # a search names these itself
        if action == "retry" and wanted.payload_contains is None and wanted.tags is None:
            why += await bulk_jobs.count_never_retryable(tx, visit.principal, wanted)
    answer = {"count": did.count, "more": did.more, "cursor": did.next_cursor}
    return JSONResponse({**answer, "left": describe_left(visit, why)})


@router.post("/bulk-jobs/{action}")
async def change_matching(request: Request, action: str, visit: Writer) -> Response:
    """Cancel or retry one batch of the matching jobs; the page repeats the request until none is left."""
    cursor = JobsPageQuery.of(request).cursor
    async with visit.transaction() as tx:
        wanted = await _read_filter(tx, request, action, visit)
        did = await ACTIONS[action](tx, visit.principal, wanted, limit=BATCH, cursor=cursor)
    answer = {"count": did.count, "more": did.more, "cursor": did.next_cursor}
    return JSONResponse({**answer, "undo": [str(one) for one in did.canceled]})


@router.post("/bulk-jobs/{action}/selected")
async def change_selected(action: str, visit: Writer) -> Response:
    """Cancel or retry the selected jobs, as far as possible."""
    _require_action(action)
    count, left, undo, full = 0, list[UUID](), list[UUID](), ""
    for job_id in await _read_ids(visit):
        try:
            async with visit.transaction() as tx:
                if action == "cancel":
                    job = await jobs.cancel(tx, visit.principal, job_id)
                    undo += [job.id] if bulk_jobs.is_retryable(job) else []
                else:
                    await jobs.retry(tx, visit.principal, visit.fl.catalog, job_id)
        except (QueueFull, QuotaExceeded) as error:
            full = error.message
        except FairleadError:
            left.append(job_id)
        else:
            count += 1
    async with visit.transaction() as tx:
        why = await bulk_jobs.explain_left(tx, visit.principal, left, canceling=action == "cancel")
    told = " ".join(filter(None, (describe_left(visit, why), full)))
    return JSONResponse({"count": count, "left": told, "undo": [str(one) for one in undo]})


@router.post("/bulk-jobs/cancel/undo")
async def undo_cancel(visit: Writer) -> Response:
    """Queue canceled jobs again: the undo of a cancel of many jobs."""
    ids = await _read_ids(visit)
    async with visit.transaction() as tx:
        did = await bulk_jobs.retry_chosen(tx, visit.principal, ids, told={"undo": "JOBS_CANCELED"})
    return JSONResponse({"count": did.count, "left": describe_left(visit, did.reasons)})


def describe_left(visit: Visit, why: Mapping[str, int]) -> str:
    """`Left as they are: 2 (steps of workflows: retry them with their run).`, or an empty text."""
    return f"Left as they are: {bulk_jobs.describe_skips(why, visit.number)}." if why else ""


async def _read_filter(tx: Tx, request: Request, action: str, visit: Visit) -> JobFilter:
    _require_action(action)
    wanted = JobsPageQuery.of(request)
    found = await build_filter(tx, visit, wanted)
    if wanted.is_narrowed:
        return found
    # without a filter: the user has confirmed the count of all jobs
    return replace(found, status=list(bulk_jobs.CANCELABLE if action == "cancel" else bulk_jobs.RETRYABLE))


async def _read_ids(visit: Visit) -> Sequence[UUID]:
    given = (await visit.form()).get("ids", "").split(",")
    return [one for text in given if (one := uuid_of(text)) is not None][:BATCH]


def _require_action(action: str) -> None:
    if action not in ACTIONS:
        raise InvalidInput(
            f"There is no action {action[:40]!r}: use cancel or retry.", [Fault("action", "unknown")]
        )
