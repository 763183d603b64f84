"""Hosts: machines whose jobs only their agents run."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from fairlead.actions import hosts
from fairlead.errors import Fault, HostExists, InvalidInput, ResourceExists
from fairlead.model.access import Permission
from fairlead.model.host import Host
from fairlead.server.auth import GuardedRoute
from fairlead.server.console.lists import after_id, list_page, tenant_slugs
from fairlead.server.console.visit import RequiresVisit, Visit

router = APIRouter(route_class=GuardedRoute)

Reader = Annotated[Visit, Depends(RequiresVisit(Permission.READ_HOSTS))]
Manager = Annotated[Visit, Depends(RequiresVisit(Permission.MANAGE_HOSTS))]

ROWS = 30
# How many resources a host's card names.
NAMED = 3
MOST_RESOURCES = 100
MOST_HOSTS = 500
NEW_HOST = {"name": "", "max_running": "1", "labels": ""}
NEW_RESOURCE = {"kind": "", "name": ""}


@router.get("/hosts")
async def list_hosts(request: Request, visit: Reader) -> Response:
    """The hosts, their state, and their running jobs."""
    async with visit.transaction() as tx:
        page = list_page(await hosts.list_hosts(tx, visit.principal, after=after_id(request), limit=ROWS))
        ids = [one.id for one in page.items]
        running = await hosts.list_running(tx, visit.principal, ids)
        things = {
            one: await hosts.list_resources(tx, visit.principal, host_id=one, limit=NAMED + 1) for one in ids
        }
        slugs = await tenant_slugs(tx, visit)
    return visit.page(
        "hosts.html",
        page=page,
        running=running,
        things=things,
        named=NAMED,
        slugs=slugs,
        values=NEW_HOST,
        error=None,
    )


@router.post("/hosts")
async def add(visit: Manager) -> Response:
    """Register a host, and show its page, where its agent can be enrolled."""
    form = NEW_HOST | await visit.form()
    try:
        async with visit.transaction() as tx:
            host = await hosts.add(tx, visit.principal, tenant_id=visit.tenant, **_read_settings(form))
    except (InvalidInput, HostExists) as error:
        return visit.page("host_new.html", status=422, values=form, error=error)
    return visit.respond(f"Host {host.name} added. Enrol its agent next.", to=visit.to(f"/hosts/{host.id}"))


@router.get("/hosts/{host_id}")
async def show_host(request: Request, host_id: UUID, visit: Reader) -> Response:
    """A host: its state, running jobs, and resources."""
    async with visit.transaction() as tx:
        host = await hosts.get(tx, visit.principal, host_id)
        running = await hosts.list_running(tx, visit.principal, [host.id])
        found = await hosts.list_resources(
            tx, visit.principal, host_id=host.id, after=after_id(request), limit=MOST_RESOURCES
        )
        every = await hosts.list_hosts(tx, visit.principal, limit=MOST_HOSTS)
    others = [one for one in every if one.id != host.id and one.tenant_id == host.tenant_id]
    return visit.page(
        "host.html",
        host=host,
        running=running,
        resources=list_page(found),
        others=others,
        resource_options=[(one.id, f"{one.name} ({one.kind})") for one in found],
        host_options=[(one.id, one.name) for one in others],
        values=_host_values(host),
        resource_values=NEW_RESOURCE,
        error=None,
    )


@router.post("/hosts/{host_id}/settings")
async def change(host_id: UUID, visit: Manager) -> Response:
    """Change a host's name, its limit of running jobs, and its labels."""
    form = NEW_HOST | await visit.form()
    async with visit.transaction() as tx:
        host = await hosts.get(tx, visit.principal, host_id, Permission.MANAGE_HOSTS)
    try:
        async with visit.transaction() as tx:
            await hosts.change(tx, visit.principal, host_id, _read_settings(form, host.labels))
    except (InvalidInput, HostExists) as error:
        return visit.page("host_settings.html", status=422, host=host, values=form, error=error)
    return visit.respond("Host saved.", to=visit.to(f"/hosts/{host_id}"))


@router.post("/hosts/{host_id}/pause")
async def pause(host_id: UUID, visit: Manager) -> Response:
    """Close a host's gate, with a note."""
    note = (await visit.form()).get("note", "").strip() or None
    name = await _change_host(visit, host_id, {"paused": True, "note": note})
    return visit.respond(f"Host {name} paused. No new jobs start.", to=visit.to(f"/hosts/{host_id}"))


@router.post("/hosts/{host_id}/resume")
async def resume(host_id: UUID, visit: Manager) -> Response:
    """Open a host's gate."""
    name = await _change_host(visit, host_id, {"paused": False})
    return visit.respond(f"Host {name} resumed.", undo=visit.to(f"/hosts/{host_id}/pause"))


@router.post("/hosts/{host_id}/drain")
async def drain(host_id: UUID, visit: Manager) -> Response:
    """Tell a host's agent to finish its jobs and stop."""
    name = await _change_host(visit, host_id, {"draining": True})
    return visit.respond(
        f"Draining {name}. Its agent finishes its jobs and stops.",
        undo=visit.to(f"/hosts/{host_id}/undrain"),
    )


@router.post("/hosts/{host_id}/undrain")
async def undrain(host_id: UUID, visit: Manager) -> Response:
    """Give a host jobs again."""
    name = await _change_host(visit, host_id, {"draining": False})
    return visit.respond(
        f"{name} accepts jobs again. Start its agent if it has stopped.",
        undo=visit.to(f"/hosts/{host_id}/drain"),
    )


