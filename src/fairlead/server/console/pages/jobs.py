"""The jobs of a tenant (or of all): counts, throughput, and the table."""

from typing import Annotated, Any
from uuid import UUID

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from msgspec.structs import replace

from fairlead.actions import bulk_jobs, definitions, hosts, jobs, stats
from fairlead.actions.jobs import JobFilter
from fairlead.db.tx import Tx
from fairlead.errors import FairleadError, Fault, InvalidInput, QueueFull, QuotaExceeded
from fairlead.model.access import Permission
from fairlead.model.job import JobStatus, Source, may_move
from fairlead.server.auth import GuardedRoute
from fairlead.server.console.pages.job import why_forbidden
from fairlead.server.console.search import parse_search
from fairlead.server.console.visit import RequiresVisit, Visit

router = APIRouter(route_class=GuardedRoute)

Reader = Annotated[Visit, Depends(RequiresVisit(Permission.READ_JOBS))]
Writer = Annotated[Visit, Depends(RequiresVisit(Permission.WRITE_JOBS))]

ROWS = 50
# Newer entries are counted up to this number.
MOST_NEW = 100
# Jobs per request of a bulk action: the page shows the progress between requests.
BATCH = 1000
# By name: the seconds of the range and of a step.
RANGES = {"1h": (3600, 60), "6h": (21_600, 300), "24h": (86_400, 900)}
NOWHERE = UUID(int=0)
_WHY_SKIPPED = {
    "cancel": "Only queued and running jobs can be canceled. Jobs that run a workflow need the permission to run workflows.",
    "retry": (
        "Only failed, dead-lettered and canceled jobs of active definitions can be retried. Retry steps of workflows with "
        "their run. Jobs that run a workflow need the permission to run workflows."
    ),
}


class JobsPageQuery(msgspec.Struct, frozen=True):
    """The URL's parameters."""

    q: str
    status: tuple[str, ...]
    definition: str
    source: str
    host: str
    key: str
    cursor: str | None
    # the first job at the first load: newer jobs wait behind a button
    top: UUID | None
    span: str

    @classmethod
    def of(cls, request: Request) -> "JobsPageQuery":
        """Read the URL. Invalid parameters are ignored: bookmarks may be old."""
        given = request.query_params
        statuses = [one for text in given.getlist("status") for one in text.split(",") if one]
        return cls(
            q=given.get("q", "")[:200].strip(),
            status=tuple(statuses),
            definition=given.get("definition", ""),
            source=given.get("source", ""),
            host=given.get("host", ""),
            key=given.get("key", ""),
            cursor=given.get("cursor") or None,
            top=_parse_uuid(given.get("top", "")),
            span=given["range"] if given.get("range") in RANGES else "1h",
        )

    def query(self, **others: Any) -> dict[str, Any]:
        """The URL's parameters, with some replaced."""
        own = {
            "q": self.q,
            "status": list(self.status),
            "definition": self.definition,
            "source": self.source,
            "host": self.host,
            "key": self.key,
            "range": None if self.span == "1h" else self.span,
        }
        return own | others

    @property
    def narrowed(self) -> bool:
        """Whether some jobs are left out."""
        return any((self.q, self.status, self.definition, self.source, self.host, self.key))


async def build_filter(tx: Tx, visit: Visit, wanted: JobsPageQuery) -> JobFilter:
    """The filter of the URL and its search; raises InvalidInput for an unknown value."""
    typed = parse_search(wanted.q)
    statuses = typed.by.get("status") or list(wanted.status)
    host = typed.one("host") or wanted.host
    return JobFilter(
        status=[_parse_enum(JobStatus, "status", one) for one in statuses] or None,
        source=_parse_enum(Source, "source", text)
        if (text := typed.one("source") or wanted.source)
        else None,
        definition_key=typed.one("definition") or wanted.definition or None,
        host_id=await _find_host_id(tx, visit, host) if host else None,
        dedupe_key=typed.one("key") or wanted.key or None,
        correlation_id=typed.one("correlation"),
        q=typed.words or None,
    )


@router.get("/jobs")
async def list_jobs(request: Request, visit: Reader) -> Response:
    """The jobs page: counts, throughput, and the table."""
    wanted = JobsPageQuery.of(request)
    fault: FairleadError | None = None
    page, new = jobs.JobPage([], None), 0
    async with visit.transaction() as tx:
        counts, oldest = await _count_levels(tx, visit)
        seconds, step = RANGES[wanted.span]
        flow = await stats.get_throughput(tx, visit.principal, seconds=seconds, step=step)
        try:
            asked = await build_filter(tx, visit, wanted)
            page, new = await _fetch_rows(tx, visit, asked, wanted)
        except InvalidInput as error:
            fault = error
        keys = [one.key for one in await definitions.list_all(tx, visit.principal)]
    return visit.page(
        "jobs.html",
        wanted=wanted,
        counts=counts,
        oldest=oldest,
        flow=[
            [int(one.at.timestamp()) for one in flow],
            [one.succeeded for one in flow],
            [one.failed for one in flow],
        ],
        ranges=list(RANGES),
        page=page,
        top=wanted.top or (page.items[0].id if page.items and wanted.cursor is None else None),
        new=new,
        most_new=MOST_NEW,
        fault=fault,
        definitions=keys,
        sources=list(Source),
        cancelable=lambda job: may_move(job.status, JobStatus.CANCELED) and job.cancel_requested_at is None,
        retryable=bulk_jobs.is_retryable,
        forbidden=lambda job: why_forbidden(visit, job),
    )


