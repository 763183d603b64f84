"""Requests take turns between tenants: a flood of one leaves connections to the others."""

import asyncio

import pytest
from psycopg import AsyncConnection

from fairlead.model.access import Role
from fairlead.turns.connections import ConnectionTurns
from fairlead.turns.owner import Owner, owner_of_task
from tests import given
from tests.given import OTHER
from tests.server.world import BASE, World, world_on
from tests.waiting import eventually

LOCK = "select from fairlead.ready where job_id = %s for update"


async def test_requests_that_are_stuck_leave_connections_to_other_tenants(database_url: str) -> None:
    async with (
        world_on(database_url, lock_timeout_seconds=600, statement_timeout_seconds=600) as world,
        await AsyncConnection.connect(database_url) as locking,
    ):
        job_id = await given.queued_job(world.fl.database)
        await locking.execute(LOCK, [job_id])
        stuck = [asyncio.create_task(world.call("POST", f"/jobs/{job_id}/cancel")) for _ in range(20)]
        turns = world.fl.database.connection_turns
        await eventually(lambda: turns.waiting == 16 or None, "all but four to wait")

        answer = await world.call("GET", "/jobs", who="viewer", tenant=OTHER)
        page = await world.call("GET", f"{BASE}/readyz", who=None)

        assert (answer.status_code, page.status_code) == (200, 200)
        assert not any(request.done() for request in stuck)
        await locking.rollback()
        assert {answer.status_code for answer in await asyncio.gather(*stuck)} <= {200, 202, 409}
        metrics = (await world.call("GET", f"{BASE}/metrics", who="super_admin")).text
        assert f"fairlead_connection_waits_total {float(turns.waits)}" in metrics


async def test_every_request_has_an_owner(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    owners = list[Owner | None]()
    enter = ConnectionTurns.enter

    async def noting(self: ConnectionTurns) -> Owner | None:
        owners.append(owner_of_task.get())
        return await enter(self)

    cookie = {"Cookie": await world.signed_in(Role.VIEWER)}
    monkeypatch.setattr(ConnectionTurns, "enter", noting)
    await world.call("GET", "/jobs", who="viewer")
    await world.call("GET", "/admin/tenants", who="super_admin")
    await world.call("GET", f"{BASE}/jobs", who=None, headers=cookie)
    await world.call("GET", f"{BASE}/readyz", who=None)
    await world.call("POST", f"{BASE}/hooks/acme/nothing", who=None, content=b"{}")
    await world.call("POST", "/login", who=None, json={"email": "a@b.example", "password": "wrong"})

    assert None not in owners
    tenant = f"tenant {world.tenants[given.TENANT]}"
    assert {tenant, "all tenants", "address 127.0.0.1"} == {owner.name for owner in owners if owner}
    assert owner_of_task.get() is None
