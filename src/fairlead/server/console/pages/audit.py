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
from fairlead.db.tx import Tx
from fairlead.errors import Fault, InvalidInput
from fairlead.model.access import Permission
from fairlead.server.auth import Guarded
from fairlead.server.console import render
from fairlead.server.console.lists import tenant_slugs
from fairlead.server.console.visit import Visit, Visits
from fairlead.store.audit import Filed, Filter

router = APIRouter(route_class=Guarded)

Reader = Annotated[Visit, Depends(Visits(Permission.READ_AUDIT))]

ROWS = 50
# Of what came since the page was opened, no more is counted.
MOST_NEW = 100
NAMES = ("action", "actor", "resource_type", "resource_id", "after", "before", "principal_id")
# What entries are about.
TYPES = (
    "definition",
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
)
# Pages of things that have one, and who may see them.
PAGES = {
    "job": ("/jobs", Permission.READ_JOBS),
    "trigger": ("/triggers", Permission.READ_TRIGGERS),
    "host": ("/hosts", Permission.READ_HOSTS),
}
# Of an entry's details, a row shows so much before it is opened.
SHOWN = 90


class Wanted(msgspec.Struct, frozen=True):
    """What the address asks for."""

    given: dict[str, str]
    cursor: str | None
    # when the first entry that was shown is from: what is newer waits behind a button
    top: datetime | None

    @classmethod
    def of(cls, request: Request) -> "Wanted":
        """Read an address."""
        asked = request.query_params
        return cls(
            given={name: asked.get(name, "").strip()[:200] for name in NAMES},
            cursor=asked.get("cursor") or None,
            top=_moment_or_none(asked.get("top", "")),
        )

    def query(self, **others: Any) -> dict[str, Any]:
        """The same as an address has it, with some things otherwise."""
        return {**self.given, **others}

    def time(self, name: str) -> str:
        """A time as its field has it; what is none is left out of it."""
        moment = _moment_or_none(self.given[name])
        return "" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")

    @property
    def narrowed(self) -> bool:
        """Whether some entries are left out."""
        return any(self.given.values())

    def filter(self) -> Filter:
        """The same as the actions know it; a fault where a time is none."""
        texts = {name: self.given[name] or None for name in NAMES[:4]}
        return Filter(
            **texts,
            principal_id=_id(self.given["principal_id"]),
            after=self._time("after"),
            before=self._time("before"),
        )

    def _time(self, name: str) -> datetime | None:
        text = self.given[name]
        return _moment(name, text) if text else None


@router.get("/audit")
async def listed(request: Request, visit: Reader) -> Response:
    """Who did what, the newest first."""
    wanted = Wanted.of(request)
    fault: InvalidInput | None = None
    page, new = audit.Page([], None), 0
    async with visit.transaction() as tx:
        try:
            page, new = await _rows(tx, visit, wanted)
        except InvalidInput as error:
            fault = error
        slugs = await tenant_slugs(tx, visit)
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
        slugs=slugs,
        link=lambda entry: _link(visit, entry),
        brief=_brief,
    )


async def _rows(tx: Tx, visit: Visit, wanted: Wanted) -> tuple[audit.Page, int]:
    """The entries to show, and how many newer ones there are."""
    asked = wanted.filter()
    if wanted.top is None or wanted.cursor is not None:
        return await audit.listed(tx, visit.principal, asked, limit=ROWS, cursor=wanted.cursor), 0
    # both ends of a range are left out: the one that was shown first is in it
    until = wanted.top + timedelta(microseconds=1)
    shown = replace(asked, before=until if asked.before is None else min(until, asked.before))
    newer = replace(asked, after=wanted.top if asked.after is None else max(wanted.top, asked.after))
    page = await audit.listed(tx, visit.principal, shown, limit=ROWS)
    return page, len((await audit.listed(tx, visit.principal, newer, limit=MOST_NEW)).items)


def _link(visit: Visit, entry: Filed) -> str | None:
    """The page of what an entry is about, where there is one that the visitor may see."""
    path, permission = PAGES.get(entry.resource_type, ("", Permission.READ_AUDIT))
    thing = entry.resource_id
    if entry.resource_type == "resource" and isinstance(entry.details, dict):
        (path, permission), thing = PAGES["host"], entry.details.get("host_id")
    return visit.to(f"{path}/{thing}") if path and thing and visit.may(permission) else None


def _brief(details: Any) -> str:
    """An entry's details in a line, as long as a row has room for."""
    if not isinstance(details, dict):
        return render.pretty(details)[:SHOWN]
    text = ", ".join(f"{name}: {_word(value)}" for name, value in details.items())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _id(text: str) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        raise InvalidInput(f"{text[:40]!r} is not an id.", [Fault("principal_id", "not an id")]) from None


def _moment(name: str, text: str) -> datetime:
    """A time as a form has it, in UTC unless it says otherwise."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"{text[:40]!r} is not a time. Write it as 2026-01-31T08:30, in UTC.", [Fault(name, "not a time")]
        ) from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def _moment_or_none(text: str) -> datetime | None:
    try:
        return _moment("time", text) if text else None
    except InvalidInput:
        return None
