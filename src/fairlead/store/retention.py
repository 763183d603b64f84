"""Retention: finished jobs and days of the audit log, until their time is over."""

from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx

sql = queries_beside(__file__)

BEGINNING = UUID(int=0)
# A definition may say two thousand million days; a timestamp does not go back so far.
MOST_DAYS = 365_000


class Removal(msgspec.Struct, frozen=True):
    """How many jobs are gone, and where to go on; nowhere: the round was the last of its lap."""

    removed: int
    place: UUID | None


async def remove(
    tx: Tx, *, days: int, place: UUID | None = None, look: int = 5000, limit: int = 1000
) -> Removal:
    """Remove finished jobs older than their definition's retention, or than `days` (0: those are kept).

    One round: looks at no more than `look` jobs behind `place`, and removes no more than `limit` of them.
    """
    await tx.by_index()  # a round costs the same however large the planner thinks the tables are
    values = {"days": days, "place": place or BEGINNING, "look": look, "limit": limit, "most_days": MOST_DAYS}
    [found] = await tx.all(Removal, sql.remove, values)
    return found


async def prepare_audit_days(tx: Tx, *, days: int) -> int:
    """Make the audit log's partitions from today on, this many days ahead. How many were made."""
    await tx.run(sql.patience)
    [(made,)] = await tx.values(sql.prepare_audit_days, {"days": days})
    return int(made)


async def drop_audit_day(tx: Tx, *, keep_days: int) -> str | None:
    """Drop the oldest day of the audit log that ended more than so many days ago. Its name, if there was one."""
    await tx.run(sql.hurry)
    [(day,)] = await tx.values(sql.drop_audit_day, {"keep_days": keep_days})
    return None if day is None else str(day)


async def drop_audit_rest(tx: Tx, *, keep_days: int, most: int) -> int:
    """Remove entries older than so many days that lie in no day's partition. How many."""
    await tx.run(sql.hurry)
    [(gone,)] = await tx.values(sql.drop_audit_rest, {"keep_days": keep_days, "most": most})
    return int(gone)
