"""Errors: failed jobs in groups, with their trends; retry, discard and mute a group."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response

from fairlead.actions import bulk_jobs, definitions, error_groups
from fairlead.actions.error_groups import GroupFilter, JobChoice, JobPlace
from fairlead.errors import Fault, InvalidInput
from fairlead.model.access import Permission
from fairlead.model.error_groups import ErrorGroup, GroupOrder, GroupState
from fairlead.model.job import JobStatus
from fairlead.server.auth import GuardedRoute
from fairlead.server.console.forms import Form, uuid_of
from fairlead.server.console.trend import SPANS, build_trend
from fairlead.server.console.visit import RequiresVisit, Visit

router = APIRouter(route_class=GuardedRoute)

Reader = Annotated[Visit, Depends(RequiresVisit(Permission.READ_JOBS))]
Writer = Annotated[Visit, Depends(RequiresVisit(Permission.WRITE_JOBS))]

ROWS = 50
# Pages of the list: it looks at the newest groups only.
MOST_PAGES = 40
NEW = timedelta(hours=24)
SEEN = {"1h": timedelta(hours=1), "24h": timedelta(hours=24), "7d": timedelta(days=7)}
MUTES = {
    "1h": ("For 1 hour", timedelta(hours=1)),
    "24h": ("For 1 day", timedelta(days=1)),
    "7d": ("For 1 week", timedelta(days=7)),
    "change": ("Until the definition changes", None),
    "always": ("Until someone unmutes it", None),
}


class ErrorsPageQuery(msgspec.Struct, frozen=True):
    """The parameters of the list's URL. Invalid ones are ignored: bookmarks may be old."""

    q: str
    definition: str
    status: str
    seen: str
    state: str
    sort: str
    span: str
    page: int

    @classmethod
    def of(cls, request: Request) -> "ErrorsPageQuery":
        """Read the URL."""
        given = request.query_params
        number = given.get("page", "")
        return cls(
            q=given.get("q", "")[:200].strip(),
            definition=given.get("definition", ""),
            status=_one_of(given.get("status"), error_groups.STATUSES, ""),
            seen=_one_of(given.get("seen"), SEEN, ""),
            state=_one_of(given.get("state"), GroupState, GroupState.OPEN),
            sort=_one_of(given.get("sort"), GroupOrder, GroupOrder.LAST_SEEN),
            span=_one_of(given.get("range"), SPANS, "24h"),
            page=min(int(number), MOST_PAGES) if number.isdecimal() and 1 <= len(number) <= 3 else 1,
        )

    def query(self, **others: Any) -> dict[str, Any]:
        """The URL's parameters, with some replaced; those with their default are left out."""
        own = {
            "q": self.q,
            "definition": self.definition,
            "status": self.status,
            "seen": self.seen,
            "state": self.state,
            "sort": self.sort,
            "range": self.span,
        } | others
        usual = {"state": GroupState.OPEN, "sort": GroupOrder.LAST_SEEN, "range": "24h"}
        return {name: None if usual.get(name) == value else value for name, value in own.items()}

    @property
    def is_narrowed(self) -> bool:
        """Whether some groups are left out."""
        return any((self.q, self.definition, self.status, self.seen))

    def filter(self) -> GroupFilter:
        """The filter for the action."""
        return GroupFilter(
            definition_key=self.definition or None,
            status=JobStatus(self.status) if self.status else None,
            since=datetime.now(UTC) - SEEN[self.seen] if self.seen else None,
            state=GroupState(self.state),
            q=self.q or None,
        )


@router.get("/dead-letters")
async def redirect_dead_letters(request: Request, visit: Reader) -> Response:
    """The former address of this page."""
    status = _one_of(request.query_params.get("status"), error_groups.STATUSES, None)
    return RedirectResponse(visit.to("/errors", status=status), status_code=308)


