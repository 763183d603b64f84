"""Agents over HTTP: enrolled by a code, given their host's jobs and no others, until they say that they have them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from fairlead import Fairlead
from fairlead.actions import definitions, hosts, live
from fairlead.db.tx import Tx
from fairlead.model.access import Principal, Role, Token
from fairlead.model.address_list import AddressList
from fairlead.model.secrets.generated import hash_secret
from fairlead.server import auth
from fairlead.store import access, rescue
from tests import given
from tests.acting import act
from tests.server.test_agent_polling import Waiting, lease
from tests.server.world import World
from tests.tables import each_case
from tests.waiting import SECONDS, until_somebody_waits

SERVER_START = {
    "kind": "host",
    "arg_schema": {"type": "object", "required": ["serverInstanceId"]},
    "resource_pointer": "/serverInstanceId",
    "backoff": {"base_seconds": 2, "factor": 2, "cap_seconds": 60, "jitter": 0},
}


async def admin(world: World, method: str, path: str, **more: Any) -> Any:
    answer = await world.call(method, path, who="tenant_admin", **more)
    assert answer.status_code < 300, answer.text
    return answer.json()


async def agent(world: World, method: str, path: str, *, status: int = 200, **more: Any) -> Any:
    host = world.hosts[given.TENANT]
    answer = await world.call(method, f"/agent/hosts/{host}{path}", who="agent", **more)
    assert answer.status_code == status, answer.text
    return answer.json()


async def session(world: World) -> str:
    return str((await agent(world, "POST", "/session", status=201, json={"version": "1"}))["session_id"])


async def server_job(world: World, name: str = "lobby") -> tuple[Any, Any]:
    """A game server on the host, and a job that starts it."""
    await act(world.fl.database, definitions.patch, given.TESTER, "SERVER_START", SERVER_START)
    server = await admin(
        world,
        "POST",
        "/resources",
        json={"host_id": str(world.hosts[given.TENANT]), "kind": "server", "name": name},
    )
    body = {"definition_key": "SERVER_START", "payload": {"serverInstanceId": server["id"]}}
    job = await world.call("POST", "/jobs", json=body)
    assert job.status_code == 201, job.text
    return server, job.json()


@each_case(
    ("said", "kept"), [(5, range(5, 6)), (None, range(60_000, 120_000)), (2**53, range(60_000, 120_000))]
)
async def test_an_attempt_took_as_long_as_the_agent_says_however_late_it_reports(
    world: World, said: int | None, kept: range
) -> None:
    _, job = await server_job(world, str(said))
    mine = await session(world)
    [taken] = (await agent(world, "GET", "/jobs", params={"session": mine, "wait": 30}))["jobs"]
    await given.age(world, "leases", seconds=60)
    ended = {**lease(taken), "status": "succeeded", "duration_ms": said}
    await agent(world, "POST", f"/jobs/{job['id']}/result", json=ended)

    [attempt] = (await world.call("GET", f"/jobs/{job['id']}/attempts")).json()["items"]
    assert attempt["duration_ms"] in kept


@pytest.mark.parametrize("rescued", [True, False], ids=["rescued", "replaced"])
@pytest.mark.parametrize("canceled", [True, False], ids=["canceled", "queued"])
@pytest.mark.parametrize("status", ["succeeded", "failed"])
async def test_a_result_of_what_was_put_back_before_it_was_accepted_is_refused(
    world: World, *, status: str, canceled: bool, rescued: bool
) -> None:
    _, job = await server_job(world)
    mine = await session(world)
    [taken] = (await agent(world, "GET", "/jobs", params={"session": mine, "wait": 30}))["jobs"]
    if canceled:
        await admin(world, "POST", f"/jobs/{job['id']}/cancel")
    if rescued:
        async with world.fl.database.transaction() as tx:
            await given.end_leases(tx)
            assert len(await rescue.rescue(tx)) == 1
    else:
        await session(world)

    path = f"/jobs/{job['id']}/result"
    refused = await agent(world, "POST", path, status=409, json={**lease(taken), "status": status})

    assert refused["code"] == "lease_lost"
    told = (await world.call("GET", f"/jobs/{job['id']}")).json()
    assert (told["status"], told["output"]) == ("canceled" if canceled else "queued", None)


async def test_a_failure_of_a_canceled_job_may_be_told_again(world: World) -> None:
    server, job = await server_job(world)
    assert (job["host_id"], job["resource_id"]) == (server["host_id"], server["id"])
    mine = await session(world)
    [taken] = (await agent(world, "GET", "/jobs", params={"session": mine, "wait": 30}))["jobs"]
    await agent(world, "POST", f"/jobs/{job['id']}/accept", json=lease(taken))
    await admin(world, "POST", f"/jobs/{job['id']}/cancel")
    path, ended = f"/jobs/{job['id']}/result", {**lease(taken), "status": "failed", "error_message": "no"}

    answers = [await agent(world, "POST", path, json=ended) for _ in range(2)]
    other = await agent(world, "POST", path, status=409, json={**ended, "status": "succeeded"})

    assert [one["status"] for one in answers] == ["canceled", "canceled"]
    assert other["code"] == "lease_lost"


async def enrolled(world: World) -> dict[str, str]:
    """The headers of a new agent of the host."""
    code = await admin(world, "POST", f"/hosts/{world.hosts[given.TENANT]}/enrolment")
    told = await world.call("POST", "/agent/enrol", who=None, json={"code": code["code"]})
    return {"Authorization": f"Bearer {told.json()['token']}"}


async def as_agent(world: World, headers: dict[str, str], method: str, path: str, **more: Any) -> Any:
    host = world.hosts[given.TENANT]
    return await world.call(method, f"/agent/hosts/{host}{path}", who=None, headers=headers, **more)


async def agent_tokens(tx: Tx, world: World) -> list[Token]:
    """Those of the host's agents, newest first."""
    tokens = await access.list_tokens(tx, tenant_id=world.tenants[given.TENANT], after=None, limit=1000)
    return [token for token in reversed(tokens) if token.host_id == world.hosts[given.TENANT]]


