"""Definitions: all roles may read them, super admins change them."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from fairlead.actions import definition_metrics, definitions, gates
from fairlead.db.tx import Tx
from fairlead.errors import FairleadError, Fault, InvalidInput, NotFound
from fairlead.model.access import Permission
from fairlead.model.definition import Definition, Kind
from fairlead.model.flow import KeyStrategy, Rate, format_rate
from fairlead.model.labels import parse_labels
from fairlead.server.auth import GuardedRoute
from fairlead.server.console import render
from fairlead.server.console.forms import Form
from fairlead.server.console.lists import tenant_slugs
from fairlead.server.console.visit import RequiresVisit, Visit

router = APIRouter(route_class=GuardedRoute)

Reader = Annotated[Visit, Depends(RequiresVisit(Permission.READ_DEFINITIONS))]
Manager = Annotated[Visit, Depends(RequiresVisit(Permission.MANAGE_DEFINITIONS, everywhere=True))]

ROWS = 200
BACKOFF = ("base_seconds", "factor", "cap_seconds", "jitter")
STRATEGIES = (
    (KeyStrategy.QUEUE, "Waits in line"),
    (KeyStrategy.DROP_NEW, "Is dropped"),
    (KeyStrategy.REPLACE_QUEUED, "Replaces the waiting job"),
    (KeyStrategy.CANCEL_RUNNING, "Cancels the running job"),
)
LABELS = ("requires", "prefers")
# Fields that the form shows as text.
PLAIN = (
    "description",
    "kind",
    "timeout_seconds",
    "max_attempts",
    "max_running",
    "max_running_per_tenant",
    "slots",
    "default_priority",
    "resource_pointer",
    "audit_action",
    "retention_days",
    "engine",
    "queue",
    "version",
)


@router.get("/definitions")
async def list_definitions(request: Request, visit: Reader) -> Response:
    """The list of definitions."""
    return await _render_list(request, visit)


async def _render_list(
    request: Request,
    visit: Visit,
    *,
    given: Mapping[str, str] | None = None,
    error: FairleadError | None = None,
) -> Response:
    words = read_words(request)
    after = request.query_params.get("after", "")
    async with visit.transaction() as tx:
        found = [one for one in await find_definitions(tx, visit, words) if one.key > after]
    return visit.page(
        "definitions.html",
        status=200 if error is None else 422,
        rows=found[:ROWS],
        next=found[ROWS - 1].key if len(found) > ROWS else None,
        q=words,
        kinds=[(one, one) for one in Kind],
        given=given or {"key": "", "description": "", "kind": Kind.FUNCTION},
        error=error,
    )


def read_words(request: Request) -> str:
    """What the URL searches for."""
    return request.query_params.get("q", "")[:100].strip().lower()


async def find_definitions(tx: Tx, visit: Visit, words: str) -> list[Definition]:
    """The definitions that have these words in their key or description."""
    found = await definitions.list_all(tx, visit.principal)
    return [one for one in found if words in one.key.lower() or words in one.description.lower()]


@router.post("/definitions")
async def add(request: Request, visit: Manager) -> Response:
    """Create a definition; its page has the other fields."""
    form = Form(await visit.form())
    values = {name: form.text(name) for name in ("key", "description", "kind")}
    try:
        async with visit.transaction() as tx:
            made = await definitions.create(tx, visit.principal, values)
    except FairleadError as error:
        if not error.faults:
            raise
        return await _render_list(request, visit, given=values, error=error)
    return visit.respond(
        f"Definition {made.key} created. Describe its payload next.", to=visit.to(f"/definitions/{made.key}")
    )


@router.get("/definitions/{key}")
async def show(request: Request, key: str, visit: Reader) -> Response:
    """One definition; `span` is the time of its metrics."""
    return await _render_definition(key, visit, span=request.query_params.get("span", ""))


async def _render_definition(
    key: str,
    visit: Visit,
    *,
    span: str = "",
    given: Mapping[str, str] | None = None,
    error: FairleadError | None = None,
) -> Response:
    span = span if span in definition_metrics.SPANS else "1h"
    async with visit.transaction() as tx:
        found = await _require_definition(tx, visit, key)
        slugs = await tenant_slugs(tx, visit)
    async with visit.transaction(as_system=True) as tx:
        versions = await definition_metrics.list_versions(tx, visit.principal, found)
        metrics = await definition_metrics.get_metrics(tx, visit.principal, found, span=span)
    own = " ".join(slugs.get(one, str(one)) for one in found.only_tenants or ())
    return visit.page(
        "definition.html",
        status=200 if error is None else 422,
        definition=found,
        metrics=metrics,
        flow=[
            [int(one.at.timestamp()) for one in metrics.flow],
            [one.succeeded for one in metrics.flow],
            [one.failed for one in metrics.flow],
        ],
        span=span,
        spans=list(definition_metrics.SPANS),
        versions=versions,
        own=own,
        kinds=[(one, one) for one in Kind],
        strategies=STRATEGIES,
        given={"only_tenants": own}
        | (_as_fields(found) if given is None else {**_as_fields(found, ticks=False), **given}),
        error=error,
    )


@router.post("/definitions/{key}")
async def change(key: str, visit: Manager) -> Response:
    """Change a definition, unless it was changed since the form was loaded."""
    form = Form(await visit.form())
    version = form.some_whole("version")
    try:
        values = _read_values(form)
        form.check()
        async with visit.transaction() as tx:
            found = await _require_definition(tx, visit, key)
            if found.version != version:
                raise InvalidInput(
                    "This definition has changed since you opened it. Reload the page and try again.",
                    [
                        Fault(
                            "version",
                            "is not the latest version: reload the page.",
                        )
                    ],
                )
            changed = await definitions.patch(tx, visit.principal, found.key, values)
    except FairleadError as error:
        if not error.faults:
            raise
        return await _render_definition(key, visit, given=form.given, error=error)
    told = f"Saved as version {changed.version}." if changed.version != version else "No changes."
    return visit.respond(told, to=visit.to(f"/definitions/{changed.key}"))


@router.post("/definitions/{key}/pause")
async def pause(key: str, visit: Manager) -> Response:
    """Close a definition's gate."""
    note = Form(await visit.form()).some_text("note")
    async with visit.transaction() as tx:
        await gates.pause(tx, visit.principal, definition=key, note=note)
    undo = visit.to(f"/definitions/{key}/resume")
    return visit.respond("Paused: no new jobs start.", undo=undo)