@router.get("/errors")
async def list_groups(request: Request, visit: Reader) -> Response:
    """The groups of errors, with their trends."""
    wanted = ErrorsPageQuery.of(request)
    async with visit.transaction() as tx:
        found = await error_groups.list_groups(
            tx,
            visit.principal,
            wanted.filter(),
            order=GroupOrder(wanted.sort),
            limit=ROWS,
            offset=(wanted.page - 1) * ROWS,
        )
        hours = await error_groups.list_hours(tx, visit.principal, found)
        keys = [one.key for one in await definitions.list_all(tx, visit.principal)]
    now = datetime.now(UTC)
    return visit.page(
        "errors.html",
        wanted=wanted,
        groups=_keep_order(found, request.query_params.get("top", "")),
        more=found.more and wanted.page < MOST_PAGES,
        trends={one: build_trend(hours[one], now, wanted.span) for one in hours},
        definitions=keys,
        **_names(now),
    )


def _keep_order(groups: Sequence[ErrorGroup], top: str) -> list[ErrorGroup]:
    """The groups in the order of the first load: rows must not move while they are read."""
    place = {one: number for number, one in enumerate(top.split(","))}
    return sorted(groups, key=lambda one: place.get(str(one.id), len(place)))


def _names(now: datetime) -> dict[str, Any]:
    """The template's variables that both pages need."""
    return {
        "states": {"open": "Open", "muted": "Muted", "all": "All"},
        "statuses": error_groups.STATUSES,
        "spans": list(SPANS),
        "new_since": now - NEW,
        "reasons": {str(name): text for name, text in bulk_jobs.SKIP_REASONS.items()},
    }


class GroupPageQuery(msgspec.Struct, frozen=True):
    """The parameters of a group's URL."""

    since: str
    status: str
    span: str
    cursor: str

    @classmethod
    def of(cls, request: Request) -> "GroupPageQuery":
        """Read the URL."""
        given = request.query_params
        return cls(
            since=given.get("since", "")[:40].strip(),
            status=_one_of(given.get("status"), error_groups.STATUSES, ""),
            span=_one_of(given.get("range"), SPANS, "7d"),
            cursor=given.get("cursor", "")[:100],
        )

    def query(self, **others: Any) -> dict[str, Any]:
        """The URL's parameters, with some replaced."""
        usual = None if self.span == "7d" else self.span
        return {"since": self.since, "status": self.status, "range": usual, **others}

    def choice(self) -> JobChoice:
        """The chosen jobs; raises InvalidInput for an invalid time."""
        since = _parse_time(self.since) if self.since else None
        return JobChoice(since=since, status=JobStatus(self.status) if self.status else None)

    @property
    def since_field(self) -> str:
        """The time as its field's text; empty if it is invalid."""
        try:
            return _parse_time(self.since).strftime("%Y-%m-%dT%H:%M") if self.since else ""
        except InvalidInput:
            return ""


@router.get("/errors/{group_id}")
async def show_group(request: Request, group_id: UUID, visit: Reader) -> Response:
    """A group: a sample, its trend, and its jobs."""
    wanted = GroupPageQuery.of(request)
    fault: InvalidInput | None = None
    try:
        chosen = wanted.choice()
    except InvalidInput as error:
        fault, chosen = error, JobChoice()
    async with visit.transaction() as tx:
        group = await error_groups.get(tx, visit.principal, group_id)
        found = await error_groups.list_jobs(
            tx, visit.principal, group, chosen, place=_parse_place(wanted.cursor), limit=ROWS
        )
        number = await error_groups.count_jobs(tx, visit.principal, group, chosen)
        sample = await error_groups.get_sample(tx, visit.principal, group)
        hours = (await error_groups.list_hours(tx, visit.principal, [group]))[group.id]
    now = datetime.now(UTC)
    return visit.page(
        "error_group.html",
        group=group,
        wanted=wanted,
        fault=fault,
        sample=sample,
        trend=build_trend(hours, now, wanted.span),
        jobs=found,
        number=number,
        capped=chosen.since is not None and number > bulk_jobs.MOST,
        next_cursor=None if found.last is None else _format_place(found.last.failed_at, found.last.job_id),
        times=_list_times(now),
        mutes=MUTES,
        **_names(now),
    )


