"""How long it took until work went on after faults, for each kind of fault."""

from typing import Any

import msgspec

from fairlead.chaos.run_plan import RunPlan
from fairlead.chaos.spread import Spread, measure_spread
from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx

sql = queries_beside(__file__)

DATABASE_BAR_SECONDS = 10.0
# A dead worker's jobs run again within a lease and a sweep, and this much.
WORKER_BAR_SECONDS = 5.0


class RecoveryTime(msgspec.Struct, frozen=True):
    """The times of one kind of fault. `until` says what was waited for; without a bar none was promised."""

    kind: str
    until: str
    times: Spread
    bar: float | None = None

    @property
    def is_met(self) -> bool:
        return self.bar is None or self.times.longest <= self.bar


async def measure_recoveries(tx: Tx, plan: RunPlan, offset: float) -> list[RecoveryTime]:
    """The recovery times of every kind of fault in the history."""
    worker_bar = plan.lease_seconds + plan.sweep_seconds + WORKER_BAR_SECONDS
    measures: list[tuple[str, dict[str, Any] | None, str, float | None]] = [
        (
            sql.of_workers,
            {"first": True},
            "the next attempt of each job that it lost, while PostgreSQL is up",
            worker_bar,
        ),
        (
            sql.of_workers,
            {"first": False},
            "the next attempt of each job that had lost a worker before: it starts alone",
            None,
        ),
        (
            sql.of_database,
            None,
            "the next attempt of any job, after it accepts connections",
            DATABASE_BAR_SECONDS,
        ),
        (sql.of_servers, None, "the next acknowledged call over HTTP", None),
        (sql.of_schedulers, {"offset": offset}, "the latest firing", None),
        (sql.of_labels, None, "the next job that needs the label", None),
        (sql.of_connections, None, "the next acknowledged call", None),
    ]
    found: list[RecoveryTime] = []
    for query, values, until, bar in measures:
        found += _summarize(await tx.values(query, values), until, bar)
    return sorted(found, key=lambda one: (one.kind, one.until))


def _summarize(rows: list[tuple[Any, ...]], until: str, bar: float | None) -> list[RecoveryTime]:
    times: dict[str, list[float]] = {}
    for kind, seconds in rows:
        times.setdefault(kind, []).append(seconds)
    return [RecoveryTime(kind, until, measure_spread(found), bar) for kind, found in times.items()]
