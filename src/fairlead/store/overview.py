"""The facts of the overview: queries of bounded lists, whose cost does not grow with the jobs."""

from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import TypedQuery
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


def backlogs(tenant_id: UUID | None) -> TypedQuery[Backlog]:
    """Tenants and definitions with jobs that may run now, the most queued jobs first."""
    return TypedQuery(Backlog, sql.backlogs, {"tenant_id": tenant_id, "most": MOST_BACKLOGS})


def running() -> TypedQuery[RunningCount]:
    """The running jobs of all tenants, by tenant and definition."""
    return TypedQuery(RunningCount, sql.running)


def silent_hosts(tenant_id: UUID | None) -> TypedQuery[HostBacklog]:
    """Hosts whose agent was not seen lately, those with waiting jobs first."""
    values = {"tenant_id": tenant_id, "seconds": SEEN_SECONDS, "most": MOST, "bound": MOST_WAITING}
    return TypedQuery(HostBacklog, sql.hosts, values)


def silent_workers(tenant_id: UUID | None, seconds: float) -> TypedQuery[SilentWorker]:
    """Workers that were not seen for `seconds`; of a tenant only its own."""
    values = {"tenant_id": tenant_id, "seconds": seconds, "most": MOST}
    return TypedQuery(SilentWorker, sql.silent_workers, values)


def fleet(seconds: float) -> TypedQuery[FleetSummary]:
    """One row about all workers; silent: not seen for `seconds`."""
    return TypedQuery(FleetSummary, sql.fleet, {"seconds": seconds})


def failing_triggers(tenant_id: UUID | None) -> TypedQuery[FailingTrigger]:
    """Triggers whose last firing failed."""
    values = {"tenant_id": tenant_id, "look": LOOK_TRIGGERS, "bound": LOOK_FIRINGS, "most": MOST}
    return TypedQuery(FailingTrigger, sql.triggers, values)


def pauses(tenant_id: UUID | None) -> TypedQuery[Pause]:
    """The closed gates that concern a tenant, or (None) all."""
    return TypedQuery(Pause, sql.pauses, {"tenant_id": tenant_id, "most": MOST})


def working_tenants() -> TypedQuery[WorkingTenant]:
    """The tenants that have queued or running jobs."""
    return TypedQuery(WorkingTenant, sql.shares)


def busiest(tenant_id: UUID | None, seconds: int, most: int) -> TypedQuery[BusyName]:
    """The definitions of a tenant, or (None) the tenants, whose jobs ended most often in the last `seconds`."""
    query = sql.busiest_tenants if tenant_id is None else sql.busiest_definitions
    return TypedQuery(BusyName, query, {"tenant_id": tenant_id, "seconds": seconds, "most": most})
