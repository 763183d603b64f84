"""A worker's jobs straight from the database."""

import os
import socket
from collections.abc import Sequence
from uuid import UUID, uuid4

from fairlead.db.tx import Database
from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Change
from fairlead.runtime.source import Held
from fairlead.store import queue
from fairlead.store.queue import Cursor

# Small tables make the planner read them whole and join by hashing; these statements are lookups by key.
PLANNER = {
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_material": "off",
}


def worker_id() -> str:
    """host:pid:boot, new at each start of a process."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:12]}"


class StoreSource:
    """Claims, heartbeats and finishes, each one statement."""

    def __init__(
        self, database: Database, *, worker: str, lease_seconds: float, served: Sequence[UUID] | None = None
    ) -> None:
        self._database = database
        self._worker = worker
        self._lease_seconds = lease_seconds
        self._served = served
        self._cursor = Cursor()

    async def claim(self, wanted: int) -> list[Held]:
        """Take up to this many jobs, going on round the circle of tenants where the last claim stopped."""
        claim = await self._database.single(
            lambda tx: queue.claim(
                tx,
                worker=self._worker,
                wanted=wanted,
                lease_seconds=self._lease_seconds,
                served=self._served,
                cursor=self._cursor,
            )
        )
        self._cursor = claim.cursor
        return [Held(claim.lease(job), job) for job in claim.jobs]

    async def heartbeat(self, leases: Sequence[Lease]) -> dict[UUID, bool]:
        """Renew leases: those still ours, and whether each is asked to stop."""
        return await self._database.single(
            lambda tx: queue.heartbeat(tx, leases, lease_seconds=self._lease_seconds)
        )

    async def finish(self, ends: Sequence[tuple[Lease, Change]]) -> dict[UUID, JobStatus]:
        """Write how attempts ended; safe to repeat, since each is known by its lease."""
        return await self._database.reach(lambda tx: queue.finish(tx, ends, actor=f"worker:{self._worker}"))
