"""Writes outcomes in batches: attempts that end during one write are in the next batch."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

import structlog

from fairlead.db.database_errors import is_data_error
from fairlead.errors import FairleadError
from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Change
from fairlead.runtime.job_source import EndsPostponed, JobSource, lease_fields

log = structlog.get_logger(__name__)

BATCH = 500
PAUSE_SECONDS = 0.5

End = tuple[Lease, Change]


class Finisher:
    """Collects outcomes and writes them as fast as the database accepts them; retries until each is written."""

    def __init__(
        self,
        source: JobSource,
        written: Callable[[list[Lease]], None],
        later: Callable[[], None],
        about: Callable[[Lease], dict[str, Any]] = lease_fields,
    ) -> None:
        self._source = source
        self._about = about
        self._written = written
        self._later = later
        # two threads take from it, which `deque.popleft` allows
        self._waiting: deque[End] = deque()
        # the batch that this event loop writes
        self._batch: list[End] = []
        # how many batches the heartbeat thread has taken, and how many of them have come back
        self._taken_beside = self._back = 0
        self._loop = asyncio.get_running_loop()
        # leases that another worker may hold by now: the attempts were stopped here
        self._lost: set[Lease] = set()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        # how many outcomes wait for a retry
        self._postponed = 0
        # halved after each failed batch, so that one outcome that cannot be written delays few others
        self._size = BATCH
        self.writing = False
        self.refused = 0

    def add(self, lease: Lease, change: Change, *, is_lost: bool = False) -> None:
        """Queue an outcome for writing. With `is_lost` a refusal is expected and not logged."""
        if is_lost:
            self._lost.add(lease)
        self._waiting.append((lease, change))
        self._idle.clear()
        self._wake.set()

    async def wait_until_written(self) -> None:
        """Wait until every outcome is written."""
        await self._idle.wait()

    async def run(self) -> None:
        """Write batches until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while batch := self._take(self._size):
                self.writing = True
                self._batch = batch
                await self._write(batch)
                self._batch = []
                self.writing = False
            if not self._postponed and self._taken_beside == self._back:
                self._idle.set()

    def is_writing(self, lease: Lease) -> bool:
        """Whether the outcome of this lease is being written: it may be gone for that reason. Safe from any thread."""
        return any(lease == written for written, _ in self._batch)

    async def write_beside(self, source: JobSource) -> list[Lease]:
        """Write the outcomes that wait, from another thread, while the event loop is blocked. Their leases."""
        written: list[Lease] = []
        while batch := self._take(BATCH):
            self._taken_beside += 1
            try:
                done = await source.finish(batch)
            except BaseException:  # the event loop writes them
                self._loop.call_soon_threadsafe(self._take_over, batch, None)
                raise
            self._loop.call_soon_threadsafe(self._take_over, batch, done)
            written += [lease for lease, _ in batch]
        return written

    def _take_over(self, batch: list[End], done: dict[UUID, JobStatus] | None) -> None:
        """Note what another thread has written, or (None) write it."""
        self._back += 1
        if done is None:
            self._waiting += batch
        else:
            self._note_written(batch, done)
        self._wake.set()

    def _take(self, most: int) -> list[End]:
        """Take the oldest outcomes; the other thread may take the last ones meanwhile."""
        batch, take = list[End](), self._waiting.popleft
        with suppress(IndexError):
            for _ in range(min(most, len(self._waiting))):
                batch.append(take())  # a comprehension would drop what it took before the error
        return batch

    async def _write(self, batch: list[End]) -> None:
        try:
            done = await self._source.finish(batch)
        except EndsPostponed as error:
            self._retry_later([end for end in batch if end[0] in error.left], error.why)
            batch, done = [end for end in batch if end[0] not in error.left], error.done
        except Exception as error:  # noqa: BLE001 - only this loop writes these outcomes: it must go on after any error
            self._postpone(batch, error)
            await asyncio.sleep(PAUSE_SECONDS)
            return
        self._size = min(BATCH, self._size * 2)
        self._note_written(batch, done)

    def _note_written(self, batch: list[End], done: dict[UUID, JobStatus]) -> None:
        if any(change.delay > 0 for _, change in batch):
            self._later()
        for lease, _ in batch if len(done) < len(batch) else ():
            if lease.job_id not in done and lease not in self._lost:
                self.refused += 1
                log.warning("stale_write_refused", **self._about(lease))
        if self._lost:
            self._lost.difference_update(lease for lease, _ in batch)
        self._written([lease for lease, _ in batch])

    def _retry_later(self, ends: list[End], why: str) -> None:
        """Write these after a pause, without delaying the others."""
        log.info("finish_postponed", jobs=len(ends), why=why)
        self._postponed += len(ends)
        asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._requeue, ends)

    def _requeue(self, ends: list[End]) -> None:
        self._postponed -= len(ends)
        self._waiting += ends
        self._wake.set()

    def _postpone(self, batch: list[End], error: Exception) -> None:
        # the leases may still be valid when the database is back; if not, it refuses the outcomes
        why = error.message if isinstance(error, FairleadError) else type(error).__name__
        log.warning("finish_postponed", jobs=len(batch), why=why)
        self._size = max(1, len(batch) // 2)
        if len(batch) == 1 and is_data_error(error):
            batch = [(batch[0][0], unstorable_change(why))]
        self._waiting += batch


def unstorable_change(why: str, *, place: str = "database") -> Change:
    """The failure to write instead of an outcome that the database, or the server, cannot store."""
    message = (
        f"The {place} cannot store this attempt's outcome ({why}): check its output, its cost and its log."
    )
    return Change(
        status=JobStatus.FAILED,
        attempt_status="failed",
        charge=1,
        message=message,
        error={"type": "EndNotKept", "message": message, "traceback": None},
    )
