"""Duties: periodic tasks that the watchdogs of all processes share, and the place where the last round ended."""

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx

sql = queries_beside(__file__)


class Duty(msgspec.Struct, frozen=True):
    """A duty that this transaction holds. No place: start at the beginning."""

    place: str | None


async def list_due(tx: Tx) -> list[str]:
    """The names of the duties that are due, the longest waiting first."""
    return [name for (name,) in await tx.values(sql.due)]


async def take_duty(tx: Tx, name: str) -> Duty | None:
    """Lock a duty; None if it is not due, or another process holds it."""
    return await tx.first(Duty, sql.take, {"name": name})


async def complete_duty(tx: Tx, name: str, *, place: str | None, seconds: float) -> None:
    """Store a duty's place; it is due again in `seconds`."""
    await tx.run(sql.put, {"name": name, "place": place, "seconds": seconds})


async def hurry_duty(tx: Tx, name: str, *, seconds: float) -> None:
    """Let a duty be due in `seconds`, unless it is due before."""
    await tx.run(sql.hurry, {"name": name, "seconds": seconds})


async def postpone_duty(tx: Tx, name: str, *, seconds: float, why: str) -> None:
    """Note that a duty failed; it keeps its place, and is due again in `seconds`."""
    await tx.run(sql.put_off, {"name": name, "seconds": seconds, "why": why})
