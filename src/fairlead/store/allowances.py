"""Budgets of requests and of failures, counted for all server processes together."""

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx

sql = queries_beside(__file__)


class Budget(msgspec.Struct, frozen=True):
    """At most `burst` at once; one comes back after each `seconds`."""

    burst: int
    seconds: float


class Share(msgspec.Struct, frozen=True):
    """What was given; if nothing, the seconds until there is one."""

    granted: int
    wait: float


async def take(tx: Tx, key: str, budget: Budget, *, wanted: int = 1) -> Share:
    """Take up to so many of what is left."""
    values = {"key": key, "wanted": wanted, "burst": budget.burst, "seconds": budget.seconds}
    [share] = await tx.all(Share, sql.take, values)
    return share


async def wait(tx: Tx, key: str, budget: Budget) -> float:
    """The seconds until there is one, taking none."""
    rows = await tx.values(sql.wait, {"key": key, "burst": budget.burst, "seconds": budget.seconds})
    return float(rows[0][0]) if rows else 0.0


async def forget(tx: Tx) -> None:
    """Remove the budgets that are whole."""
    await tx.run(sql.forget)
