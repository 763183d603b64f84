"""Triggers: the list, and each trigger with its next runs and its firings."""

from typing import Annotated, Any
from uuid import UUID

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from fairlead.actions import definitions, outlook, triggers
from fairlead.actions import preview as previews
from fairlead.actions.preview import PreviewRequest, TriggerPreview
from fairlead.db.tx import Tx
from fairlead.errors import Refused
from fairlead.model.access import Permission
from fairlead.model.event import RESERVED
from fairlead.model.page import Page
from fairlead.model.trigger import Firing, FiringOutcome, Trigger, TriggerType
from fairlead.model.trigger_kinds import describe_trigger
from fairlead.server.auth import GuardedRoute
from fairlead.server.console.firing_strip import draw_strip
from fairlead.server.console.forms import uuid_of
from fairlead.server.console.newest_first import fetch_newest
from fairlead.server.console.trigger_form import FORMS
from fairlead.server.console.visit import RequiresVisit, Visit

router = APIRouter(route_class=GuardedRoute)

Reader = Annotated[Visit, Depends(RequiresVisit(Permission.READ_TRIGGERS))]
Manager = Annotated[Visit, Depends(RequiresVisit(Permission.MANAGE_TRIGGERS))]

ROWS = 50
# How many of a trigger's last firings its row shows.
MARKS = 6


class TriggersPageQuery(msgspec.Struct, frozen=True):
    """The URL's parameters. Invalid ones are ignored."""

    trigger_type: str | None
    is_enabled: bool | None
    definition: str | None
    event: str | None
    cursor: UUID | None

    @classmethod
    def of(cls, request: Request) -> "TriggersPageQuery":
        """Read the URL."""
        given = request.query_params
        kind = given.get("type")
        return cls(
            trigger_type=kind if kind in list(TriggerType) else None,
            is_enabled={"yes": True, "no": False}.get(given.get("enabled", "")),
            definition=given.get("definition") or None,
            event=given.get("event") or None,
            cursor=uuid_of(given.get("cursor")),
        )

    def query(self, **others: Any) -> dict[str, Any]:
        """The URL's parameters, with some replaced."""
        enabled = None if self.is_enabled is None else "yes" if self.is_enabled else "no"
        own = {"type": self.trigger_type, "enabled": enabled}
        return own | {"definition": self.definition, "event": self.event} | others

    def filters(self) -> dict[str, Any]:
        """The filters for the action."""
        return {
            "trigger_type": self.trigger_type,
            "is_enabled": self.is_enabled,
            "definition_key": self.definition,
            "event_name": self.event,
        }

    @property
    def is_narrowed(self) -> bool:
        """Whether some triggers are left out."""
        return any(value is not None for value in self.filters().values())


@router.get("/triggers")
async def list_triggers(request: Request, visit: Reader) -> Response:
    """The triggers, newest first."""
    asked = TriggersPageQuery.of(request)
    async with visit.transaction() as tx:
        found = await triggers.list_triggers(
            tx, visit.principal, before=asked.cursor, limit=ROWS, **asked.filters()
        )
        recent = await triggers.list_recent_firings(tx, visit.principal, found, each=MARKS)
        keys = [one.key for one in await definitions.list_all(tx, visit.principal)]
        times = await outlook.show_outlook(tx, visit.principal, found)
        upcoming = await outlook.list_upcoming(tx, visit.principal)
    return visit.page(
        "triggers.html",
        asked=asked,
        triggers=found,
        recent=recent,
        strip=draw_strip(times),
        upcoming=upcoming,
        when=describe_trigger,
        kinds=FORMS,
        definitions=keys,
        next_cursor=None if found.last is None else found.last.id,
    )


