"""What a super admin sees without a tenant: all cells, merged."""

import re
from collections.abc import AsyncIterator
from itertools import chain
from typing import Any

import pytest

from fairlead.server import all_cells
from tests import given
from tests.server.cells import CELL, FAR, cells_on, lost_cell, place
from tests.server.world import BASE, World
from tests.tables import each_case

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.postgres_only("these cells are databases of one server"),
]

ANY = {"definition_key": "anything"}


@pytest.fixture(scope="module")
async def world(module_url: str) -> AsyncIterator[World]:
    """A world with five jobs in each cell, enqueued in turns."""
    async with cells_on(module_url) as made:
        for n in range(5):
            for tenant in (given.TENANT, FAR):
                answer = await made.call(
                    "POST", "/jobs", tenant=tenant, json={"definition_key": "anything", "payload": {"n": n}}
                )
                assert answer.status_code == 201, answer.text
        yield made


async def pages(world: World, path: str, limit: int) -> list[list[dict[str, Any]]]:
    """All pages of a super admin's list."""
    found: list[list[dict[str, Any]]] = []
    cursor = None
    while True:
        query = {"limit": limit, **({} if cursor is None else {"cursor": cursor})}
        answer = await world.call("GET", path, who="super_admin", params=query)
        assert answer.status_code == 200, answer.text
        found.append(answer.json()["items"])
        cursor = answer.json()["next_cursor"]
        if cursor is None:
            return found


@pytest.mark.parametrize("limit", [3, 4, 50])
async def test_jobs_of_all_cells_come_newest_first_each_once(world: World, limit: int) -> None:
    found = [one["id"] for one in chain.from_iterable(await pages(world, "/jobs", limit))]
    assert len(found) == 10
    assert found == sorted(set(found), reverse=True)


@each_case(
    "path",
    [
        "/audit",
        "/tokens",
        "/hosts",
        "/admin/users",
        "/admin/tenants",
        "/admin/queue",
        "/events",
        "/hooks",
        "/jobs/triggers",
        "/workflows",
        "/workflows/runs",
        "/resources",
        "/sources",
        "/admin/workers",
        "/errors",
    ],
)
async def test_a_list_of_small_pages_is_the_list_of_one(world: World, path: str) -> None:
    [whole] = await pages(world, path, 100)
    small = list(chain.from_iterable(await pages(world, path, 2)))

    def name(rows: list[dict[str, Any]]) -> list[str]:
        # the figures of queues change with time, and so does when the token was used that asks
        return [
            str(row["tenant"] if path == "/admin/queue" else {**row, "last_used_at": None}) for row in rows
        ]

    assert name(small) == name(whole)
    assert len(set(name(whole))) == len(whole)


async def test_tenants_are_listed_with_their_cells(world: World) -> None:
    [found] = await pages(world, "/admin/tenants", 100)
    cells = {one["slug"]: one["cell"] for one in found}
    assert cells[FAR] == CELL
    assert cells[given.TENANT] == "home"


async def test_a_tenant_is_created_in_a_cell(world: World) -> None:
    made = await world.call(
        "POST", "/admin/tenants", who="super_admin", json={"slug": "created-far", "cell": CELL}
    )
    assert (made.status_code, made.json()["cell"]) == (201, CELL)
    again = await world.call("POST", "/admin/tenants", who="super_admin", json={"slug": "created-far"})
    assert (again.status_code, again.json()["code"]) == (409, "tenant_exists")
    unknown = await world.call(
        "POST", "/admin/tenants", who="super_admin", json={"slug": "nowhere", "cell": "zzz"}
    )
    assert (unknown.status_code, unknown.json()["code"]) == (404, "cell_unknown")


async def test_rows_of_a_tenant_that_left_are_not_listed(world: World) -> None:
    member = await world.fl.cells.member(CELL)
    for placement, to in (("moved", "home"), ("arriving", None)):
        await place(member, FAR, placement, to)
        try:
            jobs = list(chain.from_iterable(await pages(world, "/jobs", 3)))
            assert len(jobs) == 5
            [found] = await pages(world, "/admin/tenants", 100)
            assert FAR not in {one["slug"] for one in found}
        finally:
            await place(member, FAR, "here")


async def test_figures_are_sums_over_cells(world: World) -> None:
    overview = (await world.call("GET", "/overview", who="super_admin")).json()
    assert overview["counts"]["queued"] == 10
    assert (await world.call("GET", "/queue/depth", who="super_admin")).json()["depth"] == 10
    assert (await world.call("GET", "/usage", who="super_admin")).json()["totals"]["runs"] == 0
    preview = await world.call(
        "POST", "/jobs/cancel", who="super_admin", json={"filter": ANY, "dry_run": True, "limit": 7}
    )
    assert (preview.json()["count"], preview.json()["more"]) == (7, True)
    preview = await world.call(
        "POST", "/jobs/cancel", who="super_admin", json={"filter": ANY, "dry_run": True}
    )
    assert (preview.json()["count"], preview.json()["more"]) == (10, False)


async def test_metrics_name_the_cell(world: World) -> None:
    text = (await world.call("GET", f"{BASE}/metrics", who="super_admin")).text
    assert f'fairlead_jobs{{cell="{CELL}",status="queued",tenant="{FAR}"}} 5.0' in text
    assert f'fairlead_jobs{{cell="home",status="queued",tenant="{given.TENANT}"}} 5.0' in text
    lines = [line.rsplit(" ", 1)[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == len(set(lines))


async def test_metrics_say_which_cells_are_missing(world: World) -> None:
    async def read_up() -> dict[str, str]:
        world.app.state.metrics._fresh_until = 0.0
        text = (await world.call("GET", f"{BASE}/metrics", who="super_admin")).text
        return dict(re.findall(r'^fairlead_cell_up\{cell="(\w+)"\} (\S+)$', text, re.MULTILINE))

    assert await read_up() == {"home": "1.0", CELL: "1.0"}
    async with lost_cell(world.fl):
        assert await read_up() == {"home": "1.0", CELL: "0.0"}
    world.app.state.metrics._fresh_until = 0.0


async def test_a_merged_list_names_the_cells_that_are_missing(world: World) -> None:
    async with lost_cell(world.fl):
        answer = await world.call("GET", "/jobs", who="super_admin")
        assert (answer.status_code, answer.headers["X-Missing-Cells"]) == (200, CELL)
        assert len(answer.json()["items"]) == 5
    assert "X-Missing-Cells" not in (await world.call("GET", "/jobs", who="super_admin")).headers


async def test_a_home_cell_that_does_not_answer_in_time_is_a_503(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(all_cells, "PATIENCE_SECONDS", 0.2)
    world.app.state.metrics._fresh_until = 0.0
    async with world.fl.transaction() as tx:
        await tx.run("lock table fairlead.counts in access exclusive mode")
        for path in ("/overview", "/queue/depth", f"{BASE}/metrics"):
            answer = await world.call("GET", path, who="super_admin")
            assert (answer.status_code, answer.json().get("code")) == (503, "database_busy"), path
            assert answer.headers["Retry-After"] == "1"
