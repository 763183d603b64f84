"""The queue's statements cost the same however much lies beside what they are about.

Counted is what a statement reads: rows, index entries and pages. A plan that walks a backlog reads thousands.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple
from uuid import UUID, uuid4

import psycopg
import pytest

from fairlead import Settings
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.model.job import Lease
from fairlead.model.outcome import Backoff, RetryBudget, Succeeded, decide
from fairlead.runtime.store_source import PLANNER
from fairlead.store import queue
from tests import given
from tests.given import OTHER, TENANT
from tests.store.test_claim_fairness import fill
from tests.thorough import mostly_thorough

SMALL, LARGE = 100, 5000
TAKEABLE = 40
DONE = decide(RetryBudget(3, 0, 0, Backoff()), Succeeded())
Work = Callable[[Tx], Awaitable[object]]


class Cost(NamedTuple):
    """Rows and index entries read, and pages looked into."""

    read: int
    pages: int


async def so_far(tx: Tx) -> Cost:
    """What this transaction has read of Fairlead's tables and their indexes."""
    [(read, pages)] = await tx.values(
        """
        select sum(pg_stat_get_xact_tuples_returned(oid) + pg_stat_get_xact_tuples_fetched(oid))::int,
            sum(pg_stat_get_xact_blocks_fetched(oid))::int
        from pg_class where relnamespace = 'fairlead'::regnamespace and relkind in ('r', 'i')
        """
    )
    return Cost(read, pages)


async def cost(db: Database, work: Work, *before: str) -> Cost:
    """What `work` reads. It leaves nothing behind."""
    async with db.transaction() as tx, tx.connection.transaction(force_rollback=True):
        for statement in before:
            await tx.run(statement)
        begun = await so_far(tx)
        await work(tx)
        ended = await so_far(tx)
    return Cost(ended.read - begun.read, ended.pages - begun.pages)


def is_flat(small: Cost, large: Cost, jobs: int) -> bool:
    """Fifty times as much beside it: a few entries more, and for each job a page more in the deeper trees."""
    return large.read <= small.read + 10 + jobs and large.pages <= small.pages + 20 + 10 * jobs


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Database]:
    """A worker's database, with one connection: what it has planned once, it keeps."""
    async with Database(str(settings.database_url), replace(settings, pool_size=1), session=PLANNER) as db:
        yield db


async def tidy(settings: Settings, *, analyze: bool = False) -> None:
    """Clear away what was rolled back; of Fairlead's tables only, for the system's own take three times as long."""
    async with await psycopg.AsyncConnection.connect(
        str(settings.database_url), autocommit=True
    ) as connection:
        cursor = await connection.execute(
            "select string_agg(oid::regclass::text, ', ') from pg_class "
            "where relnamespace = 'fairlead'::regnamespace and relkind = 'r'"
        )
        [(every,)] = await cursor.fetchall()
        statement = (
            f"vacuum analyze {every}" if analyze else "vacuum fairlead.leases, fairlead.jobs, fairlead.ready"
        )
        await connection.execute(statement.encode())


async def costs(settings: Settings, works: list[tuple[Work, int]], grow: Work) -> None:
    """Each piece of work costs the same before and after growing: with the old plans, and with new ones."""
    async with opened(settings) as db:
        small = []
        for work, _ in works:
            small.append(await cost(db, work))
            await tidy(settings)
        await db.transact(grow)
        for (work, jobs), before in zip(works, small, strict=True):
            assert is_flat(before, after := await cost(db, work), jobs), (before, after, jobs, "old plans")
            await tidy(settings)
    await tidy(settings, analyze=True)
    async with opened(settings) as db:
        for (work, jobs), before in zip(works, small, strict=True):
            assert is_flat(before, after := await cost(db, work), jobs), (before, after, jobs, "new plans")
            await tidy(settings)


# Claiming


