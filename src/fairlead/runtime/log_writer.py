"""Writes what attempts report while they run: the output of commands in chunks, and the latest progress."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from enum import Enum
from typing import NamedTuple

import structlog

from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.errors import FairleadError
from fairlead.handlers.context import Progress
from fairlead.model.job import Lease
from fairlead.model.log import NewChunk
from fairlead.runtime.job_source import HeldJob
from fairlead.runtime.service import Service
from fairlead.store import logs

log = structlog.get_logger(__name__)

PAUSE_SECONDS = 0.25
PROGRESS_SECONDS = 0.5
IDLE_SECONDS = 3600.0
# The most characters of one attempt that wait to be written: more is dropped when the database is slow.
MOST_WAITING = 262_144
LONGEST_CHUNK = 8_192
# The most characters that one statement stores, except of one attempt.
LARGEST_WRITE = 1_048_576
# Output up to this size is always in the attempt's own tails.
IN_TAILS = 4_096


class AttemptOutput:
    """The output of one attempt that is not written yet."""

    def __init__(self, held: HeldJob, max_bytes: int) -> None:
        self.held = held
        self.max_bytes = max_bytes
        self.chunks: deque[NewChunk] = deque()
        self.total = 0
        self.written = False
        # no more output is accepted: the log has its maximum size, or the lease is over
        self.full = False
        # one write at a time, so that chunks are stored in order
        self.writing = asyncio.Lock()
        self.waiting = self._seq = self._tried = self._dropped = 0

    def add(self, stream: str, text: str) -> None:
        """Queue text as a numbered chunk, or drop it if too much waits."""
        self.total += len(text)
        if self.full:
            return
        if self.waiting + len(text) > MOST_WAITING:
            self._dropped += len(text)
            return
        self.mark_dropped()
        self._add(stream, text)

    def mark_dropped(self) -> None:
        """Add a note where text was dropped."""
        if self._dropped:
            self._add("log", f"… {self._dropped} characters were dropped: the output came too fast …\n")
            self._dropped = 0

    def _add(self, stream: str, text: str) -> None:
        self.waiting += len(text)
        last = self.chunks[-1] if self.chunks else None
        # a chunk that may have been written must not change
        grows = last is not None and last.stream == stream and last.seq > self._tried
        if last is not None and grows and len(last.text) < LONGEST_CHUNK:
            self.chunks[-1] = last._replace(text=last.text + text)
        else:
            self._seq += 1
            self.chunks.append(NewChunk(self._seq, stream, text))

    def take(self) -> list[NewChunk]:
        """Remove and return the queued chunks."""
        taken = list(self.chunks)
        self.chunks.clear()
        self.waiting, self._tried = 0, self._seq
        return taken

    def put_back(self, chunks: list[NewChunk]) -> None:
        """Queue these chunks again, first: the write failed or its result is unknown."""
        self.chunks.extendleft(reversed(chunks))
        self.waiting += sum(len(chunk.text) for chunk in chunks)


class PendingWrite(NamedTuple):
    """Chunks of one attempt that are about to be stored."""

    said: AttemptOutput
    chunks: list[NewChunk]


class AppendState(Enum):
    """What became of the chunks of one attempt."""

    STORED = "stored"
    # the log is full, or the lease is over: no more may follow
    CLOSED = "closed"
    # another transaction has locked the lease: nothing was stored, try again
    BUSY = "busy"


# Stores chunks of attempts. A single write waits for its lease; several do not, since each would wait for all.
Append = Callable[[Sequence[PendingWrite]], Awaitable[list[AppendState]]]


class LogWriter(Service):
    """Writes the output of attempts a few times a second: all together, each attempt's under its own lease."""

    def __init__(self, append: Append) -> None:
        super().__init__("log_writer", self)
        self._append = append
        self._said: dict[Lease, AttemptOutput] = {}

    def add(self, held: HeldJob, stream: str, text: str, max_bytes: int = logs.MAX_BYTES) -> None:
        """Queue output; at most `max_bytes` of one attempt are stored."""
        said = self._said.get(held.lease) or self._said.setdefault(held.lease, AttemptOutput(held, max_bytes))
        said.add(stream, text)
        self.wake()

    def has_queued(self, lease: Lease) -> bool:
        """Whether output of this attempt waits to be written."""
        said = self._said.get(lease)
        return said is not None and bool(said.chunks)

    async def flush(self, lease: Lease) -> None:
        """Write what an attempt has said until now."""
        if (said := self._said.get(lease)) is not None:
            async with said.writing:
                await self._write([said])

    async def settle(self, lease: Lease, *, tries: int = 1) -> None:
        """Write the rest of an ended attempt's output; short output of which nothing was written is in the attempt's tails anyway."""
        said = self._said.pop(lease, None)
        if said is None or not (said.written or said.total > IN_TAILS):
            return
        said.mark_dropped()
        # also waits for a write that runs: if it fails, it puts its chunks back
        while said.chunks or said.writing.locked():
            tries -= 1
            try:
                async with said.writing:
                    await self._write([said])
            except FairleadError:
                if tries < 1:
                    raise
                await asyncio.sleep(PAUSE_SECONDS)

    async def __call__(self) -> float:
        """Write the queued output; seconds until the next round."""
        queued = [said for said in self._said.values() if said.chunks and not said.writing.locked()]
        for batch in _split(queued):
            async with AsyncExitStack() as stack:
                for said in batch:
                    await stack.enter_async_context(said.writing)
                await self._write(batch)
        return PAUSE_SECONDS if any(said.chunks for said in self._said.values()) else IDLE_SECONDS

    async def _write(self, batch: Sequence[AttemptOutput]) -> None:
        writes = [PendingWrite(said, said.take()) for said in batch if said.chunks]
        if not writes:
            return
        for said, _ in writes:
            said.written = True
        try:
            states = await self._append(writes)
        except FairleadError:
            for said, chunks in writes:
                said.put_back(chunks)
            raise
        for (said, chunks), state in zip(writes, states, strict=True):
            if state is AppendState.BUSY:
                said.put_back(chunks)
            said.full = state is AppendState.CLOSED


