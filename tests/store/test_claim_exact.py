"""Limits are exact under churn: sixteen claimers, with enqueues, cancels and rescues beside them.

`make exact` churns for half a minute, `make test` for a moment.
"""

import asyncio
import itertools
import os
import random
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

import pytest
import structlog

from fairlead import Settings
from fairlead.actions import definitions, tenants
from fairlead.actions import jobs as actions
from fairlead.actions.catalog import Catalog
from fairlead.actions.enqueue import enqueue
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.errors import JobNotCancelable
from fairlead.model.job import Lease, NewJob
from fairlead.model.outcome import Backoff, Failed, Outcome, Released, RetryBudget, Snoozed, Succeeded, decide
from fairlead.store import jobs, queue, rescue
from tests import given
from tests.given import OTHER, TENANT, TESTER
from tests.store.test_claim_fairness import fill
from tests.store.test_claim_limits import INSIDE, SCOPES, could_run, levels, limit, take_all
from tests.waiting import SECONDS

log = structlog.get_logger(__name__)

CHURN_SECONDS = float(os.environ.get("CHURN_SECONDS", "3"))
LEASE_SECONDS = 600.0
# Those of the careless, who let half of what they claim expire.
SHORT_SECONDS = 0.3
STOCK, ENOUGH = 15, 600
# The longest that an enqueue may wait for any lock: a claim must not hold what it needs.
ENQUEUE_LOCK = "set local lock_timeout = '60s'"
AT_ONCE = RetryBudget(1000, 0, 0, Backoff(base_seconds=0))
OUTCOMES: list[Outcome] = [Succeeded(), Succeeded(), Succeeded(), Released(), Failed("E", "m"), Snoozed(0.01)]

FREE, SINGLE = "free", "single"
# 1, 3 and 10 of each kind. What is free in one way is where the limits of the others can be used to the full.
TENANTS: dict[str, int | None] = {SINGLE: 1, OTHER: 3, TENANT: 10, FREE: None}
DEFINITIONS = {"most-1": 1, "most-3": 3, "most-10": 10}
PAIRS = {"each-1": 1, "each-3": 3, "each-10": 10}
BOTH, UNLIMITED = "both", "unlimited"
HOSTS = {"h1": 1, "h3": 3, "h10": 10}
KEYS = [*DEFINITIONS, *PAIRS, BOTH, UNLIMITED]
REACHABLE = {
    *(f"tenant {slug}" for slug, most in TENANTS.items() if most),
    *(f"definition {key}" for key in DEFINITIONS),
    *(f"{key} of {FREE}" for key in PAIRS),
    *(f"host {name}" for name in HOSTS),
}


async def furnish(tx: Tx) -> list[UUID]:
    """Tenants, definitions and hosts with all their limits. The hosts."""
    for slug in (FREE, SINGLE):
        await tenants.add(tx, TESTER, slug=slug)
    for key in KEYS:
        await definitions.patch(tx, TESTER, key, {"key": key, "max_attempts": 1000})
    await limit(tx, {f"tenant {slug}": most for slug, most in TENANTS.items()})
    for kind, limits in (("definition", DEFINITIONS), ("each", PAIRS)):
        await limit(tx, {f"{kind} {key}": most for key, most in limits.items()})
    await limit(tx, {f"definition {BOTH}": 3, f"each {BOTH}": 1})
    hosts = [await given.host(tx, name, tenant=FREE, max_running=most) for name, most in HOSTS.items()]
    await stock(tx, hosts)
    return hosts


async def stock(tx: Tx, hosts: list[UUID]) -> None:
    """More jobs of every kind than its limit lets run."""
    for key in KEYS:
        for tenant in TENANTS:
            # without any limit it would take all there is: only hosts hold that back
            if (tenant, key) != (FREE, UNLIMITED):
                await fill(tx, tenant, STOCK, definition=key)
    for host in hosts:
        await fill(tx, FREE, STOCK, definition=UNLIMITED, host=host)


