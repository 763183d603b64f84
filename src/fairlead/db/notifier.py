"""Notifications after commit: never part of the transaction that they tell of, and merged while many come."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

import psycopg
import structlog
from psycopg import AsyncConnection
from psycopg.generators import fetch_many
from psycopg.pq import ExecStatus

from fairlead.errors import FairleadError

log = structlog.get_logger(__name__)

# PostgreSQL lets one transaction with a notification commit at a time, in all databases of a server: with one in each
# enqueue, clients queue up behind each other's disk writes.
SHORTEST_GAP_SECONDS = 0.005
LONGEST_GAP_SECONDS = 0.05
FLUSH_SECONDS = 2.0

Send = Callable[[str], Awaitable[object]]
Sent = asyncio.Future[Awaitable[object]]


class Notifier:
    """Sends each word at once if it is the first, and at growing intervals, up to 20 a second, while more come.

    A notification only means "look now", and every listener also polls: one that fails is not sent again.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._told_again: set[str] = set()
        self._closing = asyncio.Event()

    def tell(self, words: Iterable[str]) -> None:
        """Send these words soon. Never waits and never fails."""
        for word in words:
            if word in self._sending:
                self._told_again.add(word)
            elif not self._closing.is_set():
                self._begin(word, self._send(word))

    def begin(self, word: str) -> Sent | None:
        """Leave the sending of a word to the caller, if it is to go out at once; None if it was sent a moment ago.

        The caller sets as the result what is to be awaited for the end of that.
        """
        if word in self._sending or self._closing.is_set():
            return None
        sent: Sent = asyncio.get_running_loop().create_future()
        self._begin(word, _of(sent))
        return sent

    def _begin(self, word: str, first: Awaitable[object]) -> None:
        task = asyncio.create_task(self._send_while_told(word, first), name="fairlead-notify")
        self._sending[word] = task

    async def close(self) -> None:
        """Send what is still to be sent, at once, and nothing more."""
        self._closing.set()
        if left := list(self._sending.values()):
            _, late = await asyncio.wait(left, timeout=FLUSH_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _send_while_told(self, word: str, first: Awaitable[object]) -> None:
        gap = SHORTEST_GAP_SECONDS
        try:
            await _try_to_send(word, first)
            while await self._is_told_again(word, gap):
                await _try_to_send(word, self._send(word))
                gap = min(gap * 2, LONGEST_GAP_SECONDS)
        finally:
            del self._sending[word]

    async def _is_told_again(self, word: str, gap: float) -> bool:
        """Whether the word was told while it was being sent, or in the gap after that."""
        with suppress(TimeoutError):
            async with asyncio.timeout(gap):
                await self._closing.wait()
        again = word in self._told_again
        self._told_again.discard(word)
        return again


async def _try_to_send(word: str, sent: Awaitable[object]) -> None:
    try:
        await sent
    except (psycopg.Error, FairleadError, OSError, TimeoutError) as error:
        log.debug("notification_not_sent", word=word, why=str(error).strip())


async def _of(sent: Sent) -> None:
    await (await sent)


def begin_to_notify(connection: AsyncConnection[Any], channel: str, word: str) -> Awaitable[None]:
    """Send a notification before anything else runs in this loop; await the result for its end.

    Nothing is written, so its commit waits for no disk. A connection that does not answer is closed.
    """
    try:
        line = connection.pgconn
        line.send_query_params(b"select pg_notify($1, $2)", [channel.encode(), word.encode()])
        line.flush()
    except psycopg.Error as error:
        return _raise(error)
    return _notified(connection)


async def _notified(connection: AsyncConnection[Any]) -> None:
    try:
        async with asyncio.timeout(FLUSH_SECONDS):
            [result] = await connection.wait(fetch_many(connection.pgconn))
    except BaseException:
        await connection.close()
        raise
    if result.status != ExecStatus.TUPLES_OK:
        raise psycopg.OperationalError(result.get_error_message())


async def _raise(error: Exception) -> None:
    raise error
