"""Our own sessions, as PostgreSQL sees them. Takes a Tx, never opens one."""

from datetime import datetime

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx

sql = queries_beside(__file__)


class Writing(msgspec.Struct, frozen=True):
    """A session that waits for its client to take an answer, and since when its statement has run."""

    pid: int
    query_start: datetime


async def writing(tx: Tx) -> list[Writing]:
    """Sessions that wait for their clients at this moment."""
    return await tx.all(Writing, sql.writing)


async def end_writing(tx: Tx, one: Writing) -> bool:
    """End a session if it still waits with the same answer. Whether it did."""
    values = {"pid": one.pid, "query_start": one.query_start}
    return any(ended for (ended,) in await tx.values(sql.end_writing, values))