def _split(queued: Sequence[AttemptOutput]) -> Iterator[list[AttemptOutput]]:
    """Batches of attempts whose queued output is not too large for one statement."""
    batch, size = list[AttemptOutput](), 0
    for said in queued:
        if batch and size + said.waiting > LARGEST_WRITE:
            yield batch
            batch, size = [], 0
        batch.append(said)
        size += said.waiting
    if batch:
        yield batch


# the attempt's lease, its percentage, its message
ProgressUpdate = tuple[Lease, float, str]


class Reporter(Service):
    """Keeps the latest progress of each attempt until the next round writes it."""

    def __init__(self, write: Callable[[list[ProgressUpdate]], Awaitable[object]]) -> None:
        super().__init__("reporter", self)
        self._write = write
        self._latest: dict[Lease, Progress] = {}

    def add(self, lease: Lease, progress: Progress) -> None:
        """Queue an update; it replaces the attempt's previous one."""
        self._latest[lease] = progress
        self.wake()

    async def __call__(self) -> float:
        """Write the queued updates; seconds until the next round."""
        latest, self._latest = self._latest, {}
        if not latest:
            return IDLE_SECONDS
        steps = [(lease, one.percent, one.message) for lease, one in latest.items()]
        await self._write(steps)
        return PROGRESS_SECONDS


def append_to_database(database: Database) -> Append:
    """An Append that stores chunks in the database, in one statement."""

    async def append(writes: Sequence[PendingWrite]) -> list[AppendState]:
        return await database.single(lambda tx: _append_chunks(tx, writes))

    return append


async def _append_chunks(tx: Tx, writes: Sequence[PendingWrite]) -> list[AppendState]:
    news = [
        logs.NewChunks(one.said.held.lease, one.said.held.job.tenant_id, one.chunks, one.said.max_bytes)
        for one in writes
    ]
    if len(news) == 1:
        return [_state(await logs.append(tx, *news[0][:3], max_bytes=news[0].max_bytes))]
    stored = await logs.append_all(tx, news)
    return [
        AppendState.BUSY if one.lease in stored.busy else _state(stored.results.get(one.lease))
        for one in news
    ]


def _state(result: logs.AppendResult | None) -> AppendState:
    """No more may follow after the lease is over, nor after the log is full."""
    return AppendState.CLOSED if result is None or result.truncated else AppendState.STORED
