"""Current numbers of tenants."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from fairlead.db.tx import Tx
from fairlead.errors import Fault, InvalidInput
from fairlead.model.access import Permission, Principal
from fairlead.model.request import unknown_tenant
from fairlead.model.summary import FailureSummary, JobTimes, Percentiles, RunningJobSummary
from fairlead.store import stats, tenants, throughput
from fairlead.store.stats import Counts
from fairlead.store.throughput import ThroughputStep

__all__ = ["ThroughputStep"]

ROWS = 10
NEWEST = 1000
DAY_SECONDS = 86_400


class StatsOverview(msgspec.Struct, frozen=True):
    """Jobs by status, the longest running ones, and the last failures."""

    counts: Counts
    running: list[RunningJobSummary]
    failures: list[FailureSummary]


async def get_overview(
    tx: Tx, principal: Principal, *, tenant: str | None = None, rows: int = ROWS
) -> StatsOverview:
    """The overview of a tenant, or of all that the principal may see; at most `rows` jobs of each kind."""
    tenant_id = await resolve_scope(tx, principal, tenant)
    return StatsOverview(
        counts=await stats.count_jobs(tx, tenant_id=tenant_id),
        running=await stats.list_running(tx, tenant_id=tenant_id, limit=rows),
        failures=await stats.list_failures(tx, tenant_id=tenant_id, limit=rows),
    )


class TenantSummary(msgspec.Struct, frozen=True):
    """A tenant's jobs by status, and the due time of its oldest ready job."""

    counts: Counts
    oldest_ready_at: datetime | None

    @property
    def oldest_ready_seconds(self) -> float | None:
        """The waiting time of the oldest ready job."""
        if self.oldest_ready_at is None:
            return None
        return max(0.0, (self.counts.at - self.oldest_ready_at).total_seconds())


async def get_summary(tx: Tx, principal: Principal, *, tenant: str | None = None) -> TenantSummary:
    """The summary of a tenant. It reads no jobs, so its time does not depend on their number."""
    tenant_id = await resolve_scope(tx, principal, tenant)
    if tenant_id is None:
        raise InvalidInput("Name the tenant whose summary is wanted.", [Fault("tenant", "is missing")])
    await tx.prefer_indexes()
    return TenantSummary(
        counts=await stats.count_jobs(tx, tenant_id=tenant_id),
        oldest_ready_at=await stats.find_oldest_ready(tx, tenant_id=tenant_id),
    )


class TenantTimes(msgspec.Struct, frozen=True):
    """Waiting and run times of a tenant's newest jobs in milliseconds, of all and by definition."""

    jobs: int
    wait_ms: Percentiles | None
    run_ms: Percentiles | None
    definitions: list[JobTimes]


async def get_times(tx: Tx, principal: Principal, *, tenant: str | None = None) -> TenantTimes:
    """Waiting and run times of a tenant's newest 1,000 jobs, each in its last ended attempt."""
    tenant_id = await resolve_scope(tx, principal, tenant)
    if tenant_id is None:
        raise InvalidInput("Name the tenant whose times are wanted.", [Fault("tenant", "is missing")])
    await tx.prefer_indexes()
    whole, *parts = await stats.list_times(tx, tenant_id=tenant_id, look=NEWEST)
    return TenantTimes(jobs=whole.jobs, wait_ms=whole.wait_ms, run_ms=whole.run_ms, definitions=parts)


async def get_throughput(tx: Tx, principal: Principal, *, seconds: int, step: int) -> list[ThroughputStep]:
    """The number of jobs that ended in the last `seconds`, at most a day, in steps."""
    principal.require(Permission.READ_JOBS, principal.tenant_id)
    return await throughput.list_steps(
        tx, tenant_id=principal.tenant_id, seconds=min(seconds, DAY_SECONDS), step=step
    )


def add_throughput(cells: Sequence[list[ThroughputStep]]) -> list[ThroughputStep]:
    """The throughput of several cells, by the steps of the first."""
    ended: dict[datetime, list[int]] = {one.at: [0, 0] for one in cells[0]}
    for one in (step for cell in cells for step in cell):
        if one.at in ended:  # another cell's clock may be a step ahead
            ended[one.at][0] += one.succeeded
            ended[one.at][1] += one.failed
    return [ThroughputStep(at, *numbers) for at, numbers in ended.items()]


async def resolve_scope(tx: Tx, principal: Principal, tenant: str | None) -> UUID | None:
    """The tenant that a request names, or the principal's own; None means all tenants."""
    wanted = principal.tenant_id
    if tenant is not None:
        found = await tenants.get_ids(tx, [tenant])
        if tenant not in found:
            raise unknown_tenant(tenant)
        wanted = found[tenant]
    principal.require(Permission.READ_JOBS, wanted)
    return wanted