@router.get("/triggers/{trigger_id}")
async def show(request: Request, trigger_id: UUID, visit: Reader) -> Response:
    """A trigger, its next runs, and its firings."""
    outcome = read_outcome(request)
    async with visit.transaction() as tx:
        trigger = await triggers.get(tx, visit.principal, trigger_id)

        async def fetch(before: UUID | None, limit: int) -> Page[Firing]:
            return await triggers.list_firings(
                tx, visit.principal, trigger_id, outcome=outcome, before=before, limit=limit
            )

        page = await fetch_newest(request, ROWS, fetch)
        latest = (await triggers.list_latest_firings(tx, visit.principal, [trigger])).get(trigger_id)
        preview = await _next_runs(tx, visit, trigger)
        times = await outlook.show_outlook(tx, visit.principal, [trigger])
    return visit.page(
        "trigger.html",
        **page.facts(),
        trigger=trigger,
        when=describe_trigger(trigger),
        kind=FORMS[trigger.trigger_type],
        # users cannot emit events with a reserved name
        emittable=not (trigger.event_name or "").startswith(RESERVED),
        preview=preview,
        latest=latest,
        strip=draw_strip(times),
        firings=page.items,
        outcome=outcome,
        outcomes=list(FiringOutcome),
    )


def read_outcome(request: Request) -> FiringOutcome | None:
    """The outcome that the URL asks for."""
    asked = request.query_params.get("outcome")
    return FiringOutcome(asked) if asked in list(FiringOutcome) else None


async def _next_runs(tx: Tx, visit: Visit, trigger: Trigger) -> TriggerPreview | None:
    """The next runs and the payload of a schedule; None if it has none, or if they cannot be computed."""
    wanted = PreviewRequest(trigger_id=trigger.id)
    try:
        return await previews.preview_trigger(tx, visit.principal, visit.fl.catalog, wanted)
    except Refused:  # it needs an event; or its time zone is unknown, which its firings report
        return None


# Actions


@router.post("/triggers/{trigger_id}/delete")
async def delete(trigger_id: UUID, visit: Manager) -> Response:
    """Delete a trigger; its firings and jobs stay."""
    async with visit.transaction() as tx:
        trigger = await triggers.remove(tx, visit.principal, trigger_id)
    return visit.respond(
        f"Trigger {trigger.label} deleted. Existing jobs continue.", to=visit.to("/triggers")
    )


@router.post("/triggers/{trigger_id}/fire")
async def fire(trigger_id: UUID, visit: Manager) -> Response:
    """Fire a schedule now, enabled or not."""
    async with visit.transaction() as tx:
        firing = await triggers.fire_now(tx, visit.principal, visit.fl.catalog, trigger_id)
    return visit.respond(_describe_firing(firing), to=visit.to(f"/triggers/{trigger_id}"))


@router.post("/triggers/{trigger_id}/enable")
async def enable(trigger_id: UUID, visit: Manager) -> Response:
    """Enable a trigger."""
    await _set_enabled(visit, trigger_id, on=True)
    return visit.respond("Trigger enabled.", undo=visit.to(f"/triggers/{trigger_id}/disable"))


@router.post("/triggers/{trigger_id}/disable")
async def disable(trigger_id: UUID, visit: Manager) -> Response:
    """Disable a trigger."""
    await _set_enabled(visit, trigger_id, on=False)
    return visit.respond("Trigger disabled.", undo=visit.to(f"/triggers/{trigger_id}/enable"))


async def _set_enabled(visit: Visit, trigger_id: UUID, *, on: bool) -> None:
    async with visit.transaction() as tx:
        await triggers.change(tx, visit.principal, trigger_id, {"is_enabled": on})


def _describe_firing(firing: Firing) -> str:
    why = ": ".join(text for text in (firing.reason, firing.detail) if text)
    match firing.outcome:
        case FiringOutcome.ENQUEUED:
            return f"Trigger fired. Job {str(firing.job_id)[-8:]} enqueued."
        case FiringOutcome.FAILED:
            return f"Trigger fired, but the job could not be enqueued: {why}"
        case _:
            return f"Trigger fired, but no job was enqueued ({firing.outcome}{': ' if why else ''}{why})."