def _list_times(now: datetime) -> dict[str, str]:
    """Times that are often asked for, as URL parameters."""
    noon = now.replace(hour=12, minute=0, second=0, microsecond=0)
    noon = noon if noon <= now else noon - timedelta(days=1)
    found = {
        "Last hour": now - timedelta(hours=1),
        "Since noon": noon,
        "Since midnight": now.replace(hour=0, minute=0),
        "Last 24 hours": now - timedelta(hours=24),
    }
    return {text: at.strftime("%Y-%m-%dT%H:%M") for text, at in found.items()}


@router.post("/errors/{group_id}/retry")
async def retry(request: Request, group_id: UUID, visit: Writer) -> Response:
    """Retry one batch of a group's chosen jobs; the page repeats the request until none is left."""
    return await _change(request, group_id, visit, error_groups.retry)


@router.post("/errors/{group_id}/discard")
async def discard(request: Request, group_id: UUID, visit: Writer) -> Response:
    """Discard one batch of a group's chosen jobs; the page repeats the request until none is left."""
    return await _change(request, group_id, visit, error_groups.discard)


async def _change(request: Request, group_id: UUID, visit: Visit, act: Any) -> Response:
    chosen = GroupPageQuery.of(request).choice()
    async with visit.transaction() as tx:
        did = await act(tx, visit.principal, group_id, chosen, limit=bulk_jobs.BATCH)
    return JSONResponse(msgspec.to_builtins(did))


@router.post("/errors/{group_id}/mute")
async def mute(group_id: UUID, visit: Writer) -> Response:
    """Mute a group."""
    form = Form(await visit.form())
    how = form.text("how")
    if how not in MUTES:
        raise InvalidInput("Choose how long to mute it.", [Fault("how", "unknown")])
    seconds = MUTES[how][1]
    async with visit.transaction() as tx:
        await error_groups.mute(
            tx,
            visit.principal,
            group_id,
            until=None if seconds is None else datetime.now(UTC) + seconds,
            until_change=how == "change",
            note=form.some_text("note"),
        )
    return visit.respond("Muted.", to=visit.to(f"/errors/{group_id}"))


@router.post("/errors/{group_id}/unmute")
async def unmute(group_id: UUID, visit: Writer) -> Response:
    """End the muting of a group."""
    async with visit.transaction() as tx:
        await error_groups.unmute(tx, visit.principal, group_id)
    return visit.respond("No longer muted.", to=visit.to(f"/errors/{group_id}"))


def _one_of(given: str | None, known: Any, usual: Any) -> Any:
    """The given value if it is a known one, else the usual one."""
    return given if given in list(known) else usual


def _parse_time(text: str) -> datetime:
    """A form's time, in UTC unless it has an offset."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"{text!r} is not a time. Write it as 2026-01-31T08:30, in UTC.", [Fault("since", "not a time")]
        ) from None
    found = found.replace(tzinfo=UTC) if found.tzinfo is None else found
    if not 1970 <= found.year <= 2999:
        raise InvalidInput("Use a time in the years 1970 to 2999.", [Fault("since", "not a time")])
    return found


def _format_place(failed_at: datetime, job_id: UUID) -> str:
    return f"{failed_at.timestamp():.6f}_{job_id}"


def _parse_place(text: str) -> JobPlace | None:
    """The place of a cursor; None if it is missing or invalid."""
    at, _, name = text.partition("_")
    job_id = uuid_of(name)
    try:
        return None if job_id is None else JobPlace(datetime.fromtimestamp(float(at), UTC), job_id)
    except (ValueError, OverflowError, OSError):
        return None
