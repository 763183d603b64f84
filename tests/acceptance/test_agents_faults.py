"""An agent behind a bad network: no job is lost, none runs twice under one lease, and each result counts once."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import httpx2
import pytest

from fairlead.actions import definitions
from fairlead.server import host_watcher
from fairlead.server.problems import PREFIX
from tests import given
from tests.acceptance.http_faults import FAULTS, FaultyProxy
from tests.server.world import World, listening, world_on
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough

# No lease ends by itself: a machine that stumbles must not decide.
LEASE, SWEEP = 3600.0, 0.2


class AgentUnderTest:
    """An agent in plain HTTP calls, as anybody could write one: it asks again until it is answered."""

    def __init__(self, world: World, url: str) -> None:
        self.client = httpx2.AsyncClient(timeout=SECONDS, headers={"Connection": "close"})
        self._at = f"{url}{PREFIX}/agent/hosts/{world.hosts[given.TENANT]}"
        self._token = world.headers("agent")
        self.session = ""
        self.began: Counter[tuple[str, int, str]] = Counter()

    async def call(self, method: str, path: str, **more: Any) -> httpx2.Response:
        """One request, once."""
        return await self.client.request(method, self._at + path, headers=self._token, **more)

    async def insist(self, method: str, path: str, **more: Any) -> httpx2.Response:
        """The same request again and again, until an answer comes."""
        async with asyncio.timeout(2 * SECONDS):
            while True:
                try:
                    return await self.call(method, path, **more)
                except httpx2.TransportError:
                    await asyncio.sleep(0.01)

    async def start(self) -> None:
        begun = await self.insist("POST", "/session", json={"version": "1"})
        self.session = begun.json()["session_id"]

    async def poll(self, wait: float = 1, limit: int = 1) -> list[Any]:
        params = {"session": self.session, "wait": wait, "limit": limit}
        answer = await self.insist("GET", "/jobs", params=params)
        assert answer.status_code == 200, answer.text
        return list(answer.json()["items"])

    async def run(self, job: Any) -> httpx2.Response:
        """Accept, run and report."""
        accepted = await self.insist("POST", f"/jobs/{job['job_id']}/accept", json=lease(job))
        assert accepted.status_code == 200, accepted.text
        self.began[job["job_id"], job["attempt_no"], job["lease_token"]] += 1
        return await self.report(job)

    async def report(self, job: Any) -> httpx2.Response:
        body = {**lease(job), "status": "succeeded", "output": job["attempt_no"]}
        return await self.insist("POST", f"/jobs/{job['job_id']}/result", json=body)


def lease(job: Any) -> dict[str, Any]:
    return {"attempt_no": job["attempt_no"], "lease_token": job["lease_token"]}


@pytest.fixture
async def world(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(host_watcher, "LOOK_SECONDS", SWEEP)
    async with world_on(database_url, lease_seconds=LEASE, sweep_seconds=SWEEP) as made:
        yield made


@pytest.fixture
async def proxy(world: World) -> AsyncIterator[FaultyProxy]:
    """The application on a socket, behind a bad network."""
    async with listening(world) as port, FaultyProxy(port) as made:
        yield made


@pytest.fixture
async def agent(world: World, proxy: FaultyProxy) -> AsyncIterator[AgentUnderTest]:
    agent = AgentUnderTest(world, proxy.url)
    async with agent.client:
        await agent.start()
        yield agent


async def enqueued(world: World, count: int = 1) -> list[UUID]:
    async with world.fl.database.transaction() as tx:
        await definitions.patch(tx, given.TESTER, "on_host", {"kind": "host"})
    host = world.hosts[given.TENANT]
    return [(await world.fl.enqueue("on_host", tenant=given.TENANT, host_id=host)).id for _ in range(count)]


async def stands(world: World, job: UUID) -> tuple[str, list[str], int]:
    """A job's status, how its attempts ended, and how often it was lost."""
    query = """
        select j.status::text, array_agg(a.status order by a.attempt_no), j.lost_count
        from fairlead.jobs j join fairlead.attempts a on a.job_id = j.id where j.id = %s
        group by j.id, j.status, j.lost_count"""
    async with world.fl.database.transaction() as tx:
        [(status, attempts, lost)] = await tx.values(query, [job])
    return status, attempts, lost


async def until_given(agent: AgentUnderTest) -> Any:
    """The job that the agent gets, after as many polls as it takes."""
    async with asyncio.timeout(2 * SECONDS):
        while not (found := await agent.poll()):
            pass
    return found[0]


async def successes(world: World) -> int:
    return len(await given.audit_entries(world, "JOB_SUCCEEDED"))


async def test_under_all_faults_no_job_is_lost_and_none_runs_twice_under_one_lease(
    world: World, proxy: FaultyProxy, agent: AgentUnderTest
) -> None:
    jobs = await enqueued(world, 12)
    chance = random.Random(1)  # noqa: S311
    proxy.choose = lambda: chance.choice(FAULTS)
    left = {str(job) for job in jobs}
    done = set()

    async with asyncio.timeout(2 * SECONDS):
        while left:
            for taken in await agent.poll(wait=0.2):
                if (taken["job_id"], taken["attempt_no"]) in done:  # given again, and run before
                    continue
                done.add((taken["job_id"], taken["attempt_no"]))
                answer = await agent.run(taken)
                assert answer.status_code == 200, answer.text
                left.discard(taken["job_id"])

    assert set(proxy.met) == set(FAULTS)
    assert set(agent.began.values()) == {1}
    assert [await stands(world, job) for job in jobs] == [("succeeded", ["succeeded"], 0)] * len(jobs)
    assert await successes(world) == len(jobs)


async def test_what_nobody_accepted_in_time_goes_back_without_being_counted(
    world: World, agent: AgentUnderTest
) -> None:
    [job] = await enqueued(world)
    for attempt_no in range(1, 5):  # three losses would condemn it
        taken = await until_given(agent)
        assert taken["attempt_no"] == attempt_no
        await given.end_leases(world)
        refused = await agent.insist("POST", f"/jobs/{job}/accept", json=lease(taken))
        assert (refused.status_code, refused.json()["code"]) == (409, "lease_lost")

    await agent.run(await until_given(agent))
    assert await stands(world, job) == ("succeeded", ["released"] * 4 + ["succeeded"], 0)
