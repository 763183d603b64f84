"""Metrics for monitoring, at a cost that does not grow with the jobs."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx

sql = queries_beside(__file__)

QUANTILES = (0.5, 0.95, 0.99)
# The most attempts of the newest jobs that are read, how long ago they may have ended, and the most groups returned.
RECENT_LOOK = 5000
RECENT_SECONDS = 300.0
MOST_RECENT = 200


class TenantLevels(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant's jobs by status, the number ever enqueued, and the changes of the last whole minute."""

    tenant: str
    tenant_id: UUID
    queued: int
    running: int
    succeeded: int
    failed: int
    dead_letter: int
    canceled: int
    enqueued: int
    minute_enqueued: int
    minute_succeeded: int
    minute_failed: int
    minute_dead_letter: int
    minute_canceled: int
    # totals: ended runs by the result for their jobs, and lost runs
    runs_succeeded: int
    runs_failed: int
    runs_dead_letter: int
    runs_retried: int
    runs_lost: int


class RecentTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The recent waiting and run times of a tenant (None: all) and definition, at each of QUANTILES."""

    tenant: str | None
    definition: str
    attempts: int
    queue_seconds: list[float]
    run_seconds: list[float]


class Fleet(NamedTuple):
    """The number of workers, their total concurrency, and whether the system's gate is open."""

    workers: int
    slots: int
    online: bool


async def list_levels(tx: Tx) -> list[TenantLevels]:
    """Every tenant that has or had jobs, the deepest queue first."""
    return await tx.all(TenantLevels, sql.levels)


async def measure_oldest(tx: Tx, tenants: Sequence[UUID], *, most: int = 200) -> dict[UUID, float]:
    """The seconds that each tenant's oldest due job has waited; reads `most` definitions and priorities of each."""
    found = await tx.values(sql.oldest, {"tenants": list(tenants), "most": most})
    return {tenant: float(seconds) for tenant, seconds in found}


async def list_recent_times(tx: Tx, *, by_tenant: bool) -> list[RecentTimes]:
    """Waiting and run times of the last minutes, the groups with the most attempts first."""
    values = {
        "by_tenant": by_tenant,
        "quantiles": list(QUANTILES),
        "look": RECENT_LOOK,
        "seconds": RECENT_SECONDS,
        "most": MOST_RECENT,
    }
    return await tx.all(RecentTimes, sql.recent, values)


async def read_fleet(tx: Tx) -> Fleet:
    [row] = await tx.values(sql.fleet)
    return Fleet(*row)
