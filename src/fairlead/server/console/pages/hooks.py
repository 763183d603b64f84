"""Hooks, at which webhooks of other systems arrive: the list, each hook with its events, and a form for a new one."""

from collections.abc import Mapping
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from fairlead.actions import hook_deliveries, hooks
from fairlead.errors import Fault, HookExists, HookInvalid, InvalidInput, Refused
from fairlead.model.access import Permission
from fairlead.model.hooks.hook import DEFAULT_TOLERANCE, Hook, Refusal, Scheme, UniqueBy
from fairlead.server.auth import GuardedRoute
from fairlead.server.console import render
from fairlead.server.console.lists import after_id, list_page
from fairlead.server.console.visit import RequiresVisit, Visit

router = APIRouter(route_class=GuardedRoute)

Reader = Annotated[Visit, Depends(RequiresVisit(Permission.READ_TRIGGERS))]
Manager = Annotated[Visit, Depends(RequiresVisit(Permission.MANAGE_TRIGGERS))]

ROWS = 50
EVENTS = 25
SCHEMES = (
    (Scheme.GITHUB, "GitHub"),
    (Scheme.STRIPE, "Stripe"),
    (Scheme.SLACK, "Slack"),
    (Scheme.STANDARD, "Standard Webhooks"),
)
UNIQUE_BY = ((UniqueBy.ID, "the sender's id"), (UniqueBy.BODY, "the body"))
KEPT = (("0", "not at all"), ("3600", "an hour"), ("86400", "a day"), ("604800", "a week"))
REFUSALS = {
    Refusal.SIGNATURE_MISSING: "It was not signed, or not in the way of this scheme.",
    Refusal.SIGNATURE_WRONG: "Its signature was wrong: the sender has another secret, or the delivery was forged.",
    Refusal.TOO_OLD: "Its signature was too old, or the clocks differ.",
    Refusal.DISABLED: "The hook is paused.",
    Refusal.RATE_LIMITED: "There were too many deliveries.",
    Refusal.BODY_TOO_LARGE: "Its body was larger than a payload may be.",
    Refusal.BODY_INVALID: "Its body was not JSON.",
    Refusal.EVENT_REFUSED: "It could not become an event: too large, too deep, or the tenant's queue is full.",
}
NEW_HOOK = {
    "name": "",
    "scheme": Scheme.GITHUB.value,
    "event_name": "",
    "secret": "",
    "unique_by": UniqueBy.ID.value,
    "tolerance_seconds": str(DEFAULT_TOLERANCE),
}


@router.get("/hooks")
async def list_hooks(request: Request, visit: Reader) -> Response:
    """The hooks, oldest first."""
    async with visit.transaction() as tx:
        found = await hooks.list_hooks(tx, visit.principal, after=after_id(request), limit=ROWS)
    return visit.page(
        "hooks.html", page=list_page(found), refusals=REFUSALS, **_form_facts(request, NEW_HOOK)
    )


@router.post("/hooks")
async def create(request: Request, visit: Manager) -> Response:
    """Create a hook, and show its URL and, once, its generated secret."""
    form = NEW_HOOK | await visit.form()
    try:
        async with visit.transaction() as tx:
            made = await hooks.create(
                tx,
                visit.principal,
                tenant_id=visit.tenant,
                name=form["name"].strip(),
                scheme=_choose(Scheme, form, "scheme"),
                event_name=form["event_name"].strip() or None,
                secret=form["secret"].strip() or None,
                **_read_rules(form),
            )
    except (HookInvalid, HookExists, InvalidInput) as error:
        return visit.page("hook_new.html", status=422, **_form_facts(request, form, error))
    return _show_secret(request, visit, made)


@router.get("/hooks/{hook_id}")
async def show(request: Request, hook_id: UUID, visit: Reader) -> Response:
    """A hook, its URL and the events that it made."""
    async with visit.transaction() as tx:
        hook = await hooks.get(tx, visit.principal, hook_id)
        made = await hooks.list_events(tx, visit.principal, hook_id, limit=EVENTS)
    return visit.page(
        "hook.html",
        hook=hook,
        url=_url_of(request, hook),
        events=made,
        most=EVENTS,
        refusals=REFUSALS,
        kept=KEPT,
        keep="86400",
        scheme_names=dict(SCHEMES),
        **_settings_facts(hook),
    )


@router.post("/hooks/{hook_id}/settings")
async def change(hook_id: UUID, visit: Manager) -> Response:
    """Change the name of a hook's events, and its checks."""
    form = NEW_HOOK | await visit.form()
    async with visit.transaction() as tx:
        hook = await hooks.get(tx, visit.principal, hook_id)
    try:
        changes = {"event_name": form["event_name"].strip(), **_read_rules(form)}
        async with visit.transaction() as tx:
            await hooks.change(tx, visit.principal, hook_id, changes)
    except (HookInvalid, InvalidInput) as error:
        return visit.page("hook_settings.html", status=422, hook=hook, **_settings_facts(hook, form, error))
    return visit.respond("Hook saved.", to=visit.to(f"/hooks/{hook_id}"))


