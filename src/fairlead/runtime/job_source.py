"""The interface between a worker and its queue: the same leases and rules over any transport."""

from collections.abc import Sequence
from typing import Any, Protocol
from uuid import UUID

import msgspec

from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Change, Released, decide
from fairlead.store.queue import Claimed, HeartbeatResult


class HeldJob(msgspec.Struct, frozen=True):
    """A job that this worker holds, and its lease."""

    lease: Lease
    job: Claimed
    # a step of a workflow run, or a job that waits for one, as far as the source knows
    of_run: bool = False


def keep_suspect(held: HeldJob, change: Change) -> Change:
    """The change, for a suspect that has not proved harmless: the job stays a suspect."""
    return msgspec.structs.replace(change, alone=True) if held.job.probation else change


def release_unstarted(held: HeldJob) -> Change:
    """The change that returns a job which was not started to the queue, without charging an attempt."""
    return keep_suspect(held, decide(held.job, Released()))


class EndsPostponed(Exception):
    """Some outcomes were not written, and must be written again soon; `done` has the others."""

    def __init__(
        self,
        done: dict[UUID, JobStatus],
        left: Sequence[Lease],
        why: str = "another transaction has locked their workflow runs",
    ) -> None:
        super().__init__(f"the outcomes of {len(left)} attempts are not written yet: {why}")
        self.done = done
        self.left = frozenset(left)
        self.why = why


def lease_fields(lease: Lease) -> dict[str, Any]:
    """The log fields of a lease whose attempt is unknown."""
    return {"job_id": str(lease.job_id), "attempt_no": lease.attempt_no}


class JobSource(Protocol):
    """What a worker needs from the queue."""

    # whether the last claim left ready jobs that wait for a limit
    crowded: bool
    # the seconds from the last claim until the next start, if ready jobs wait for a rate or for workers with other labels
    opens_in: float | None

    async def claim(self, wanted: int) -> list[HeldJob]:
        """Claim jobs that take up to `wanted` slots."""

    async def heartbeat(self, leases: Sequence[Lease]) -> dict[Lease, HeartbeatResult]:
        """Renew leases. Leases that are missing from the result are lost."""

    async def finish(self, ends: Sequence[tuple[Lease, Change]]) -> dict[UUID, JobStatus]:
        """Write outcomes of attempts; jobs missing from the result were no longer ours. May raise EndsPostponed."""


class HeartbeatSource(JobSource, Protocol):
    """What the heartbeat thread needs from the queue."""

    async def give_back_unstarted(self, held: Sequence[HeldJob]) -> None:
        """Return jobs to the queue: these, and those of claims whose answers the worker has not read. May raise EndsPostponed."""


class SuspectSource(Protocol):
    """The source of suspects: jobs that must start alone, since they may have killed a worker."""

    async def claim_suspect(self, *, idle: bool | None, free: int | None = None) -> list[HeldJob]:
        """Claim one suspect, or none. `idle`: whether the worker runs nothing; None: the database checks.

        `free` is how many slots are free; None: all.
        """

    async def suspects_wait(self) -> bool:
        """Whether a suspect waits that this worker could claim if it were idle."""


class WorkerSource(HeartbeatSource, SuspectSource, Protocol):
    """The source of a worker that is connected to the database."""


class MeteredSource(WorkerSource, Protocol):
    """A source that counts and times the jobs that pass through it."""

    def over(self, source: WorkerSource) -> WorkerSource:
        """The same counters around another source of the worker: that of its heartbeat thread."""
