"""What goes on now: how many jobs stand where, which run, which failed last."""

from datetime import datetime
from typing import cast
from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.job import JobStatus
from fairlead.model.redact import Mask

sql = queries_beside(__file__)


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs there are of each status, at a time of the database's clock."""

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


class RunningJob(msgspec.Struct, frozen=True, kw_only=True):
    job_id: UUID
    attempt_no: int
    definition_key: str
    tenant: str
    worker_id: str
    started_at: datetime


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A job that ended as failed or dead_letter."""

    job_id: UUID
    definition_key: str
    tenant: str
    status: JobStatus
    finished_at: datetime
    last_error: str | None


class Percentiles(msgspec.Struct, frozen=True):
    """The median, the 95th and the 99th percentile."""

    p50: int
    p95: int
    p99: int


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """How long jobs waited and ran, in milliseconds; of all definitions if it has none."""

    definition_key: str | None
    jobs: int
    wait_ms: Percentiles | None
    run_ms: Percentiles | None


async def counts(tx: Tx, *, tenant_id: UUID | None) -> Counts:
    [found] = await tx.all(Counts, sql.counts, {"tenant_id": tenant_id})
    return found


async def oldest_ready(tx: Tx, *, tenant_id: UUID) -> datetime | None:
    """When the job of a tenant that has waited longest fell due; None if none waits that may run."""
    [(moment,)] = await tx.values(sql.oldest_ready, {"tenant_id": tenant_id})
    return cast("datetime | None", moment)


async def times(tx: Tx, *, tenant_id: UUID, look: int) -> list[Times]:
    """Percentiles of a tenant's newest so many jobs: first of all of them, then by definition."""
    return await tx.all(Times, sql.times, {"tenant_id": tenant_id, "look": look})


async def running(tx: Tx, *, tenant_id: UUID | None, limit: int) -> list[RunningJob]:
    """The jobs that run now, longest first."""
    return await tx.all(RunningJob, sql.running, {"tenant_id": tenant_id, "limit": limit})


async def failures(tx: Tx, *, tenant_id: UUID | None, limit: int) -> list[Failure]:
    """The jobs that failed for good, latest first."""
    found = await tx.all(Failure, sql.failures, {"tenant_id": tenant_id, "limit": limit})
    if not tx.redact_patterns:
        return found
    mask = Mask((), tx.redact_patterns)
    return [replace(one, last_error=mask.value(one.last_error)) for one in found]


async def queued(tx: Tx, *, tenant_id: UUID) -> int:
    """How many jobs of a tenant wait."""
    [(number,)] = await tx.values(sql.queued, {"tenant_id": tenant_id})
    return int(number)
