"""Writes what attempts report while they run: the output of commands in chunks, and the latest progress."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import structlog

from fairlead.db.tx import Database, Tx
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
        self._waiting = self._seq = self._tried = self._dropped = 0

    def add(self, stream: str, text: str) -> None:
        """Queue text as a numbered chunk, or drop it if too much waits."""
        self.total += len(text)
        if self.full:
            return
        if self._waiting + len(text) > MOST_WAITING:
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
        self._waiting += len(text)
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
        self._waiting, self._tried = 0, self._seq
        return taken

    def put_back(self, chunks: list[NewChunk]) -> None:
        """Queue these chunks again, first: the write failed or its result is unknown."""
        self.chunks.extendleft(reversed(chunks))
        self._waiting += sum(len(chunk.text) for chunk in chunks)


# Stores chunks of an attempt; returns whether more may follow.
Append = Callable[[AttemptOutput, list[NewChunk]], Awaitable[bool]]


class LogWriter(Service):
    """Writes the output of attempts a few times a second, each attempt's under its own lease."""

    def __init__(self, append: Append) -> None:
        super().__init__("log_writer", self)
        self._append = append
        self._said: dict[Lease, AttemptOutput] = {}

    def add(self, held: HeldJob, stream: str, text: str, max_bytes: int = logs.MAX_BYTES) -> None:
        """Queue output; at most `max_bytes` of one attempt are stored."""
        said = self._said.get(held.lease) or self._said.setdefault(held.lease, AttemptOutput(held, max_bytes))
        said.add(stream, text)
        self.wake()

    async def settle(self, lease: Lease) -> None:
        """Write the rest of an ended attempt's output; short output of which nothing was written is in the attempt's tails anyway."""
        said = self._said.pop(lease, None)
        if said is not None and (said.written or said.total > IN_TAILS):
            said.mark_dropped()
            await self._write(said)

    async def __call__(self) -> float:
        """Write the queued output; seconds until the next round."""
        for said in [said for said in self._said.values() if said.chunks]:
            await self._write(said)
        return PAUSE_SECONDS if any(said.chunks for said in self._said.values()) else IDLE_SECONDS

    async def _write(self, said: AttemptOutput) -> None:
        async with said.writing:
            if chunks := said.take():
                said.written = True
                try:
                    said.full = not await self._append(said, chunks)
                except FairleadError:
                    said.put_back(chunks)
                    raise


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
    """An Append that stores chunks in the database."""
    return lambda said, chunks: database.single(lambda tx: _append_chunks(tx, said, chunks))


async def _append_chunks(tx: Tx, said: AttemptOutput, chunks: list[NewChunk]) -> bool:
    """Store chunks; returns whether more may follow: not after the lease is over, nor after the log is full."""
    held = said.held
    kept = await logs.append(tx, held.lease, held.job.tenant_id, chunks, max_bytes=said.max_bytes)
    return kept is not None and not kept.truncated
