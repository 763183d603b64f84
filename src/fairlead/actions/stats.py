"""Current numbers of tenants."""

from datetime import datetime
from uuid import UUID

import msgspec

from fairlead.db.tx import Tx
from fairlead.errors import Fault, InvalidInput
from fairlead.model.access import Permission, Principal
from fairlead.model.request import unknown_tenant
from fairlead.store import flow, stats, tenants
from fairlead.store.flow import Step
from fairlead.store.stats import Counts, Failure, Percentiles, RunningJob, Times

ROWS = 10
NEWEST = 1000
DAY_SECONDS = 86_400


class Overview(msgspec.Struct, frozen=True):
    """Jobs by status, the longest running ones, and the last failures."""

    counts: Counts
    running: list[RunningJob]
    failures: list[Failure]


async def overview(tx: Tx, principal: Principal, *, tenant: str | None = None, rows: int = ROWS) -> Overview:
    """The overview of a tenant, or of all that the principal may see; at most `rows` jobs of each kind."""
    tenant_id = await _scope(tx, principal, tenant)
    return Overview(
        counts=await stats.counts(tx, tenant_id=tenant_id),
        running=await stats.running(tx, tenant_id=tenant_id, limit=rows),
        failures=await stats.failures(tx, tenant_id=tenant_id, limit=rows),
    )


class Summary(msgspec.Struct, frozen=True):
    """A tenant's jobs by status, and the due time of its oldest ready job."""

    counts: Counts
    oldest_ready_at: datetime | None

    @property
    def oldest_ready_seconds(self) -> float | None:
        """The waiting time of the oldest ready job."""
        if self.oldest_ready_at is None:
            return None
        return max(0.0, (self.counts.at - self.oldest_ready_at).total_seconds())


async def summary(tx: Tx, principal: Principal, *, tenant: str | None = None) -> Summary:
    """The summary of a tenant. It reads no jobs, so its time does not depend on their number."""
    tenant_id = await _scope(tx, principal, tenant)
    if tenant_id is None:
        raise InvalidInput("Name the tenant whose summary is wanted.", [Fault("tenant", "is missing")])
    await tx.by_index()
    return Summary(
        counts=await stats.counts(tx, tenant_id=tenant_id),
        oldest_ready_at=await stats.oldest_ready(tx, tenant_id=tenant_id),
    )


class TenantTimes(msgspec.Struct, frozen=True):
    """Waiting and run times of a tenant's newest jobs in milliseconds, of all and by definition."""

    jobs: int
    wait_ms: Percentiles | None
    run_ms: Percentiles | None
    definitions: list[Times]


async def times(tx: Tx, principal: Principal, *, tenant: str | None = None) -> TenantTimes:
    """Waiting and run times of a tenant's newest 1,000 jobs, each in its last ended attempt."""
    tenant_id = await _scope(tx, principal, tenant)
    if tenant_id is None:
        raise InvalidInput("Name the tenant whose times are wanted.", [Fault("tenant", "is missing")])
    await tx.by_index()
    whole, *parts = await stats.times(tx, tenant_id=tenant_id, look=NEWEST)
    return TenantTimes(jobs=whole.jobs, wait_ms=whole.wait_ms, run_ms=whole.run_ms, definitions=parts)


async def throughput(tx: Tx, principal: Principal, *, seconds: int, step: int) -> list[Step]:
    """The number of jobs that ended in the last `seconds`, at most a day, in steps."""
    principal.require(Permission.READ_JOBS, principal.tenant_id)
    return await flow.flow(tx, tenant_id=principal.tenant_id, seconds=min(seconds, DAY_SECONDS), step=step)


async def _scope(tx: Tx, principal: Principal, tenant: str | None) -> UUID | None:
    wanted = principal.tenant_id
    if tenant is not None:
        found = await tenants.ids(tx, [tenant])
        if tenant not in found:
            raise unknown_tenant(tenant)
        wanted = found[tenant]
    principal.require(Permission.READ_JOBS, wanted)
    return wanted
