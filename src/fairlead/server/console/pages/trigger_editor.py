"""The editor of a trigger, with a preview that follows the input."""

from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Depends
from fastapi.responses import Response
from msgspec.structs import replace

from fairlead.actions import definitions, events, triggers
from fairlead.actions import preview as previews
from fairlead.actions.preview import PreviewRequest, PreviewResult, TriggerPreview, read_clock
from fairlead.actions.triggers import SavedTrigger
from fairlead.db.tx import Tx
from fairlead.errors import Fault, Refused
from fairlead.model.access import Permission, Tenant
from fairlead.model.end_event import END_EVENTS
from fairlead.model.event import Event
from fairlead.model.schedule.spec import ScheduledRun
from fairlead.model.schedule.zone import is_known_zone, list_zone_names
from fairlead.model.trigger import CatchUp, Overlap, Trigger, TriggerRequest, TriggerType
from fairlead.model.trigger_kinds import KINDS
from fairlead.server.auth import GuardedRoute
from fairlead.server.console import trigger_form
from fairlead.server.console.forms import Form
from fairlead.server.console.tenant_choice import choose_tenant
from fairlead.server.console.trigger_form import Draft
from fairlead.server.console.visit import RequiresVisit, Visit

router = APIRouter(route_class=GuardedRoute)

Manager = Annotated[Visit, Depends(RequiresVisit(Permission.MANAGE_TRIGGERS))]

# How many past events the preview offers.
CHOICES = 10
SAMPLE = "sample"


@router.get("/triggers/new")
async def show_editor(visit: Manager) -> Response:
    """An empty editor; the URL may name the event or the definition. A super admin chooses a tenant first."""
    if visit.tenant_id is None:
        return await choose_tenant(visit, what="the new trigger", to="/triggers/new")
    given = visit.current_request.query_params
    event = given.get("event", "")
    texts = trigger_form.empty_texts(
        event_name=event,
        definition_key=given.get("definition"),
        trigger_type=TriggerType.EVENT if event else given.get("type"),
    )
    async with visit.transaction() as tx:
        return await _render_editor(tx, visit, await _find_tenant(tx, visit), Draft(texts))


@router.post("/triggers/new")
async def create(visit: Manager) -> Response:
    """Create the trigger, or show the editor with its faults."""
    given = await visit.form()
    async with visit.transaction() as tx:
        tenant = await _find_tenant(tx, visit)
        draft = trigger_form.draft_of(given, _zone(tenant.timezone))
        faults = [*trigger_form.find_missing_label(draft), *draft.faults]
        if not faults:
            try:
                made = await triggers.create(tx, visit.principal, str(tenant.id), draft.document)
            except Refused as error:
                faults = trigger_form.faults_of(error)
        if faults:
            return await _render_editor(tx, visit, tenant, draft, faults=faults)
    return visit.respond(
        _describe_result("Trigger created.", made), to=visit.to(f"/triggers/{made.trigger.id}")
    )


@router.get("/triggers/{trigger_id}/edit")
async def edit(trigger_id: UUID, visit: Manager) -> Response:
    """The editor with an existing trigger."""
    async with visit.transaction() as tx:
        old = await triggers.get(tx, visit.principal, trigger_id)
        texts = trigger_form.texts_of(old, _zone(old.tenant_timezone))
        return await _render_editor(tx, visit, await _find_tenant(tx, visit, old), Draft(texts), old=old)


@router.post("/triggers/{trigger_id}/edit")
async def change(trigger_id: UUID, visit: Manager) -> Response:
    """Change the trigger, or show the editor with its faults."""
    given = await visit.form()
    async with visit.transaction() as tx:
        old = await triggers.get(tx, visit.principal, trigger_id)
        draft = trigger_form.draft_of(given, _zone(old.tenant_timezone), old=old)
        to = visit.to(f"/triggers/{trigger_id}")
        if not draft.changes:
            return visit.respond("No changes.", to=to)
        faults = [*trigger_form.find_missing_label(draft), *draft.faults]
        if not faults:
            try:
                made = await triggers.change(tx, visit.principal, trigger_id, draft.changes)
            except Refused as error:
                faults = trigger_form.faults_of(error)
        if faults:
            return await _render_editor(
                tx, visit, await _find_tenant(tx, visit, old), draft, old=old, faults=faults
            )
    return visit.respond(_describe_result("Trigger saved.", made), to=to)


@router.post("/triggers/preview")
async def preview(visit: Manager) -> Response:
    """The preview part of the editor, for a new trigger."""
    async with visit.transaction() as tx:
        return await _render_preview(tx, visit)


@router.post("/triggers/{trigger_id}/preview")
async def preview_changed(trigger_id: UUID, visit: Manager) -> Response:
    """The preview part of the editor, for an existing trigger."""
    async with visit.transaction() as tx:
        return await _render_preview(tx, visit, await triggers.get(tx, visit.principal, trigger_id))