async def test_a_token_that_was_rotated_is_good_for_some_minutes_more(world: World) -> None:
    old, bystander = await enrolled(world), await enrolled(world)
    before = datetime.now(UTC)
    first = await as_agent(world, old, "POST", "/token")
    again = await as_agent(world, old, "POST", "/token")  # the answer was lost
    new = {"Authorization": f"Bearer {again.json()['token']}"}

    assert first.json()["token"] != again.json()["token"]
    for one in (old, bystander, new):
        assert (await as_agent(world, one, "POST", "/session", json={"version": "1"})).status_code == 201
    async with world.fl.database.transaction() as tx:
        *new_ones, rotated = [token.expires_at for token in await agent_tokens(tx, world)][:4]
        assert new_ones == [None, None, None]  # and somebody else's
        assert rotated is not None
        assert before <= rotated - timedelta(minutes=10) <= datetime.now(UTC)
        await given.expire(tx, "tokens")
    world.app.state.gatekeeper.forget()
    assert [
        (await as_agent(world, one, "POST", "/heartbeat", json={"leases": []})).status_code
        for one in (old, new)
    ] == [401, 200]


async def test_a_revocation_cuts_the_old_token_and_the_new(world: World) -> None:
    old = await enrolled(world)
    new = {"Authorization": f"Bearer {(await as_agent(world, old, 'POST', '/token')).json()['token']}"}
    begun = await as_agent(world, new, "POST", "/session", json={"version": "1"})
    poll = {"session": begun.json()["session_id"], "wait": 30}
    waiting = [asyncio.create_task(as_agent(world, one, "GET", "/jobs", params=poll)) for one in (old, new)]

    await admin(world, "POST", f"/hosts/{world.hosts[given.TENANT]}/revoke")
    async with asyncio.timeout(SECONDS):
        answers = await asyncio.gather(*waiting)
        for one in (old, new):
            while (await as_agent(world, one, "POST", "/heartbeat", json={"leases": []})).status_code == 200:
                await asyncio.sleep(0.05)

    assert [one.status_code for one in answers] == [401, 401]


async def revoke_in_rest(world: World) -> None:
    await admin(world, "POST", f"/hosts/{world.hosts[given.TENANT]}/revoke")