@router.post("/hosts/{host_id}/revoke")
async def revoke(host_id: UUID, visit: Manager) -> Response:
    """Revoke the tokens of a host's agents."""
    async with visit.transaction() as tx:
        count = await hosts.revoke_agents(tx, visit.principal, host_id)
    if not count:
        return visit.respond("No agents to revoke.")
    return visit.respond(
        f"{count} token{'s' if count > 1 else ''} revoked. The agent is disconnected within five seconds."
    )


@router.post("/hosts/{host_id}/remove")
async def remove(host_id: UUID, visit: Manager) -> Response:
    """Remove a host and its resources. Refused while it has active jobs."""
    async with visit.transaction() as tx:
        host = await hosts.remove(tx, visit.principal, host_id)
    return visit.respond(f"Host {host.name} removed.", to=visit.to("/hosts"))


async def _change_host(visit: Visit, host_id: UUID, changes: Mapping[str, Any]) -> str:
    """Change a host; return its name."""
    async with visit.transaction() as tx:
        return (await hosts.change(tx, visit.principal, host_id, changes)).name


# Enrolment: only the response to the POST contains the code


@router.post("/hosts/{host_id}/enrolment")
async def enrol(request: Request, host_id: UUID, visit: Manager) -> Response:
    """Show the command that enrols an agent, with a code that is valid once."""
    async with visit.transaction() as tx:
        made = await hosts.create_enrolment_code(tx, visit.principal, host_id)
    server = str(request.base_url).rstrip("/").removesuffix("/console")
    until = made.expires_at.timestamp()
    return visit.page(
        "enrol.html",
        command=f"fairlead agent --server {server} --enrol {made.code}",
        **_enrolment_progress(made.host, since=until - hosts.CODE_SECONDS, until=until),
    )


@router.get("/hosts/{host_id}/enrolment")
async def show_enrolment(host_id: UUID, visit: Manager, since: float = 0, until: float = 0) -> Response:
    """Whether the agent has enrolled since the code was created; the page polls it every two seconds."""
    async with visit.transaction() as tx:
        host = await hosts.get(tx, visit.principal, host_id, Permission.MANAGE_HOSTS)
    return visit.page("enrol_state.html", **_enrolment_progress(host, since=since, until=until))


def _enrolment_progress(host: Host, *, since: float, until: float) -> dict[str, Any]:
    """The state of an enrolment."""
    begun = host.session_at is not None and host.session_at.timestamp() > since
    left = max(0.0, until - datetime.now(UTC).timestamp())
    return {"host": host, "connected": begun, "since": since, "until": until, "left": left}


# Resources


@router.post("/hosts/{host_id}/resources")
async def add_resource(host_id: UUID, visit: Manager) -> Response:
    """Register a resource on a host."""
    form = NEW_RESOURCE | await visit.form()
    async with visit.transaction() as tx:
        host = await hosts.get(tx, visit.principal, host_id, Permission.MANAGE_HOSTS)
    kind, name = form["kind"].strip(), form["name"].strip()
    try:
        async with visit.transaction() as tx:
            await hosts.add_resource(
                tx, visit.principal, tenant_id=host.tenant_id, host_id=host.id, kind=kind, name=name
            )
    except (InvalidInput, ResourceExists) as error:
        return visit.page("host_resource.html", status=422, host=host, resource_values=form, error=error)
    return visit.respond(f"Resource {name} added.", to=visit.to(f"/hosts/{host_id}"))


@router.post("/hosts/{host_id}/move")
async def move_resource(host_id: UUID, visit: Manager) -> Response:
    """Move a resource to another host."""
    form = await visit.form()
    async with visit.transaction() as tx:
        await hosts.get(tx, visit.principal, host_id, Permission.MANAGE_HOSTS)
        resource_id, to = _require_choice(form, "resource"), _require_choice(form, "to")
        moved = await hosts.change_resource(tx, visit.principal, resource_id, host_id=to)
    return visit.respond(f"{moved.name} moved to {moved.host}.", to=visit.to(f"/hosts/{host_id}"))


def _require_choice(form: Mapping[str, str], name: str) -> UUID:
    try:
        return UUID(form.get(name, ""))
    except ValueError:
        raise InvalidInput(f"Choose a value: {name}.", [Fault(name, "choose one")]) from None


# Form values of a host


def _host_values(host: Host) -> dict[str, str]:
    return {
        "name": host.name,
        "max_running": str(host.max_running),
        "labels": "\n".join(f"{name}={_format_label(value)}" for name, value in host.labels.items()),
    }


def _read_settings(form: Mapping[str, str], old: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The form's values for the action, which rejects an invalid number."""
    number = form["max_running"].strip()
    return {
        "name": form["name"].strip(),
        "max_running": int(number) if number.isdecimal() and len(number) < 10 else number,
        "labels": _parse_labels(form["labels"], old or {}),
    }


def _parse_labels(text: str, old: Mapping[str, Any]) -> dict[str, Any]:
    """Parse labels as text; an old label of another type keeps its value while its line is unchanged."""
    found: dict[str, Any] = {}
    for line in filter(None, (line.strip() for line in text.splitlines())):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not (name and equals):
            raise InvalidInput(
                f"The label {line[:40]!r} has no value.",
                [Fault("labels", "write each on a line: name=value")],
            )
        found[name] = old[name] if name in old and _format_label(old[name]) == value else value
    return found


def _format_label(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
