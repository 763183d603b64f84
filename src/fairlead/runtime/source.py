"""Where a worker's jobs come from: the same leases under the same rules, over any transport."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Change
from fairlead.store.queue import Claimed


@dataclass(frozen=True, slots=True)
class Held:
    """A job that this worker holds, and its lease."""

    lease: Lease
    job: Claimed


class JobSource(Protocol):
    """What a worker needs of the queue."""

    async def claim(self, wanted: int) -> list[Held]:
        """Take up to this many jobs."""

    async def heartbeat(self, leases: Sequence[Lease]) -> dict[UUID, bool]:
        """Renew leases: those still ours, and whether each is asked to stop."""

    async def finish(self, ends: Sequence[tuple[Lease, Change]]) -> dict[UUID, JobStatus]:
        """Write how attempts ended; those that are missing were no longer ours."""
