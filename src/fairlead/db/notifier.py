"""Notifications after commit: never part of the transaction that they announce, and merged under load."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextvars import Context

import psycopg
import structlog

from fairlead.errors import FairleadError

log = structlog.get_logger(__name__)

# PostgreSQL commits transactions with notifications one at a time, across all databases of a server: with one in each
# enqueue, clients would queue behind each other's disk writes.
SHORTEST_GAP_SECONDS = 0.005
LONGEST_GAP_SECONDS = 0.05
# A word that is due again is sent with the next statement if one comes within this time, which saves a second
# connection.
CARRIER_SECONDS = 0.002
FLUSH_SECONDS = 2.0

Send = Callable[[str], Awaitable[object]]


class Notifier:
    """Sends a word at once the first time, and at growing intervals, at most 20 a second, while it is told again.

    A notification means only "look now", and every listener also polls: a failed one is not sent again.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        # for each recently sent word, the timer that ends its gap
        self._gaps: dict[str, asyncio.TimerHandle] = {}
        self._told_again: set[str] = set()
        # for each word that was told again and whose gap is over, the length of the next gap
        self._due: dict[str, float] = {}
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._closed = False

    @property
    def is_quiet(self) -> bool:
        """Whether a word is sent at once if it is told now."""
        return not self._gaps and not self._sending

    def tell(self, words: Iterable[str]) -> None:
        """Send these words soon. Never waits and never fails."""
        for word in words:
            if word in self._due:
                continue  # it is sent with the next statement, or within CARRIER_SECONDS
            if self.take(word):
                self._begin_to_send(word)
            else:
                self._told_again.add(word)

    def take(self, word: str) -> bool:
        """Whether the caller has to send this word now."""
        if self._closed or (word in self._gaps and word not in self._due):
            return False
        self._begin_gap(word, self._due.pop(word, SHORTEST_GAP_SECONDS))
        return True

    async def close(self) -> None:
        """Send the words that still wait, and accept no more."""
        self._closed = True
        for gap in self._gaps.values():
            gap.cancel()
        self._gaps.clear()
        for word in self._told_again:
            self._begin_to_send(word)
        if left := list(self._sending.values()):
            _, late = await asyncio.wait(left, timeout=FLUSH_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _begin_gap(self, word: str, seconds: float) -> None:
        self._told_again.discard(word)
        self._set_timer(word, seconds, self._end_gap, word, seconds)

    def _end_gap(self, word: str, seconds: float) -> None:
        if word not in self._told_again:
            del self._gaps[word]
        elif word in self._sending:
            self._set_timer(word, seconds, self._end_gap, word, seconds)
        else:
            self._due[word] = min(seconds * 2, LONGEST_GAP_SECONDS)
            self._set_timer(word, CARRIER_SECONDS, self._send_without_carrier, word)

    def _send_without_carrier(self, word: str) -> None:
        if self.take(word):
            self._begin_to_send(word)

    def _set_timer(self, word: str, seconds: float, act: Callable[..., None], *arguments: object) -> None:
        if before := self._gaps.get(word):
            before.cancel()
        self._gaps[word] = asyncio.get_running_loop().call_later(seconds, act, *arguments)

    def _begin_to_send(self, word: str) -> None:
        before = self._sending.get(word)
        task = asyncio.create_task(
            self._try_to_send(word, after=before), name="fairlead-notify", context=Context()
        )
        self._sending[word] = task

    async def _try_to_send(self, word: str, *, after: asyncio.Task[None] | None) -> None:
        try:
            if after is not None:
                await asyncio.wait([after])
            await self._send(word)
        except (psycopg.Error, FairleadError, OSError, TimeoutError) as error:
            log.debug("notification_not_sent", word=word, why=str(error).strip())
        finally:
            if self._sending.get(word) is asyncio.current_task():
                del self._sending[word]
