"""Writes outcomes in batches: attempts that end during one write are in the next batch."""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from fairlead.db.database_errors import is_data_error
from fairlead.errors import FairleadError
from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Change
from fairlead.runtime.job_source import EndsPostponed, JobSource, lease_fields

log = structlog.get_logger(__name__)

BATCH = 500
PAUSE_SECONDS = 0.5


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
        self._waiting: list[tuple[Lease, Change]] = []
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
            while self._waiting:
                batch, self._waiting = self._waiting[: self._size], self._waiting[self._size :]
                self.writing = True
                await self._write(batch)
                self.writing = False
            if not self._postponed:
                self._idle.set()

    async def _write(self, batch: list[tuple[Lease, Change]]) -> None:
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
        if any(change.delay > 0 for _, change in batch):
            self._later()
        for lease, _ in batch if len(done) < len(batch) else ():
            if lease.job_id not in done and lease not in self._lost:
                self.refused += 1
                log.warning("stale_write_refused", **self._about(lease))
        if self._lost:
            self._lost.difference_update(lease for lease, _ in batch)
        self._written([lease for lease, _ in batch])

    def _retry_later(self, ends: list[tuple[Lease, Change]], why: str) -> None:
        """Write these after a pause, without delaying the others."""
        log.info("finish_postponed", jobs=len(ends), why=why)
        self._postponed += len(ends)
        asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._requeue, ends)

    def _requeue(self, ends: list[tuple[Lease, Change]]) -> None:
        self._postponed -= len(ends)
        self._waiting += ends
        self._wake.set()

    def _postpone(self, batch: list[tuple[Lease, Change]], error: Exception) -> None:
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