@router.post("/definitions/{key}/resume")
async def resume(key: str, visit: Manager) -> Response:
    """Open a definition's gate."""
    async with visit.transaction() as tx:
        await gates.resume(tx, visit.principal, definition=key)
    return visit.respond("Processing on: jobs start again.")


async def _require_definition(tx: Tx, visit: Visit, key: str) -> Definition:
    found = await definitions.find(tx, visit.principal, key)
    if found is None:
        raise NotFound(f"There is no definition {key[:130]!r}.", [])
    return found


def _read_values(form: Form) -> dict[str, Any]:
    """The form's values, by field of a definition."""
    return {
        "description": form.text("description"),
        "kind": form.text("kind"),
        "arg_schema": form.json("arg_schema"),
        "timeout_seconds": form.whole("timeout_seconds"),
        "max_attempts": form.whole("max_attempts"),
        "backoff": {name: form.decimal(f"backoff.{name}") for name in BACKOFF},
        "max_running": form.some_whole("max_running"),
        "max_running_per_tenant": form.some_whole("max_running_per_tenant"),
        "rate": form.some_rate("rate"),
        "rate_per_tenant": form.some_rate("rate_per_tenant"),
        "by_key": _read_key_limit(form),
        "slots": form.whole("slots"),
        **{name: _read_labels(form, name) for name in LABELS},
        "default_priority": form.whole("default_priority"),
        "resource_pointer": form.some_text("resource_pointer"),
        "audit_action": form.some_text("audit_action"),
        "retention_days": form.some_whole("retention_days"),
        "is_active": form.is_ticked("is_active"),
        "engine": form.some_text("engine"),
        "queue": form.some_text("queue"),
        definitions.ONLY_TENANTS: form.text("only_tenants").replace(",", " ").split(),
    }


def _read_key_limit(form: Form) -> dict[str, Any] | None:
    """The limit by key; None if its fields are empty."""
    limit = {
        "pointer": form.text("by_key.pointer"),
        "max_running": form.some_whole("by_key.max_running"),
        "rate": form.some_rate("by_key.rate"),
    }
    if not any(limit.values()):
        return None
    return limit | {
        "strategy": form.text("by_key.strategy") or KeyStrategy.QUEUE,
        "fifo": form.is_ticked("by_key.fifo"),
    }


def _as_fields(one: Definition, *, ticks: bool = True) -> dict[str, str]:
    """A definition as form texts; an unticked box is absent."""
    shown = {name: _format_text(getattr(one, name)) for name in PLAIN}
    shown |= {
        f"backoff.{name}": _format_text(getattr(one.backoff, name)).removesuffix(".0") for name in BACKOFF
    }
    shown |= {name: _format_lines(getattr(one, name)) for name in LABELS}
    shown["arg_schema"] = render.pretty_json(one.arg_schema)
    shown |= {"rate": _format_rate(one.rate), "rate_per_tenant": _format_rate(one.rate_per_tenant)}
    key = one.by_key
    shown |= {
        "by_key.pointer": "" if key is None else key.pointer,
        "by_key.max_running": _format_text(None if key is None else key.max_running),
        "by_key.rate": _format_rate(None if key is None else key.rate),
        "by_key.strategy": KeyStrategy.QUEUE if key is None else key.strategy,
    }
    ticked = {"is_active": one.is_active, "by_key.fifo": key is not None and key.fifo}
    return shown | {name: "on" for name, is_on in ticked.items() if ticks and is_on}


def _format_rate(rate: Rate | None) -> str:
    return "" if rate is None else format_rate(rate)


def _read_labels(form: Form, name: str) -> dict[str, str] | None:
    return parse_labels([line for line in form.text(name).splitlines() if line.strip()], name) or None


def _format_lines(labels: Mapping[str, str] | None) -> str:
    return "\n".join(f"{name}={value}" for name, value in sorted((labels or {}).items()))


def _format_text(value: object) -> str:
    return "" if value is None else str(value)
