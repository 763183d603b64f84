"""Events: list, show with their firings, emit, and replay."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from uuid import UUID
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from msgspec.structs import replace

from fairlead.actions import events, triggers
from fairlead.errors import (
    EventInvalid,
    EventReserved,
    Fault,
    PayloadNotJson,
    PayloadTooDeep,
    PayloadTooLarge,
)
from fairlead.model.access import Permission
from fairlead.model.event import Event, NewEvent
from fairlead.model.page import Page
from fairlead.model.schedule.zone import is_known_zone
from fairlead.model.trigger import FiringOutcome
from fairlead.server.auth import GuardedRoute
from fairlead.server.console.forms import Form, uuid_of
from fairlead.server.console.newest_first import fetch_newest
from fairlead.server.console.tenant_choice import choose_tenant
from fairlead.server.console.trigger_form import read_json
from fairlead.server.console.visit import RequiresVisit, Visit

router = APIRouter(route_class=GuardedRoute)

Reader = Annotated[Visit, Depends(RequiresVisit(Permission.READ_EVENTS))]
Emitter = Annotated[Visit, Depends(RequiresVisit(Permission.EMIT_EVENTS))]
Replayer = Annotated[Visit, Depends(RequiresVisit(Permission.MANAGE_TRIGGERS))]

ROWS = 50
FIELDS = ("name", "data", "correlation_id", "occurred_at")


@router.get("/events")
async def list_events(request: Request, visit: Reader) -> Response:
    """The events, newest first, and how many jobs each enqueued."""
    filters = read_filters(request)
    async with visit.transaction() as tx:

        async def fetch(before: UUID | None, limit: int) -> Page[Event]:
            return await events.list_events(tx, visit.principal, before=before, limit=limit, **filters)

        page = await fetch_newest(request, ROWS, fetch)
        tally = await events.count_outcomes(tx, visit.principal, page.items)
    return visit.page(
        "events.html",
        **page.facts(),
        events=page.items,
        tally=tally,
        **filters,
        source_of=source_of,
        outcomes=FiringOutcome,
    )


def read_filters(request: Request) -> dict[str, Any]:
    """The filters of the URL."""
    return {name: request.query_params.get(name) or None for name in ("name", "correlation_id")}


@router.get("/events/new")
async def show_form(request: Request, visit: Emitter) -> Response:
    """An empty form to emit an event; the URL may name the event. A super admin chooses a tenant first."""
    if visit.tenant_id is None:
        return await choose_tenant(visit, what="the event", to="/events/new")
    texts = dict.fromkeys(FIELDS, "") | {"name": request.query_params.get("name", ""), "data": "{\n  \n}"}
    return await _render_form(visit, texts)


@router.post("/events/new")
async def emit(visit: Emitter) -> Response:
    """Emit the form's event, or show the form with its faults."""
    given = await visit.form()
    texts = {name: given.get(name, "") for name in FIELDS}
    form = Form(texts)
    event = NewEvent(
        name=form.text("name"),
        tenant=str(visit.tenant),
        data=read_json(form, "data"),
        correlation_id=form.some_text("correlation_id"),
        occurred_at=form.some_moment("occurred_at", await _tenant_zone(visit)),
    )
    if form.faults:
        return await _render_form(visit, texts, form.faults)
    try:
        async with visit.transaction() as tx:
            event_id = await events.emit(tx, visit.principal, visit.fl.catalog, event)
    except (EventInvalid, EventReserved) as error:
        return await _render_form(visit, texts, error.faults)
    except (PayloadNotJson, PayloadTooDeep, PayloadTooLarge) as error:
        return await _render_form(visit, texts, [Fault("data", error.message)])
    return visit.respond("Event sent. Its jobs follow.", to=visit.to(f"/events/{event_id}"))


@router.get("/events/{event_id}")
async def show(event_id: UUID, visit: Reader) -> Response:
    """An event, its data with secrets masked, and its firings."""
    async with visit.transaction() as tx:
        event, fired = await events.get(tx, visit.principal, event_id)
        whose = replace(visit.principal, tenant_id=event.tenant_id)
        rules = await triggers.list_triggers(tx, whose, event_name=event.name, limit=triggers.MAX_PAGE)
    return visit.page(
        "event.html",
        event=event,
        firings=fired,
        triggers=rules,
        labels={one.id: one.label for one in rules},
        source=source_of(event.data),
    )


@router.post("/events/{event_id}/replay")
async def replay(event_id: UUID, visit: Replayer) -> Response:
    """Emit the same event again, for all triggers that match it now, or for the chosen one."""
    only = uuid_of((await visit.form()).get("trigger_id"))
    async with visit.transaction() as tx:
        new_id = await events.replay(tx, visit.principal, event_id, only_trigger_id=only)
    return visit.respond("Event replayed as this event.", to=visit.to(f"/events/{new_id}"))


def source_of(data: Any) -> str | None:
    """The source and the subject of a CloudEvent."""
    said = data.get("cloudevent") if isinstance(data, Mapping) else None
    if not isinstance(said, Mapping):
        return None
    parts = (said.get("source"), said.get("subject"))
    return " · ".join(one for one in parts if isinstance(one, str)) or None


async def _render_form(visit: Visit, texts: dict[str, str], faults: Sequence[Fault] = ()) -> Response:
    async with visit.transaction() as tx:
        rules = await triggers.list_triggers(
            tx, visit.principal, trigger_type="event", limit=triggers.MAX_PAGE
        )
    return visit.page(
        "emit.html",
        status=422 if faults else 200,
        texts=texts,
        faults={one.path: one.message for one in reversed(faults)},
        names_known=sorted({str(one.event_name) for one in rules}),
        zone=(await _tenant_zone(visit)).key,
    )


async def _tenant_zone(visit: Visit) -> ZoneInfo:
    """The tenant's time zone, in which users enter times."""
    async with visit.transaction() as tx:
        tenant = await triggers.find_tenant(tx, visit.principal, str(visit.tenant), Permission.EMIT_EVENTS)
    return ZoneInfo(tenant.timezone if is_known_zone(tenant.timezone) else "UTC")
