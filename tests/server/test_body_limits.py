"""Bodies of requests: their size, and turns of tenants at the memory that they take."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2
import pytest

from fairlead.errors import BodyTooLarge
from fairlead.server import body_limits
from fairlead.server.body_limits import (
    PIECE_BYTES,
    SMALL_BYTES,
    STEP_BYTES,
    BodyMemory,
    BodyTurns,
    count_values,
)
from fairlead.turns.owner import Owner
from tests import given
from tests.given import OTHER
from tests.server.world import BASE, World, world_on
from tests.tables import each_case
from tests.waiting import eventually

MIB = 1 << 20


def bulk(size: int, *, values: bool = False) -> bytes:
    """A bulk load of about this size: a text, or many values."""
    payload = {"value": [0] * (size // 2)} if values else {"text": "x" * size}
    return json.dumps(
        {"jobs": [{"definition_key": "anything", "payload": payload}]}, separators=(",", ":")
    ).encode()


async def send(
    world: World, body: Any, *, tenant: str = given.TENANT, headers: Mapping[str, str] | None = None
) -> httpx2.Response:
    headers = {"Content-Type": "application/json", **(headers or {})}
    return await world.call(
        "POST", "/jobs/bulk", who="operator", tenant=tenant, content=body, headers=headers
    )


def turns_of(world: World) -> BodyTurns:
    turns: BodyTurns = world.app.state.body_turns
    return turns


async def slowly(body: bytes, release: asyncio.Event) -> AsyncIterator[bytes]:
    """The body, whose end is sent late."""
    yield body[:-1]
    await release.wait()
    yield body[-1:]


async def test_large_bodies_of_one_tenant_leave_memory_to_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = turns_of(world)
    monkeypatch.setattr(turns.raw, "_capacity", MIB)
    release = asyncio.Event()
    flood = [asyncio.create_task(send(world, slowly(bulk(240_000), release))) for _ in range(20)]
    await eventually(lambda: turns.raw.waiting or None, "a body to wait")

    answer = await send(world, bulk(131_072), tenant=OTHER)
    assert answer.status_code == 201
    release.set()
    assert {answer.status_code for answer in await asyncio.gather(*flood)} == {201}
    assert (turns.raw._taken, turns.waits > 0) == (0, True)
    metrics = (await world.call("GET", f"{BASE}/metrics", who="super_admin")).text
    assert f"fairlead_body_waits_total {float(turns.waits)}" in metrics


BODY = bulk(240_000)


@each_case("headers", [{}, {"Content-Length": str(len(BODY))}])
async def test_a_body_that_stalls_leaves_its_memory_to_others_that_wait(
    world: World, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]
) -> None:
    turns, release = turns_of(world), asyncio.Event()
    monkeypatch.setattr(turns.raw, "_capacity", STEP_BYTES)
    monkeypatch.setattr(body_limits, "ARRIVAL_SECONDS", 0.01)
    held = asyncio.create_task(send(world, slowly(BODY, release), headers=headers))
    await eventually(lambda: turns.raw._taken or None, "the body to have its turn")

    assert (await send(world, BODY, tenant=OTHER)).status_code == 201
    answer = await held
    assert (answer.status_code, answer.json()["code"]) == (408, "request_too_slow")
    assert answer.headers["Connection"] == "close"
    assert turns.raw._taken == 0
    release.set()


async def test_a_body_that_is_being_refused_is_not_refused_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy loop the next look comes before its request hears of the first: an error would end all later looks."""
    turns, release, looked = turns_of(world), asyncio.Event(), list[BaseException | None]()
    monkeypatch.setattr(turns.raw, "_capacity", STEP_BYTES)
    monkeypatch.setattr(body_limits, "LOOK_SECONDS", 3600)
    monkeypatch.setattr(body_limits, "PAUSE_SECONDS", 3600)
    held = asyncio.create_task(send(world, slowly(BODY, release)))
    await eventually(lambda: turns.raw._taken or None, "the body to have its turn")
    other = asyncio.create_task(send(world, BODY, tenant=OTHER))
    await eventually(lambda: turns.raw.waiting or None, "another to wait for it")

    def look_again() -> None:
        try:
            turns._look()
        except RuntimeError as error:
            looked.append(error)
        else:
            looked.append(None)

    monkeypatch.setattr(body_limits, "PAUSE_SECONDS", -3600)
    turns._look()
    asyncio.get_running_loop().call_soon(look_again)

    assert (await held).status_code == 408
    assert (await other).status_code == 201
    assert looked == [None]
    release.set()


