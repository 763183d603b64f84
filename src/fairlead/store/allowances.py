"""Rate limits of requests and of failures, shared by all server processes."""

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx

sql = queries_beside(__file__)


class RateBudget(msgspec.Struct, frozen=True):
    """At most `burst` units at once; one unit is refilled every `seconds`."""

    burst: int
    seconds: float


class BudgetGrant(msgspec.Struct, frozen=True):
    """The units that were granted; if none, the seconds until the next one."""

    granted: int
    wait: float


async def take_units(tx: Tx, key: str, budget: RateBudget, *, wanted: int = 1) -> BudgetGrant:
    """Take up to `wanted` units."""
    values = {"key": key, "wanted": wanted, "burst": budget.burst, "seconds": budget.seconds}
    [share] = await tx.all(BudgetGrant, sql.take, values)
    return share


async def seconds_until_unit(tx: Tx, key: str, budget: RateBudget) -> float:
    """The seconds until the next unit; takes none."""
    rows = await tx.values(sql.wait, {"key": key, "burst": budget.burst, "seconds": budget.seconds})
    return float(rows[0][0]) if rows else 0.0


async def remove_full_budgets(tx: Tx) -> None:
    """Remove the budgets that are full again."""
    await tx.run(sql.forget)
