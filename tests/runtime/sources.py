"""A source of jobs without a database, and jobs that a worker has claimed."""

from collections.abc import Sequence
from uuid import UUID, uuid4

from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Backoff, Change
from fairlead.runtime.job_source import HeldJob
from fairlead.store.queue import AttemptTerms, Claimed, HeartbeatResult, TenantName

KEY = "greet"
WHOSE = TenantName(uuid4(), "acme")


class EmptySource:
    """Has no jobs, renews every lease, and takes every end."""

    crowded = False
    opens_in: float | None = None

    async def claim(self, wanted: int) -> list[HeldJob]:
        assert wanted > 0
        return []

    async def heartbeat(self, leases: Sequence[Lease]) -> dict[Lease, HeartbeatResult]:
        assert leases
        return dict.fromkeys(leases, HeartbeatResult())

    async def finish(self, ends: Sequence[tuple[Lease, Change]]) -> dict[UUID, JobStatus]:
        return {lease.job_id: change.status for lease, change in ends}


def held_job(*, slots: int = 1, probation: float = 0.0) -> HeldJob:
    """A job of one tenant and definition; with a probation, a suspect."""
    terms = AttemptTerms(KEY, 60, Backoff(), slots=slots)
    job = Claimed(uuid4(), 1, str(WHOSE.id), 0, {}, 3, 0, 0, None, None, WHOSE, terms, probation=probation)
    return HeldJob(Lease(job.job_id, job.attempt_no, uuid4()), job)