@dataclass(frozen=True)
class Backlog:
    """Jobs that a claim may not take, and how they come to be such."""

    tenant: str
    definition: str = "anything"
    place: str = "ready"
    held_by: str = ""
    running: bool = False
    served: tuple[str, ...] = ("greet", "anything")
    on_a_host: bool = False

    async def begin(self, tx: Tx) -> None:
        await fill(tx, TENANT, TAKEABLE)
        if self.running:
            await given.running_job(tx, tenant=self.tenant, definition=self.definition, payload={})
        if self.held_by:
            await tx.run(f"update fairlead.{self.held_by.format(tenant=self.tenant)}")

    async def grow(self, tx: Tx, number: int) -> None:
        host = await self._host(tx) if self.on_a_host else None
        await fill(tx, self.tenant, number, definition=self.definition, place=self.place, host=host)

    async def _host(self, tx: Tx) -> UUID:
        [(host,)] = await tx.values(
            "insert into fairlead.hosts (tenant_id, name, max_running) select id, 'h1', 3 from fairlead.tenants "
            "where slug = %s on conflict (tenant_id, name) do update set max_running = 3 returning id",
            [self.tenant],
        )
        return UUID(str(host))


ANYTHING = "job_definitions set {} where key = 'anything'"
WHOLE = "tenants set {} where slug = '{{tenant}}'"
BACKLOGS = {
    f"{name}, {whose}": replace(backlog, tenant=tenant)
    for name, backlog in {
        "unserved": Backlog("", served=("greet",)),
        "of a paused definition": Backlog("", held_by=ANYTHING.format("paused_at = now()")),
        "of a full definition": Backlog("", held_by=ANYTHING.format("max_running = 1"), running=True),
        "of a full pair": Backlog("", held_by=ANYTHING.format("max_running_per_tenant = 1"), running=True),
        "bound to a host": Backlog("", "greet", on_a_host=True),
        "scheduled later": Backlog("", "greet", "later"),
        "finished": Backlog("", "greet", "ended"),
        # of these the tenant whose jobs are taken cannot be
        "of a paused tenant": Backlog(OTHER, held_by=WHOLE.format("paused_at = now()")),
        "of a full tenant": Backlog(OTHER, held_by=WHOLE.format("max_running = 1"), running=True),
    }.items()
    for whose, tenant in {"same tenant": TENANT, "another tenant": OTHER}.items()
    if backlog.tenant in ("", tenant)
}


def claiming(wanted: int, served: list[UUID]) -> tuple[Work, int]:
    taken = min(wanted, TAKEABLE)

    async def work(tx: Tx) -> None:
        claim = await queue.claim(tx, worker="w", wanted=wanted, lease_seconds=30, served=served)
        assert len(claim.jobs) == taken

    return work, taken


async def served_by(tx: Tx, keys: tuple[str, ...]) -> list[UUID]:
    rows = await tx.values("select id from fairlead.job_definitions where key = any(%s)", [list(keys)])
    return [UUID(str(found)) for (found,) in rows]


@pytest.mark.parametrize("name", BACKLOGS)
async def test_a_claim_costs_the_same_beside_jobs_that_are(
    name: str, db: Database, settings: Settings
) -> None:
    backlog = BACKLOGS[name]
    async with db.transaction() as tx:
        await backlog.begin(tx)
        await backlog.grow(tx, SMALL)
        served = await served_by(tx, backlog.served)
    # one; a batch; and more than there is, which goes all the way round
    works = [claiming(wanted, served) for wanted in (1, 20, 100)]
    await costs(settings, works, lambda tx: backlog.grow(tx, LARGE - SMALL))


# Many tenants

FEW, MANY = 10, 3000
HOPELESS = {
    "unserved": None,
    "of paused tenants": "tenants set paused_at = now() where slug like 'many-%'",
    "of a paused definition": ANYTHING.format("paused_at = now()"),
    "of a full definition": ANYTHING.format("max_running = 1"),
}


