"""Figures for monitoring, at a cost that does not grow with the jobs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx

sql = queries_beside(__file__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
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


async def fleet(tx: Tx) -> Fleet:
    [row] = await tx.values(sql.fleet)
    return Fleet(*row)
