"""The jobs of a tenant (or of all): counts, throughput, and the table."""

import functools
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from msgspec.structs import replace

from fairlead.actions import bulk_jobs, definitions, hosts, jobs, stats
from fairlead.actions.jobs import JobFilter
from fairlead.actions.stats import ThroughputStep
from fairlead.db.tx import Tx
from fairlead.errors import FairleadError, InvalidInput
from fairlead.model.access import Permission
from fairlead.model.ansi import strip_ansi
from fairlead.model.job import Job, JobStatus, Source, WaitingFor, may_move
from fairlead.model.schedule.zone import is_known_zone
from fairlead.server.auth import GuardedRoute
from fairlead.server.console.pages.job import why_forbidden
from fairlead.server.console.search import (
    QUALIFIERS,
    Word,
    read_search,
    replace_word,
    split_words,
    write_word,
)
from fairlead.server.console.visit import RequiresVisit, Visit
from fairlead.server.merged_lists import Part, by_id, list_absent, merge_newest, sum_cells

router = APIRouter(route_class=GuardedRoute)

Reader = Annotated[Visit, Depends(RequiresVisit(Permission.READ_JOBS))]
Writer = Annotated[Visit, Depends(RequiresVisit(Permission.WRITE_JOBS))]

ROWS = 50
MOST_QUERY = 500
# How long the first page of a search and each further one may take.
FIRST_SECONDS, FURTHER_SECONDS = 0.02, 0.15
# Qualifiers that links to this page may have as parameters.
LINKED = ("status", "definition", "source", "host", "key", "worker", "error", "run", "tag")
# Hosts that the search box offers.
OFFERED = 200
LONGEST_LINE = 160
# Newer entries are counted up to this number.
MOST_NEW = 100
# By name: the seconds of the range and of a step.
RANGES = {"1h": (3600, 60), "6h": (21_600, 300), "24h": (86_400, 900)}
NOWHERE = UUID(int=0)


class JobsPageQuery(msgspec.Struct, frozen=True):
    """The URL's parameters."""

    # the search; parameters with the names of qualifiers are added to it
    q: str
    cursor: str | None
    # the first job at the first load: newer jobs wait behind a button
    top: UUID | None
    span: str
    # the reader's time zone, for times in the search
    zone: ZoneInfo
    # how many jobs the pages before this one have searched
    searched: int

    @classmethod
    def of(cls, request: Request) -> "JobsPageQuery":
        """Read the URL. Invalid parameters are ignored: bookmarks may be old."""
        given = request.query_params
        q = given.get("q", "")[:MOST_QUERY].strip()
        typed = {word.name for word in split_words(q)}
        for name in LINKED:
            value = ",".join(one for one in given.getlist(name) if one)
            if value and name not in typed:
                q = f"{q} {write_word(name, value)}".strip()
        searched = given.get("searched", "")
        return cls(
            q=q,
            cursor=given.get("cursor") or None,
            top=_parse_uuid(given.get("top", "")),
            span=given["range"] if given.get("range") in RANGES else "1h",
            zone=_parse_zone(given.get("tz", "")),
            searched=int(searched) if searched.isdecimal() and len(searched) < 16 else 0,
        )

    def query(self, **others: Any) -> dict[str, Any]:
        """The URL's parameters, with some replaced."""
        own = {
            "q": self.q,
            "range": None if self.span == "1h" else self.span,
            "tz": None if self.zone.key == "UTC" else self.zone.key,
        }
        return own | others

    def query_with(self, name: str, value: str | None) -> dict[str, Any]:
        """The URL's parameters with another value of a qualifier."""
        return self.query(q=replace_word(self.q, name, value))

    def query_with_tag(self, tag: str) -> dict[str, Any]:
        """The URL's parameters with one more tag."""
        word = write_word("tag", tag)
        known = any(one.name == "tag" and one.value == tag for one in split_words(self.q))
        return self.query(q=self.q if known else f"{self.q} {word}".strip())

    def value_of(self, name: str) -> str:
        """The value of a qualifier, if the search has exactly one."""
        found = [word.value for word in split_words(self.q) if word.name == name]
        return found[0] if len(found) == 1 else ""

    @property
    def chips(self) -> list[tuple[Word, dict[str, Any]]]:
        """The qualifiers of the search, each with the parameters without it."""
        words = split_words(self.q)
        return [
            (word, self.query(q=" ".join(other.written for other in words if other is not word)))
            for word in words
            if word.name
        ]

    @property
    def is_narrowed(self) -> bool:
        """Whether some jobs are left out."""
        return bool(self.q)


