"""The server over several cells: each request is answered in the cell of its tenant."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from fairlead.db.tx import Tx
from fairlead.model.secrets.generated import RANDOM_LENGTH, generate_secret, read_tenant_id
from fairlead.server.auth import COOKIE
from tests import given
from tests.acting import act
from tests.server.cells import CELL, FAR, cells_on, lost_cell, place
from tests.server.test_live import refusal, served, ticket, watching
from tests.server.world import BASE, PASSWORD, World

pytestmark = pytest.mark.postgres_only("these cells are databases of one server")

JOB = {"definition_key": "anything", "payload": {}}


@pytest.fixture(scope="module")
async def world(module_url: str) -> AsyncIterator[World]:
    """One world for all tests of this module."""
    async with cells_on(module_url) as made:
        yield made


async def enqueue(world: World, tenant: str = FAR) -> str:
    answer = await world.call("POST", "/jobs", tenant=tenant, json=JOB)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def as_super(world: World, method: str, path: str, **more: Any) -> httpx2.Response:
    return await world.call(method, path, who="super_admin", **more)


def test_a_secret_of_a_tenant_names_it() -> None:
    tenant_id = uuid4()
    secret = generate_secret(tenant_id).text
    assert read_tenant_id(secret) == tenant_id
    for text in (generate_secret().text, secret[:-1], secret[:-1] + "é", secret + "=", "", "fl_"):
        assert read_tenant_id(text) is None


async def test_a_token_reaches_the_cell_of_its_tenant(world: World) -> None:
    job_id = await enqueue(world)
    await given.read_job(await world.fl.cells.member(CELL), UUID(job_id))
    assert (await world.call("GET", f"/jobs/{job_id}", who="viewer", tenant=FAR)).json()["id"] == job_id
    assert await world.status("GET", f"/jobs/{job_id}", who="viewer") == 404
    me = (await world.call("GET", "/me", who="viewer", tenant=FAR)).json()
    assert me["tenant"] == FAR


async def test_a_super_admin_names_a_tenant_of_any_cell(world: World) -> None:
    job_id = await enqueue(world)
    for named in (FAR, str(world.tenants[FAR])):
        found = await as_super(world, "GET", "/jobs", headers={"X-Tenant": named})
        assert job_id in {one["id"] for one in found.json()["items"]}
    nobody = await as_super(world, "GET", "/jobs", headers={"X-Tenant": "nobody"})
    assert (nobody.status_code, nobody.json()["code"]) == (404, "tenant_unknown")
    made = await as_super(
        world, "POST", "/tokens", headers={"X-Tenant": FAR}, json={"name": "made", "role": "viewer"}
    )
    world.secrets[FAR, "made"] = made.json()["secret"]
    assert await world.status("GET", "/jobs", who="made", tenant=FAR) == 200


async def test_a_route_of_the_whole_system_ignores_the_named_tenant(world: World) -> None:
    found = await as_super(world, "GET", "/admin/jobs/definitions", headers={"X-Tenant": FAR})
    assert {one["key"] for one in found.json()["items"]} >= {"greet", "retired"}


async def test_a_super_admin_finds_an_object_of_any_cell_by_its_id(world: World) -> None:
    job_id = await enqueue(world)
    assert (await as_super(world, "GET", f"/jobs/{job_id}")).json()["id"] == job_id
    assert (await as_super(world, "POST", f"/jobs/{job_id}/cancel")).json()["status"] == "canceled"
    unknown = await as_super(world, "GET", f"/jobs/{uuid4()}")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "job_unknown")
    changed = await as_super(world, "PATCH", f"/admin/tenants/{FAR}", json={"weight": 2})
    assert changed.json()["weight"] == 2


async def test_a_tenant_does_not_reach_others_in_any_cell(world: World) -> None:
    for tenant, other in ((FAR, given.TENANT), (given.TENANT, FAR), (given.TENANT, given.OTHER)):
        for named in (other, str(world.tenants[other])):
            answer = await world.call("GET", "/jobs", tenant=tenant, headers={"X-Tenant": named})
            unknown = await world.call("GET", "/jobs", tenant=tenant, headers={"X-Tenant": "nobody"})
            assert (answer.status_code, unknown.status_code) == (404, 404)
            assert answer.json()["code"] == unknown.json()["code"]
        assert await world.status("GET", "/jobs", tenant=tenant, headers={"X-Tenant": tenant}) == 200


async def test_a_forged_secret_is_answered_like_an_unknown_one(world: World) -> None:
    near, far = world.secrets[given.TENANT, "operator"], world.secrets[FAR, "operator"]
    admin = world.secrets[None, "super_admin"]
    forged = [
        near[:RANDOM_LENGTH] + far[RANDOM_LENGTH:],
        far[:RANDOM_LENGTH] + near[RANDOM_LENGTH:],
        far[:RANDOM_LENGTH],
        admin + far[RANDOM_LENGTH:],
        generate_secret(world.tenants[FAR]).text,
        generate_secret(uuid4()).text,
        generate_secret().text,
    ]
    bodies = []
    for secret in forged:
        for carried in ({"Authorization": f"Bearer {secret}"}, {"Cookie": f"{COOKIE}={secret}"}):
            answer = await world.client.get(f"{BASE}/api/v1/jobs", headers={**carried, "X-Tenant": FAR})
            assert answer.status_code == 401
            bodies.append((tuple(carried), answer.text))
    assert len(set(bodies)) == 2


async def test_a_session_belongs_to_the_cell_of_its_user(world: World) -> None:
    for tenant, where in ((FAR, {"tenant": FAR}), (None, {})):
        role = "viewer" if tenant else "super_admin"
        email = f"{role}@cells.test"
        made = await as_super(
            world, "POST", "/admin/users", json={"email": email, "password": PASSWORD, "role": role, **where}
        )
        assert made.status_code == 201, made.text
        wrong = await world.client.post(
            f"{BASE}/api/v1/login", json={"email": email, "password": "wrong password"}
        )
        assert wrong.status_code == 401
        answer = await world.client.post(f"{BASE}/api/v1/login", json={"email": email, "password": PASSWORD})
        assert (answer.status_code, answer.json()["tenant"]) == (200, tenant)
        cookie = {"Cookie": f"{COOKIE}={answer.cookies[COOKIE]}"}
        world.client.cookies.clear()
        page = await world.client.get(f"{BASE}/console/jobs?tenant={FAR}", headers=cookie)
        assert page.status_code == 200
        assert "/sign-in" not in str(page.url)
        assert (await world.client.post(f"{BASE}/api/v1/logout", headers=cookie)).status_code == 204
        assert (await world.client.get(f"{BASE}/api/v1/me", headers=cookie)).status_code == 401


async def test_a_tenant_that_was_moved_is_followed(world: World) -> None:
    """The directory and the cells change while this process remembers the old cell."""
    job_id = await enqueue(world)
    home, member = world.fl, await world.fl.cells.member(CELL)

    async def move(tx: Tx, cell: str) -> None:
        await tx.run("update fairlead.tenant_cells set cell = %s where slug = %s", [cell, FAR])

    async with home.transaction() as tx:  # home knows the tenant's token, but not where it is now
        await move(tx, "home")
    await place(member, FAR, "moved", "home")
    try:
        assert await world.refusal("GET", f"/jobs/{job_id}", tenant=FAR) == (401, "unauthenticated")
    finally:
        await act(home, move, CELL)
        await place(member, FAR, "here")
    assert await world.status("GET", f"/jobs/{job_id}", tenant=FAR) == 200


async def test_writes_of_a_tenant_that_is_being_moved_wait_and_reads_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await enqueue(world)
    member = await world.fl.cells.member(CELL)
    monkeypatch.setattr("fairlead.server.cell_router.MOVE_WAIT_SECONDS", 0.3)
    await place(member, FAR, "leaving")
    try:
        assert await world.status("GET", f"/jobs/{job_id}", tenant=FAR) == 200
        refused = await world.call("POST", f"/jobs/{job_id}/cancel", tenant=FAR)
        assert (refused.status_code, refused.json()["code"]) == (503, "tenant_moving")
        assert int(refused.headers["Retry-After"]) > 0
    finally:
        await place(member, FAR, "here")
    assert await world.status("POST", f"/jobs/{job_id}/cancel", tenant=FAR) == 200


async def test_no_caller_is_told_that_a_tenant_moved(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell that took long said "moved", and meanwhile the tenant came back to it: the directory names the cell again."""
    job_id = await enqueue(world)
    member = await world.fl.cells.member(CELL)
    monkeypatch.setattr("fairlead.server.cell_router.MOVE_WAIT_SECONDS", 0.0)
    await place(member, FAR, "moved", "home")
    try:
        refused = await world.call("POST", f"/jobs/{job_id}/cancel", tenant=FAR)
        assert (refused.status_code, refused.json()["code"]) == (503, "tenant_moving")
        assert int(refused.headers["Retry-After"]) > 0
    finally:
        await place(member, FAR, "here")


