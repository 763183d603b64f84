"""What commands write, on its way to the database: chunk by chunk, so that it can be followed while they run."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import structlog

from fairlead.db.tx import Database, Tx
from fairlead.errors import FairleadError
from fairlead.model.job import Lease
from fairlead.runtime.source import Held
from fairlead.store import logs
from fairlead.store.logs import NewChunk

log = structlog.get_logger(__name__)

PAUSE_SECONDS = 0.25
IDLE_SECONDS = 3600.0
# Of one attempt, what waits to be written: behind a database that is slow, the rest is left out.
MOST_WAITING = 262_144
LONGEST_CHUNK = 8_192
# So much is always kept with the attempt itself.
IN_TAILS = 4_096


class Said:
    """What an attempt has said and nobody has written yet."""

    def __init__(self, held: Held, max_bytes: int) -> None:
        self.held = held
        self.max_bytes = max_bytes
        self.chunks: deque[NewChunk] = deque()
        self.total = 0
        self.written = False
        # nothing more is taken of it: it is as long as may be, or its lease is over
        self.full = False
        # a write after the other: what was said first is there first
        self.writing = asyncio.Lock()
        self._waiting = self._seq = self._tried = self._dropped = 0

    def add(self, stream: str, text: str) -> None:
        """Number a chunk, and keep it if there is room."""
        self.total += len(text)
        if self.full:
            return
        if self._waiting + len(text) > MOST_WAITING:
            self._dropped += len(text)
            return
        self.mark_dropped()
        self._add(stream, text)

    def mark_dropped(self) -> None:
        """Say where something is missing."""
        if self._dropped:
            self._add("log", f"… {self._dropped} characters were not kept: they came too fast …\n")
            self._dropped = 0

    def _add(self, stream: str, text: str) -> None:
        self._waiting += len(text)
        last = self.chunks[-1] if self.chunks else None
        # what may be written already stays as it is
        grows = last is not None and last.stream == stream and last.seq > self._tried
        if last is not None and grows and len(last.text) < LONGEST_CHUNK:
            self.chunks[-1] = last._replace(text=last.text + text)
        else:
            self._seq += 1
            self.chunks.append(NewChunk(self._seq, stream, text))

    def take(self) -> list[NewChunk]:
        """All that waits, to be written."""
        taken = list(self.chunks)
        self.chunks.clear()
        self._waiting, self._tried = 0, self._seq
        return taken

    def put_back(self, chunks: list[NewChunk]) -> None:
        """It could not be written, or nobody knows: it is next."""
        self.chunks.extendleft(reversed(chunks))
        self._waiting += sum(len(chunk.text) for chunk in chunks)


# Keeps chunks of an attempt; whether more may follow.
Append = Callable[[Said, list[NewChunk]], Awaitable[bool]]


class Shipper:
    """Writes what attempts say a few times a second, each attempt's under its own lease."""

    def __init__(self, append: Append) -> None:
        self._append = append
        self._said: dict[Lease, Said] = {}

    def add(self, held: Held, stream: str, text: str, *, max_bytes: int = logs.MAX_BYTES) -> None:
        """Have this written soon; of one attempt, so many bytes in all."""
        said = self._said.get(held.lease) or self._said.setdefault(held.lease, Said(held, max_bytes))
        said.add(stream, text)

    async def settle(self, lease: Lease) -> None:
        """Write what is left of an attempt that is over. What fits into its tails, and nobody has followed, is there anyway."""
        said = self._said.pop(lease, None)
        if said is not None and (said.written or said.total > IN_TAILS):
            said.mark_dropped()
            await self._write(said)

    async def __call__(self) -> float:
        """Write what there is; seconds until the next round."""
        for said in [said for said in self._said.values() if said.chunks]:
            await self._write(said)
        return PAUSE_SECONDS if any(said.chunks for said in self._said.values()) else IDLE_SECONDS

    async def _write(self, said: Said) -> None:
        async with said.writing:
            if chunks := said.take():
                said.written = True
                try:
                    said.full = not await self._append(said, chunks)
                except FairleadError:
                    said.put_back(chunks)
                    raise


def stored(database: Database) -> Append:
    """Keep them in the database."""
    return lambda said, chunks: database.single(lambda tx: _append(tx, said, chunks))


async def _append(tx: Tx, said: Said, chunks: list[NewChunk]) -> bool:
    """Whether more may follow: not after a lease that is over, of which nothing is kept, and not when it is enough."""
    held = said.held
    kept = await logs.append(tx, held.lease, held.job.tenant_id, chunks, max_bytes=said.max_bytes)
    return kept is not None and not kept.truncated
