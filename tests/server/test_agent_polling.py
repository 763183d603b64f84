"""Agents that wait: woken in time for all that concerns them, and asking the database for all of them at once."""

import asyncio
import time
from typing import Any
from uuid import UUID

import httpx2
import pytest
from msgspec.structs import replace

from fairlead.actions import definitions
from fairlead.db.database import Database
from fairlead.model.secrets.generated import hash_secret
from fairlead.server.app import bind, create_app, create_server
from fairlead.server.rest.leases import LONGEST_WAIT_SECONDS
from fairlead.store import hosts
from tests import given
from tests.plans import read_scans
from tests.server.world import World
from tests.waiting import SECONDS


class Waiting:
    """The host's agent, and what it asks."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.host = world.hosts[given.TENANT]
        self.session = ""

    async def ask(self, method: str, path: str, **more: Any) -> httpx2.Response:
        return await self.world.call(method, f"/agent/hosts/{self.host}{path}", who="agent", **more)

    async def start(self) -> str:
        answer = await self.ask("POST", "/session", json={"version": "1"})
        assert answer.status_code == 201, answer.text
        self.session = answer.json()["session_id"]
        return self.session

    async def answer(self, **params: Any) -> httpx2.Response:
        return await self.ask("GET", "/jobs", params={"session": self.session, "wait": 0, **params})

    async def poll(self, **params: Any) -> Any:
        answer = await self.answer(**params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def waits(self, **params: Any) -> "asyncio.Task[httpx2.Response]":
        """A poll that has come to rest."""
        await self.poll(limit=0, **{k: v for k, v in params.items() if k in ("paused", "draining")})
        waiting = asyncio.create_task(self.answer(wait=LONGEST_WAIT_SECONDS, **params))
        place = self.world.app.state.agent_polls._watcher._hosts[self.host]
        async with asyncio.timeout(SECONDS):
            while not place.polls:
                await asyncio.sleep(0.001)
        return waiting

    async def enqueue(self, key: str = "on_host") -> UUID:
        return (await self.world.fl.enqueue(key, tenant=given.TENANT, host_id=self.host)).id

    async def accept(self, job: Any) -> httpx2.Response:
        return await self.ask("POST", f"/jobs/{job['job_id']}/accept", json=lease(job))

    async def succeed(self, job: Any) -> None:
        await self.accept(job)
        body = {**lease(job), "status": "succeeded"}
        answer = await self.ask("POST", f"/jobs/{job['job_id']}/result", json=body)
        assert answer.json()["status"] == "succeeded", answer.text


def lease(job: Any) -> dict[str, Any]:
    return {"attempt_no": job["attempt_no"], "lease_token": job["lease_token"]}


async def within(seconds: float, waiting: "asyncio.Task[httpx2.Response]") -> httpx2.Response:
    async with asyncio.timeout(seconds):
        return await waiting


@pytest.fixture
async def agent(world: World) -> Waiting:
    async with world.fl.database.transaction() as tx:
        for key in ("on_host", "other"):
            await definitions.patch(tx, given.TESTER, key, {"kind": "host"})
    agent = Waiting(world)
    await agent.start()
    return agent


async def test_each_job_that_comes_while_somebody_waits_is_given_soon(agent: Waiting) -> None:
    for _ in range(10):
        waiting = asyncio.create_task(agent.answer(wait=LONGEST_WAIT_SECONDS))
        job = await agent.enqueue()  # now before, now after the poll has looked
        [taken] = (await within(SECONDS, waiting)).json()["jobs"]
        assert taken["job_id"] == str(job)
        await agent.succeed(taken)


async def test_a_job_names_the_attempt_that_it_is(world: World, agent: Waiting) -> None:
    job = await agent.enqueue()
    [first] = (await agent.poll(wait=LONGEST_WAIT_SECONDS))["jobs"]
    [again] = (await agent.poll())["jobs"]

    assert first["job_run_id"] == again["job_run_id"] == str(await given.attempt_id(world, job))


async def test_a_job_that_waits_for_room_is_given_as_soon_as_there_is_some(agent: Waiting) -> None:
    await agent.enqueue()
    second = await agent.enqueue()
    [running] = (await agent.poll(wait=LONGEST_WAIT_SECONDS))["jobs"]
    await agent.accept(running)
    waiting = await agent.waits()

    await agent.succeed(running)

    [taken] = (await within(SECONDS, waiting)).json()["jobs"]
    assert taken["job_id"] == str(second)


async def test_a_poll_that_does_not_wait_finds_the_work_that_is_there_after_polls_in_vain(
    world: World, agent: Waiting
) -> None:
    for _ in range(3):
        await agent.enqueue()
    [running] = (await agent.poll(wait=LONGEST_WAIT_SECONDS))["jobs"]
    await agent.accept(running)
    place = world.app.state.agent_polls._watcher._hosts[agent.host]
    # as after polls while the host was full: what was last seen is that there is nothing to be had
    for _ in range(2):
        assert (await agent.poll())["jobs"] == []
    await agent.succeed(running)
    place.state = replace(place.state, has_work=False)
    place.empty_claims, place.next_claim_at = 10, time.monotonic() + 3600

    [taken] = (await agent.poll())["jobs"]

    assert taken["job_id"] != running["job_id"]


async def test_a_waiting_agent_is_told_at_once_that_another_was_started(agent: Waiting) -> None:
    waiting = await agent.waits()
    await agent.start()

    answer = await within(SECONDS, waiting)

    assert (answer.status_code, answer.json()["code"]) == (409, "agent_superseded")
    assert (await agent.answer()).status_code == 200  # and the new one is not taken for an old one


async def test_what_an_older_agent_did_not_accept_is_the_newer_ones_alone(agent: Waiting) -> None:
    job = await agent.enqueue()
    [old] = (await agent.poll(wait=LONGEST_WAIT_SECONDS))["jobs"]
    await agent.start()

    [new] = (await agent.poll(wait=LONGEST_WAIT_SECONDS))["jobs"]
    refused = await agent.accept(old)

    assert (refused.status_code, refused.json()["code"]) == (409, "lease_lost")
    assert (new["job_id"], new["attempt_no"]) == (str(job), 2)
    assert (await agent.accept(new)).status_code == 200


@pytest.mark.parametrize("limit", [0, 1])
async def test_a_cancel_is_told_at_once_and_again_but_wakes_once(
    world: World, agent: Waiting, limit: int
) -> None:
    job = await agent.enqueue()
    [running] = (await agent.poll(wait=LONGEST_WAIT_SECONDS))["jobs"]
    await agent.accept(running)
    waiting = await agent.waits(limit=limit)

    await world.call("POST", f"/jobs/{job}/cancel")

    assert (await within(SECONDS, waiting)).json()["cancel"] == [str(job)]
    begun = time.monotonic()
    assert (await agent.poll(limit=limit, wait=0.5))["cancel"] == [str(job)]
    assert time.monotonic() - begun >= 0.5


@pytest.mark.parametrize("what", ["paused", "draining"])
async def test_a_host_that_is_held_back_says_so_at_once_and_is_given_nothing(
    world: World, agent: Waiting, what: str
) -> None:
    waiting = await agent.waits()
    held = await world.call(
        "PATCH", f"/hosts/{agent.host}", who="tenant_admin", json={what: True, **_noted(what)}
    )
    assert held.status_code == 200, held.text

    told = (await within(SECONDS, waiting)).json()
    job = await agent.enqueue()
    empty = await agent.poll(wait=0.5, **{what: True})
    waiting = await agent.waits(**{what: True})
    await world.call("PATCH", f"/hosts/{agent.host}", who="tenant_admin", json={what: False})

    assert (told[what], told["jobs"]) == (True, [])
    assert (empty[what], empty["jobs"]) == (True, [])
    [taken] = (await within(SECONDS, waiting)).json()["jobs"] or (
        await agent.poll(wait=LONGEST_WAIT_SECONDS)
    )["jobs"]
    assert taken["job_id"] == str(job)


def _noted(what: str) -> dict[str, str]:
    return {"note": "new disk"} if what == "paused" else {}


async def test_an_agent_is_given_only_what_it_says_it_can_run(agent: Waiting) -> None:
    await agent.enqueue("other")
    job = await agent.enqueue()

    [taken] = (await agent.poll(definitions=["on_host", "unknown"], wait=LONGEST_WAIT_SECONDS))["jobs"]

    assert taken["job_id"] == str(job)
    await agent.succeed(taken)
    assert (await agent.poll(definitions=["on_host"], wait=0.2))["jobs"] == []


async def test_what_was_given_at_one_server_is_given_again_at_another(world: World, agent: Waiting) -> None:
    other = create_app(world.fl)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=other)) as client:
        there = Waiting(World(world.fl, other, client, world.tenants, world.hosts, world.secrets))
        there.session = agent.session
        waiting = asyncio.create_task(there.answer(wait=LONGEST_WAIT_SECONDS, limit=0))
        await agent.enqueue()
        [lost] = (await agent.poll(wait=LONGEST_WAIT_SECONDS))["jobs"]
        async with asyncio.timeout(SECONDS):
            while not (again := (await there.poll(wait=0.1))["jobs"]):
                pass
        waiting.cancel()

    assert again == [lost]


async def test_a_server_that_stops_answers_those_who_wait(world: World, agent: Waiting) -> None:
    listening = bind("127.0.0.1", 0)
    server = create_server(world.app)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    await server.up.wait()
    waiting = await agent.waits()

    server.should_exit = True

    assert (await within(SECONDS, waiting)).json()["jobs"] == []
    await serving


async def test_what_is_over_is_forgotten_and_what_is_on_its_way_is_not(world: World, agent: Waiting) -> None:
    await agent.enqueue()
    on_its_way = await agent.enqueue()
    [ended] = (await agent.poll(wait=LONGEST_WAIT_SECONDS))["jobs"]
    result = {**lease(ended), "status": "succeeded"}  # without having been accepted
    await agent.ask("POST", f"/jobs/{ended['job_id']}/result", json=result)
    await agent.poll(wait=LONGEST_WAIT_SECONDS)
    codes = [
        (await world.call("POST", f"/hosts/{agent.host}/enrolment", who="tenant_admin")).json()["code"]
        for _ in range(2)
    ]
    async with world.fl.database.transaction() as tx:
        old = "update fairlead.enrolment_codes set expires_at = clock_timestamp() - interval '2 days' where code_hash = %s"
        await tx.run(old, [hash_secret(codes[0])])
        await hosts.remove_leftovers(tx)
        left = await tx.values("select job_id from fairlead.deliveries")
        [(kept,)] = await tx.values("select code_hash from fairlead.enrolment_codes")

    assert left == [(on_its_way,)]
    assert bytes(kept) == hash_secret(codes[1])


async def test_a_glance_goes_from_host_to_host_however_much_waits_for_each(
    world: World, agent: Waiting
) -> None:
    async with world.fl.database.transaction() as tx:
        await tx.run(
            "insert into fairlead.ready (tenant_id, definition_id, host_id, priority, scheduled_for, job_id) "
            "select h.tenant_id, d.id, h.id, 100, now(), gen_random_uuid() "
            "from fairlead.hosts h, fairlead.job_definitions d, generate_series(1, 1000) where d.key = 'on_host'"
        )
        await tx.prefer_indexes()
        heads = await read_scans(tx, hosts.sql.with_work, {}, "ready")
        found = await hosts.list_with_work(tx)
        await tx.connection.execute("rollback")
        await tx.connection.execute("begin")

    assert set(found) == set(world.hosts.values())
    assert sum(one["Actual Rows"] * one["Actual Loops"] for one in heads) <= len(found)


async def test_a_glance_counts_nothing_for_hosts_without_work(world: World, agent: Waiting) -> None:
    async with world.fl.database.transaction() as tx:
        tenant_id = world.tenants[given.TENANT]
        await tx.run(
            "insert into fairlead.hosts (tenant_id, name) select %s, 'idle ' || n from generate_series(1, 100) n",
            [tenant_id],
        )
        await tx.run("analyze fairlead.hosts")
        await given.queued_job(tx, definition="on_host", host_id=world.hosts[given.TENANT], payload={})
        # what a planner that misjudges the tables comes to
        await tx.run("set local enable_nestloop = off")
        counted = await read_scans(tx, hosts.sql.with_work, {}, "leases")
        found = await hosts.list_with_work(tx)

    assert found == [world.hosts[given.TENANT]]
    assert [one["Actual Loops"] for one in counted] == [1]


async def test_those_who_wait_ask_the_database_next_to_nothing(
    world: World, agent: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    await agent.poll(definitions=["on_host"])
    waiting = await agent.waits()
    asked = []

    def counting(plain: Any) -> Any:
        def counted(*args: Any, **more: Any) -> Any:
            asked.append(plain)
            return plain(*args, **more)

        return counted

    for name in ("single", "transaction"):
        monkeypatch.setattr(Database, name, counting(getattr(Database, name)))
    begun = time.monotonic()
    for _ in range(100):
        await agent.poll(definitions=["on_host"], wait=0.02)
    seconds = time.monotonic() - begun
    waiting.cancel()

    assert len(asked) / seconds <= 5
