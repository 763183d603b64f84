"""What the palette (Ctrl-K) offers beside the pages and actions, which its script knows."""

from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse, Response

from fairlead.actions import definitions, hosts, tenants, triggers, workflows
from fairlead.db.tx import Tx
from fairlead.model.access import Permission
from fairlead.server.auth import GuardedRoute
from fairlead.server.console.visit import RequiresVisit, Visit

router = APIRouter(route_class=GuardedRoute)

Reader = Annotated[Visit, Depends(RequiresVisit(Permission.READ_DEFINITIONS))]

# How many of each kind are offered; the lists have all.
MOST = 200
MOST_WORKFLOWS = 50


class PaletteEntry(msgspec.Struct, frozen=True):
    """A place to go to."""

    group: str
    title: str
    href: str


@router.get("/palette")
async def list_entries(visit: Reader) -> Response:
    """The definitions, triggers, workflows, hosts and (for super admins) tenants, by name."""
    async with visit.transaction() as tx:
        found = [
            *await _list_definitions(tx, visit),
            *await _list_triggers(tx, visit),
            *await _list_workflows(tx, visit),
            *await _list_hosts(tx, visit),
            *(await _list_tenants(tx, visit) if visit.is_super else []),
        ]
    return JSONResponse({"items": msgspec.to_builtins(found)})


async def _list_definitions(tx: Tx, visit: Visit) -> list[PaletteEntry]:
    found = await definitions.list_page(tx, visit.principal, after="", limit=MOST)
    return [PaletteEntry("Definition", one.key, visit.to(f"/definitions/{one.key}")) for one in found]


async def _list_triggers(tx: Tx, visit: Visit) -> list[PaletteEntry]:
    found = await triggers.list_triggers(tx, visit.principal, limit=MOST)
    return [PaletteEntry("Trigger", one.label, visit.to(f"/triggers/{one.id}")) for one in found]


async def _list_workflows(tx: Tx, visit: Visit) -> list[PaletteEntry]:
    found = await workflows.list_workflows(tx, visit.principal, limit=MOST_WORKFLOWS)
    keys = dict.fromkeys(one.key for one in found if visit.tenant_id is not None or one.is_shared)
    return [PaletteEntry("Workflow", key, visit.to(f"/workflows/{key}")) for key in keys]


async def _list_hosts(tx: Tx, visit: Visit) -> list[PaletteEntry]:
    found = await hosts.list_hosts(tx, visit.principal, limit=MOST)
    return [PaletteEntry("Host", one.name, visit.to(f"/hosts/{one.id}")) for one in found]


async def _list_tenants(tx: Tx, visit: Visit) -> list[PaletteEntry]:
    if visit.tenant_id is not None:  # rows of other tenants are hidden from this transaction
        return []
    found = await tenants.list_page(tx, visit.principal, after="", limit=MOST)
    return [PaletteEntry("Tenant", one.slug, visit.to(f"/tenants/{one.slug}")) for one in found]
