"""Fairlead's own sessions in PostgreSQL."""

from datetime import datetime

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx

sql = queries_beside(__file__)


class StuckSession(msgspec.Struct, frozen=True):
    """A session that waits for its client to read a result, and the start of its statement."""

    pid: int
    query_start: datetime


async def list_stuck(tx: Tx) -> list[StuckSession]:
    """Sessions that wait for their clients to read."""
    return await tx.all(StuckSession, sql.writing)


async def end_if_stuck(tx: Tx, one: StuckSession) -> bool:
    """End a session if it still waits in the same statement. True if it did."""
    values = {"pid": one.pid, "query_start": one.query_start}
    return any(ended for (ended,) in await tx.values(sql.end_writing, values))
