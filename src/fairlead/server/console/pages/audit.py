"""The audit log."""

import json
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from msgspec.structs import replace

from fairlead.actions import audit
from fairlead.actions.audit import AuditFilter, StoredEntry
from fairlead.db.tx import Tx
from fairlead.errors import Fault, InvalidInput
from fairlead.model.access import Permission
from fairlead.model.gate import GateKind
from fairlead.server.auth import GuardedRoute
from fairlead.server.console import render
from fairlead.server.console.lists import tenant_slugs
from fairlead.server.console.visit import RequiresVisit, Visit
from fairlead.server.merged_lists import ListPlace, Part, read_cells, read_merged
from fairlead.server.rest.audit import NEWEST_FIRST

router = APIRouter(route_class=GuardedRoute)

Reader = Annotated[Visit, Depends(RequiresVisit(Permission.READ_AUDIT))]

ROWS = 50
# Newer entries are counted up to this number.
MOST_NEW = 100
NAMES = (
    "group",
    "action",
    "actor",
    "text",
    "resource_type",
    "resource_id",
    "after",
    "before",
    "principal_id",
)
# Actions that are often looked for together.
GROUPS = {
    "pauses": (
        "Pauses and resumes",
        [f"{kind}_{what}" for kind in GateKind for what in ("paused", "resumed")],
    ),
    "jobs": (
        "Cancels, retries, discards",
        [
            "JOB_CANCELED",
            "JOB_CANCEL_REQUESTED",
            "JOBS_CANCELED",
            "JOB_RETRIED",
            "JOB_REPLAYED",
            "JOBS_RETRIED",
            "ERROR_GROUP_DISCARDED",
        ],
    ),
    "access": (
        "Sign-ins and access",
        [
            "user_signed_in",
            "user_signed_out",
            "login_failed",
            "access_denied",
            "user_created",
            "user_changed",
            "token_created",
            "token_revoked",
            "tokens_revoked",
        ],
    ),
}
# Resource types of entries.
TYPES = (
    "definition",
    "error_group",
    "event",
    "host",
    "job",
    "resource",
    "route",
    "system",
    "tenant",
    "token",
    "trigger",
    "user",
    "view",
    "workflow",
    "workflow_run",
)
# Resource types that have pages, and the permission to see them.
PAGES = {
    "job": ("/jobs", Permission.READ_JOBS),
    "trigger": ("/triggers", Permission.READ_TRIGGERS),
    "host": ("/hosts", Permission.READ_HOSTS),
    "error_group": ("/errors", Permission.READ_JOBS),
}
# A closed row shows this many characters of an entry's details.
SHOWN = 90


class AuditPageQuery(msgspec.Struct, frozen=True):
    """The URL's parameters."""

    given: dict[str, str]
    cursor: str | None
    # the time of the first entry at the first load: newer entries wait behind a button
    top: datetime | None

    @classmethod
    def of(cls, request: Request) -> "AuditPageQuery":
        """Read the URL."""
        asked = request.query_params
        return cls(
            given={name: asked.get(name, "").strip()[:200] for name in NAMES},
            cursor=asked.get("cursor") or None,
            top=_parse_moment_or_none(asked.get("top", "")),
        )

    def query(self, **others: Any) -> dict[str, Any]:
        """The URL's parameters, with some replaced."""
        return {**self.given, **others}

    def time(self, name: str) -> str:
        """A time as its field's text; empty if it is invalid."""
        moment = _parse_moment_or_none(self.given[name])
        return "" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    @property
    def is_narrowed(self) -> bool:
        """Whether some entries are left out."""
        return any(self.given.values())

    def filter(self) -> AuditFilter:
        """The filter for the action; raises InvalidInput for an invalid time or id."""
        return AuditFilter(
            actions=self._list_actions(),
            actor_part=self.given["actor"] or None,
            text=self.given["text"] or None,
            resource_type=self.given["resource_type"] or None,
            resource_id=self.given["resource_id"] or None,
            principal_id=_parse_id(self.given["principal_id"]),
            after=self._parse_time("after"),
            before=self._parse_time("before"),
        )

    def _list_actions(self) -> list[str] | None:
        """The actions to show: one, also if it is typed as the list shows it, or those of a group."""
        if typed := self.given["action"].replace(" ", "_"):
            return [typed, typed.lower(), typed.upper()]
        return GROUPS[self.given["group"]][1] if self.given["group"] in GROUPS else None

    def _parse_time(self, name: str) -> datetime | None:
        text = self.given[name]
        return _parse_moment(name, text) if text else None