async def test_a_body_that_waits_for_another_turn_leaves_its_memory_to_others_that_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its size is unknown, so it takes its turns in steps: it would wait for the others, and they for it."""
    turns, release = turns_of(world), asyncio.Event()
    monkeypatch.setattr(body_limits, "STEP_BYTES", 80_000)
    monkeypatch.setattr(turns.raw, "_capacity", 159_999)
    monkeypatch.setattr(body_limits, "ARRIVAL_SECONDS", 0.01)
    held = asyncio.create_task(send(world, slowly(BODY, release)))
    await eventually(lambda: turns.raw.waiting or None, "the body to wait for its second turn")

    assert (await send(world, bulk(100_000), tenant=OTHER)).status_code == 201
    assert (await held).status_code == 408
    assert turns.raw._taken == 0
    release.set()


async def test_a_slow_body_is_read_while_only_its_own_tenant_waits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, release = turns_of(world), asyncio.Event()
    monkeypatch.setattr(turns.raw, "_capacity", STEP_BYTES)
    monkeypatch.setattr(body_limits, "ARRIVAL_SECONDS", -body_limits.PAUSE_SECONDS)
    slow = asyncio.create_task(send(world, slowly(bulk(240_000), release)))
    await eventually(lambda: turns.raw._taken or None, "the body to have its turn")
    other = asyncio.create_task(send(world, bulk(240_000)))
    await eventually(lambda: turns.raw.waiting or None, "the other body to wait")
    turns._look()
    release.set()
    assert [answer.status_code for answer in await asyncio.gather(slow, other)] == [201, 201]


@each_case(
    ("holder", "status", "code"),
    [("own", 429, "too_many_requests"), ("others", 503, "server_full")],
)
async def test_a_body_that_waits_for_too_long_is_refused_with_its_reason(
    world: World, monkeypatch: pytest.MonkeyPatch, holder: str, status: int, code: str
) -> None:
    turns = turns_of(world)
    tenant = world.tenants[given.TENANT if holder == "own" else OTHER]
    owner = Owner(f"tenant {tenant}")
    for pool in (turns.raw, turns.parsed):
        monkeypatch.setattr(pool, "_patience_seconds", 0.001)
        await pool.take(owner, pool._capacity)
        try:
            answer = await send(world, bulk(240_000, values=True))
        finally:
            pool.give_back(owner, pool._capacity)
        assert (answer.status_code, answer.json()["code"]) == (status, code), pool
        assert answer.headers["Retry-After"] == "1"


async def test_a_body_of_too_many_values_is_refused_before_it_is_parsed(
    shared_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_limits, "PARSED_BYTES", 8 * MIB)
    answer = await send(shared_world, bulk(131_072, values=True))
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert "65541 values" in answer.json()["detail"]

    text = ",[{" * 40_000
    body = json.dumps({"jobs": [{"definition_key": "anything", "payload": {"csv": text}}]}).encode()
    assert (await send(shared_world, body)).status_code == 201, "commas in a text are no values"


@each_case(
    ("value", "inside"),
    [
        *((text, 0) for text in ("a,b", 'a",b', "\\", '\\",{', "[{,", "é,", 'x"' * 50)),
        (7, 0),
        (["a,", {"b,": 1}], 3),
    ],
)
async def test_the_values_of_a_text_are_counted_without_its_strings(value: Any, inside: int) -> None:
    text = json.dumps([value] * 20_000, separators=(",", ":"), ensure_ascii=False).encode()
    assert await count_values(text) == 20_000 * (1 + inside)


@each_case("ending", ["\\", '"', '\\"', '",['])
async def test_an_escape_at_the_end_of_a_piece_is_read_whole(ending: str) -> None:
    for missing in range(8):
        value = "x" * (PIECE_BYTES - missing) + ending * 3
        assert await count_values(json.dumps([value, 1]).encode()) == 2


async def test_clients_that_have_not_signed_in_take_nothing_from_tenants(world: World) -> None:
    """They say that a large body follows, and send nothing."""
    release, turns = asyncio.Event(), turns_of(world)
    headers = {"Content-Type": "application/json", "Content-Length": "16000000"}
    silent = [
        asyncio.create_task(
            world.client.post(
                f"{BASE}/api/v1/login", content=slowly(b"{" + b" " * number, release), headers=headers
            )
        )
        for number in (1, SMALL_BYTES - 1)
        for _ in range(4)
    ]
    await asyncio.sleep(0)
    answer = await send(world, bulk(240_000))
    assert answer.status_code == 201
    assert turns.waits == 0
    release.set()
    assert {answer.status_code for answer in await asyncio.gather(*silent)} <= {400, 413, 422}


async def test_a_client_that_has_not_signed_in_takes_what_it_sends_not_what_it_declares(world: World) -> None:
    release, turns = asyncio.Event(), turns_of(world)
    headers = {"Content-Type": "application/json", "Content-Length": "16000000"}
    body = slowly(b"{" + b" " * SMALL_BYTES, release)
    stalled = asyncio.create_task(world.client.post(f"{BASE}/api/v1/login", content=body, headers=headers))
    await eventually(lambda: turns.public._taken or None, "the body to have its turn")

    assert turns.public._taken == STEP_BYTES
    release.set()
    assert (await stalled).status_code == 413
    assert turns.public._taken == 0


async def test_small_bodies_need_no_turn(shared_world: World) -> None:
    turns = turns_of(shared_world)
    before = turns.waits
    owner = Owner("tenant of another")
    for pool in (turns.raw, turns.parsed):
        await pool.take(owner, pool._capacity)
    try:
        small = {"definition_key": "anything", "payload": {"n": 1}}
        text = json.dumps(small).encode()

        async def chunks() -> AsyncIterator[bytes]:
            for at in range(0, len(text), 7):
                yield text[at : at + 7]

        made = await shared_world.call("POST", "/jobs", who="operator", json=small)
        headers = {"Content-Type": "application/json"}
        streamed = await shared_world.call("POST", "/jobs", who="operator", content=chunks(), headers=headers)
    finally:
        for pool in (turns.raw, turns.parsed):
            pool.give_back(owner, pool._capacity)
    assert (made.status_code, streamed.status_code, turns.waits) == (201, 201, before)


async def test_what_a_body_took_is_given_back_whatever_becomes_of_the_request(world: World) -> None:
    turns, release = turns_of(world), asyncio.Event()
    refused = await send(world, bulk(240_000, values=True)[:-1])
    assert (refused.status_code, refused.json()["code"]) == (422, "body_not_json")
    given_up = asyncio.create_task(send(world, slowly(bulk(240_000), release)))
    await eventually(lambda: turns.raw._taken or None, "the body to have its turn")
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    await eventually(lambda: not turns.raw._taken or None, "the turn to be given back")
    assert (turns.raw._taken, turns.parsed._taken, turns.public._taken) == (0, 0, 0)


async def test_a_large_value_anywhere_is_parsed_in_slices(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in an object, and where the whole is one field."""
    async with world_on(database_url) as world:
        parsed = list[int]()
        loads = json.loads
        monkeypatch.setattr("fairlead.server.large_bodies.LARGE_BYTES", 10_000)

        def noting(text: bytes) -> Any:
            parsed.append(len(text))
            return loads(text)

        monkeypatch.setattr("fairlead.server.large_bodies.json.loads", noting)
        inner = {"a": [{"b": n} for n in range(5_000)], "c": {str(n): n for n in range(2_000)}}
        answer = await send(
            world, json.dumps({"jobs": [{"definition_key": "anything", "payload": inner}]}).encode()
        )
    assert answer.status_code == 201
    assert max(parsed) < 10_000


async def test_others_have_their_turns_while_the_values_of_a_body_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a slice to use up, between any two pieces of it."""
    monkeypatch.setattr("fairlead.turns.loop_pauses.SLICE_SECONDS", 0)
    monkeypatch.setattr(body_limits, "PARSED_BYTES", 2)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    text = b"[" + b"1," * (5 * PIECE_BYTES) + b"1]"
    beside = asyncio.create_task(other())
    with pytest.raises(BodyTooLarge):  # it is estimated, and then counted
        await BodyMemory(BodyTurns(1, 1.0)).take_values(text)
    beside.cancel()
    assert turns >= 2 * 10
