"""The facts of the overview: bounded lists, at a cost that does not grow with the jobs."""

from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.overview import (
    Backlog,
    BusyName,
    FailingTrigger,
    FleetSummary,
    HostBacklog,
    Pause,
    RunningCount,
    SilentWorker,
)
from fairlead.model.why import SEEN_SECONDS

sql = queries_beside(__file__)

# The most pairs of tenant and definition that are examined, and the most rows of any other list.
MOST_BACKLOGS = 200
MOST = 100
# The most triggers whose last firings are read, and how many of these.
LOOK_TRIGGERS = 1000
LOOK_FIRINGS = 10
# The most jobs of a host that are counted.
MOST_WAITING = 1000


class WorkingTenant(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant that has queued or running jobs, and its weight."""

    tenant: str
    weight: int
    is_paused: bool
    queued: int
    running: int


async def list_backlogs(tx: Tx, *, tenant_id: UUID | None) -> list[Backlog]:
    """Tenants and definitions with jobs that may run now, the most queued jobs first."""
    return await tx.all(Backlog, sql.backlogs, {"tenant_id": tenant_id, "most": MOST_BACKLOGS})


async def count_running(tx: Tx) -> list[RunningCount]:
    """The running jobs of all tenants, by tenant and definition."""
    return await tx.all(RunningCount, sql.running)


async def list_silent_hosts(tx: Tx, *, tenant_id: UUID | None) -> list[HostBacklog]:
    """Hosts whose agent was not seen lately, those with waiting jobs first."""
    values = {"tenant_id": tenant_id, "seconds": SEEN_SECONDS, "most": MOST, "bound": MOST_WAITING}
    return await tx.all(HostBacklog, sql.hosts, values)


async def list_silent_workers(tx: Tx, *, tenant_id: UUID | None, seconds: float) -> list[SilentWorker]:
    """Workers that were not seen for `seconds`; of a tenant only its own."""
    values = {"tenant_id": tenant_id, "seconds": seconds, "most": MOST}
    return await tx.all(SilentWorker, sql.silent_workers, values)


async def summarize_fleet(tx: Tx, *, seconds: float) -> FleetSummary:
    """All workers; silent: not seen for `seconds`."""
    [found] = await tx.all(FleetSummary, sql.fleet, {"seconds": seconds})
    return found


async def list_failing_triggers(tx: Tx, *, tenant_id: UUID | None) -> list[FailingTrigger]:
    """Triggers whose last firing failed."""
    values = {"tenant_id": tenant_id, "look": LOOK_TRIGGERS, "bound": LOOK_FIRINGS, "most": MOST}
    return await tx.all(FailingTrigger, sql.triggers, values)


async def list_pauses(tx: Tx, *, tenant_id: UUID | None) -> list[Pause]:
    """The closed gates that concern a tenant, or (None) all."""
    return await tx.all(Pause, sql.pauses, {"tenant_id": tenant_id, "most": MOST})


async def list_working_tenants(tx: Tx) -> list[WorkingTenant]:
    """The tenants that have queued or running jobs."""
    return await tx.all(WorkingTenant, sql.shares)


async def list_busiest(tx: Tx, *, tenant_id: UUID | None, seconds: int, most: int) -> list[BusyName]:
    """The definitions of a tenant, or (None) the tenants, whose jobs ended most often in the last `seconds`."""
    query = sql.busiest_tenants if tenant_id is None else sql.busiest_definitions
    return await tx.all(BusyName, query, {"tenant_id": tenant_id, "seconds": seconds, "most": most})
