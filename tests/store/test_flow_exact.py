"""Rates and limits by key are exact under churn while they change: sixteen claimers, enqueues, cancels and lost leases.

`make exact` churns for half a minute and checks that the limits are used; `make test` churns for a moment.
"""

import asyncio
import itertools
import json
import os
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import structlog

from fairlead import Settings
from fairlead.actions import definitions, tenants
from fairlead.actions import jobs as actions
from fairlead.actions.catalog import Catalog
from fairlead.actions.enqueue import enqueue_many
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.errors import JobNotCancelable
from fairlead.model.job import Lease, NewJob
from fairlead.model.outcome import Backoff, Failed, Outcome, Released, RetryBudget, Snoozed, Succeeded, decide
from fairlead.store import jobs, queue, rescue
from tests.given import OTHER, TENANT, TESTER
from tests.waiting import SECONDS

log = structlog.get_logger(__name__)

CHURN_SECONDS = float(os.environ.get("CHURN_SECONDS", "1.5"))
IS_LONG = CHURN_SECONDS >= 20
CLAIMERS = 16
LEASE_SECONDS = 600.0
# Those of the careless, who forget a part of what they claim.
SHORT_SECONDS = 1.0
AT_ONCE = RetryBudget(1000, 0, 0, Backoff(base_seconds=0))
OUTCOMES: list[Outcome] = [Succeeded(), Succeeded(), Succeeded(), Released(), Failed("E", "m"), Snoozed(0.01)]
CHANGE_SECONDS = CHURN_SECONDS / 6
KEYS = 4
# How long an attempt of a key runs: long beside the time from the end of one to the start of the next.
RUN_SECONDS = CHURN_SECONDS / 30
ENOUGH = 60
LIMITED = "limited"


def rate(limit: int, per_seconds: int, burst: int) -> dict[str, int]:
    return {"limit": limit, "per_seconds": per_seconds, "burst": burst}


class Scope(NamedTuple):
    """Where a limit is, and the values that it takes in turn."""

    column: str
    values: Sequence[Any]


RATES = {
    "one": Scope("rate", [rate(1, 1, 2), rate(2, 1, 3)]),
    "ten": Scope("rate", [rate(10, 1, 5), rate(4, 1, 5), rate(10, 1, 2)]),
    "each": Scope("rate_per_tenant", [rate(1000, 60, 20), rate(500, 60, 20)]),
    LIMITED: Scope("tenant", [rate(10, 1, 3), rate(20, 1, 10)]),
}
BY_KEY = {
    "single": Scope("by_key", [1]),
    "three": Scope("by_key", [3, 1, 2]),
    "paced": Scope("key_rate", [rate(2, 1, 2), rate(4, 1, 2)]),
}


class Segment(NamedTuple):
    """A value of a limit, and when it could be in force, by the database's clock."""

    value: Any
    begins: float
    ends: float


async def read_clock(tx: Tx) -> float:
    [(now,)] = await tx.values("select extract(epoch from clock_timestamp())::float8")
    return float(now)


async def set_limit(tx: Tx, name: str, column: str, value: Any) -> None:
    if column == "tenant":
        await tenants.change(tx, TESTER, name, {"rate": value})
        return
    by_key = {"pointer": "/customer", **({"rate": value} if column == "key_rate" else {"max_running": value})}
    changes = {"by_key": by_key} if "key" in column else {column: value}
    await definitions.patch(tx, TESTER, name, {"key": name, "max_attempts": 1000, **changes})


async def furnish(tx: Tx) -> None:
    await tenants.add(tx, TESTER, slug=LIMITED)
    await definitions.patch(tx, TESTER, "plain", {"key": "plain", "max_attempts": 1000})
    for name, scope in (RATES | BY_KEY).items():
        await set_limit(tx, name, scope.column, scope.values[0])


def list_places() -> list[tuple[str, str, Any]]:
    """Definition, tenant and payload of every kind of job."""
    of_rates = [("one", TENANT), ("one", OTHER), ("ten", TENANT), ("each", TENANT), ("each", OTHER)]
    found: list[tuple[str, str, Any]] = [(key, tenant, {}) for key, tenant in of_rates]
    found.append(("plain", LIMITED, {}))
    return found + [(key, TENANT, {"customer": customer}) for key in BY_KEY for customer in range(KEYS)]