async def test_a_cell_that_is_away_costs_only_its_own_tenants(world: World) -> None:
    job_id = await enqueue(world)
    async with lost_cell(world.fl):
        await world.fl.cells.refresh()
        away = await world.call("GET", f"/jobs/{job_id}", tenant=FAR)
        assert (away.status_code, away.json()["code"]) == (503, "cell_unreachable")
        assert int(away.headers["Retry-After"]) > 0
        assert "127.0.0.1" not in away.text
        assert await world.status("GET", "/jobs") == 200
        by_id = await as_super(world, "GET", f"/jobs/{job_id}")
        assert (by_id.status_code, by_id.json()["code"]) == (503, "cell_unreachable")
    assert await world.status("GET", f"/jobs/{job_id}", tenant=FAR) == 200


@pytest.mark.usefixtures("patient_feeds")
async def test_a_live_socket_is_opened_in_the_cell_of_its_tenant(world: World) -> None:
    ways: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("viewer", {"tenant": FAR}, {}),
        ("super_admin", {}, {"tenant": FAR}),
        ("super_admin", {"headers": {"X-Tenant": FAR}}, {}),
        ("super_admin", {}, {}),
    ]
    for who, buying, watched in ways:
        bought = await ticket(world, who=who, **buying)
        async with served(world) as address, watching(address, ticket=bought, **watched) as viewer:
            job_id = await enqueue(world)
            await viewer.until("job.created", job_id=job_id)
        async with served(world) as address:
            assert await refusal(address, ticket=bought) == (401, "unauthenticated")


