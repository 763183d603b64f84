"""Read the server's answers at less than half of psycopg's client cost.

Psycopg registers the socket with the event loop for each answer, sets a timer, and removes both. For a small statement
that is most of the work. Here the socket stays registered between statements, and the callback reads.
"""

import asyncio
from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

from psycopg import OperationalError
from psycopg.abc import PQGen
from psycopg.pq import ConnStatus
from psycopg.pq.abc import PGconn
from psycopg.waiting import Ready, Wait, wait_async

T = TypeVar("T")

# Python looks up a member of an enum by a call, and a statement needs several.
_READABLE, _READ, _BAD = Wait.R, Ready.R, ConnStatus.BAD

# The default `interval` of psycopg's own wait.
INTERVAL_SECONDS = 0.1
# A waiting statement also reads at this interval without an event: uvloop reports a reset connection only once, even if
# one read does not take all its data.
REREAD_SECONDS = 0.5


class _OtherWait(NamedTuple):
    """The generator waits for more than readability before it can continue."""

    wanted: Wait


class Answers:
    """Reads the answers of one connection. A statement is a psycopg generator, which yields the event that it waits for."""

    def __init__(self, line: PGconn) -> None:
        self._line = line
        self._socket = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._steps: PQGen[Any] | None = None
        self._end: asyncio.Future[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def read(self, steps: PQGen[T]) -> T:
        """Run the generator to its end and return its result."""
        try:
            wanted = next(steps)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            self._forget_if_closed()
        answer: Any = _OtherWait(wanted)
        if wanted == _READABLE:
            self._steps, self._end = steps, self._begin_to_read()
            try:
                answer = await self._end
            finally:
                self._steps = self._end = None
        if isinstance(answer, _OtherWait):
            self.forget_socket()
            return await wait_async(_resume_steps(steps, answer.wanted), self._line.socket, INTERVAL_SECONDS)
        return answer  # type: ignore[no-any-return]

    def forget_socket(self) -> None:
        """Remove the socket from the event loop: required before the socket is closed."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
        self._loop = None

    def close(self) -> None:
        """Forget the socket, and fail the statement that still waits for an answer."""
        self.forget_socket()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._end is not None and not self._end.done():
            self._end.set_exception(OperationalError("the connection is closed"))

    def _begin_to_read(self) -> "asyncio.Future[Any]":
        """A future for the result of the generator, which the callback runs."""
        if self._loop is None:
            self._loop, self._socket = asyncio.get_running_loop(), self._line.socket
            self._loop.add_reader(self._socket, self._resume_reading)
        # one timer serves all statements until it fires: a timer per statement would double the cost of a read
        if self._timer is None:
            self._timer = self._loop.call_later(REREAD_SECONDS, self._read_without_event)
        return self._loop.create_future()

    def _read_without_event(self) -> None:
        self._timer = None
        if self._loop is None or self._end is None or self._end.done():
            return
        self._timer = self._loop.call_later(REREAD_SECONDS, self._read_without_event)
        self._resume_reading()

    def _resume_reading(self) -> None:
        """Read what arrived. If no statement waits, the server has closed the connection: the next statement notices."""
        steps, end = self._steps, self._end
        if steps is None or end is None or end.done():
            self.forget_socket()
            return
        try:
            wanted = steps.send(_READ)
            if wanted != _READABLE:
                end.set_result(_OtherWait(wanted))
        except StopIteration as stop:
            end.set_result(stop.value)
        except Exception as error:  # noqa: BLE001 - raised in the statement that waits
            end.set_exception(error)
        finally:
            self._forget_if_closed()

    def _forget_if_closed(self) -> None:
        """Libpq closes the socket of a lost connection itself, and the system may reuse its file descriptor at once."""
        if self._line.status == _BAD:
            self.forget_socket()


def _resume_steps(steps: PQGen[T], wanted: Wait) -> Generator[Wait, Ready | int, T]:
    while True:
        ready = yield wanted
        try:
            wanted = steps.send(ready)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