async def remove_the_host(world: World) -> None:
    await admin(world, "DELETE", f"/hosts/{world.hosts[given.TENANT]}")


async def revoke_in_console(world: World) -> None:
    headers = {"Cookie": await world.signed_in(Role.TENANT_ADMIN), "Origin": "http://fairlead.test"}
    answer = await world.client.post(
        f"http://fairlead.test/console/hosts/{world.hosts[given.TENANT]}/revoke", headers=headers
    )
    assert answer.status_code == 303, answer.text


async def revoke_in_library(world: World) -> None:
    await act(world.fl, hosts.revoke_agents, given.TESTER, world.hosts[given.TENANT])


@pytest.mark.parametrize("revoke", [revoke_in_rest, revoke_in_console, revoke_in_library, remove_the_host])
async def test_a_process_that_revokes_refuses_the_token_at_once(
    world: World, revoke: Callable[[World], Awaitable[None]]
) -> None:
    agent_headers = await enrolled(world)
    assert await world.status("GET", "/me", headers=agent_headers) == 200

    await revoke(world)

    assert await world.status("GET", "/me", headers=agent_headers) == 401


async def test_a_token_that_was_revoked_gives_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even in a server that has not heard of it yet."""
    monkeypatch.setattr(auth, "REMEMBER_SECONDS", 600.0)
    old = await enrolled(world)
    assert await world.status("GET", "/me", headers=old) == 200
    async with Fairlead(settings=world.fl.settings) as other, other.transaction() as tx:
        await hosts.revoke_agents(tx, given.TESTER, world.hosts[given.TENANT])
    assert await world.status("GET", "/me", headers=old) == 200  # it is remembered

    answer = await as_agent(world, old, "POST", "/token")

    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")


async def test_a_revocation_takes_the_token_that_is_just_being_made(world: World) -> None:
    await enrolled(world)
    host_id = world.hosts[given.TENANT]
    async with world.fl.database.transaction() as tx:
        token, *_ = await agent_tokens(tx, world)
        agent_itself = Principal("agent:a", Role.AGENT, token.tenant_id, host_id)
        made = await hosts.rotate_token(tx, agent_itself, token.id)
        revoking = asyncio.create_task(
            world.fl.database.transact(lambda tx: hosts.revoke_agents(tx, given.TESTER, host_id))
        )
        await until_somebody_waits(tx)
    await revoking

    async with world.fl.database.transaction() as tx:
        assert await access.find_token(tx, hash_secret(made.secret)) is None


# The watcher of hosts, at moments between two of its statements


async def test_an_agent_that_polls_while_tokens_are_checked_is_not_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await act(world.fl.database, definitions.patch, given.TESTER, "on_host", {"kind": "host"})
    filter_tokens = live.filter_valid_tokens
    is_checking, may_answer = asyncio.Event(), asyncio.Event()

    async def answer_late(tx: Tx, ids: Sequence[UUID]) -> dict[UUID, tuple[AddressList, ...]]:
        good = await filter_tokens(tx, ids)
        is_checking.set()
        await may_answer.wait()
        return good

    older, newer = Waiting(world), Waiting(world)
    await older.start()
    replaced = await older.waits()
    monkeypatch.setattr(live, "filter_valid_tokens", answer_late)
    async with asyncio.timeout(SECONDS):
        await is_checking.wait()

    token = (await enrolled(world))["Authorization"].removeprefix("Bearer ")
    monkeypatch.setitem(world.secrets, (given.TENANT, "agent"), token)
    await newer.start()
    waiting = asyncio.create_task(newer.answer(wait=30))
    host = world.app.state.agent_polls._watcher._hosts[newer.host]
    before = world.token_ids[given.TENANT, "agent"]
    async with asyncio.timeout(SECONDS):
        while not any(poll.token_id != before for poll in host.polls):
            await asyncio.sleep(0.001)
    may_answer.set()
    job = await newer.enqueue()

    async with asyncio.timeout(SECONDS):
        given_job = await waiting
        assert (await replaced).json()["code"] == "agent_superseded"
    assert given_job.status_code == 200, given_job.text
    assert [one["job_id"] for one in given_job.json()["items"]] == [str(job)]
