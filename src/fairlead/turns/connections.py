"""Turns at the database connections of a process."""

import asyncio
import time
from collections.abc import Callable
from contextvars import ContextVar

from fairlead.errors import DatabaseBusy, TooManyRequests
from fairlead.turns.active import ACTIVE_SECONDS, ActiveTenants
from fairlead.turns.owner import Owner, owner_of_task
from fairlead.turns.shared import OwnerUse, SharedTurns

# Connections that owners never take: for the process's own loops.
RESERVED = 2

# Where this task has a connection already: it gets the next one at once, since it would wait for itself.
_held_by_task: ContextVar[frozenset["ConnectionTurns"]] = ContextVar("held_by_task", default=frozenset())


class ConnectionTurns(SharedTurns):
    """Grants connections to the owners of tasks. A task within a connection needs no turn for another.

    Tenants that are active at the same time have equal parts, by their weights: what one of them lets the database compute
    takes the processors from the statements of the others.
    """

    def __init__(
        self, connections: int, patience_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(max(1, connections - RESERVED), patience_seconds, _refuse)
        self._clock = clock
        self._active = ActiveTenants()
        self._looks = False

    async def enter(self) -> Owner | None:
        """Wait for this task's turn. Returns the owner, for `leave`; None if it needs no turn."""
        owner = owner_of_task.get()
        if owner is None or self in (held := _held_by_task.get()):
            return None
        self._active.count(owner, self._clock())
        if not self._looks:
            self._looks = True
            asyncio.get_running_loop().call_later(ACTIVE_SECONDS, self._look)
        await self.take(owner)
        _held_by_task.set(held | {self})
        return owner

    def leave(self, owner: Owner | None) -> None:
        """The task has given its connection back."""
        if owner is None:
            return
        _held_by_task.set(_held_by_task.get() - {self})
        self.give_back(owner)

    def _may_take(self, owner: Owner, amount: int) -> bool:
        if not super()._may_take(owner, amount):
            return False
        held = self._held[owner.name]
        return not held or held + amount <= self._part(owner)

    def _part(self, owner: Owner) -> float:
        weight = self._active.weigh(owner)
        return self._capacity * weight / max(self._active.weight, weight)

    def _find_next(self) -> str | None:
        # parts are rounded down: an owner that has its part may hold less for its weight than one that has not
        ranked = sorted(self._waiting, key=self._weigh)
        return next(filter(self._may_go, ranked), None)

    def _look(self) -> None:
        """Each second while requests come or wait: those of tenants that have left give the others larger parts."""
        self._active.advance(self._clock())
        self._grant_turns()
        self._looks = bool(self._waiting)
        if self._looks:
            asyncio.get_running_loop().call_later(ACTIVE_SECONDS, self._look)


def _refuse(use: OwnerUse) -> TooManyRequests | DatabaseBusy:
    if not use.held:
        return DatabaseBusy("Other requests use all database connections of this server process. Try again.")
    refusal = TooManyRequests(
        f"{use.held} of your requests are running in this server process, and {use.waiting} are waiting. "
        "Send fewer at once, and try again in 1 s."
    )
    refusal.retry_after = 1
    return refusal
