"""Current numbers: jobs by status, running jobs, the last failures."""

from datetime import datetime
from typing import cast
from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, TypedQuery
from fairlead.model.job import JobStatus
from fairlead.model.secrets.redact import Mask
from fairlead.model.summary import FailureSummary, JobTimes, RunningJobSummary

sql = queries_beside(__file__)


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of jobs of each status, at a time of the database's clock."""

    at: datetime
    queued: int
    running: int
    succeeded: int
    failed: int
    dead_letter: int
    canceled: int

    @property
    def by_status(self) -> dict[JobStatus, int]:
        return {status: getattr(self, status.value) for status in JobStatus}

    @property
    def finished(self) -> int:
        return sum(number for status, number in self.by_status.items() if status.terminal)


def counts(tenant_id: UUID | None) -> TypedQuery[Counts]:
    """One row with the numbers of jobs of a tenant, or (None) of all."""
    return TypedQuery(Counts, sql.counts, {"tenant_id": tenant_id})


async def count_jobs(tx: Tx, *, tenant_id: UUID | None) -> Counts:
    [found] = await tx.all(*counts(tenant_id))
    return found


async def find_oldest_ready(tx: Tx, *, tenant_id: UUID) -> datetime | None:
    """The due time of a tenant's oldest ready job; None if it has none."""
    [(moment,)] = await tx.values(sql.oldest_ready, {"tenant_id": tenant_id})
    return cast("datetime | None", moment)


async def list_times(tx: Tx, *, tenant_id: UUID, look: int) -> list[JobTimes]:
    """Percentiles of a tenant's newest `look` jobs: first of all of them, then by definition."""
    return await tx.all(JobTimes, sql.times, {"tenant_id": tenant_id, "look": look})


async def list_running(tx: Tx, *, tenant_id: UUID | None, limit: int) -> list[RunningJobSummary]:
    """The jobs that run now, the longest running first."""
    return await tx.all(RunningJobSummary, sql.running, {"tenant_id": tenant_id, "limit": limit})


async def list_failures(tx: Tx, *, tenant_id: UUID | None, limit: int) -> list[FailureSummary]:
    """The jobs that failed for good, latest first."""
    found = await tx.all(FailureSummary, sql.failures, {"tenant_id": tenant_id, "limit": limit})
    if not tx.redact_patterns:
        return found
    mask = Mask((), tx.redact_patterns)
    return [replace(one, last_error=mask.value(one.last_error)) for one in found]


async def count_queued(tx: Tx, *, tenant_id: UUID) -> int:
    """The number of a tenant's queued jobs."""
    [(number,)] = await tx.values(sql.queued, {"tenant_id": tenant_id})
    return int(number)
