"""Hosts and resources, for a tenant's admins."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse
from pydantic import Field

from fairlead.actions import hosts
from fairlead.db.tx import Tx
from fairlead.model.access import Permission
from fairlead.model.host import Host, Resource
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.idempotency import create_once
from fairlead.server.merged_lists import by_id, list_all
from fairlead.server.paging import PageQuery
from fairlead.server.problems import PREFIX
from fairlead.server.views import Body, Id, Listing, ReadableText, View, to_json

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, tags=["hosts"])

Reader = Annotated[Caller, Depends(Requires(Permission.READ_HOSTS))]
Manager = Annotated[Caller, Depends(Requires(Permission.MANAGE_HOSTS))]


class HostBody(Body):
    """A new host."""

    name: ReadableText
    max_running: int = 1
    labels: dict[str, Any] = Field(default_factory=dict)


class HostPatch(Body):
    """Changes to a host; `paused` is its gate, `draining` tells its agent to finish its jobs and stop."""

    name: ReadableText | None = None
    max_running: int | None = None
    labels: dict[str, Any] | None = None
    draining: bool | None = None
    paused: bool | None = None
    note: ReadableText | None = None

    def sent_fields(self) -> dict[str, Any]:
        """The fields that the request contains, without nulls."""
        return {
            name: value for name, value in self.model_dump(exclude_unset=True).items() if value is not None
        }


class EnrolmentCodeView(View):
    """An enrolment code for an agent: valid once, until `expires_at`, and shown only now."""

    host_id: UUID
    code: str
    expires_at: datetime
    command: str


class RevokedAgentsView(View):
    """How many tokens of the host's agents were revoked."""

    host_id: UUID
    tokens: int


class ResourceBody(Body):
    """A new resource on a host."""

    host_id: Id
    kind: ReadableText
    name: ReadableText


class ResourcePatch(Body):
    """The new host or name of a resource."""

    host_id: Id | None = None
    name: ReadableText | None = None


class ResourcesQuery(PageQuery):
    """Filters of resources: by host, by kind."""

    host_id: Id | None = None
    kind: ReadableText | None = None


@router.get("/hosts")
async def list_hosts(query: Annotated[PageQuery, Query()], caller: Reader) -> Listing[Host]:
    """Hosts, oldest first."""
    return await list_all(
        caller,
        query,
        lambda tx, page: hosts.list_hosts(tx, caller.principal, after=page.after_id, limit=page.limit),
        by_id(),
    )


@router.post("/hosts", status_code=201, response_model=Host)
async def create(request: Request, body: HostBody, caller: Manager) -> JSONResponse:
    """Register a host; 409 if the name is taken."""
    tenant_id = caller.tenant

    async def create_in_tx(tx: Tx) -> tuple[int, Any]:
        host = await hosts.add(tx, caller.principal, tenant_id=tenant_id, **body.model_dump())
        return 201, to_json(host)

    return await create_once(request, caller, create_in_tx)


@router.get("/hosts/{host_id}")
async def show_host(host_id: UUID, caller: Reader) -> Host:
    """A host."""
    async with caller.transaction() as tx:
        return await hosts.get(tx, caller.principal, host_id)


@router.patch("/hosts/{host_id}")
async def change(host_id: UUID, body: HostPatch, caller: Manager) -> Host:
    """Change the given fields of a host, pause it, or drain it."""
    async with caller.transaction() as tx:
        return await hosts.change(tx, caller.principal, host_id, body.sent_fields())


@router.delete("/hosts/{host_id}")
async def remove(host_id: UUID, caller: Manager) -> Host:
    """Remove a host, its resources and its agents' tokens; 409 while it has active jobs. Its finished jobs stay."""
    async with caller.transaction() as tx:
        return await hosts.remove(tx, caller.principal, host_id)


@router.post("/hosts/{host_id}/enrolment", status_code=201)
async def enrolment(request: Request, host_id: UUID, caller: Manager) -> EnrolmentCodeView:
    """Create an enrolment code for this host's agent: valid once, for 15 minutes."""
    async with caller.transaction() as tx:
        made = await hosts.create_enrolment_code(tx, caller.principal, host_id)
    server = str(request.base_url).rstrip("/")
    command = f"fairlead agent --server {server} --enrol {made.code}"
    return EnrolmentCodeView(
        host_id=made.host.id, code=made.code, expires_at=made.expires_at, command=command
    )


@router.post("/hosts/{host_id}/revoke")
async def revoke(host_id: UUID, caller: Manager) -> RevokedAgentsView:
    """Revoke the tokens of all the host's agents; this takes effect within five seconds."""
    async with caller.transaction() as tx:
        count = await hosts.revoke_agents(tx, caller.principal, host_id)
    return RevokedAgentsView(host_id=host_id, tokens=count)


@router.get("/resources")
async def resources(query: Annotated[ResourcesQuery, Query()], caller: Reader) -> Listing[Resource]:
    """Resources, oldest first."""
    return await list_all(
        caller,
        query,
        lambda tx, page: hosts.list_resources(
            tx,
            caller.principal,
            host_id=page.host_id,
            kind=page.kind,
            after=page.after_id,
            limit=page.limit,
        ),
        by_id(),
    )


@router.post("/resources", status_code=201, response_model=Resource)
async def create_resource(request: Request, body: ResourceBody, caller: Manager) -> JSONResponse:
    """Register a resource on a host."""
    tenant_id = caller.tenant

    async def create_in_tx(tx: Tx) -> tuple[int, Any]:
        found = await hosts.add_resource(tx, caller.principal, tenant_id=tenant_id, **body.model_dump())
        return 201, to_json(found)

    return await create_once(request, caller, create_in_tx)


@router.get("/resources/{resource_id}")
async def resource(resource_id: UUID, caller: Reader) -> Resource:
    """A resource."""
    async with caller.transaction() as tx:
        return await hosts.get_resource(tx, caller.principal, resource_id)


@router.patch("/resources/{resource_id}")
async def change_resource(resource_id: UUID, body: ResourcePatch, caller: Manager) -> Resource:
    """Move a resource to another host, or rename it. Existing jobs stay on their host."""
    async with caller.transaction() as tx:
        return await hosts.change_resource(
            tx, caller.principal, resource_id, host_id=body.host_id, name=body.name
        )