async def add_pairs(tx: Tx, first: int, last: int) -> None:
    """As many tenants with a ready job each."""
    await tx.run(
        "insert into fairlead.tenants (slug, name) select 'many-' || n, 'm' from generate_series(%s::int, %s) n",
        [first, last],
    )
    await add_jobs(tx, first, last)


async def add_jobs(tx: Tx, first: int, last: int) -> None:
    """A ready job for each of these tenants."""
    await tx.run(
        """
        with new as (
            insert into fairlead.job_records (id, tenant_id, definition_id, priority, max_attempts, scheduled_for, payload)
            select fairlead.uuid7(), t.id, d.id, 100, 3, now(), '{}' from fairlead.tenants t, fairlead.job_definitions d
            where t.slug in (select 'many-' || n from generate_series(%s::int, %s) n) and d.key = 'anything'
            returning id, tenant_id, definition_id, priority, scheduled_for
        ), counted as (
            insert into fairlead.counts (tenant_id, definition_id, minute, queued)
            select tenant_id, definition_id, date_trunc('minute', now()), 1 from new
        )
        insert into fairlead.ready (job_id, tenant_id, definition_id, priority, scheduled_for) select * from new
        """,
        [first, last],
    )


@pytest.mark.postgres_only("the counters are those of its tables, not of their shards")
@pytest.mark.parametrize("name", HOPELESS)
@pytest.mark.parametrize("waiting", mostly_thorough([5, 0]))
async def test_a_claim_costs_the_same_beside_many_pairs_that_are(
    name: str, waiting: int, db: Database, settings: Settings
) -> None:
    """The first worker finds all that waits, and so does one whose turn begins anywhere."""
    async with db.transaction() as tx:
        await fill(tx, TENANT, waiting)
        await given.running_job(tx, definition="anything", payload={})
        served = await served_by(tx, ("greet",) if name == "unserved" else ("greet", "anything"))

    async def grow(tx: Tx, first: int, last: int) -> None:
        await add_pairs(tx, first, last)
        if (change := HOPELESS[name]) is not None:
            await tx.run(f"update fairlead.{change}")

    async def claim(tx: Tx) -> None:
        claim = await queue.claim(
            tx, worker="w", wanted=100, lease_seconds=30, served=served, cursor=queue.Cursor(uuid4())
        )
        assert len(claim.jobs) == waiting

    await db.transact(lambda tx: grow(tx, 1, FEW))
    async with opened(settings) as worker:
        few = await cost(worker, claim)
    await db.transact(lambda tx: grow(tx, FEW + 1, MANY))
    await tidy(settings, analyze=True)
    async with opened(settings) as worker:
        many = await cost(worker, claim)
    assert many.read < 3 * few.read
    assert many.pages < 3 * few.pages + 20


@pytest.mark.parametrize("waiting", mostly_thorough([5, 0]))
async def test_a_claim_counts_the_leases_of_many_full_tenants_together(
    waiting: int, db: Database, settings: Settings
) -> None:
    """Each by itself, they took several pages and a tenth of a millisecond."""
    async with db.transaction() as tx:
        await fill(tx, TENANT, waiting)
        await add_pairs(tx, 1, MANY)
        await tx.run("update fairlead.tenants set max_running = 1 where slug like 'many-%'")
        await queue.claim(
            tx, worker="w", wanted=MANY, lease_seconds=3600, served=await served_by(tx, ("anything",))
        )
        await add_jobs(tx, 1, MANY)
        served = await served_by(tx, ("greet", "anything"))
    await tidy(settings, analyze=True)

    async def claim(tx: Tx) -> list[str]:
        cursor = queue.Cursor(uuid4())
        claim = await queue.claim(tx, worker="w", wanted=100, lease_seconds=30, served=served, cursor=cursor)
        assert claim.crowded or claim.jobs
        return [job.definition_key for job in claim.jobs]

    async def claim_all(tx: Tx) -> None:
        assert await claim(tx) == ["greet"] * waiting

    async with opened(settings) as worker:
        found = await cost(worker, claim_all)
        assert found.pages < MANY / 2
        await worker.transact(claim_all)
        async with worker.transaction() as tx:  # one of them has room again
            await tx.run(
                "delete from fairlead.leases where job_id in (select l.job_id from fairlead.leases l "
                "join fairlead.job_definitions d on d.id = l.definition_id where d.key = 'anything' limit 1)"
            )
            assert await claim(tx) == ["anything"]
            await given.roll_back(tx)