@dataclass
class Churn:
    """Many connections that claim and finish, forget, enqueue, cancel, rescue, and change the limits."""

    db: Database
    ends_at: float
    chance: random.Random = field(default_factory=lambda: random.Random(11))  # noqa: S311
    forgotten: list[Lease] = field(default_factory=list)
    history: dict[str, list[Segment]] = field(default_factory=lambda: defaultdict(list))
    # claims on their way: a limit that changes meanwhile may still be in force for them
    flying: set[asyncio.Future[Any]] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    did: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ("claimed", "finished", "rescued", "enqueued", "canceled", "changes"), 0
        )
    )

    @property
    def going(self) -> bool:
        """Until the time is up, and on a slow machine until everything has happened."""
        return asyncio.get_running_loop().time() < self.ends_at or not all(self.did.values())

    async def claim(self, cursor: queue.Cursor, *, lease_seconds: float) -> queue.Claim:
        ask = partial(
            queue.claim,
            worker="w",
            wanted=self.chance.choice([1, 3, 20]),
            lease_seconds=lease_seconds,
            cursor=cursor,
        )
        asking = asyncio.ensure_future(self.db.single(ask))
        self.flying.add(asking)
        asking.add_done_callback(self.flying.discard)
        return await asking

    async def work(self, *, careless: bool) -> None:
        """One claimer."""
        loop = asyncio.get_running_loop()
        cursor, held = queue.Cursor(), list[tuple[float, Lease]]()
        while self.going:
            claim = await self.claim(cursor, lease_seconds=SHORT_SECONDS if careless else LEASE_SECONDS)
            cursor = claim.cursor
            self.did["claimed"] += len(claim.jobs)
            for job in claim.jobs:
                lease = claim.lease(job)
                if careless and self.chance.random() < 0.2:
                    self.forgotten.append(lease)
                else:
                    runs = (
                        RUN_SECONDS * self.chance.uniform(0.5, 1.5) if job.definition_key in BY_KEY else 0.0
                    )
                    held.append((loop.time() + runs, lease))
            due = [lease for at, lease in held if at <= loop.time()]
            held = [one for one in held if one[1] not in due]
            if due:
                await self.end(due)
            elif not claim.jobs and not claim.again:
                ends = min((at for at, _ in held), default=self.ends_at)
                opens_in = 1.0 if claim.opens_in is None else claim.opens_in
                await self.rest(0.002 if claim.busy else min(opens_in, ends - loop.time(), 0.5))
        await self.end([lease for _, lease in held])

    async def rest(self, seconds: float) -> None:
        """Wait until jobs may have become ready, as for the notifications that workers get."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self.changed.wait()
        except TimeoutError:
            return

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    async def end(self, leases: list[Lease]) -> None:
        ends = [(lease, decide(AT_ONCE, self.chance.choice(OUTCOMES))) for lease in leases]
        if ends:
            self.did["finished"] += len(await self.db.single(partial(queue.finish, ends=ends, actor="w")))
            self.wake()

    async def enqueue(self) -> None:
        """Enqueue wherever little is left."""
        catalog = Catalog(Settings())
        while self.going:
            await self.fill(catalog)
            await asyncio.sleep(0.2)

    async def fill(self, catalog: Catalog) -> None:
        async with self.db.transaction() as tx:
            waiting = await tx.values("""
                select d.key, t.slug, j.payload::text, count(*) from (
                    select job_id from fairlead.ready union all select job_id from fairlead.later) w
                join fairlead.job_records j on j.id = w.job_id join fairlead.tenants t on t.id = j.tenant_id
                join fairlead.job_definitions d on d.id = j.definition_id group by 1, 2, 3""")
            number = {(key, slug, payload): count for key, slug, payload, count in waiting}
            new = [
                NewJob(definition=key, tenant=tenant, payload=payload)
                for key, tenant, payload in list_places()
                for _ in range(ENOUGH - number.get((key, tenant, json.dumps(payload)), 0))
            ]
            if new:
                await enqueue_many(tx, TESTER, catalog, new)
        self.did["enqueued"] += len(new)
        self.wake()

    async def stage(self) -> None:
        while self.going:
            if await self.db.single(queue.stage_due):
                self.wake()
            until: float | None = await self.db.single(queue.seconds_until_due)
            await self.rest(0.05 if until is None else min(0.05, until))

    async def cancel(self) -> None:
        while self.going:
            rows = await self.db.single(
                lambda tx: tx.values(
                    "(select job_id from fairlead.ready limit 30) union all (select job_id from fairlead.later "
                    "where held limit 30) union all (select job_id from fairlead.leases limit 30)"
                )
            )
            for (job_id,) in self.chance.sample(rows, min(2, len(rows))):
                try:
                    async with self.db.transaction() as tx:
                        await actions.cancel(tx, TESTER, job_id)
                    self.did["canceled"] += 1
                except JobNotCancelable:
                    continue
            await asyncio.sleep(0.1)

    async def rescue(self) -> None:
        while self.going:
            self.did["rescued"] += len(await self.db.transact(rescue.rescue))
            self.wake()
            await asyncio.sleep(SHORT_SECONDS / 10)

    async def change(self) -> None:
        """Change one limit after the other. The old value may be in force until the last claim that read it has ended."""
        values = {name: itertools.cycle(scope.values) for name, scope in (RATES | BY_KEY).items()}
        now = await self.db.single(read_clock)
        current = {name: (next(turn), now) for name, turn in values.items()}
        for name, scope in itertools.cycle((RATES | BY_KEY).items()):
            await asyncio.sleep(CHANGE_SECONDS / len(values))
            if not self.going:
                break
            old, new = current[name], next(values[name])
            begins = await self.db.single(read_clock)
            await self.db.transact(partial(set_limit, name=name, column=scope.column, value=new))
            if flying := list(self.flying):
                await asyncio.wait(flying)
            self.history[name].append(Segment(*old, await self.db.single(read_clock)))
            current[name] = (new, begins)
            self.did["changes"] += 1
            self.wake()
        for name, last in current.items():
            self.history[name].append(Segment(*last, float("inf")))

    async def run(self) -> None:
        """Everybody at once, every fourth claimer careless."""
        await self.fill(Catalog(Settings()))
        async with asyncio.TaskGroup() as group:
            for number in range(CLAIMERS):
                group.create_task(self.work(careless=number % 4 == 3))
            for role in (self.enqueue, self.stage, self.cancel, self.rescue, self.change):
                group.create_task(role())


class Attempt(NamedTuple):
    """An attempt of the churn, with times of the database's clock."""

    definition: str
    tenant: str
    customer: str | None
    begins: float
    ends: float


