"""What a tenant keeps open is counted for all server processes together."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from fairlead.db.database import Database
from tests import given
from tests.server.server_processes import serving
from tests.server.world import World, world_on
from tests.waiting import SECONDS, eventually

pytestmark = pytest.mark.thorough

ALLOWED = 3
# of a worker, of a viewer's log, of a viewer's page
WHO = {"long_polls": "worker", "followed_logs": "viewer", "live_sockets": "viewer"}


@dataclass
class Servers:
    """Two server processes, and what a test keeps open at them of one quota."""

    world: World
    ports: list[int]
    job_id: str
    processes: list[subprocess.Popen[str]]
    quota: str = ""
    opened: list[asyncio.Task[Any]] = field(default_factory=list)

    def of(self, quota: str) -> "Servers":
        return replace(self, quota=quota, opened=[])

    async def open(self, server: int, tenant: str = given.TENANT) -> None:
        """Open one, and wait until it is counted."""
        before = await self.used(tenant)
        self.opened.append(asyncio.create_task(self.ask(server, tenant)))
        await _until_async(lambda: self.counts(before + 1, tenant), "one more to be counted")

    async def is_admitted_by_the_second(self) -> bool:
        """Whether one more is open there: it remembers for a second that there was no room."""
        before = await self.used()
        task = asyncio.create_task(self.ask(1))
        self.opened.append(task)
        while not task.done():
            if await self.used() == before + 1:
                return True
            await asyncio.sleep(0.05)
        assert task.result()[0] == 429
        return False

    async def close(self) -> None:
        for task in self.opened:
            task.cancel()
        await asyncio.gather(*self.opened, return_exceptions=True)

    async def counts(self, wanted: int, tenant: str = given.TENANT) -> bool:
        return await self.used(tenant) == wanted

    async def used(self, tenant: str = given.TENANT) -> int:
        """What GET /quotas says."""
        answer = await self.world.call("GET", "/quotas", who="viewer", tenant=tenant)
        [use] = [one for one in answer.json()["items"] if one["quota"] == self.quota]
        return int(use["used"])

    async def ask(self, server: int, tenant: str = given.TENANT) -> tuple[int, Any]:
        """Open one, for half a minute if it is not refused."""
        at = f"127.0.0.1:{self.ports[server]}/api/v1"
        headers = self.world.headers(WHO[self.quota], tenant)
        if self.quota == "live_sockets":
            return await _watch(f"ws://{at}/live", headers)
        async with httpx2.AsyncClient(timeout=SECONDS, headers=headers) as client:
            if self.quota == "long_polls":
                sent = {"worker_id": f"w{len(self.opened)}", "definitions": None, "limit": 1, "wait": 30}
                answer = await client.post(f"http://{at}/worker/jobs/claim", json=sent)
            else:
                query = {"follow": "true", "wait": "30"}
                answer = await client.get(f"http://{at}/jobs/{self.job_id}/logs", params=query)
        return answer.status_code, answer.json()


async def _watch(address: str, headers: dict[str, str]) -> tuple[int, Any]:
    try:
        async with connect(address, additional_headers=headers, open_timeout=SECONDS) as socket:
            await socket.wait_closed()
    except InvalidStatus as refused:
        return refused.response.status_code, json.loads(refused.response.body)
    return 101, None


async def _until_async(look: Callable[[], Awaitable[bool]], what: str) -> None:
    async with asyncio.timeout(SECONDS):
        while not await look():
            await asyncio.sleep(0.05)


@pytest.fixture
async def servers(database_url: str) -> AsyncIterator[Servers]:
    async with world_on(database_url) as world:
        env = {"FAIRLEAD_MAINTENANCE": "false"}
        with serving(database_url, **env) as (one, first), serving(database_url, **env) as (two, second):
            changed = {"quotas": dict.fromkeys(WHO, ALLOWED)}
            answer = await world.call(
                "PATCH", f"/admin/tenants/{given.TENANT}", who="super_admin", json=changed
            )
            assert answer.status_code == 200, answer.text
            later = {"definition_key": "anything", "payload": {}, "delay_seconds": 3600}
            made = await world.call("POST", "/jobs", json=later)
            yield Servers(world, [one, two], made.json()["id"], [first, second])


async def test_two_servers_do_not_let_a_tenant_open_twice_as_many(servers: Servers) -> None:
    async def try_quota(quota: str) -> None:
        one = servers.of(quota)
        try:
            await refuse_the_fourth(one)
        finally:
            await one.close()

    await asyncio.gather(*map(try_quota, WHO))


async def refuse_the_fourth(servers: Servers) -> None:
    await servers.open(0)
    await servers.open(1)
    await servers.open(0)

    refused = [await servers.ask(server) for server in (0, 1)]

    assert [status for status, _ in refused] == [429, 429], servers.quota
    for _, told in refused:
        assert told["code"] == "too_many_requests"
        assert f"the quota {servers.quota} is {ALLOWED}" in told["detail"]
        assert f"fairlead tenants set TENANT --quota {servers.quota}=NUMBER" in told["detail"]
        assert told["errors"] == [{"path": servers.quota, "message": f"{ALLOWED} of {ALLOWED} used"}]
    assert await servers.used() == ALLOWED
    if servers.quota != "followed_logs":  # the log is this tenant's
        await servers.open(1, given.OTHER)

    # one of them is closed
    servers.opened.pop(0).cancel()
    await _until_async(lambda: servers.counts(ALLOWED - 1), "one to be closed")
    await _until_async(servers.is_admitted_by_the_second, "the second server to see that there is room")


async def test_what_a_killed_server_held_is_free_again_when_its_rows_expire(servers: Servers) -> None:
    each = [servers.of(quota) for quota in WHO]

    async def fill(one: Servers) -> None:
        for _ in range(ALLOWED):
            await one.open(0)

    try:
        await asyncio.gather(*map(fill, each))
        servers.processes[0].kill()
        servers.processes[0].wait()

        async with servers.world.fl.database.transaction() as tx:
            left = await tx.values(
                "select quota, extract(epoch from max(expires_at) - clock_timestamp()) from fairlead.openings group by 1"
            )
            await given.expire(tx, "openings", in_seconds=3600)
        before = await asyncio.gather(*(one.ask(1) for one in each))
        await given.expire(servers.world, "openings")  # as if it were later

        assert [status for status, _ in before] == [429] * len(WHO)
        assert {quota for quota, seconds in left if seconds <= 30} == {*WHO}
        for one in each:
            assert await one.used() == 0
        await asyncio.gather(
            *(
                _until_async(one.is_admitted_by_the_second, "the second server to see that there is room")
                for one in each
            )
        )
    finally:
        await asyncio.gather(*(one.close() for one in each))


async def test_the_openings_of_a_server_end_with_it(database_url: str, db: Database) -> None:
    async with world_on(database_url) as world:
        sent = {"worker_id": "w", "definitions": None, "limit": 1, "wait": 30}
        waiting = asyncio.create_task(world.call("POST", "/worker/jobs/claim", who="worker", json=sent))
        await eventually(lambda: world.app.state.long_polls.busiest == 1, "a long poll")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert await given.count(db, "openings") == 0