async def _count_levels(tx: Tx, visit: Visit) -> tuple[dict[JobStatus, int], float | None]:
    """The number of jobs by status and, for one tenant, how long the oldest ready job has waited."""
    if visit.tenant_id is None:
        overview = await stats.get_overview(tx, visit.principal, rows=1)
        return overview.counts.by_status, None
    summary = await stats.get_summary(tx, visit.principal, tenant=str(visit.tenant_id))
    return summary.counts.by_status, summary.oldest_ready_seconds


async def _fetch_rows(
    tx: Tx, visit: Visit, asked: JobFilter, wanted: JobsPageQuery
) -> tuple[jobs.JobPage, int]:
    """The rows to show, and the number of newer jobs."""
    if wanted.top is None or wanted.cursor is not None:
        return await jobs.list_jobs(tx, visit.principal, asked, limit=ROWS, cursor=wanted.cursor), 0
    # a page starts after its cursor: the id after `top` gives a page that starts with `top`
    behind = str(UUID(int=min(wanted.top.int + 1, (1 << 128) - 1)))
    page = await jobs.list_jobs(tx, visit.principal, asked, limit=ROWS, cursor=behind)
    newest = await jobs.list_jobs(tx, visit.principal, asked, limit=MOST_NEW)
    return page, sum(one.id > wanted.top for one in newest.items)


# Actions


@router.post("/jobs/{job_id}/cancel")
async def cancel(job_id: UUID, visit: Writer) -> Response:
    """Cancel a job."""
    async with visit.transaction() as tx:
        job = await jobs.cancel(tx, visit.principal, job_id)
    if job.status is JobStatus.CANCELED:
        undo = visit.to(f"/jobs/{job_id}/retry") if bulk_jobs.is_retryable(job) else None
        return visit.respond("Canceled.", undo=undo)
    return visit.respond("Cancel requested: the job ends at its worker's next heartbeat.")


@router.post("/jobs/{job_id}/retry")
async def retry(job_id: UUID, visit: Writer) -> Response:
    """Retry a job."""
    async with visit.transaction() as tx:
        await jobs.retry(tx, visit.principal, visit.fl.catalog, job_id)
    return visit.respond("Queued again.", undo=visit.to(f"/jobs/{job_id}/cancel"))


@router.post("/selected-jobs/{action}")
async def change_selected(action: str, visit: Writer) -> Response:
    """Cancel or retry the selected jobs, as far as possible."""
    form = await visit.form()
    ids = [one for text in form.get("ids", "").split(",") if (one := _parse_uuid(text)) is not None][
        : ROWS * 4
    ]
    changed = left = 0
    why = _WHY_SKIPPED.get(action, "")
    for job_id in ids:
        async with visit.transaction() as tx:
            try:
                if action == "cancel":
                    await jobs.cancel(tx, visit.principal, job_id)
                elif action == "retry":
                    await jobs.retry(tx, visit.principal, visit.fl.catalog, job_id)
                else:
                    raise unknown_action(action)
            except FairleadError as error:
                if action not in ("cancel", "retry"):
                    raise
                if isinstance(error, QueueFull | QuotaExceeded):
                    why = error.message
                left += 1
            else:
                changed += 1
    did = "Canceled" if action == "cancel" else "Queued again"
    return visit.respond(f"{did}: {changed:,}." + (f" Left as they are: {left:,}. {why}" if left else ""))


@router.get("/matching-jobs/{action}")
async def count_matching(request: Request, action: str, visit: Writer) -> Response:
    """Count the jobs that a bulk action would change."""
    did = await _change_matching(request, action, visit, limit=bulk_jobs.MOST, dry_run=True)
    return JSONResponse({"count": did.count, "more": did.more})


@router.post("/matching-jobs/{action}")
async def change_matching(request: Request, action: str, visit: Writer) -> Response:
    """Cancel or retry one batch of the matching jobs; the page repeats the request until none is left."""
    did = await _change_matching(request, action, visit, limit=BATCH, dry_run=False)
    return JSONResponse({"count": did.count, "more": did.more, "skipped": did.skipped})


async def _change_matching(
    request: Request, action: str, visit: Visit, *, limit: int, dry_run: bool
) -> bulk_jobs.BulkResult:
    changes = {"cancel": bulk_jobs.cancel, "retry": bulk_jobs.retry}
    if action not in changes:
        raise unknown_action(action)
    async with visit.transaction() as tx:
        asked = await build_filter(tx, visit, JobsPageQuery.of(request))
        if not JobsPageQuery.of(request).narrowed:
            # without a filter: the user has confirmed the count of all jobs
            asked = replace(
                asked, status=list(bulk_jobs.CANCELABLE if action == "cancel" else bulk_jobs.RETRYABLE)
            )
        return await changes[action](tx, visit.principal, asked, limit=limit, dry_run=dry_run)


def unknown_action(action: str) -> InvalidInput:
    """The error for an unknown action."""
    return InvalidInput(
        f"There is no action {action[:40]!r}: use cancel or retry.", [Fault("action", "unknown")]
    )


def _parse_enum(kind: Any, name: str, text: str) -> Any:
    try:
        return kind(text.lower())
    except ValueError:
        known = ", ".join(kind)
        raise InvalidInput(
            f"There is no {name} {text[:40]!r}. Use one of: {known}.", [Fault(name, "unknown")]
        ) from None


async def _find_host_id(tx: Tx, visit: Visit, name: str) -> UUID:
    """The id of a host by name or id; a removed host still has jobs."""
    return await hosts.find_id(tx, visit.principal, name) or _parse_uuid(name) or NOWHERE


def _parse_uuid(text: str) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None