async def list_attempts(tx: Tx) -> list[Attempt]:
    rows = await tx.values("""
        select d.key, t.slug, j.payload ->> 'customer', extract(epoch from a.started_at)::float8,
            coalesce(extract(epoch from a.finished_at)::float8, 'infinity')
        from fairlead.attempts a join fairlead.jobs j on j.id = a.job_id
        join fairlead.tenants t on t.id = j.tenant_id join fairlead.job_definitions d on d.id = j.definition_id
        order by a.started_at""")
    return [Attempt(*row) for row in rows]


def find_excess(
    starts: Sequence[float], history: Sequence[Segment]
) -> tuple[float, float, int, float] | None:
    """The first window with more starts than the largest rate and burst in it allow: begin, end, starts, allowed."""
    for first, begins in enumerate(starts):
        burst, per_second = 0.0, 0.0
        old = [one for one in history if one.ends >= begins]
        for number, ends in enumerate(starts[first:], start=1):
            while old and old[0].begins <= ends:
                value = old.pop(0).value
                burst = max(burst, value["burst"])
                per_second = max(per_second, value["limit"] / value["per_seconds"])
            allowed = burst + per_second * (ends - begins)
            if number > allowed + 1e-4:
                return begins, ends, number, allowed
    return None


def find_crowd(attempts: Sequence[Attempt], history: Sequence[Segment]) -> tuple[float, int, int] | None:
    """The first start beside more running attempts than the limit of its time allows: when, running, allowed."""
    events = sorted((at, step) for one in attempts for at, step in ((one.begins, 1), (one.ends, -1)))
    running = 0
    for at, step in events:
        running += step
        most = max(one.value for one in history if one.begins <= at <= one.ends)
        if step > 0 and running > most:
            return at, running, most
    return None


def measure_rate_use(starts: Sequence[float], history: Sequence[Segment], until: float) -> float:
    """The starts, as a part of what the rates allow from the first start on."""
    begins = starts[0]
    allowed: float = sum(
        one.value["limit"]
        / one.value["per_seconds"]
        * max(0.0, min(one.ends, until) - max(one.begins, begins))
        for one in history
    )
    return sum(at < until for at in starts) / allowed