async def _render_preview(tx: Tx, visit: Visit, old: Trigger | None = None) -> Response:
    given = await visit.form()
    tenant = await _find_tenant(tx, visit, old)
    draft = trigger_form.draft_of(given, _zone(tenant.timezone), old=old)
    past = await _list_past_events(tx, visit, tenant, draft)
    choice = _choose_event(given, past)
    sample = Form(given)
    data = trigger_form.read_json(sample, "sample")
    faults = [*draft.faults, *(sample.faults if choice == SAMPLE else ())]
    found: TriggerPreview | None = None
    if not faults:
        wanted = _build_preview_request(draft, old, tenant, choice, data)
        try:
            found = await previews.preview_trigger(tx, visit.principal, visit.fl.catalog, wanted)
        except Refused as error:
            faults = trigger_form.faults_of(error)
    words, runs = await _next_runs(tx, draft, tenant) if found is None else (found.in_words, found.runs)
    return visit.page(
        "trigger_preview.html",
        found=found,
        words=words,
        runs=runs,
        faults=_group_by_field(faults),
        past=past,
        choice=choice,
        event=next((one for one in past if str(one.id) == choice), None),
        kind=draft.kind,
        definition_key=draft.texts["definition_key"],
        Would=PreviewResult,
    )


async def _next_runs(tx: Tx, draft: Draft, tenant: Tenant) -> tuple[str | None, Sequence[ScheduledRun]]:
    """When a schedule would run, if only its other fields have faults."""
    preview_times = draft.kind.preview_times
    if preview_times is None or {one.path for one in draft.faults} & trigger_form.TIMES:
        return None, []
    return preview_times(TriggerRequest(**draft.document), _zone(tenant.timezone).key, await read_clock(tx))


def _build_preview_request(
    draft: Draft, old: Trigger | None, tenant: Tenant, choice: str, sample: Any
) -> PreviewRequest:
    """The preview request; it needs no label."""
    document = draft.document | {"label": draft.texts["label"] or "preview"}
    wanted = PreviewRequest(
        trigger_id=None if old is None else old.id,
        tenant=str(tenant.id),
        document=document if old is None else draft.changes,
    )
    if not draft.kind.takes_event:
        return wanted
    if choice == SAMPLE:
        return replace(wanted, sample=sample)
    return replace(wanted, event_id=UUID(choice))


async def _list_past_events(tx: Tx, visit: Visit, tenant: Tenant, draft: Draft) -> list[Event]:
    """The last events with the entered name."""
    name = draft.texts["event_name"].strip()
    if not draft.kind.takes_event or not name:
        return []
    whose = replace(visit.principal, tenant_id=tenant.id)
    return await events.list_events(tx, whose, name=name, limit=CHOICES)


def _choose_event(given: dict[str, str], past: Sequence[Event]) -> str:
    """The chosen event if it is in `past`, else the newest, or a sample."""
    chosen = given.get("event_id", "")
    if chosen == SAMPLE or any(str(one.id) == chosen for one in past):
        return chosen
    return str(past[0].id) if past else SAMPLE


async def _render_editor(
    tx: Tx,
    visit: Visit,
    tenant: Tenant,
    draft: Draft,
    *,
    old: Trigger | None = None,
    faults: Sequence[Fault] = (),
) -> Response:
    whose = replace(visit.principal, tenant_id=tenant.id)
    recent = await events.list_events(tx, whose, limit=CHOICES * 2)
    return visit.page(
        "trigger_editor.html",
        status=422 if faults else 200,
        old=old,
        texts=draft.texts,
        kind=draft.kind,
        kinds=trigger_form.FORMS,
        windows={name: kind.defaults.get("dedupe_window_seconds", 0) for name, kind in KINDS.items()},
        faults=_group_by_field(faults),
        tenant=tenant,
        definitions=[one for one in await definitions.list_all(tx, visit.principal) if one.is_active],
        event_names=sorted({*END_EVENTS, *(one.name for one in recent)}),
        zones=sorted(list_zone_names()),
        units=list(trigger_form.UNITS),
        catch_ups=list(CatchUp),
        overlaps=list(Overlap),
    )


def _group_by_field(faults: Sequence[Fault]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in faults:
        found[one.path] = f"{found[one.path]}; {one.message}" if one.path in found else one.message
    return found


async def _find_tenant(tx: Tx, visit: Visit, trigger: Trigger | None = None) -> Tenant:
    """The trigger's tenant."""
    whose = visit.tenant if trigger is None else trigger.tenant_id
    return await triggers.find_tenant(tx, visit.principal, str(whose), Permission.READ_TRIGGERS)


def _zone(name: str) -> ZoneInfo:
    # an unknown time zone must not prevent its correction
    return ZoneInfo(name if is_known_zone(name) else "UTC")


def _describe_result(what: str, made: SavedTrigger) -> str:
    if not made.warnings:
        return what
    first = made.warnings[0]
    if first.path and not first.path.startswith("/"):  # a field of the trigger
        return f"{what} But {first.path} {first.message}."
    return f"{what} But its payload may not be valid for {made.trigger.definition_key}: {first.path or '/'} {first.message}."
