"""What goes on now, for those who may see it."""

from dataclasses import dataclass
from uuid import UUID

from fairlead.db.tx import Tx
from fairlead.model.access import Permission, Principal
from fairlead.model.request import unknown_tenant
from fairlead.store import stats, tenants
from fairlead.store.stats import Counts, Failure, RunningJob

ROWS = 10


@dataclass(frozen=True, slots=True)
class Overview:
    """How many jobs stand where, the longest running, and the last that failed."""

    counts: Counts
    running: list[RunningJob]
    failures: list[Failure]


async def overview(tx: Tx, principal: Principal, *, tenant: str | None = None, rows: int = ROWS) -> Overview:
    """What goes on in a tenant, or in all that the principal may see; at most `rows` jobs of each kind."""
    tenant_id = await _scope(tx, principal, tenant)
    return Overview(
        counts=await stats.counts(tx, tenant_id=tenant_id),
        running=await stats.running(tx, tenant_id=tenant_id, limit=rows),
        failures=await stats.failures(tx, tenant_id=tenant_id, limit=rows),
    )


async def _scope(tx: Tx, principal: Principal, tenant: str | None) -> UUID | None:
    wanted = principal.tenant_id
    if tenant is not None:
        found = await tenants.ids(tx, [tenant])
        if tenant not in found:
            raise unknown_tenant(tenant)
        wanted = found[tenant]
    principal.require(Permission.READ_JOBS, wanted)
    return wanted
