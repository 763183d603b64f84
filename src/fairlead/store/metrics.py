"""Figures for monitoring, at a cost that does not grow with the jobs."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx

sql = queries_beside(__file__)

QUANTILES = (0.5, 0.95, 0.99)
# Attempts of the newest jobs that are looked at, how long ago they may have ended, and how many groups are told of.
RECENT_LOOK = 5000
RECENT_SECONDS = 300.0
MOST_RECENT = 200


class Levels(msgspec.Struct, frozen=True, kw_only=True):
    """How a tenant's jobs stand, how many there ever were, and what the last whole minute brought."""

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
    # ever: what became of the jobs of runs that ended, and how many runs were lost
    runs_succeeded: int
    runs_failed: int
    runs_dead_letter: int
    runs_retried: int
    runs_lost: int


class Recent(msgspec.Struct, frozen=True, kw_only=True):
    """How long jobs of a tenant (None: of all) and definition waited and ran lately, at each of QUANTILES."""

    tenant: str | None
    definition: str
    attempts: int
    queue_seconds: list[float]
    run_seconds: list[float]


class Fleet(NamedTuple):
    """The workers that are there, how many jobs they could run at once, and whether the system's gate is open."""

    workers: int
    slots: int
    online: bool


async def levels(tx: Tx) -> list[Levels]:
    """Every tenant that has or had jobs, the deepest queue first."""
    return await tx.all(Levels, sql.levels)


async def oldest(tx: Tx, tenants: Sequence[UUID], *, most: int = 200) -> dict[UUID, float]:
    """How long the oldest due job of each tenant waits; `most` definitions and priorities of each are looked at."""
    found = await tx.values(sql.oldest, {"tenants": list(tenants), "most": most})
    return {tenant: float(seconds) for tenant, seconds in found}


async def recent(tx: Tx, *, by_tenant: bool) -> list[Recent]:
    """How long jobs waited and ran in the last minutes, those with the most attempts first."""
    values = {
        "by_tenant": by_tenant,
        "quantiles": list(QUANTILES),
        "look": RECENT_LOOK,
        "seconds": RECENT_SECONDS,
        "most": MOST_RECENT,
    }
    return await tx.all(Recent, sql.recent, values)


async def fleet(tx: Tx) -> Fleet:
    [row] = await tx.values(sql.fleet)
    return Fleet(*row)
