"""Turns at something of which a process has only so much: an owner leaves as much free as it holds, by its weight."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

from fairlead.errors import FairleadError
from fairlead.turns.owner import Owner

# More requests of one owner are refused at once.
MOST_WAITING = 256


class _Request(NamedTuple):
    """A request for a part, and the turn that it waits for."""

    owner: Owner
    amount: int
    turn: asyncio.Future[None]


class OwnerUse(NamedTuple):
    """What an owner holds, and how many of its requests wait."""

    held: int
    waiting: int


class SharedTurns:
    """Grants parts to owners, and queues requests."""

    def __init__(
        self,
        capacity: int,
        patience_seconds: float,
        refuse: Callable[[OwnerUse], FairleadError],
    ) -> None:
        self._capacity = capacity
        self._patience_seconds = patience_seconds
        self._refuse = refuse
        self._taken = 0
        # by the names of owners: requests of one, such as a tenant's users and its webhooks, may come with different weights
        self._held = Counter[str]()
        # in the order of the owners' turns
        self._waiting: dict[str, deque[_Request]] = {}
        self.waits = 0
        self.waited_seconds = 0.0
        self.refusals = 0

    @property
    def waiting(self) -> int:
        """How many requests wait for their turn."""
        return sum(map(len, self._waiting.values()))

    @property
    def lets_pass(self) -> bool:
        """Whether an owner that has nothing waits. If smaller requests passed it, a large one might wait for ever."""
        return any(name not in self._held for name in self._waiting)

    async def take(self, owner: Owner, amount: int = 1) -> None:
        """Wait for the owner's turn to take so much, or raise the error of `refuse`."""
        if owner.name in self._waiting or self.lets_pass or not self._may_take(owner, amount):
            await self._wait(owner, amount)
        else:
            self._grant(owner, amount)

    def give_back(self, owner: Owner, amount: int = 1) -> None:
        """Give back what was taken, and grant it to those that wait."""
        self._taken -= amount
        self._held[owner.name] -= amount
        if not self._held[owner.name]:
            del self._held[owner.name]
        self._grant_turns()

    def _may_take(self, owner: Owner, amount: int) -> bool:
        free, held = self._capacity - self._taken, self._held[owner.name]
        if not held:
            return amount <= free
        # something is left for an owner that has nothing, however little it weighs
        return held + amount <= owner.weight * free and amount < free

    def _weigh(self, name: str) -> float:
        return self._held[name] / self._waiting[name][0].owner.weight

    def _grant(self, owner: Owner, amount: int) -> None:
        self._taken += amount
        self._held[owner.name] += amount

    def _grant_turns(self) -> None:
        """Grant turns while something is free."""
        while (name := self._find_next()) is not None:
            requests = self._waiting[name]
            owner, amount, turn = requests.popleft()
            # a request that was canceled a moment ago has not removed itself yet
            if not turn.done():
                self._grant(owner, amount)
                turn.set_result(None)
            del self._waiting[name]
            if requests:
                self._waiting[name] = requests  # behind the other owners

    def _find_next(self) -> str | None:
        """The owner that is next: of those that hold the least, the first in the queue. None if it must wait."""
        if not self._waiting:
            return None
        name = min(self._waiting, key=self._weigh)
        return name if self._may_go(name) else None

    def _may_go(self, name: str) -> bool:
        owner, amount, turn = self._waiting[name][0]
        return turn.done() or self._may_take(owner, amount)

    async def _wait(self, owner: Owner, amount: int) -> None:
        requests = self._waiting.setdefault(owner.name, deque())
        if len(requests) >= MOST_WAITING:
            self.refusals += 1
            raise self._refuse(OwnerUse(self._held[owner.name], len(requests)))
        request = _Request(owner, amount, asyncio.get_running_loop().create_future())
        requests.append(request)
        begun = time.monotonic()
        self.waits += 1
        try:
            async with asyncio.timeout(self._patience_seconds):
                await request.turn
        except BaseException as error:
            if request.turn.done() and not request.turn.cancelled():
                self.give_back(owner, amount)
            else:
                self._forget(request)
            if isinstance(error, TimeoutError):
                self.refusals += 1
                waiting = len(self._waiting.get(owner.name, ()))
                raise self._refuse(OwnerUse(self._held[owner.name], waiting)) from None
            raise
        finally:
            self.waited_seconds += time.monotonic() - begun

    def _forget(self, request: _Request) -> None:
        name = request.owner.name
        requests = self._waiting.get(name)
        if requests is not None and request in requests:
            requests.remove(request)
            if not requests:
                del self._waiting[name]
            self._grant_turns()  # it may have been in the way of smaller ones
