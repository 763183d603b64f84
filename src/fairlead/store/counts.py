"""Folding of counts: one row in the place of many. No level ever changes by it."""

from datetime import datetime

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx

sql = queries_beside(__file__)

ROWS = 20_000


class Fold(msgspec.Struct, frozen=True):
    """How many rows were folded, and whether there is more to do at once: from where on, if it matters."""

    rows: int
    more: bool
    place: datetime | None = None


async def fold_minutes(tx: Tx, *, place: datetime | None = None, limit: int = ROWS) -> Fold:
    """Fold the minutes that are over, a few from `place` on: one row for each tenant, definition and minute."""
    [fold] = await tx.all(Fold, sql.fold_minutes, {"place": place, "limit": limit})
    return fold


async def fold_history(tx: Tx, *, limit: int = ROWS) -> Fold:
    """Fold what is older than the minutes that are kept: one row for each tenant and definition."""
    [fold] = await tx.all(Fold, sql.fold_history, {"limit": limit})
    return fold
