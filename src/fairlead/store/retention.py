"""Retention: remove old finished jobs and old days of the audit log."""

from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx

sql = queries_beside(__file__)

BEGINNING = UUID(int=0)
# A definition may set two billion days, which is outside the range of a timestamp.
MOST_DAYS = 365_000


class Removal(msgspec.Struct, frozen=True):
    """The number of removed jobs, and the next place; None after the last round of a lap."""

    removed: int
    place: UUID | None


async def remove(
    tx: Tx, *, days: int, place: UUID | None = None, look: int = 5000, limit: int = 1000
) -> Removal:
    """Remove finished jobs older than their definition's retention, or than `days` (0: keep them).

    One round: reads at most `look` jobs after `place`, and removes at most `limit` of them.
    """
    await tx.prefer_indexes()  # a round costs the same whatever the tables' statistics
    values = {"days": days, "place": place or BEGINNING, "look": look, "limit": limit, "most_days": MOST_DAYS}
    [found] = await tx.all(Removal, sql.remove, values)
    return found


async def prepare_audit_days(tx: Tx, *, days: int) -> int:
    """Create the audit log's partitions for today and this many days ahead. The number of new ones."""
    await tx.run(sql.patience)
    [(made,)] = await tx.values(sql.prepare_audit_days, {"days": days})
    return int(made)


async def drop_audit_day(tx: Tx, *, keep_days: int) -> str | None:
    """Drop the oldest day of the audit log that ended more than `keep_days` ago. Its name, if there was one."""
    await tx.run(sql.hurry)
    [(day,)] = await tx.values(sql.drop_audit_day, {"keep_days": keep_days})
    return None if day is None else str(day)


async def drop_audit_rest(tx: Tx, *, keep_days: int, most: int) -> int:
    """Remove entries older than `keep_days` that are in no day's partition. Their number."""
    await tx.run(sql.hurry)
    [(gone,)] = await tx.values(sql.drop_audit_rest, {"keep_days": keep_days, "most": most})
    return int(gone)
