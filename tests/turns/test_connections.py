"""Turns at the connections of a process: exact rules, without a database, on a clock that only the tests move."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import Context

import pytest

from fairlead.errors import DatabaseBusy, TooManyRequests
from fairlead.turns import shared
from fairlead.turns.active import ACTIVE_SECONDS
from fairlead.turns.connections import RESERVED, ConnectionTurns
from fairlead.turns.owner import Owner, owner_of_task

A, B, C = "tenant a", "tenant b", "tenant c"
HEAVY = Owner("tenant heavy", 4)


class Requests:
    """Requests that hold a connection until they are told to end."""

    def __init__(self, connections: int, patience_seconds: float) -> None:
        self._now = 0.0
        self._turns = ConnectionTurns(connections, patience_seconds, lambda: self._now)
        self.working: list[str] = []
        self._ends: dict[str, list[asyncio.Event]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def send(self, owner: Owner | str | None, number: int = 1) -> list["asyncio.Task[None]"]:
        tasks = [asyncio.create_task(self._work(owner), context=Context()) for _ in range(number)]
        self._tasks += tasks
        await settle()
        return tasks

    async def end(self, owner: Owner | str) -> None:
        """End the oldest working request of an owner."""
        self._ends[_name(owner)].pop(0).set()
        await settle()

    async def pass_time(self, seconds: float = 1.5 * ACTIVE_SECONDS) -> None:
        """Let the process look at who was active in the last second."""
        self._now += seconds
        self._turns._look()
        await settle()

    async def _work(self, owner: Owner | str | None) -> None:
        owner_of_task.set(own(owner))
        name, end = _name(owner), asyncio.Event()
        mine = await self._turns.enter()
        try:
            self.working.append(name)
            self._ends.setdefault(name, []).append(end)
            await end.wait()
        finally:
            self.working.remove(name)
            self._turns.leave(mine)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def own(owner: Owner | str | None) -> Owner | None:
    return Owner(owner, is_address=owner.startswith("address")) if isinstance(owner, str) else owner


def _name(owner: Owner | str | None) -> str:
    return owner.name if isinstance(owner, Owner) else str(owner)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@asynccontextmanager
async def requests(connections: int = 10, patience_seconds: float = 600) -> AsyncIterator[Requests]:
    sent = Requests(connections, patience_seconds)
    try:
        yield sent
    finally:
        await sent.stop()


async def test_a_flood_leaves_as_many_connections_free_as_it_holds() -> None:
    async with requests() as sent:
        await sent.send(A, 50)
        assert sent.working == [A] * 4
        await sent.send(B)
        assert sent.working.count(B) == 1


async def test_more_floods_hold_less_each_and_newcomers_get_a_connection() -> None:
    async with requests() as sent:
        for owner in (A, B):
            await sent.send(owner, 50)
        assert (sent.working.count(A), sent.working.count(B)) == (4, 2)
        await sent.send(C)
        assert sent.working.count(C) == 1
        # who holds more than its share gets no other before it has given some back
        for _ in range(3):
            await sent.end(A)
        assert (sent.working.count(A), sent.working.count(B)) == (2, 3)


async def test_tenants_that_were_active_in_the_last_second_have_equal_parts() -> None:
    async with requests() as sent:
        for owner in (A, B, C):
            await sent.send(owner)
            await sent.end(owner)
        await sent.pass_time()
        # a third of eight each, although half of them is free
        await sent.send(A, 10)
        assert sent.working == [A] * 2
        await sent.send(B)
        await sent.end(A)
        assert sent.working.count(A) == 2
        await sent.send(C, 3)
        assert sent.working.count(C) == 2


async def test_parts_grow_when_other_tenants_have_left_also_without_another_request() -> None:
    async with requests() as sent:
        for owner in (A, B, C):
            await sent.send(owner)
            await sent.end(owner)
        await sent.pass_time()
        await sent.send(A, 10)
        assert sent.working == [A] * 2
        await sent.pass_time()
        assert sent.working == [A] * 4


async def test_who_was_active_before_a_rest_does_not_count_after_it() -> None:
    async with requests() as sent:
        for number in range(8):
            await sent.send(f"tenant {number}")
            await sent.end(f"tenant {number}")
        sent._now += 60 * ACTIVE_SECONDS
        await sent.send(A, 10)
        assert sent.working == [A] * 4


async def test_an_owner_that_has_its_part_keeps_others_from_nothing_that_is_theirs() -> None:
    async with requests() as sent:
        for owner in (A, HEAVY):
            await sent.send(owner)
            await sent.end(owner)
        await sent.pass_time()
        await sent.send(A, 10)
        await sent.send(HEAVY, 20)
        assert sent.working.count(A) == 1
        held = sent.working.count(HEAVY.name)
        await sent.end(HEAVY)
        assert sent.working.count(HEAVY.name) == held > 4


async def test_a_request_with_a_smaller_weight_does_not_hold_its_tenant_up() -> None:
    async with requests() as sent:
        await sent.send(HEAVY)
        await sent.end(HEAVY)
        await sent.pass_time()
        await sent.send(HEAVY, 2)
        await sent.send(Owner(HEAVY.name))
        assert sent.working == [HEAVY.name] * 3


async def test_addresses_make_no_part_smaller() -> None:
    async with requests() as sent:
        for number in range(9):
            await sent.send(f"address {number}")
            await sent.end(f"address {number}")
        await sent.pass_time()
        await sent.send(A, 10)
        assert sent.working == [A] * 4


async def test_the_process_itself_waits_for_nobody() -> None:
    async with requests() as sent:
        await sent.send(A, 50)
        await sent.send(None, 20)
        assert sent.working.count("None") == 20


async def test_who_waits_goes_in_turns_of_owners_and_not_in_the_order_of_requests() -> None:
    async with requests(connections=RESERVED + 1) as sent:
        await sent.send(A, 4)
        await sent.send(B)
        await sent.send(C)
        order = list(sent.working)
        for _ in range(5):
            await sent.end(sent.working[0])
            order += sent.working
        assert order == [A, A, B, C, A, A]


async def test_a_connection_within_another_needs_no_turn() -> None:
    turns = ConnectionTurns(RESERVED + 1, 600)
    owner_of_task.set(own(A))
    outer = await turns.enter()
    inner = await turns.enter()
    assert (outer, inner) == (own(A), None)
    turns.leave(inner)
    turns.leave(outer)
    assert await turns.enter() == own(A)


async def test_a_turn_is_not_granted_to_a_request_that_ends_in_the_same_moment() -> None:
    async with requests(connections=RESERVED + 1) as sent:
        await sent.send(A)
        [canceled], [patient] = await sent.send(A), await sent.send(A)
        canceled.cancel()
        sent._ends[A].pop(0).set()  # before the canceled request has cleaned up after itself
        await settle()
        assert sent.working == [A]
        assert not patient.done()
        await sent.end(A)
        assert (sent._turns._taken, sent._turns._held) == (0, {})


async def test_no_turn_is_lost_when_many_requests_run_out_of_patience() -> None:
    turns = ConnectionTurns(RESERVED + 4, patience_seconds=0.002)
    refused = 0

    async def work(number: int) -> None:
        nonlocal refused
        owner_of_task.set(own(f"tenant {number % 3}"))
        for _ in range(5):
            try:
                owner = await turns.enter()
            except (TooManyRequests, DatabaseBusy):
                refused += 1
                continue
            await asyncio.sleep(0.001 * (number % 4))
            turns.leave(owner)

    await asyncio.gather(*(asyncio.create_task(work(number), context=Context()) for number in range(100)))

    assert refused
    assert (turns._taken, turns._held, turns.waiting) == (0, {}, 0)


async def test_who_waits_too_long_or_sends_too_many_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "MOST_WAITING", 2)
    async with requests(connections=RESERVED + 1) as sent:
        await sent.send(A)
        await sent.send(A, 2)
        [refused] = await sent.send(A)
        with pytest.raises(
            TooManyRequests, match="1 of your requests are running in this server process, and 2 are waiting"
        ) as raised:
            await refused
        assert raised.value.retry_after == 1
        assert sent._turns.refusals == 1
    async with requests(connections=RESERVED + 1, patience_seconds=0.01) as sent:
        await sent.send(A)
        [own], [other] = await sent.send(A), await sent.send(B)
        with pytest.raises(TooManyRequests):
            await own
        with pytest.raises(DatabaseBusy, match="Other requests use all database connections"):
            await other
        await sent.end(A)
        await sent.send(B)
        assert sent.working == [B]
