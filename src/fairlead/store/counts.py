"""Fold counts: replace many rows by one. A level, how many jobs have a status now, stays the same. See counts.sql."""

from datetime import datetime

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx

sql = queries_beside(__file__)

ROWS = 20_000


class Fold(msgspec.Struct, frozen=True):
    """The number of folded rows, whether more can be folded now, and from which place."""

    rows: int
    more: bool
    place: datetime | None = None


async def fold_minutes(tx: Tx, *, place: datetime | None = None, limit: int = ROWS) -> Fold:
    """Fold past minutes from `place` on into one row per tenant, definition and minute; add new ones to levels and usage."""
    [fold] = await tx.all(Fold, sql.fold_minutes, {"place": place, "limit": limit})
    return fold


async def fold_history(tx: Tx, *, limit: int = ROWS) -> Fold:
    """Fold rows older than the kept minutes into one per tenant and definition; add new ones to levels and hourly usage."""
    [fold] = await tx.all(Fold, sql.fold_history, {"limit": limit})
    return fold
