"""A control plane with two cells: the tenant `far` lives in the cell `b`, a schema of the same database."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx2
from pytest import MonkeyPatch  # noqa: PT013

from fairlead import Fairlead
from fairlead.actions import access, definitions
from fairlead.actions import cells as directory
from fairlead.library.cell_setup import prepare_cell
from fairlead.model.access import Role
from fairlead.server import all_cells
from fairlead.server.app import create_app
from tests import given
from tests.server.world import Uncounted, World, world_on
from tests.waiting import SECONDS

FAR = "far"
CELL = "b"


async def add_cell(fl: Fairlead, name: str) -> None:
    """Add a cell: another schema of the same database."""
    schema = f"cell_{name}"
    cell_id = await prepare_cell(fl.database.url, schema)
    async with fl.transaction() as tx:
        await directory.add(tx, fl.principal, name=name, cell_id=cell_id, url=fl.database.url, schema=schema)
    await fl.cells.refresh()


@asynccontextmanager
async def cells_on(database_url: str, **changes: Any) -> AsyncIterator[World]:
    """A world whose tenants live in the home cell, and `far` in the cell `b`."""
    with MonkeyPatch.context() as patch:
        # no cell counts as away because the machine is busy
        patch.setattr(all_cells, "PATIENCE_SECONDS", SECONDS)
        async with world_on(database_url, **changes) as world:
            await _add_far(world)
            yield world


async def _add_far(world: World) -> None:
    world.app.state.gatekeeper.failures = Uncounted(world.fl)
    await add_cell(world.fl, CELL)
    tenant = await world.fl.add_tenant(FAR, cell=CELL)
    world.tenants[FAR] = tenant.id
    member = await world.fl.cells.member(CELL)
    async with member.transaction() as tx:
        for values in (given.GREET, given.ANYTHING):
            await definitions.patch(tx, given.TESTER, str(values["key"]), values)
        host = world.hosts[FAR] = await given.add_host(tx, tenant.id)
        for role in ("viewer", "operator", "tenant_admin", "application", "worker", "agent"):
            made = await access.create_token(
                tx,
                given.TESTER,
                name=f"{FAR}.{role}",
                role=Role(role),
                tenant_id=tenant.id,
                host_id=host if role == "agent" else None,
                expires_at=None,
            )
            world.secrets[FAR, role] = made.secret
            world.token_ids[FAR, role] = made.token.id


async def place(fl: Fairlead, tenant: str, placement: str, moved_to: str | None = None) -> None:
    """Set where a cell believes a tenant to be."""
    await given.set_tenant(fl, tenant, placement=placement, moved_to=moved_to)


@asynccontextmanager
async def lost_cell(fl: Fairlead) -> AsyncIterator[None]:
    """While the cell `b` cannot be reached."""
    member = await fl.cells.member(CELL)
    url = await given.set_cell_url(fl, CELL, "postgresql://127.0.0.1:1/x")
    del fl.cells._members[CELL]
    try:
        yield
    finally:
        await given.set_cell_url(fl, CELL, url)
        fl.cells._away.clear()
        fl.cells._members[CELL] = member
        await fl.cells.refresh()


@asynccontextmanager
async def world_in_cell(database_url: str) -> AsyncIterator[World]:
    """A world whose tenants all live in the cell `b`, reached through the application of the home cell.

    `world.fl` is the cell's: tests of one database find there what they look for.
    """
    async with world_on(database_url) as inside:
        schema = "home_cell"
        await prepare_cell(database_url, schema)
        settings = replace(inside.fl.settings, schema=schema)
        async with Fairlead(settings=settings, actor="tester") as home:
            app = create_app(home)
            async with inside.fl.transaction() as tx:
                cell_id = await directory.read_own_id(tx)
            async with home.transaction() as tx:
                await directory.add(
                    tx, home.principal, name=CELL, cell_id=cell_id, url=database_url, schema="fairlead"
                )
                for slug, tenant_id in inside.tenants.items():
                    await directory.reserve(tx, home.principal, tenant_id=tenant_id, slug=slug, cell=CELL)
                for values in (given.GREET, given.ANYTHING, given.RETIRED):
                    await definitions.patch(tx, given.TESTER, str(values["key"]), values)
                for role in ("super_admin", "worker"):
                    made = await access.create_token(
                        tx, given.TESTER, name=f"all.{role}", role=Role(role), tenant_id=None, expires_at=None
                    )
                    inside.secrets[None, role] = made.secret
            await home.cells.refresh()
            transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
            async with httpx2.AsyncClient(transport=transport) as client:
                inside.app, inside.client = app, client
                yield inside
