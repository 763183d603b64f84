"""The watcher of hosts, at moments between two of its statements."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest

from fairlead.actions import definitions, live
from fairlead.db.tx import Tx
from fairlead.model.address_list import AddressList
from tests import given
from tests.server.test_agent_polling import SOON_SECONDS, Waiting
from tests.server.world import World


async def test_an_agent_that_polls_while_tokens_are_checked_is_not_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.fl.database.transaction() as tx:
        await definitions.patch(tx, given.TESTER, "on_host", {"kind": "host"})
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
    async with asyncio.timeout(SOON_SECONDS):
        await is_checking.wait()

    token = await enrol_again(world, older.host)
    monkeypatch.setitem(world.secrets, (given.TENANT, "agent"), token)
    await newer.start()
    waiting = asyncio.create_task(newer.answer(wait=20))
    host = world.app.state.agent_polls._watcher._hosts[newer.host]
    before = world.token_ids[given.TENANT, "agent"]
    async with asyncio.timeout(SOON_SECONDS):
        while not any(poll.token_id != before for poll in host.polls):
            await asyncio.sleep(0.001)
    may_answer.set()
    job = await newer.enqueue()

    async with asyncio.timeout(SOON_SECONDS):
        given_job = await waiting
        assert (await replaced).json()["code"] == "agent_superseded"
    assert given_job.status_code == 200, given_job.text
    assert [one["job_id"] for one in given_job.json()["items"]] == [str(job)]


async def enrol_again(world: World, host: UUID) -> str:
    """Another token for the host's agent."""
    code = await world.call("POST", f"/hosts/{host}/enrolment", who="tenant_admin")
    enrolled = await world.call("POST", "/agent/enrol", who=None, json={"code": code.json()["code"]})
    return str(enrolled.json()["token"])