# Heartbeats and ends


async def running(tx: Tx, number: int) -> list[Lease]:
    """So many jobs with dedupe keys that run."""
    await fill(tx, TENANT, number)
    await tx.run("update fairlead.job_records set dedupe_key = id::text where dedupe_key is null")
    await tx.run(
        """
        insert into fairlead.active_keys (tenant_id, key_hash, job_id)
        select j.tenant_id, sha256(convert_to(j.dedupe_key, 'UTF8')), j.id
        from fairlead.jobs j join fairlead.ready r on r.job_id = j.id
        """
    )
    claim = await queue.claim(tx, worker="w", wanted=number, lease_seconds=3600)
    assert len(claim.jobs) == number
    return [claim.lease(job) for job in claim.jobs]


async def by_key(db: Database) -> list[tuple[Work, int]]:
    """All that a worker does with twenty leases of its own, and again with those that are gone."""
    async with db.transaction() as tx:
        held, gone = await running(tx, 20), await running(tx, 20)
        await finish(tx, gone)
        await running(tx, SMALL - 20)
    return [
        (lambda tx: all_of(held, queue.heartbeat(tx, held, lease_seconds=30)), 20),
        (lambda tx: all_of(held, queue.store_progress(tx, [(lease, 50.0, "half") for lease in held])), 20),
        (lambda tx: finish(tx, held), 20),
        (lambda tx: finish(tx, gone), 20),
    ]


async def all_of(leases: list[Lease], answer: Awaitable[Collection[object]]) -> None:
    assert len(await answer) == len(leases)


async def finish(tx: Tx, leases: list[Lease]) -> None:
    await all_of(leases, queue.finish(tx, [(lease, DONE) for lease in leases], actor="w"))


async def test_heartbeat_progress_and_finish_read_by_key(db: Database, settings: Settings) -> None:
    works = await by_key(db)
    await costs(settings, works, lambda tx: running(tx, LARGE - SMALL))


# The guard itself


@pytest.mark.postgres_only("the counters are those of its tables, not of their shards")
async def test_a_claim_with_a_wrong_plan_is_noticed(db: Database, settings: Settings) -> None:
    async with db.transaction() as tx:
        await fill(tx, TENANT, TAKEABLE)
        await fill(tx, OTHER, LARGE, definition="anything")
        served = await served_by(tx, ("greet",))
    work, jobs = claiming(1, served)
    async with opened(settings) as worker:
        right, wrong = (
            await cost(worker, work),
            await cost(worker, work, "drop index fairlead.ready_by_tenant"),
        )
    assert not is_flat(right, wrong, jobs)


@pytest.mark.postgres_only("the counters are those of its tables, not of their shards")
async def test_wrong_plans_by_key_are_noticed(db: Database, settings: Settings) -> None:
    works = await by_key(db)
    await db.transact(lambda tx: running(tx, LARGE - SMALL))
    kinds = ("indexscan", "indexonlyscan", "bitmapscan")
    scans = ["set local enable_seqscan = on", *(f"set local enable_{kind} = off" for kind in kinds)]
    scans += ["set local plan_cache_mode = force_custom_plan"]  # or the plan of the first run stays
    for work, jobs in works:
        async with opened(settings) as worker:
            right, wrong = await cost(worker, work), await cost(worker, work, *scans)
        assert not is_flat(right, wrong, jobs)
