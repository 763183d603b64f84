"""Duties: what the watchdogs of all processes do in turns, and where the last one left off."""

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx

sql = queries_beside(__file__)


class Duty(msgspec.Struct, frozen=True):
    """A duty that is ours until the transaction ends. No place: begin at the beginning."""

    place: str | None


async def due(tx: Tx) -> list[str]:
    """The names of the duties that are due, the longest waiting first."""
    return [name for (name,) in await tx.values(sql.due)]


async def take(tx: Tx, name: str) -> Duty | None:
    """The duty, held against every other process; None if it is not due, or another process is at it."""
    return await tx.first(Duty, sql.take, {"name": name})


async def put(tx: Tx, name: str, *, place: str | None, seconds: float) -> None:
    """Leave a duty at that place; it is due again in so many seconds."""
    await tx.run(sql.put, {"name": name, "place": place, "seconds": seconds})


async def put_off(tx: Tx, name: str, *, seconds: float, why: str) -> None:
    """Leave a duty that failed where it was; it is due again in so many seconds."""
    await tx.run(sql.put_off, {"name": name, "seconds": seconds, "why": why})