@router.get("/audit")
async def list_entries(request: Request, visit: Reader) -> Response:
    """The audit entries, newest first."""
    wanted = AuditPageQuery.of(request)
    fault: InvalidInput | None = None
    page, new = audit.AuditPage([], None), 0
    try:
        page, new = await _fetch_rows(visit, wanted)
    except InvalidInput as error:
        fault = error
    slugs: dict[UUID, str] = {}
    for _, found in await read_cells(visit, lambda tx: tenant_slugs(tx, visit)):
        slugs |= found
    first = page.items[0].at if page.items and wanted.cursor is None else None
    return visit.page(
        "audit.html",
        wanted=wanted,
        page=page,
        top=wanted.top or first,
        new=new,
        most_new=MOST_NEW,
        fault=fault,
        types=TYPES,
        look=audit.LOOK,
        groups={name: text for name, (text, _) in GROUPS.items()},
        name_of=_find_name,
        slugs=slugs,
        link=lambda entry: _entry_url(visit, entry),
        brief=_summarize_details,
    )


async def _fetch_rows(visit: Visit, wanted: AuditPageQuery) -> tuple[audit.AuditPage, int]:
    """The entries to show, and how many newer ones there are."""
    asked = wanted.filter()
    if wanted.top is None or wanted.cursor is not None:
        return await _list_entries(visit, asked, ROWS, wanted.cursor), 0
    # the range excludes both ends, but must include the entry at `top`
    until = wanted.top + timedelta(microseconds=1)
    shown = replace(asked, before=until if asked.before is None else min(until, asked.before))
    newer = replace(asked, after=wanted.top if asked.after is None else max(wanted.top, asked.after))
    page = await _list_entries(visit, shown, ROWS)
    return page, len((await _list_entries(visit, newer, MOST_NEW)).items)


async def _list_entries(
    visit: Visit, asked: AuditFilter, limit: int, cursor: str | None = None
) -> audit.AuditPage:
    async def read(tx: Tx, place: ListPlace) -> Part[StoredEntry]:
        found = await audit.list_entries(tx, visit.principal, asked, limit=place.limit, cursor=place.cursor)
        return Part(found.items, found.next_cursor)

    found = await read_merged(visit, ListPlace(limit=limit, cursor=cursor), read, NEWEST_FIRST)
    return audit.AuditPage(list(found.items), found.next_cursor)


def _entry_url(visit: Visit, entry: StoredEntry) -> str | None:
    """The URL of the entry's resource, if it has a page that the visitor may see."""
    path, permission = PAGES.get(entry.resource_type, ("", Permission.READ_AUDIT))
    thing = entry.resource_id
    if entry.resource_type == "resource" and isinstance(entry.details, dict):
        (path, permission), thing = PAGES["host"], entry.details.get("host_id")
    return visit.to(f"{path}/{thing}") if path and thing and visit.may(permission) else None


def _find_name(entry: StoredEntry) -> str | None:
    """The name of what an entry is about, which says more than its id."""
    details = entry.details if isinstance(entry.details, dict) else {}
    found = next(
        (details[key] for key in ("slug", "key", "name", "email", "label") if details.get(key)), None
    )
    return found if isinstance(found, str) else None


def _summarize_details(details: Any) -> str:
    """An entry's details in one line, shortened to fit a row."""
    if not isinstance(details, dict):
        return render.pretty_json(details)[:SHOWN]
    text = ", ".join(f"{name}: {_format_value(value)}" for name, value in details.items())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _parse_id(text: str) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        raise InvalidInput(f"{text[:40]!r} is not an id.", [Fault("principal_id", "not an id")]) from None


def _parse_moment(name: str, text: str) -> datetime:
    """A form's time, in UTC unless it has an offset."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"{text[:40]!r} is not a time. Write it as 2026-01-31T08:30, in UTC.", [Fault(name, "not a time")]
        ) from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def _parse_moment_or_none(text: str) -> datetime | None:
    try:
        return _parse_moment("time", text) if text else None
    except InvalidInput:
        return None
