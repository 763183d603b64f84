"""A worker's jobs straight from the database."""

import asyncio
import os
import random
import socket
from collections.abc import Sequence
from uuid import UUID, uuid4

from fairlead.actions import settling
from fairlead.db.tx import Database
from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Change
from fairlead.runtime.source import Held
from fairlead.store import queue
from fairlead.store.queue import Beat, Claim, Cursor

# Somebody was claiming from the same limit: what he left may be ours in a moment.
LOOKS = 5
LOOK_SECONDS = (0.002, 0.02)

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
        self,
        database: Database,
        *,
        worker: str,
        lease_seconds: float,
        served: Sequence[UUID] | None = None,
        served_pairs: Sequence[tuple[UUID, UUID]] = (),
        waits: bool = False,
    ) -> None:
        """With `waits`, jobs say how long they had waited."""
        self._database = database
        self._worker = worker
        self._lease_seconds = lease_seconds
        self._served = served
        self._served_pairs = served_pairs
        self._waits = waits
        # anywhere: workers that all began with the same tenant would give it more than its turn
        self._cursor = Cursor(uuid4())
        self.crowded = False
        # of what is held: steps of runs, and jobs that wait for runs. By lease, since the end of an attempt that was lost may
        # still be on its way when the next one has begun
        self._of_runs: set[Lease] = set()

    async def claim(self, wanted: int) -> list[Held]:
        """Take up to this many jobs, going on round the circle of tenants where the last claim stopped."""
        claim = await self._claim(wanted)
        for _ in range(LOOKS):
            if claim.jobs or not claim.busy:
                break
            await asyncio.sleep(random.uniform(*LOOK_SECONDS))  # noqa: S311
            claim = await self._claim(wanted)
        token = claim.token
        held = [Held(Lease(job.job_id, job.attempt_no, token), job) for job in claim.jobs]
        if claim.of_runs:
            of_runs = set(claim.of_runs)
            self._of_runs.update(one.lease for one in held if one.lease.job_id in of_runs)
        return held

    async def _claim(self, wanted: int) -> Claim:
        claim = await self._database.single(
            lambda tx: queue.claim(
                tx,
                worker=self._worker,
                wanted=wanted,
                lease_seconds=self._lease_seconds,
                served=self._served,
                served_pairs=self._served_pairs,
                cursor=self._cursor,
                waits=self._waits,
            )
        )
        self._cursor = claim.cursor
        self.crowded = claim.crowded
        return claim

    async def heartbeat(self, leases: Sequence[Lease]) -> dict[Lease, Beat]:
        """Renew leases. Those that do not come back are lost."""
        return await self._database.single(
            lambda tx: queue.heartbeat(tx, leases, lease_seconds=self._lease_seconds)
        )

    async def finish(self, ends: Sequence[tuple[Lease, Change]]) -> dict[UUID, JobStatus]:
        """Write how attempts ended; safe to repeat, since each is known by its lease."""
        actor = f"worker:{self._worker}"
        if not self._of_runs:
            return await self._database.reach(lambda tx: queue.finish(tx, ends, actor=actor))
        of_runs = [end for end in ends if end[0] in self._of_runs]
        others = [end for end in ends if end[0] not in self._of_runs]
        done: dict[UUID, JobStatus] = {}
        if others:
            done |= await self._database.reach(lambda tx: queue.finish(tx, others, actor=actor))
        if of_runs:
            done |= await self._database.reach(lambda tx: settling.finish(tx, of_runs, actor=actor))
            self._of_runs.difference_update(lease for lease, _ in of_runs)
        return done