def measure_key_use(attempts: Sequence[Attempt], history: Sequence[Segment], until: float) -> float:
    """The time that attempts ran, as a part of what the limit allows from the first start on."""
    begins = min(one.begins for one in attempts)
    ran = sum(max(0.0, min(one.ends, until) - one.begins) for one in attempts)
    allowed: float = sum(
        one.value * max(0.0, min(one.ends, until) - max(one.begins, begins)) for one in history
    )
    return ran / allowed


async def test_rates_and_keys_that_change_are_never_exceeded(database_url: str) -> None:
    settings = Settings(database_url=database_url, pool_size=24)
    async with Database(database_url, settings) as db:
        await db.transact(furnish)
        churn = Churn(db, asyncio.get_running_loop().time() + CHURN_SECONDS)
        async with asyncio.timeout(CHURN_SECONDS + 2 * SECONDS):
            ending = asyncio.create_task(churn.run())
            await asyncio.sleep(CHURN_SECONDS)
            until = await db.single(read_clock)
            await ending
        async with db.transaction() as tx:
            attempts = await list_attempts(tx)
            assert await jobs.list_inconsistencies(tx) == []
            [(deadlocks,)] = await tx.values(
                "select deadlocks from pg_stat_database where datname = current_database()"
            )
    log.info("churned", seconds=CHURN_SECONDS, attempts=len(attempts), **churn.did)
    assert deadlocks == 0
    of_rates, of_keys = group_starts(attempts), group_keys(attempts)
    for name, scope, starts in of_rates:
        assert find_excess(starts, churn.history[scope]) is None, name
    for name, scope, some in of_keys:
        assert find_crowd(some, churn.history[scope]) is None, name
    if IS_LONG:
        use = {
            name: measure_rate_use(starts, churn.history[scope], until) for name, scope, starts in of_rates
        }
        use |= {name: measure_key_use(some, churn.history[scope], until) for name, scope, some in of_keys}
        log.info("use", **{name: round(part, 3) for name, part in use.items()})
        assert {name: part for name, part in use.items() if part < 0.95} == {}


def group_starts(attempts: Sequence[Attempt]) -> list[tuple[str, str, list[float]]]:
    """The starts of each bucket, with its name and that of its limit."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one in attempts:
        if one.definition in ("one", "ten"):
            found[one.definition, one.definition].append(one.begins)
        elif one.definition == "each":
            found[f"each of {one.tenant}", "each"].append(one.begins)
        elif one.tenant == LIMITED:
            found[LIMITED, LIMITED].append(one.begins)
        elif one.definition == "paced":
            found[f"paced {one.customer}", "paced"].append(one.begins)
    return [(*names, starts) for names, starts in found.items()]


def group_keys(attempts: Sequence[Attempt]) -> list[tuple[str, str, list[Attempt]]]:
    """The attempts of each key with a bound, with its name and that of its limit."""
    found: dict[tuple[str, str], list[Attempt]] = defaultdict(list)
    for one in attempts:
        if one.definition in ("single", "three"):
            found[f"{one.definition} {one.customer}", one.definition].append(one)
    return [(*names, some) for names, some in found.items()]


def test_a_window_with_more_starts_than_its_rates_allow_is_found() -> None:
    steady = [Segment(rate(10, 1, 2), 0.0, float("inf"))]
    assert find_excess([1.0, 1.0, 1.1, 1.2], steady) is None
    assert find_excess([1.0, 1.0, 1.0625], steady) == (1.0, 1.0625, 3, 2.625)
    lowered = [Segment(rate(10, 1, 2), 0.0, 2.0), Segment(rate(1, 1, 1), 1.9, float("inf"))]
    assert find_excess([1.0, 1.0, 1.1, 2.0, 3.0], lowered) is None
    assert find_excess([2.1, 2.6], lowered) is not None


def test_a_start_beside_more_than_its_key_allows_is_found() -> None:
    history = [Segment(2, 0.0, 5.0), Segment(1, 4.9, float("inf"))]
    fine = [
        Attempt("three", TENANT, "1", *times) for times in ((1.0, 2.0), (1.5, 6.0), (2.0, 7.0), (7.0, 8.0))
    ]
    assert find_crowd(fine, history) is None
    assert find_crowd([*fine, Attempt("three", TENANT, "1", 6.5, 6.6)], history) == (6.5, 2, 1)
