"""Where a worker's jobs come from: the same leases under the same rules, over any transport."""

from collections.abc import Sequence
from typing import Any, Protocol
from uuid import UUID

import msgspec

from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Change
from fairlead.store.queue import Beat, Claimed


class Held(msgspec.Struct, frozen=True):
    """A job that this worker holds, and its lease."""

    lease: Lease
    job: Claimed


class EndsPostponed(Exception):
    """Some ends could not be written, since another process holds what they change; `done` has those that were."""

    def __init__(self, done: dict[UUID, JobStatus], left: Sequence[Lease]) -> None:
        super().__init__(
            f"how {len(left)} attempts ended could not be written yet: another transaction holds their runs"
        )
        self.done = done
        self.left = frozenset(left)


def lease_fields(lease: Lease) -> dict[str, Any]:
    """What a line in the log says of a lease, where no more is known of its attempt."""
    return {"job_id": str(lease.job_id), "attempt_no": lease.attempt_no}


class JobSource(Protocol):
    """What a worker needs of the queue."""

    # whether the last claim left work behind that waits for a limit
    crowded: bool

    async def claim(self, wanted: int) -> list[Held]:
        """Take up to this many jobs."""

    async def heartbeat(self, leases: Sequence[Lease]) -> dict[Lease, Beat]:
        """Renew leases. Those that do not come back are lost."""

    async def finish(self, ends: Sequence[tuple[Lease, Change]]) -> dict[UUID, JobStatus]:
        """Write how attempts ended; those that are missing were no longer ours. May raise EndsPostponed."""


class SuspectSource(Protocol):
    """Where suspects come from: jobs that are to be started by themselves."""

    async def claim_suspect(self, *, idle: bool | None) -> list[Held]:
        """Take one, or none. `idle`: the worker runs nothing; None: find out."""

    async def suspects_wait(self) -> bool:
        """Whether there would be one for this worker if it ran nothing."""


class WorkerSource(JobSource, SuspectSource, Protocol):
    """Both: what a worker with a connection to the database has."""
