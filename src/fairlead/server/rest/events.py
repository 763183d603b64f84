"""Events: emit, list, show with their firings, and replay."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from fastapi import Body as Sent
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from msgspec.structs import asdict
from pydantic import Field, ValidationError

from fairlead.actions import events
from fairlead.db.tx import Tx
from fairlead.model.access import Permission
from fairlead.model.event import CLOUD_EVENTS, Event, NewEvent, from_cloud_event, is_cloud_event
from fairlead.model.trigger import Firing
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.idempotency import create_once
from fairlead.server.merged_lists import by_id, list_all
from fairlead.server.paging import MAX_PAGE, PageQuery, cursor_of
from fairlead.server.problems import PREFIX
from fairlead.server.views import Body, Id, Listing, ReadableText, Time, View, to_json

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, tags=["events"])

Reader = Annotated[Caller, Depends(Requires(Permission.READ_EVENTS))]
Emitter = Annotated[Caller, Depends(Requires(Permission.EMIT_EVENTS))]
Replayer = Annotated[Caller, Depends(Requires(Permission.MANAGE_TRIGGERS))]

CLOUD_EVENTS_TYPE = "application/cloudevents+json"


class EventBody(Body):
    """An event to emit."""

    name: ReadableText
    data: dict[str, Any] = Field(default_factory=dict)
    correlation_id: ReadableText | None = None
    occurred_at: Time | None = None
    # the job that emits it: limits the depth of triggers that fire one another
    caused_by: Id | None = None


class ReplayBody(Body):
    """The only trigger to replay an event for, if any."""

    trigger_id: Id | None = None


class EventsQuery(PageQuery):
    """Filters of events."""

    name: ReadableText | None = None
    correlation_id: ReadableText | None = None


class FiringsOfEventQuery(PageQuery):
    """A page of an event's firings."""

    limit: int = Field(MAX_PAGE, ge=1, le=MAX_PAGE)


class EventIdView(View):
    """An accepted event; its jobs are enqueued later."""

    id: UUID


class EventWithFirings(Event, frozen=True, kw_only=True):
    """An event and its firings; more firings are at ?cursor=`next_cursor`."""

    firings: list[Firing]
    next_cursor: str | None


_CLOUD_EVENT: dict[str, Any] = {
    "type": "object",
    "title": "CloudEvent",
    "description": "A CloudEvent 1.0: `type` is the event's name; the other attributes are stored in data.cloudevent.",
    "required": ["specversion", "id", "source", "type"],
    "properties": {
        "specversion": {"const": CLOUD_EVENTS},
        **{name: {"type": "string", "minLength": 1} for name in ("id", "source", "type")},
        "time": {"type": ["string", "null"], "format": "date-time"},
        "data": {"type": ["object", "null"]},
    },
}
_BODIES = {
    "application/json": {"schema": {"anyOf": [EventBody.model_json_schema(), _CLOUD_EVENT]}},
    CLOUD_EVENTS_TYPE: {"schema": _CLOUD_EVENT},
}


@router.post(
    "/events",
    status_code=202,
    response_model=EventIdView,
    openapi_extra={"requestBody": {"content": _BODIES, "required": True}},
)
async def emit(
    request: Request, document: Annotated[dict[str, Any], Sent()], caller: Emitter
) -> JSONResponse:
    """Emit an event, in our own format or as a CloudEvent 1.0; its triggers enqueue their jobs later."""
    new = _parse_event(request, document, tenant=str(caller.tenant))

    async def emit_in_tx(tx: Tx) -> tuple[int, Any]:
        return _accept(await events.emit(tx, caller.principal, caller.fl.catalog, new))

    return await create_once(request, caller, emit_in_tx)


@router.get("/events")
async def list_events(query: Annotated[EventsQuery, Query()], caller: Reader) -> Listing[Event]:
    """Events, newest first."""
    return await list_all(
        caller,
        query,
        lambda tx, page: events.list_events(
            tx,
            caller.principal,
            name=page.name,
            correlation_id=page.correlation_id,
            before=page.after_id,
            limit=page.limit,
        ),
        by_id(newest_first=True),
    )


@router.get("/events/{event_id}")
async def show(
    event_id: UUID, query: Annotated[FiringsOfEventQuery, Query()], caller: Reader
) -> EventWithFirings:
    """An event, and its firing for each trigger that it matched."""
    async with caller.transaction() as tx:
        event, found = await events.get(
            tx, caller.principal, event_id, after=query.after_id, limit=query.limit
        )
    return EventWithFirings(**asdict(event), firings=found, next_cursor=cursor_of(found, lambda one: one.id))


@router.post("/events/{event_id}/replay", status_code=202, response_model=EventIdView)
async def replay(
    request: Request, event_id: UUID, caller: Replayer, body: ReplayBody | None = None
) -> JSONResponse:
    """Emit the same event again with a new id, for all triggers that match it now, or for one."""
    only = None if body is None else body.trigger_id

    async def replay_in_tx(tx: Tx) -> tuple[int, Any]:
        return _accept(await events.replay(tx, caller.principal, event_id, only_trigger_id=only))

    return await create_once(request, caller, replay_in_tx)


def _accept(event_id: UUID) -> tuple[int, Any]:
    return 202, to_json(EventIdView(id=event_id))


def _parse_event(request: Request, document: dict[str, Any], *, tenant: str) -> NewEvent:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == CLOUD_EVENTS_TYPE or is_cloud_event(document):
        return from_cloud_event({"specversion": None, **document}, tenant=tenant)
    try:
        body = EventBody.model_validate(document)
    except ValidationError as error:
        raise RequestValidationError(
            [{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_url=False)]
        ) from None
    return NewEvent(tenant=tenant, **body.model_dump())
