"""Turns at the connections of a process: an owner leaves as many connections free as it holds, by its weight."""

import asyncio
import time
from collections import Counter, deque
from contextvars import ContextVar

from fairlead.errors import DatabaseBusy, TooManyRequests
from fairlead.turns.owner import Owner, owner_of_task

# Connections that owners never take: for the process's own loops.
RESERVED = 2
# More requests of one owner are refused at once: their bodies are in memory while they wait.
MOST_WAITING = 256

# Where this task has a connection already: it gets the next one at once, since it would wait for itself.
_held_by_task: ContextVar[frozenset["ConnectionTurns"]] = ContextVar("held_by_task", default=frozenset())


class ConnectionTurns:
    """Grants connections to owners, and queues requests."""

    def __init__(self, connections: int, patience_seconds: float) -> None:
        self._most = max(1, connections - RESERVED)
        self._patience_seconds = patience_seconds
        self._taken = 0
        self._held = Counter[Owner]()
        # the owners in the order of their turns
        self._waiting: dict[Owner, deque[asyncio.Future[None]]] = {}
        self.waits = 0
        self.waited_seconds = 0.0
        self.refusals = 0

    @property
    def waiting(self) -> int:
        """How many requests wait for their turn."""
        return sum(map(len, self._waiting.values()))

    async def enter(self) -> Owner | None:
        """Wait for this task's turn. Returns the owner, for `leave`; None if it needs no turn."""
        owner = owner_of_task.get()
        if owner is None or self in (held := _held_by_task.get()):
            return None
        if owner in self._waiting or not self._may_take(owner):
            await self._wait(owner)
        else:
            self._take(owner)
        _held_by_task.set(held | {self})
        return owner

    def leave(self, owner: Owner | None) -> None:
        """The task has given its connection back."""
        if owner is None:
            return
        _held_by_task.set(_held_by_task.get() - {self})
        self._give_back(owner)

    def _may_take(self, owner: Owner) -> bool:
        free, held = self._most - self._taken, self._held[owner]
        # the last one is for an owner that has none, however little the others weigh
        return held < owner.weight * free and (free > 1 or not held)

    def _weigh(self, owner: Owner) -> float:
        return self._held[owner] / owner.weight

    def _take(self, owner: Owner) -> None:
        self._taken += 1
        self._held[owner] += 1

    def _give_back(self, owner: Owner) -> None:
        self._taken -= 1
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
        self._grant_turns()

    def _grant_turns(self) -> None:
        """Grant turns while connections are free: to the owner that holds the fewest, of several to the first in the queue."""
        while self._waiting:
            owner = min(self._waiting, key=self._weigh)
            if not self._may_take(owner):
                return
            requests = self._waiting.pop(owner)
            turn = requests.popleft()
            if requests:
                self._waiting[owner] = requests  # behind the other owners
            # a request that was canceled a moment ago has not removed itself yet
            if not turn.done():
                self._take(owner)
                turn.set_result(None)

    async def _wait(self, owner: Owner) -> None:
        requests = self._waiting.setdefault(owner, deque())
        if len(requests) >= MOST_WAITING:
            self.refusals += 1
            raise self._refusal(owner)
        turn = asyncio.get_running_loop().create_future()
        requests.append(turn)
        begun = time.monotonic()
        self.waits += 1
        try:
            async with asyncio.timeout(self._patience_seconds):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._give_back(owner)
            else:
                self._forget(owner, turn)
            if isinstance(error, TimeoutError):
                self.refusals += 1
                raise self._refusal(owner) from None
            raise
        finally:
            self.waited_seconds += time.monotonic() - begun

    def _forget(self, owner: Owner, turn: "asyncio.Future[None]") -> None:
        requests = self._waiting.get(owner)
        if requests is not None and turn in requests:
            requests.remove(turn)
            if not requests:
                del self._waiting[owner]

    def _refusal(self, owner: Owner) -> TooManyRequests | DatabaseBusy:
        if not self._held[owner]:
            return DatabaseBusy(
                "Other requests use all database connections of this server process. Try again."
            )
        refusal = TooManyRequests(
            f"{self._held[owner]} of your requests are running in this server process, and "
            f"{len(self._waiting.get(owner, ()))} are waiting. Send fewer at once, and try again in 1 s."
        )
        refusal.retry_after = 1
        return refusal