@dataclass
class Churn:
    """Many connections that claim and finish, forget, enqueue, cancel, rescue and look, until time is up."""

    db: Database
    hosts: list[UUID]
    ends_at: float
    chance: random.Random = field(default_factory=lambda: random.Random(7))  # noqa: S311
    held: list[Lease] = field(default_factory=list)
    forgotten: list[Lease] = field(default_factory=list)
    did: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ("claimed", "finished", "refused", "rescued", "enqueued", "canceled", "looks"), 0
        )
    )

    @property
    def going(self) -> bool:
        """Until the time is up, and on a slow machine until everything has happened."""
        return asyncio.get_running_loop().time() < self.ends_at or not all(self.did.values())

    async def work(self, host: UUID | None, *, careless: bool) -> None:
        """One claimer; what it holds when time is up it keeps."""
        cursor, held = queue.Cursor(), list[Lease]()
        lease_seconds = SHORT_SECONDS if careless else LEASE_SECONDS
        while self.going:
            claim = await self.db.single(
                partial(
                    queue.claim,
                    worker="w",
                    wanted=self.chance.choice([1, 3, 20]),
                    lease_seconds=lease_seconds,
                    cursor=cursor,
                    host=host,
                )
            )
            cursor = claim.cursor
            self.did["claimed"] += len(claim.jobs)
            for lease in [claim.lease(job) for job in claim.jobs]:
                (self.forgotten if careless and self.chance.random() < 0.5 else held).append(lease)
            self.chance.shuffle(held)
            part, held = held[: len(held) // 2 + 1], held[len(held) // 2 + 1 :]
            held = await self._end(part, held, lease_seconds)
        self.held += held

    async def _end(self, part: list[Lease], held: list[Lease], lease_seconds: float) -> list[Lease]:
        """End a part of what is held while all of it is renewed; what is still held then."""
        ends = [(lease, decide(AT_ONCE, self.chance.choice(OUTCOMES))) for lease in part]
        alive, done = await asyncio.gather(
            self.db.single(partial(queue.heartbeat, leases=part[::-1] + held, lease_seconds=lease_seconds)),
            self.db.single(partial(queue.finish, ends=ends, actor="w")),
        )
        lost = [lease for lease in held if lease not in alive]
        if lease_seconds == LEASE_SECONDS:
            assert len(done) == len(ends)
            assert lost == []
        self.did["finished"] += len(done)
        self.did["refused"] += len(ends) - len(done) + len(lost)
        return [lease for lease in held if lease in alive]

    async def ask(self) -> None:
        """Enqueue wherever little is left."""
        catalog = Catalog(Settings())
        while self.going:
            async with self.db.transaction() as tx:
                await tx.run(ENQUEUE_LOCK)
                await queue.stage_due(tx)
                short = await given.count(tx, "ready") < ENOUGH
                for tenant, key in [(tenant, key) for tenant in TENANTS for key in KEYS] if short else []:
                    await self._enqueue(tx, catalog, tenant, key)
            await asyncio.sleep(0)

    async def _enqueue(self, tx: Tx, catalog: Catalog, tenant: str, key: str) -> None:
        places: list[UUID | None] = [] if (tenant, key) == (FREE, UNLIMITED) else [None]
        for host in [*places, *(self.hosts if tenant == FREE else [])]:
            job = await enqueue(tx, TESTER, catalog, NewJob(definition=key, tenant=tenant, payload={}))
            self.did["enqueued"] += 1
            if host is not None:
                await given.bind_to_host(tx, job.id, host)

    async def cancel(self) -> None:
        while self.going:
            rows = await self.db.single(
                lambda tx: tx.values(
                    "(select job_id from fairlead.ready limit 30) union all "
                    "(select job_id from fairlead.leases limit 30)"
                )
            )
            for (job_id,) in self.chance.sample(rows, min(2, len(rows))):
                try:
                    async with self.db.transaction() as tx:
                        await actions.cancel(tx, TESTER, job_id)
                    self.did["canceled"] += 1
                except JobNotCancelable:
                    continue

    async def rescue(self) -> None:
        """A watchdog that never rests."""
        while self.going:
            await self.rescue_once()
            await asyncio.sleep(SHORT_SECONDS / 10)

    async def rescue_once(self) -> None:
        rescued = await self.db.transact(rescue.rescue)
        self.did["rescued"] += len(rescued)

    async def come_late(self) -> None:
        """Those who forgot remember when it is over: nothing of theirs may be taken once others have it."""
        while self.going:
            late, self.forgotten = self.forgotten, []
            await asyncio.sleep(2 * SHORT_SECONDS)
            ends = [(lease, decide(AT_ONCE, Succeeded())) for lease in late]
            done = await self.db.single(partial(queue.finish, ends=ends, actor="w"))
            self.did["refused"] += len(late) - len(done)

    async def look(self) -> None:
        while self.going:
            async with self.db.transaction() as tx:
                assert all(number <= most for number, most in (await levels(tx)).values())
            self.did["looks"] += 1
            await asyncio.sleep(SHORT_SECONDS / 10)

    async def run(self) -> None:
        """Everybody at once: sixteen claimers, every fourth of them careless."""
        claimers: list[UUID | None] = [None] * 10 + self.hosts * 2
        async with asyncio.TaskGroup() as group:
            for number, host in enumerate(claimers):
                group.create_task(self.work(host, careless=number % 4 == 3))
            for role in (self.ask, self.cancel, self.rescue, self.come_late):
                group.create_task(role())
                group.create_task(role())
            group.create_task(self.look())


async def test_sixteen_claimers_never_exceed_a_limit(database_url: str) -> None:
    settings = Settings(database_url=database_url, pool_size=45)
    async with Database(database_url, settings) as db:
        hosts = await db.transact(furnish)
        churn = Churn(db, hosts, asyncio.get_running_loop().time() + CHURN_SECONDS)
        async with asyncio.timeout(CHURN_SECONDS + 2 * SECONDS):
            await churn.run()

        async with db.transaction() as tx:
            await stock(tx, hosts)  # a slow machine may have run out of something
            churn.held += await take_all(tx, 20, hosts)
            assert await could_run(tx) == 0  # nothing that limits would let pass was left behind
        await settle(churn)
        async with db.transaction() as tx:
            highest = await highest_levels(tx)
            log.info("churned", seconds=CHURN_SECONDS, **churn.did)
            log.info("highest", **{scope: f"{level} of {most}" for scope, (level, most) in highest.items()})
            assert {scope: pair for scope, pair in highest.items() if pair[0] > pair[1]} == {}
            reached = {scope for scope, (level, most) in highest.items() if level == most}
            assert reached >= REACHABLE
            assert all(churn.did.values()), churn.did
            assert churn.did["refused"] <= churn.did["rescued"]
            assert await given.count(tx, "leases") == 0
            assert await jobs.list_inconsistencies(tx) == []
            assert await deadlocks(tx) == 0


async def settle(churn: Churn) -> None:
    """End what is held, and rescue what was forgotten."""
    ends = [(lease, decide(AT_ONCE, Succeeded())) for lease in churn.held]
    await churn.db.single(partial(queue.finish, ends=ends, actor="w"))
    async with asyncio.timeout(SECONDS):
        while await churn.db.single(lambda tx: given.count(tx, "leases")):
            await churn.rescue_once()


async def highest_levels(tx: Tx) -> dict[str, tuple[int, int]]:
    """The most that ever ran at once in each limited scope, from the attempts' intervals, and what is allowed."""
    rows = await tx.values(
        f"""
        with run as materialized (
            select j.tenant_id, j.definition_id, j.host_id, a.started_at, a.finished_at
            from fairlead.attempts a join fairlead.jobs j on j.id = a.job_id
        ), level as (
            select s.scope, s.most, sum(step) over (
                partition by s.scope order by at, step rows unbounded preceding) as running
            from ({SCOPES}) s join run x on {INSIDE},
                lateral (values (x.started_at, 1), (x.finished_at, -1)) as e(at, step)
        )
        select scope, max(running)::int, most from level group by scope, most order by scope
        """
    )
    return {scope: (level, most) for scope, level, most in rows}


async def deadlocks(tx: Tx) -> int:
    [(number,)] = await tx.values("select deadlocks from pg_stat_database where datname = current_database()")
    return int(number)


# A limit that changes: below 64 one claim at a time, above it slots, and slots of another worth.
CHANGING = (200, 40, 128, 80)
CHANGE_SECONDS = 0.05


@dataclass
class Changing:
    """Claimers that fill one tenant's limit while it changes, and what it was during each claim."""

    db: Database
    ends_at: float
    limits: list[int] = field(default_factory=lambda: [CHANGING[0]])
    allowed: dict[UUID, int] = field(default_factory=dict)
    claimed_under: set[int] = field(default_factory=set)
    held: list[Lease] = field(default_factory=list)
    chance: random.Random = field(default_factory=lambda: random.Random(7))  # noqa: S311

    @property
    def going(self) -> bool:
        """Until the time is up, and on a slow machine until jobs were claimed under two limits."""
        return asyncio.get_running_loop().time() < self.ends_at or len(self.claimed_under) < 2

    async def change(self) -> None:
        """Each limit is on the list before it is in force, and so is the last one still."""
        for most in itertools.cycle(CHANGING):
            if not self.going:
                return
            self.limits.append(most)
            await self.db.transact(partial(limit, limits={f"tenant {TENANT}": most}))
            self.limits.append(most)
            await asyncio.sleep(CHANGE_SECONDS)

    async def work(self) -> None:
        """Claim until nothing comes, then end most of it."""
        held = list[Lease]()
        while self.going:
            first = max(0, len(self.limits) - 2)
            claim = await self.db.single(
                partial(
                    queue.claim,
                    worker="w",
                    wanted=self.chance.choice([1, 3, 20]),
                    lease_seconds=LEASE_SECONDS,
                )
            )
            self.allowed[claim.token] = max(self.limits[first:])
            held += [claim.lease(job) for job in claim.jobs]
            if claim.jobs:
                self.claimed_under.add(self.allowed[claim.token])
            if not claim.jobs and held:
                number = self.chance.randint(1, len(held))
                await self._end(held[:number])
                held = held[number:]
        self.held += held

    async def _end(self, leases: list[Lease]) -> None:
        ends = [(lease, decide(AT_ONCE, Succeeded())) for lease in leases]
        assert len(await self.db.single(partial(queue.finish, ends=ends, actor="w"))) == len(ends)


@pytest.mark.thorough
async def test_a_large_limit_that_changes_is_never_exceeded(database_url: str) -> None:
    async with Database(database_url, Settings(pool_size=14)) as db:
        async with db.transaction() as tx:
            await fill(tx, TENANT, 20_000)
            await limit(tx, {f"tenant {TENANT}": CHANGING[0]})
        changing = Changing(db, asyncio.get_running_loop().time() + CHURN_SECONDS)
        await asyncio.gather(changing.change(), *(changing.work() for _ in range(12)))
        async with db.transaction() as tx:
            levels_then = await levels_by_claim(tx)
            assert {
                n: (n, most) for claim, n in levels_then.items() if n > (most := changing.allowed[claim])
            } == {}
            assert len({changing.allowed[claim] for claim in levels_then}) > 1
            await limit(tx, {f"tenant {TENANT}": max(CHANGING)})
            await fill(tx, TENANT, max(CHANGING))  # a fast machine has taken all that there were
            await take_all(tx, 20)
            assert (await levels(tx))[f"tenant {TENANT}"] == (max(CHANGING), max(CHANGING))
            assert await deadlocks(tx) == 0


async def levels_by_claim(tx: Tx) -> dict[UUID, int]:
    """How many ran when a claim's jobs began, these included."""
    rows = await tx.values(
        """
        select token, max(running)::int from (
            select token, step, sum(step) over (order by at, step rows unbounded preceding) as running
            from fairlead.attempts a,
                lateral (values (a.started_at, 1), (coalesce(a.finished_at, 'infinity'), -1)) as e(at, step)
        ) e where step = 1 group by token
        """
    )
    return dict(rows)
