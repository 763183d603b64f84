"""Turns at something of which a process has only so much, where requests take different amounts."""

import asyncio
from contextvars import Context

import pytest

from fairlead.errors import FairleadError, ServerFull, TooManyRequests
from fairlead.turns.owner import Owner
from fairlead.turns.shared import OwnerUse, SharedTurns
from tests.waiting import SECONDS

A, B, C = Owner("tenant a"), Owner("tenant b"), Owner("tenant c")
DOUBLE = Owner("tenant d", 2)


def refuse(use: OwnerUse) -> FairleadError:
    return TooManyRequests("yours") if use.held else ServerFull("others'")


def make_turns(capacity: int = 12, patience_seconds: float = SECONDS) -> SharedTurns:
    return SharedTurns(capacity, patience_seconds, refuse)


async def wait_for(turns: SharedTurns, owner: Owner, amount: int) -> "asyncio.Task[None]":
    """A request that waits."""
    waiting = turns.waiting
    task = asyncio.create_task(turns.take(owner, amount), context=Context())
    await asyncio.sleep(0)  # until it waits
    assert turns.waiting == waiting + 1
    return task


async def take_at_once(turns: SharedTurns, owner: Owner, amount: int) -> None:
    task = asyncio.create_task(turns.take(owner, amount), context=Context())
    await asyncio.sleep(0)
    assert task.done(), "it waits"
    await task


async def test_an_owner_takes_as_much_as_it_leaves_free() -> None:
    turns = make_turns()
    await turns.take(A, 6)
    more = await wait_for(turns, A, 1)

    await turns.take(B, 3)
    assert not more.done()
    turns.give_back(A, 6)
    await more


async def test_an_owner_of_twice_the_weight_takes_twice_as_much() -> None:
    turns = make_turns()
    await turns.take(DOUBLE, 4)
    await turns.take(DOUBLE, 4)
    await wait_for(turns, DOUBLE, 1)


async def test_requests_of_different_weights_share_what_their_owner_may_take() -> None:
    """A tenant's webhooks, for instance, come with a weight of one."""
    turns = make_turns()
    await turns.take(DOUBLE, 8)
    more = await wait_for(turns, DOUBLE._replace(weight=1.0), 2)
    turns.give_back(DOUBLE, 8)
    await more


async def test_what_becomes_free_goes_to_the_owner_that_holds_least() -> None:
    turns, order = make_turns(), list[str]()

    async def take(owner: Owner, amount: int) -> None:
        await turns.take(owner, amount)
        order.append(owner.name)

    await turns.take(A, 4)
    await turns.take(B, 8)
    requests = []
    for owner in (A, B, C):
        requests.append(asyncio.create_task(take(owner, 2)))
        await asyncio.sleep(0)  # until it waits
    turns.give_back(B, 8)
    await asyncio.gather(*requests[1:])
    assert not requests[0].done(), "it would leave less than it holds"
    turns.give_back(A, 4)
    await requests[0]

    assert order == [B.name, C.name, A.name]


async def test_small_requests_do_not_pass_a_large_one_of_an_owner_that_has_nothing() -> None:
    """Else it might wait for ever."""
    turns = make_turns()
    await turns.take(A, 6)
    large = await wait_for(turns, B, 8)
    small = await wait_for(turns, C, 1)

    turns.give_back(A, 6)
    await large
    assert turns.waiting == 0
    await small


async def test_a_request_that_is_canceled_leaves_its_turn_to_others() -> None:
    turns = make_turns()
    await turns.take(A, 6)
    large = await wait_for(turns, B, 8)
    small = await wait_for(turns, C, 1)

    large.cancel()
    await small
    turns.give_back(A, 6)
    turns.give_back(C, 1)
    await take_at_once(turns, B, 12)


async def test_a_turn_that_was_granted_and_canceled_at_once_is_given_back() -> None:
    turns = make_turns()
    await turns.take(A, 12)
    request = await wait_for(turns, B, 12)
    turns.give_back(A, 12)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    await take_at_once(turns, C, 12)