@router.post("/hooks/{hook_id}/rotate")
async def rotate(request: Request, hook_id: UUID, visit: Manager) -> Response:
    """Give a hook a new secret, and show it once if it was generated."""
    form = {"secret": "", "keep": "86400"} | await visit.form()
    if form["keep"] not in dict(KEPT):
        raise InvalidInput("Choose how long the old secret stays valid.", [Fault("keep", "choose one")])
    try:
        async with visit.transaction() as tx:
            made = await hooks.rotate_secret(
                tx,
                visit.principal,
                hook_id,
                secret=form["secret"].strip() or None,
                keep_seconds=int(form["keep"]),
            )
    except HookInvalid as error:
        async with visit.transaction() as tx:
            hook = await hooks.get(tx, visit.principal, hook_id)
        return visit.page(
            "hook_rotate.html", status=422, hook=hook, kept=KEPT, keep=form["keep"], error=error
        )
    return _show_secret(request, visit, made)


@router.post("/hooks/{hook_id}/pause")
async def pause(hook_id: UUID, visit: Manager) -> Response:
    """Refuse deliveries."""
    async with visit.transaction() as tx:
        await hooks.change(tx, visit.principal, hook_id, {"is_enabled": False})
    return visit.respond("Hook paused.", undo=visit.to(f"/hooks/{hook_id}/resume"))


@router.post("/hooks/{hook_id}/resume")
async def resume(hook_id: UUID, visit: Manager) -> Response:
    """Take deliveries again."""
    async with visit.transaction() as tx:
        await hooks.change(tx, visit.principal, hook_id, {"is_enabled": True})
    return visit.respond("Hook resumed.", undo=visit.to(f"/hooks/{hook_id}/pause"))


@router.post("/hooks/{hook_id}/test")
async def send_test(hook_id: UUID, visit: Manager) -> Response:
    """Emit a test event, and show it."""
    async with visit.transaction() as tx:
        hook = await hooks.get(tx, visit.principal, hook_id)
        event_id = await hook_deliveries.send_test(tx, visit.principal, visit.fl.catalog, hook)
    return visit.respond("Test event emitted.", to=visit.to(f"/events/{event_id}"))


@router.post("/hooks/{hook_id}/delete")
async def delete(hook_id: UUID, visit: Manager) -> Response:
    """Delete a hook."""
    async with visit.transaction() as tx:
        await hooks.remove(tx, visit.principal, hook_id)
    return visit.respond("Hook deleted.", to=visit.to("/hooks"))


def _show_secret(request: Request, visit: Visit, made: hooks.HookSecret) -> Response:
    answer = visit.page(
        "hook_shown.html", hook=made.hook, secret=made.secret, url=_url_of(request, made.hook)
    )
    answer.headers["HX-Trigger"] = render.header_json({"fairlead:refresh": {}})
    return answer


def _server_of(request: Request) -> str:
    return str(request.base_url).rstrip("/").removesuffix("/console")


def _url_of(request: Request, hook: Hook) -> str:
    return _server_of(request) + hook.path


def _choose(kind: Any, form: Mapping[str, str], name: str) -> Any:
    try:
        return kind(form[name])
    except ValueError:
        raise InvalidInput("Choose one of the list.", [Fault(name, "choose one")]) from None


def _read_rules(form: Mapping[str, str]) -> dict[str, Any]:
    try:
        tolerance = int(form["tolerance_seconds"])
    except ValueError:
        raise InvalidInput("Enter a number.", [Fault("tolerance_seconds", "must be a number")]) from None
    return {"unique_by": _choose(UniqueBy, form, "unique_by"), "tolerance_seconds": tolerance}


def _form_facts(request: Request, values: Mapping[str, str], error: Refused | None = None) -> dict[str, Any]:
    return {
        # a rejected secret is not sent back
        "values": {**values, "secret": ""},
        "error": error,
        "server": _server_of(request),
        "scheme_options": SCHEMES,
        "unique_options": UNIQUE_BY,
    }


def _settings_facts(
    hook: Hook, values: Mapping[str, str] | None = None, error: Refused | None = None
) -> dict[str, Any]:
    now = {
        "event_name": hook.event_name,
        "unique_by": hook.unique_by.value,
        "tolerance_seconds": str(hook.tolerance_seconds),
    }
    return {"values": values or now, "error": error, "unique_options": UNIQUE_BY}
