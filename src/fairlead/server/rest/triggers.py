"""Triggers: the rules that enqueue jobs, their firings, and previews."""

from typing import Annotated, Any, Self
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse
from msgspec.structs import asdict
from pydantic import Field

from fairlead.actions import backfill as backfills
from fairlead.actions import preview as previews
from fairlead.actions import triggers
from fairlead.actions.preview import PreviewRequest, TriggerPreview
from fairlead.db.tx import Tx
from fairlead.errors import Fault
from fairlead.model.access import Permission
from fairlead.model.job import MAX_PRIORITY
from fairlead.model.schedule.backfill import Backfill, BackfillPreview
from fairlead.model.trigger import Firing, FiringOutcome, Trigger, TriggerRequest, TriggerType
from fairlead.model.trigger_kinds import kind_of
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.idempotency import create_once
from fairlead.server.merged_lists import by_id, list_all
from fairlead.server.paging import PageQuery, list_page
from fairlead.server.problems import PREFIX
from fairlead.server.struct_body import StructBody
from fairlead.server.views import (
    DEFINITION_KEY,
    Body,
    Id,
    Listing,
    OneOf,
    ReadableText,
    Time,
    choose_alias,
    to_json,
)

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, tags=["triggers"])

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


class BackfillRangeBody(Body):
    """A range of time: instants at `from` or later, and before `to`."""

    since: Time = Field(alias="from")
    until: Time | None = Field(None, alias="to", description="By default now. Not in the future.")


class BackfillPreviewBody(BackfillRangeBody):
    """The range to preview."""

    count: int = Field(100, ge=1, le=backfills.MOST_SHOWN, description="How many instants to list.")


class BackfillBody(BackfillRangeBody):
    """The range to backfill."""

    priority: int | None = Field(
        None, ge=-MAX_PRIORITY, le=MAX_PRIORITY, description="Of the jobs (default: the definition's)."
    )


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


class DescribedTrigger(Trigger, frozen=True, kw_only=True):
    """A trigger. `in_words` describes when a schedule runs."""

    in_words: str | None

    @classmethod
    def of(cls, trigger: Trigger, **others: Any) -> Self:
        """The trigger with its times in words."""
        return cls(**asdict(trigger), in_words=kind_of(trigger).describe_times(trigger), **others)


class DescribedSavedTrigger(DescribedTrigger, frozen=True, kw_only=True):
    """A saved trigger; `warnings` name the parts that cannot work."""

    warnings: list[Fault]


@router.get("/jobs/triggers")
async def list_triggers(
    query: Annotated[TriggersQuery, Query()], caller: Reader
) -> Listing[DescribedTrigger]:
    """Triggers, newest first."""
    found = await list_all(
        caller,
        query,
        lambda tx, page: triggers.list_triggers(
            tx, caller.principal, before=page.after_id, limit=page.limit, **page.filters()
        ),
        by_id(newest_first=True),
    )
    return Listing([DescribedTrigger.of(one) for one in found.items], found.next_cursor)


@router.post("/jobs/triggers", status_code=201, response_model=DescribedSavedTrigger)
async def create(request: Request, body: TriggerBody, caller: Manager) -> JSONResponse:
    """Create a trigger of the tenant."""
    tenant = str(caller.tenant)

    async def create_in_tx(tx: Tx) -> tuple[int, Any]:
        made = await triggers.create(tx, caller.principal, tenant, body.document)
        return 201, to_json(DescribedSavedTrigger.of(made.trigger, warnings=made.warnings))

    return await create_once(request, caller, create_in_tx)


@router.post("/jobs/triggers/preview")
async def preview(body: PreviewBody, caller: Manager) -> TriggerPreview:
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
        return await previews.preview_trigger(tx, caller.principal, caller.fl.catalog, wanted)


@router.get("/jobs/triggers/{trigger_id}")
async def show(trigger_id: UUID, caller: Reader) -> DescribedTrigger:
    """A trigger."""
    async with caller.transaction() as tx:
        return DescribedTrigger.of(await triggers.get(tx, caller.principal, trigger_id))


@router.patch("/jobs/triggers/{trigger_id}")
async def change(trigger_id: UUID, body: TriggerPatch, caller: Manager) -> DescribedSavedTrigger:
    """Change the given fields of a trigger; its next run is computed again if needed."""
    async with caller.transaction() as tx:
        made = await triggers.change(tx, caller.principal, trigger_id, body.document)
    return DescribedSavedTrigger.of(made.trigger, warnings=made.warnings)


@router.delete("/jobs/triggers/{trigger_id}")
async def remove(trigger_id: UUID, caller: Manager) -> DescribedTrigger:
    """Delete a trigger. Its firings and jobs stay."""
    async with caller.transaction() as tx:
        return DescribedTrigger.of(await triggers.remove(tx, caller.principal, trigger_id))


@router.post("/jobs/triggers/{trigger_id}/fire", response_model=Firing)
async def fire(request: Request, trigger_id: UUID, caller: Manager) -> JSONResponse:
    """Fire a schedule now, enabled or not. For an event trigger, replay an event instead."""

    async def fire_in_tx(tx: Tx) -> tuple[int, Any]:
        firing = await triggers.fire_now(tx, caller.principal, caller.fl.catalog, trigger_id)
        return 200, to_json(firing)

    return await create_once(request, caller, fire_in_tx)


@router.post("/jobs/triggers/{trigger_id}/backfill/preview")
async def preview_backfill(trigger_id: UUID, body: BackfillPreviewBody, caller: Reader) -> BackfillPreview:
    """Count and list the instants of a schedule in a past range, and the jobs that they have. Nothing is changed."""
    async with caller.transaction() as tx:
        return await backfills.preview_backfill(
            tx, caller.principal, trigger_id, since=body.since, until=body.until, count=body.count
        )


@router.post("/jobs/triggers/{trigger_id}/backfill", response_model=Backfill)
async def backfill(request: Request, trigger_id: UUID, body: BackfillBody, caller: Manager) -> JSONResponse:
    """Fire the instants of a schedule in a past range that have no job yet, all or none, enabled or not.

    The same range again enqueues nothing. More than `max_backfill` instants are refused: `backfill_too_large`.
    """

    async def backfill_in_tx(tx: Tx) -> tuple[int, Any]:
        done = await backfills.backfill(
            tx,
            caller.principal,
            caller.fl.catalog,
            trigger_id,
            since=body.since,
            until=body.until,
            priority=body.priority,
        )
        return 200, to_json(done)

    return await create_once(request, caller, backfill_in_tx)


@router.get("/jobs/triggers/{trigger_id}/firings")
async def firings(
    trigger_id: UUID, query: Annotated[FiringsQuery, Query()], caller: Reader
) -> Listing[Firing]:
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
    return list_page(found, lambda one: one.id)