async def test_a_worker_of_all_tenants_runs_jobs_of_all_cells(world: World) -> None:
    async def ask(path: str, **body: Any) -> httpx2.Response:
        return await world.call("POST", f"/worker/jobs{path}", who="worker", tenant=None, json=body)

    expected = {await enqueue(world, tenant) for tenant in (FAR, given.TENANT)}
    claimed: dict[str, dict[str, Any]] = {}
    while not expected <= claimed.keys():
        answer = await ask("/claim", definitions=["anything"], limit=100, wait=30)
        assert answer.status_code == 200, answer.text
        assert answer.json()["items"]
        claimed |= {one["job_id"]: one for one in answer.json()["items"]}
    held = [
        {"job_id": one["job_id"], "attempt_no": one["attempt_no"], "lease_token": one["lease_token"]}
        for one in claimed.values()
    ]
    beats = (await ask("/heartbeat", leases=held)).json()["leases"]
    assert not any(one["lost"] for one in beats)
    for one in held:
        lease = {name: one[name] for name in ("attempt_no", "lease_token")}
        assert (await ask(f"/{one['job_id']}/heartbeat", **lease)).status_code == 200
        done = await ask(f"/{one['job_id']}/complete", **lease)
        assert (done.status_code, done.json()["status"]) == (200, "succeeded"), done.text
        stolen = await ask(f"/{one['job_id']}/complete", **{**lease, "lease_token": str(uuid4())})
        assert (stolen.status_code, stolen.json()["code"]) == (409, "lease_lost")


async def test_a_tenant_that_left_is_as_unknown_to_others_as_any(world: World) -> None:
    await place(world.fl, given.OTHER, "moved", CELL)
    try:
        answer = await world.call("GET", "/jobs", headers={"X-Tenant": given.OTHER})
        assert (answer.status_code, answer.json()["code"]) == (404, "tenant_unknown")
    finally:
        await place(world.fl, given.OTHER, "here")
