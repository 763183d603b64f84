"""Triggers: the rules that enqueue jobs, their firings, and previews."""

from datetime import datetime
from typing import Annotated, Any, Self
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse
from pydantic import Field

from fairlead.actions import preview as previews
from fairlead.actions import triggers
from fairlead.actions.preview import PreviewRequest, PreviewResult
from fairlead.actions.triggers import SavedTrigger
from fairlead.db.tx import Tx
from fairlead.model.access import Permission
from fairlead.model.trigger import CatchUp, FiringOutcome, Overlap, Trigger, TriggerRequest, TriggerType
from fairlead.model.trigger_kinds import kind_of
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.idempotency import create_once
from fairlead.server.paging import PageQuery, page_of
from fairlead.server.struct_body import StructBody
from fairlead.server.views import (
    DEFINITION_KEY,
    FaultView,
    FiringView,
    Id,
    ListOf,
    OneOf,
    ReadableText,
    View,
    choose_alias,
    to_json,
)

router = APIRouter(route_class=GuardedRoute, tags=["triggers"])

Reader = Annotated[Caller, Depends(Requires(Permission.READ_TRIGGERS))]
Manager = Annotated[Caller, Depends(Requires(Permission.MANAGE_TRIGGERS))]

MOST_RUNS = 100
ALIASES = {"definition_key": DEFINITION_KEY}


class TriggerBody(StructBody, of=TriggerRequest, aliases=ALIASES):
    """A new trigger: for an event_name, on a cron_expr, or every_seconds."""


class TriggerPatch(StructBody, of=TriggerRequest, partial=True, aliases=ALIASES):
    """Changes to a trigger; omitted fields keep their value, null resets a field."""


class PreviewBody(TriggerPatch):
    """A trigger to preview: an existing one by id, with or without changes; or all fields of a new one.

    An event trigger also needs an event: event_id of a past one, or a sample of its data.
    """

    trigger_id: Id | None = None
    event_id: Id | None = None
    sample: dict[str, Any] | None = None
    count: int = Field(5, ge=1, le=MOST_RUNS, description="How many runs of a schedule.")


class TriggersQuery(PageQuery):
    """Filters of triggers."""

    trigger_type: OneOf[TriggerType] | None = None
    event_name: ReadableText | None = None
    definition_key: ReadableText | None = None
    definition: ReadableText | None = Field(None, description="Another name of definition_key.")
    is_enabled: bool | None = None

    def filters(self) -> dict[str, Any]:
        """The filters for the action."""
        given = self.model_dump(exclude={"limit", "cursor"})
        key = choose_alias(definition_key=given["definition_key"], definition=given.pop("definition"))
        return {**given, "definition_key": key}


class FiringsQuery(PageQuery):
    """Filters of firings."""

    outcome: OneOf[FiringOutcome] | None = None


class TriggerView(View):
    """A trigger. `in_words` describes when a schedule runs."""

    id: UUID
    tenant_id: UUID
    tenant: str
    label: str
    is_enabled: bool
    trigger_type: TriggerType
    event_name: str | None
    filter: Any
    cron_expr: str | None
    timezone: str | None
    every_seconds: int | None
    start_at: datetime | None
    definition_id: UUID
    definition_key: str
    payload_template: Any
    dedupe_window_seconds: int
    catch_up: CatchUp
    overlap: Overlap
    owner: str | None
    name: str | None
    next_fire_at: datetime | None
    last_fired_at: datetime | None
    created_by: str | None
    created_at: datetime
    updated_at: datetime
    in_words: str | None = None

    @classmethod
    def of(cls, thing: Trigger) -> Self:
        """The view of a trigger."""
        return super().of(thing).model_copy(update={"in_words": kind_of(thing).describe_times(thing)})


class SavedTriggerView(TriggerView):
    """A saved trigger; `warnings` name the parts that cannot work."""

    warnings: list[FaultView] = Field(default_factory=list)


class UpcomingRunView(View):
    """A future run: its time, the local time, and a note if daylight saving changes it."""

    at: datetime
    local: datetime
    offset: str
    note: str | None


