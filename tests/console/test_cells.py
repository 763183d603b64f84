"""The console of a super admin over two cells."""

from collections.abc import AsyncIterator, Iterator

import pytest

from fairlead.model.access import Role
from fairlead.store import tenants
from tests import given
from tests.databases import Databases
from tests.server.cells import CELL, FAR, cells_on, lost_cell
from tests.server.world import BASE, World

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def module_url(databases: Databases) -> Iterator[str]:
    """A database for all tests of this module."""
    with databases.lend() as url:
        yield url


@pytest.fixture(scope="module")
async def world(module_url: str) -> AsyncIterator[World]:
    """A job in each cell."""
    async with cells_on(module_url) as made:
        for tenant in (given.TENANT, FAR):
            body = {"definition_key": "anything", "payload": {}}
            made.secrets["job", tenant] = (await made.call("POST", "/jobs", tenant=tenant, json=body)).json()[
                "id"
            ]
        yield made


@pytest.fixture(scope="module")
async def cookie(world: World) -> dict[str, str]:
    """The session of a super admin."""
    return {"Cookie": await world.signed_in(Role.SUPER_ADMIN, None)}


async def read(world: World, path: str, cookie: dict[str, str]) -> str:
    answer = await world.client.get(f"{BASE}/console{path}", headers=cookie)
    assert answer.status_code == 200, answer.text[:500]
    return answer.text


async def test_the_pages_of_a_super_admin_show_all_cells(world: World, cookie: dict[str, str]) -> None:
    jobs = await read(world, "/jobs", cookie)
    for tenant in (given.TENANT, FAR):
        assert world.secrets["job", tenant] in jobs
    tenants = await read(world, "/tenants", cookie)
    assert "<th>Cell</th>" in tenants
    assert f'id="tenant-{FAR}"' in tenants
    assert FAR in await read(world, "/audit", cookie)
    for path in ("/overview", "/workers", "/system", "/usage", "/account"):
        await read(world, path, cookie)


async def test_pages_of_one_object_or_tenant_come_from_its_cell(world: World, cookie: dict[str, str]) -> None:
    job_id = world.secrets["job", FAR]
    for path in (f"/jobs/{job_id}", f"/jobs?tenant={FAR}", f"/tenants/{FAR}", f"/hosts?tenant={FAR}"):
        assert FAR in await read(world, path, cookie), path
    await read(world, f"/account?tenant={FAR}", cookie)


async def test_a_tenant_is_added_in_a_cell(world: World, cookie: dict[str, str]) -> None:
    form = {"slug": "new-far", "name": "", "timezone": "UTC", "weight": "1", "max_running": "", "cell": CELL}
    made = await world.client.post(f"{BASE}/console/tenants", headers=cookie, data=form)
    assert made.status_code == 303, made.text[:300]
    async with (await world.fl.cells.member(CELL)).transaction() as tx:
        assert await tenants.get(tx, "new-far") is not None


async def test_a_page_names_the_cells_that_are_missing(world: World, cookie: dict[str, str]) -> None:
    async with lost_cell(world.fl):
        assert "cannot be reached" in await read(world, "/jobs", cookie)
    assert "cannot be reached" not in await read(world, "/jobs", cookie)