async def build_filter(tx: Tx, visit: Visit, wanted: JobsPageQuery) -> JobFilter:
    """The filter of the search; raises InvalidInput for an unknown value."""
    read = read_search(wanted.q, now=datetime.now(UTC), zone=wanted.zone)
    if (host := read.pop("host", None)) is not None:
        read["host_id"] = await _find_host_id(tx, visit, host)
    if (run := read.get("workflow_run_id")) is not None:
        read["workflow_run_id"] = _parse_uuid(run) or NOWHERE
    return JobFilter(**read)


@router.get("/jobs")
async def list_jobs(request: Request, visit: Reader) -> Response:
    """The jobs page: counts, throughput, and the table."""
    wanted = JobsPageQuery.of(request)
    found = await sum_cells(visit, lambda tx: _read_facts(tx, visit, wanted), _merge_facts)
    page, flow = found.page, found.flow
    return visit.page(
        "jobs.html",
        wanted=wanted,
        counts=found.counts,
        oldest=found.oldest,
        flow=[
            [int(one.at.timestamp()) for one in flow],
            [one.succeeded for one in flow],
            [one.failed for one in flow],
        ],
        ranges=list(RANGES),
        page=page,
        rows=ROWS,
        total=found.total,
        others=found.others,
        searched=wanted.searched + (page.searched or 0),
        top=wanted.top or (page.items[0].id if page.items and wanted.cursor is None else None),
        new=found.new,
        most_new=MOST_NEW,
        fault=found.fault,
        qualifiers=list(QUALIFIERS.items()),
        suggestions=found.suggestions,
        state_of=functools.partial(name_state, now=datetime.now(UTC)),
        error_line=_first_line,
        cancelable=lambda job: may_move(job.status, JobStatus.CANCELED) and job.cancel_requested_at is None,
        retryable=bulk_jobs.is_retryable,
        forbidden=lambda job: why_forbidden(visit, job),
    )


class JobsFacts(msgspec.Struct, kw_only=True):
    """What the jobs page shows of a cell."""

    counts: dict[JobStatus, int]
    oldest: float | None
    flow: list[ThroughputStep]
    suggestions: dict[str, list[str]]
    page: jobs.JobPage = msgspec.field(default_factory=lambda: jobs.JobPage([], None))
    new: int = 0
    total: int | None = None
    # the other status of failures, if only that has jobs
    others: JobStatus | None = None
    fault: FairleadError | None = None


async def _read_facts(tx: Tx, visit: Visit, wanted: JobsPageQuery) -> JobsFacts:
    counts, oldest = await _count_levels(tx, visit)
    seconds, step = RANGES[wanted.span]
    found = JobsFacts(
        counts=counts,
        oldest=oldest,
        flow=await stats.get_throughput(tx, visit.principal, seconds=seconds, step=step),
        suggestions=await _list_suggestions(tx, visit),
    )
    try:
        asked = await build_filter(tx, visit, wanted)
        found.total = await jobs.count_matching(tx, visit.principal, asked)
        found.page, found.new = await _fetch_rows(tx, visit, asked, wanted)
        found.others = None if found.page.items else await _find_other_failures(tx, visit, asked)
    except InvalidInput as error:
        found.fault = error
    if absent := await list_absent(visit, tx):
        items = [job for job in found.page.items if job.tenant_id not in absent]
        found.page = replace(found.page, items=items)
    return found


def _merge_facts(cells: Sequence[JobsFacts]) -> JobsFacts:
    """The facts of several cells as one page."""
    first, *_ = cells
    merged = merge_newest(
        [Part(one.page.items, one.page.next_cursor) for one in cells], ROWS, by_id(newest_first=True)
    )
    searched = [one.page.searched for one in cells if one.page.searched is not None]
    totals = [one.total for one in cells if one.total is not None]
    return JobsFacts(
        counts={status: sum(one.counts.get(status, 0) for one in cells) for status in first.counts},
        oldest=first.oldest,
        flow=stats.add_throughput([one.flow for one in cells]),
        suggestions={
            name: list(dict.fromkeys(text for one in cells for text in one.suggestions.get(name, ())))
            for name in first.suggestions
        },
        page=jobs.JobPage(list(merged.items), merged.next_cursor, sum(searched) if searched else None),
        new=sum(one.new for one in cells),
        total=sum(totals) if len(totals) == len(cells) else None,
        others=None if merged.items else next((one.others for one in cells if one.others), None),
        fault=first.fault,
    )


