"""Fairlead through a real PgBouncer, in transaction mode unless a test says otherwise."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from functools import partial

import psycopg
import pytest

from fairlead import Context, Fairlead, Settings, testing
from fairlead.actions import doctor, jobs
from fairlead.db.database import Database
from fairlead.db.listen import POLL, Listener, check_round_trip
from fairlead.db.pooler import changes_connections
from fairlead.errors import DatabaseRefused, DatabaseUnreachable
from fairlead.library.client import EnqueuedJob
from fairlead.model.finding import Finding, Verdict
from fairlead.model.job import JobStatus
from tests import drivers, given
from tests.given import TENANT, TESTER
from tests.pgbouncer import find_pgbouncer, pgbouncer
from tests.waiting import SECONDS

pytestmark = pytest.mark.skipif(find_pgbouncer() is None, reason="needs PgBouncer: make tools")

ADA = {"name": "Ada"}


@pytest.fixture
def pooled_url(database_url: str) -> Iterator[str]:
    with pgbouncer(database_url) as url:
        yield url


@pytest.fixture
def narrow_url(database_url: str) -> Iterator[str]:
    """A pooler with a single server connection, so that all clients share whatever one leaves on it."""
    with pgbouncer(database_url, pool_size=1) as url:
        yield url


@pytest.fixture
def settings(database_url: str, pooled_url: str) -> Settings:
    """Work through the pooler, listen straight: what `fl` is made of in this file."""
    return Settings(database_url=pooled_url, direct_url=database_url)


async def test_the_pooler_is_really_in_between_and_in_transaction_mode(
    pooled_url: str, database_url: str
) -> None:
    with psycopg.connect(pooled_url, dbname="pgbouncer", autocommit=True) as console:
        shown = {str(row[0]): row[1] for row in console.execute("show config")}
        assert shown["pool_mode"] == "transaction"
        assert shown["unix_socket_dir"] != psycopg.conninfo.conninfo_to_dict(database_url)["host"]


# Fairlead's own work


async def test_jobs_are_enqueued_canceled_and_retried(fl: Fairlead) -> None:
    single = await fl.enqueue("greet", tenant=TENANT, payload=ADA)
    keyed = await fl.enqueue("greet", tenant=TENANT, payload=ADA, dedupe_key="one")
    again = await fl.enqueue("greet", tenant=TENANT, payload=ADA, dedupe_key="one")
    many = await fl.enqueue_many([given.request() for _ in range(500)])

    assert (again.id, again.deduplicated) == (keyed.id, True)
    async with fl.transaction() as tx:
        assert await given.count(tx, "jobs") == 502
        page = await jobs.list_jobs(tx, TESTER, jobs.JobFilter(tenant=TENANT), limit=1000)
    assert {job.id for job in page.items} == {single.id, keyed.id, *(job.id for job in many)}

    assert (await fl.cancel(keyed.id)).status is JobStatus.CANCELED
    assert (await fl.retry(keyed.id, payload={"name": "Bob"})).status is JobStatus.QUEUED
    assert (await keyed.read()).payload == {"name": "Bob"}


async def test_many_callers_at_once_share_few_server_connections(fl: Fairlead) -> None:
    async def ten_jobs() -> list[EnqueuedJob]:
        return [
            await fl.enqueue("greet", tenant=TENANT, payload=ADA, dedupe_key=f"key {number}")
            for number in range(10)
        ]

    answers = await asyncio.gather(*(ten_jobs() for _ in range(12)))

    assert sum(not job.deduplicated for answer in answers for job in answer) == 10


# Joined transactions


@pytest.mark.parametrize("driver", ["psycopg-async-connection", "asyncpg-connection"])
async def test_a_joined_transaction_commits_and_rolls_back(
    fl: Fairlead, pooled_url: str, database_url: str, driver: str
) -> None:
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("create table orders (id integer)")
    async with drivers.caller(driver, pooled_url) as caller:
        await caller.run("insert into orders values (1)")
        await caller.enqueue("greet", tenant=TENANT, payload=ADA)
        await caller.rollback()
        await caller.run("insert into orders values (2)")
        single = await caller.enqueue("greet", tenant=TENANT, payload=ADA)
        many = await caller.enqueue_many([given.request() for _ in range(20)])
        await caller.commit()

    async with fl.transaction() as tx:
        assert await tx.values("select id from orders") == [(2,)]
        page = await jobs.list_jobs(tx, TESTER, jobs.JobFilter())
    assert {job.id for job in page.items} == {single.id, *(job.id for job in many)}


# Notifications


@pytest.fixture
async def listener(database_url: str) -> AsyncIterator[Listener]:
    async with Listener(database_url, "fairlead") as straight:
        yield straight


async def test_a_listener_on_the_direct_address_hears_a_job_enqueued_through_the_pooler(
    fl: Fairlead, listener: Listener
) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    with listener.subscribe(heard.put_nowait):
        async with asyncio.timeout(SECONDS):
            assert await heard.get() == POLL
            await fl.enqueue("greet", tenant=TENANT, payload=ADA)
            assert await heard.get() == "ready"


async def findings(settings: Settings) -> dict[str, Finding]:
    assert settings.database_url is not None
    return {finding.check: finding async for finding in doctor.examine(settings.database_url, settings)}


async def test_the_doctor_is_content_with_a_direct_address(
    settings: Settings, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given.a_well_kept_database(database_url)
    # a notification may take its time here
    monkeypatch.setattr(doctor, "check_round_trip", partial(check_round_trip, seconds=SECONDS))
    found = await findings(settings)

    assert {"database", "notifications", "schema", "rights", "consistency"} <= found.keys()
    assert {
        check: finding.detail for check, finding in found.items() if finding.verdict is not Verdict.OK
    } == {}


async def test_without_a_direct_address_the_doctor_and_every_statement_name_its_setting(
    pooled_url: str,
) -> None:
    settings = Settings(database_url=pooled_url)
    found = await findings(settings)

    assert found["pooler"].verdict is Verdict.FAIL
    assert "FAIRLEAD_DIRECT_URL" in found["pooler"].advice
    assert found["notifications"].verdict is Verdict.WARN
    async with Database(pooled_url, settings) as first, Database(pooled_url, settings) as second:
        with pytest.raises(DatabaseRefused, match="transaction mode is in between: set FAIRLEAD_DIRECT_URL"):
            for _ in range(20):
                for database in (first, second):
                    await database.transact(lambda tx: tx.values("select 1"))


async def test_too_few_connections_of_a_pooler_in_session_mode_are_named(database_url: str) -> None:
    with pgbouncer(database_url, pool_size=2, mode="session") as url:
        with psycopg.connect(url, autocommit=True) as first, psycopg.connect(url, autocommit=True) as other:
            first.execute("select 1")
            other.execute("select 1")
            with pytest.raises(DatabaseUnreachable, match="default_pool_size"):
                await Database(url, Settings(database_url=url, connect_timeout_seconds=1)).open()
        assert not await changes_connections(url)


# Timeouts


async def test_timeouts_apply_through_the_pooler_and_do_not_reach_other_clients(
    narrow_url: str, database_url: str
) -> None:
    settings = Settings(
        database_url=narrow_url,
        direct_url=database_url,
        statement_timeout_seconds=60,
        lock_timeout_seconds=7,
    )
    async with Database(narrow_url, settings) as database:
        async with database.transaction() as tx:
            [(server, *limits)] = await tx.values(
                "select pg_backend_pid(), current_setting('statement_timeout'), current_setting('lock_timeout')"
            )
        assert limits == ["1min", "7s"]
        async with database.transaction(unhurried=True) as tx:
            assert await tx.values("show statement_timeout") == [("0",)]
        async with database.transaction() as tx:
            assert await tx.values("show statement_timeout") == [("1min",)]
        database.settings = replace(settings, statement_timeout_seconds=0.1)
        with pytest.raises(psycopg.errors.QueryCanceled):
            async with database.transaction() as tx:
                await tx.run("select pg_sleep(600)")

        with psycopg.connect(narrow_url, prepare_threshold=None) as other:
            seen = other.execute("""
                select pg_backend_pid(), current_setting('statement_timeout'), current_setting('lock_timeout')
            """).fetchone()
    assert seen == (server, "0", "0")


async def test_jobs_end_in_the_transactions_of_their_handlers(settings: Settings) -> None:
    fl = Fairlead(settings=settings, actor="tester")

    @fl.job
    async def lent(ctx: Context) -> None:
        async with ctx.tx() as connection:
            await ctx.succeed("lent", tx=connection)

    @fl.job
    def lent_in_thread(ctx: Context) -> None:
        with ctx.tx() as connection:
            ctx.succeed("lent", tx=connection)

    async with fl:
        enqueued = [await one.enqueue(tenant=TENANT) for one in (lent, lent_in_thread) for _ in range(8)]
        await testing.run_due(fl)
        assert [(await job.read()).output for job in enqueued] == ["lent"] * 16
