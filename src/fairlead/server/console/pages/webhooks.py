"""Outgoing webhooks: the list, each webhook with its deliveries, and a form for a new one."""

import secrets
from base64 import b64encode
from collections.abc import Mapping
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends
from fastapi.responses import Response

from fairlead.actions import triggers, webhooks
from fairlead.errors import DefinitionUnknown, Fault, InvalidInput, Refused, TriggerInvalid
from fairlead.model.access import Permission
from fairlead.model.end_event import END_EVENTS
from fairlead.server.auth import GuardedRoute
from fairlead.server.console import render
from fairlead.server.console.visit import RequiresVisit, Visit, read_form_fields

router = APIRouter(route_class=GuardedRoute)

Reader = Annotated[Visit, Depends(RequiresVisit(Permission.READ_TRIGGERS))]
Manager = Annotated[Visit, Depends(RequiresVisit(Permission.MANAGE_TRIGGERS))]

DELIVERIES = 25
SECRET_BYTES = 32
NEW_WEBHOOK = {"url": "", "definitions": "", "workflows": "", "sign_with": ""}


@router.get("/webhooks")
async def list_webhooks(visit: Reader) -> Response:
    """The webhooks, newest first."""
    async with visit.transaction() as tx:
        found = await webhooks.list_newest(tx, visit.principal)
        latest = await triggers.list_latest_firings(tx, visit.principal, found)
    return visit.page(
        "webhooks.html", webhooks=found, latest=latest, limits=_describe_limits, **_form_facts(NEW_WEBHOOK)
    )


@router.post("/webhooks")
async def create(visit: Manager) -> Response:
    """Create a webhook, and show its signing secret once."""
    sent = await read_form_fields(visit.current_request)
    form = NEW_WEBHOOK | dict(sent)
    events = [value for name, value in sent if name == "event"]
    try:
        _require_events(events)
        async with visit.transaction() as tx:
            made = await webhooks.add(
                tx,
                visit.principal,
                str(visit.tenant),
                url=form["url"].strip(),
                events=events,
                definitions=form["definitions"].split(),
                workflows=form["workflows"].split(),
                sign_with=form["sign_with"].strip() or None,
            )
    except (InvalidInput, TriggerInvalid, DefinitionUnknown) as error:
        return visit.page("webhook_new.html", status=422, **_form_facts(form, events, error))
    if not form["sign_with"].strip():
        return visit.respond("Webhook created.", to=visit.to(f"/webhooks/{made[0].id}"))
    answer = visit.page(
        "webhook_shown.html", webhook=made[0], name=form["sign_with"].strip(), secret=_generate_secret()
    )
    answer.headers["HX-Trigger"] = render.header_json({"fairlead:refresh": {}})
    return answer


@router.get("/webhooks/{webhook_id}")
async def show(webhook_id: UUID, visit: Reader) -> Response:
    """A webhook and its last deliveries."""
    async with visit.transaction() as tx:
        webhook = await webhooks.get(tx, visit.principal, webhook_id)
        deliveries = await webhooks.list_deliveries(tx, visit.principal, webhook_id, limit=DELIVERIES)
    return visit.page(
        "webhook.html", webhook=webhook, deliveries=deliveries, most=DELIVERIES, limits=_describe_limits
    )


@router.post("/webhooks/{webhook_id}/pause")
async def pause(webhook_id: UUID, visit: Manager) -> Response:
    """Stop sending events."""
    async with visit.transaction() as tx:
        await webhooks.set_enabled(tx, visit.principal, webhook_id, enabled=False)
    return visit.respond("Webhook paused.", undo=visit.to(f"/webhooks/{webhook_id}/resume"))


@router.post("/webhooks/{webhook_id}/resume")
async def resume(webhook_id: UUID, visit: Manager) -> Response:
    """Send events again."""
    async with visit.transaction() as tx:
        await webhooks.set_enabled(tx, visit.principal, webhook_id, enabled=True)
    return visit.respond("Webhook resumed.", undo=visit.to(f"/webhooks/{webhook_id}/pause"))


@router.post("/webhooks/{webhook_id}/test")
async def send_test(webhook_id: UUID, visit: Manager) -> Response:
    """Send a test request, and show its job."""
    async with visit.transaction() as tx:
        made = await webhooks.send_test(tx, visit.principal, visit.fl.catalog, webhook_id)
    return visit.respond("Test delivery enqueued.", to=visit.to(f"/jobs/{made.id}"))


@router.post("/webhooks/{webhook_id}/delete")
async def delete(webhook_id: UUID, visit: Manager) -> Response:
    """Delete a webhook."""
    async with visit.transaction() as tx:
        await webhooks.remove(tx, visit.principal, webhook_id)
    return visit.respond("Webhook deleted.", to=visit.to("/webhooks"))


def _require_events(events: list[str]) -> None:
    if not events or not set(events) <= set(END_EVENTS):
        raise InvalidInput("Choose at least one event.", [Fault("event", "choose at least one")])


def _generate_secret() -> str:
    """A new signing secret in the form of Standard Webhooks. It is not stored: the worker's file has it."""
    return "whsec_" + b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def _describe_limits(condition: Mapping[str, Any]) -> str:
    """The definitions or workflows that a webhook is limited to."""
    match condition:
        case {"definition_key": {"in": [*keys]}} | {"workflow": {"in": [*keys]}} if len(condition) == 1:
            return ", ".join(keys)
    return "Filtered" if condition else "All"


def _form_facts(
    values: Mapping[str, str], events: list[str] | None = None, error: Refused | None = None
) -> dict[str, Any]:
    return {"values": values, "chosen": events or [], "events": END_EVENTS, "error": error}