async def _list_suggestions(tx: Tx, visit: Visit) -> dict[str, list[str]]:
    """Values that the search box offers, by qualifier."""
    found = {
        "status": [*JobStatus, *WaitingFor],
        "definition": [one.key for one in await definitions.list_all(tx, visit.principal)],
        "source": list(Source),
        "created": ["today", "yesterday", "1h", "24h", "7d", ">12:00"],
        "duration": [">1s", ">10s", ">1m"],
    }
    if visit.may(Permission.READ_HOSTS):
        found["host"] = [
            one.name for one in await hosts.list_hosts(tx, visit.principal, after=None, limit=OFFERED)
        ]
    return found


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
        # the page appears at once, and then a script asks for the rest of a long search
        seconds = FURTHER_SECONDS if wanted.searched else FIRST_SECONDS
        found = await jobs.list_jobs(
            tx, visit.principal, asked, limit=ROWS, cursor=wanted.cursor, seconds=seconds
        )
        return found, 0
    # a page starts after its cursor: the id after `top` gives a page that starts with `top`
    behind = str(UUID(int=min(wanted.top.int + 1, (1 << 128) - 1)))
    page = await jobs.list_jobs(tx, visit.principal, asked, limit=ROWS, cursor=behind, seconds=FIRST_SECONDS)
    newest = await jobs.list_jobs(tx, visit.principal, asked, limit=MOST_NEW, seconds=0)
    return page, sum(one.id > wanted.top for one in newest.items)


async def _find_other_failures(tx: Tx, visit: Visit, asked: JobFilter) -> JobStatus | None:
    """The other status of jobs that failed, if jobs with that status match a search for one of them."""
    failures = [JobStatus.FAILED, JobStatus.DEAD_LETTER]
    if asked.status is None or len(asked.status) != 1 or asked.status[0] not in failures:
        return None
    [other] = [one for one in failures if one not in asked.status]
    found = await jobs.list_jobs(
        tx, visit.principal, replace(asked, status=[other]), limit=1, seconds=FIRST_SECONDS
    )
    return other if found.items else None


def name_state(job: Job, *, now: datetime) -> str:
    """A job's status, or what a queued one waits for if that is not a worker."""
    if job.status is not JobStatus.QUEUED or job.scheduled_for <= now:
        return job.status
    return WaitingFor.RETRYING if job.failure_count + job.lost_count else WaitingFor.SCHEDULED


def _first_line(text: str | None) -> str:
    """The first line of an error, shortened."""
    lines = strip_ansi(text or "").strip().splitlines()
    return lines[0][:LONGEST_LINE] if lines else ""


# Actions


@router.post("/jobs/{job_id}/cancel")
async def cancel(job_id: UUID, visit: Writer) -> Response:
    """Cancel a job."""
    async with visit.transaction() as tx:
        job = await jobs.cancel(tx, visit.principal, job_id)
    if job.status is JobStatus.CANCELED:
        undo = visit.to(f"/jobs/{job_id}/retry") if bulk_jobs.is_retryable(job) else None
        return visit.respond("Job canceled.", undo=undo)
    return visit.respond("Cancel requested. The job stops at its worker's next heartbeat.")


@router.post("/jobs/{job_id}/retry")
async def retry(job_id: UUID, visit: Writer) -> Response:
    """Retry a job."""
    async with visit.transaction() as tx:
        await jobs.retry(tx, visit.principal, visit.fl.catalog, job_id)
    return visit.respond("Job queued again.", undo=visit.to(f"/jobs/{job_id}/cancel"))


async def _find_host_id(tx: Tx, visit: Visit, name: str) -> UUID:
    """The id of a host by name or id; a removed host still has jobs."""
    return await hosts.find_id(tx, visit.principal, name) or _parse_uuid(name) or NOWHERE


def _parse_uuid(text: str) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None


def _parse_zone(text: str) -> ZoneInfo:
    return ZoneInfo(text if is_known_zone(text) else "UTC")