class PreviewView(View):
    """What a trigger would do. `payload`, `valid` and `errors` are for the event, or for the first run."""

    trigger_type: TriggerType
    would: PreviewResult
    payload: Any
    valid: bool | None
    errors: list[FaultView]
    job_id: UUID | None = Field(description="The existing job, if the new one would be deduplicated.")
    matches: bool | None = Field(description="Whether the event matches the trigger.")
    in_words: str | None
    runs: list[UpcomingRunView]


@router.get("/jobs/triggers")
async def list_triggers(query: Annotated[TriggersQuery, Query()], caller: Reader) -> ListOf[TriggerView]:
    """Triggers, newest first."""
    async with caller.transaction() as tx:
        found = await triggers.list_triggers(
            tx, caller.principal, before=query.after_id, limit=query.limit, **query.filters()
        )
    return page_of(TriggerView, found, lambda one: one.id)


@router.post("/jobs/triggers", status_code=201, response_model=SavedTriggerView)
async def create(request: Request, body: TriggerBody, caller: Manager) -> JSONResponse:
    """Create a trigger of the tenant."""
    tenant = str(caller.tenant)

    async def create_in_tx(tx: Tx) -> tuple[int, Any]:
        return 201, to_json(_saved_view(await triggers.create(tx, caller.principal, tenant, body.document)))

    return await create_once(request, caller, create_in_tx)


@router.post("/jobs/triggers/preview")
async def preview(body: PreviewBody, caller: Reader) -> PreviewView:
    """Preview a trigger: a schedule's next runs, or its answer to an event. Nothing is changed."""
    wanted = PreviewRequest(
        trigger_id=body.trigger_id,
        tenant=None if body.trigger_id is not None else str(caller.tenant),
        document=body.document,
        event_id=body.event_id,
        sample=body.sample,
        count=body.count,
    )
    async with caller.transaction() as tx:
        found = await previews.preview_trigger(tx, caller.principal, caller.fl.catalog, wanted)
    return PreviewView.of(found)


@router.get("/jobs/triggers/{trigger_id}")
async def show(trigger_id: UUID, caller: Reader) -> TriggerView:
    """A trigger."""
    async with caller.transaction() as tx:
        return TriggerView.of(await triggers.get(tx, caller.principal, trigger_id))


@router.patch("/jobs/triggers/{trigger_id}")
async def change(trigger_id: UUID, body: TriggerPatch, caller: Manager) -> SavedTriggerView:
    """Change the given fields of a trigger; its next run is computed again if needed."""
    async with caller.transaction() as tx:
        return _saved_view(await triggers.change(tx, caller.principal, trigger_id, body.document))


@router.delete("/jobs/triggers/{trigger_id}")
async def remove(trigger_id: UUID, caller: Manager) -> TriggerView:
    """Delete a trigger. Its firings and jobs stay."""
    async with caller.transaction() as tx:
        return TriggerView.of(await triggers.remove(tx, caller.principal, trigger_id))


@router.post("/jobs/triggers/{trigger_id}/fire", response_model=FiringView)
async def fire(request: Request, trigger_id: UUID, caller: Manager) -> JSONResponse:
    """Fire a schedule now, enabled or not. For an event trigger, replay an event instead."""

    async def fire_in_tx(tx: Tx) -> tuple[int, Any]:
        firing = await triggers.fire_now(tx, caller.principal, caller.fl.catalog, trigger_id)
        return 200, to_json(FiringView.of(firing))

    return await create_once(request, caller, fire_in_tx)


@router.get("/jobs/triggers/{trigger_id}/firings")
async def firings(
    trigger_id: UUID, query: Annotated[FiringsQuery, Query()], caller: Reader
) -> ListOf[FiringView]:
    """A trigger's firings, newest first."""
    async with caller.transaction() as tx:
        found = await triggers.list_firings(
            tx,
            caller.principal,
            trigger_id,
            outcome=query.outcome,
            before=query.after_id,
            limit=query.limit,
        )
    return page_of(FiringView, found, lambda one: one.id)


def _saved_view(made: SavedTrigger) -> SavedTriggerView:
    warnings = [FaultView.of(one) for one in made.warnings]
    return SavedTriggerView.of(made.trigger).model_copy(update={"warnings": warnings})
