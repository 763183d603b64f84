import asyncio
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import psycopg
import pytest

from fairlead import Fairlead, Settings
from fairlead.db.database import Database
from fairlead.db.sql import in_schema, queries_beside
from fairlead.db.tx import TransactionIdentity, Tx, TypedQuery
from fairlead.errors import DatabaseBusy, DatabaseUnreachable
from fairlead.model.job import JobStatus
from tests import given
from tests.acceptance.proxy import Proxy
from tests.conftest import RoundTrips
from tests.given import TENANT
from tests.waiting import until

SOMEBODY = UUID("6f46a1d8-6e2b-4ecf-8b46-9ec2e6a37f09")
WAITING = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"


@dataclass(frozen=True)
class Inner:
    a: int
    b: str | None = None


@dataclass(frozen=True)
class Sample:
    id: UUID
    status: JobStatus
    inner: Inner
    big: Any


async def test_rows_become_dataclasses_with_enums_and_nested_ones(tx: Tx) -> None:
    query = """select '6f46a1d8-6e2b-4ecf-8b46-9ec2e6a37f09'::uuid as id, 'queued' as status,
        '{"a": 1}'::jsonb as inner, '{"n": 123456789012345678901234567890}'::jsonb as big"""

    row = await tx.first(Sample, query)

    assert row == Sample(
        UUID("6f46a1d8-6e2b-4ecf-8b46-9ec2e6a37f09"),
        JobStatus.QUEUED,
        Inner(1),
        {"n": 123456789012345678901234567890},
    )
    assert await tx.first(Sample, query + " where false") is None
    assert await tx.all(Sample, query) == [row]


async def test_a_transaction_commits_at_its_end_and_rolls_back_on_an_exception(db: Database) -> None:
    with pytest.raises(ZeroDivisionError):
        async with db.transaction() as tx:
            await given.queued_job(tx)
            raise ZeroDivisionError
    async with db.transaction() as tx:
        assert await given.count(tx, "jobs") == 0
        await given.queued_job(tx)
    async with db.transaction() as tx:
        assert await given.count(tx, "jobs") == 1


@pytest.mark.postgres_only("a transaction of a distributed schema first holds the schema")
async def test_a_transaction_begins_with_its_identity_in_one_round_trip(
    db: Database, round_trips: RoundTrips
) -> None:
    who = TransactionIdentity(SOMEBODY, "192.0.2.1")
    async with db.transaction(who) as tx:
        pass  # its statement is prepared
    round_trips(tx)
    async with db.transaction(who, snapshot=True) as tx:
        [(ip, tenant, isolation)] = await tx.values(
            "select current_setting('fairlead.ip'), current_setting('fairlead.tenant_id'), "
            "current_setting('transaction_isolation')"
        )
    assert (ip, tenant, isolation) == ("192.0.2.1", str(SOMEBODY), "repeatable read")
    assert round_trips(tx)[:2] == ["_TransactionBegun._enter_gen", "BaseCursor._execute_gen"]


async def test_queries_are_answered_together(db: Database, round_trips: RoundTrips) -> None:
    two_rows = TypedQuery(Inner, "select n as a, %(b)s as b from generate_series(1, 2) n", {"b": "x"})
    no_rows = TypedQuery(Inner, "select 1 as a where false")
    broken = TypedQuery(Inner, "select 1 / %(zero)s as a", {"zero": 0})
    async with db.transaction() as tx:
        with pytest.raises(psycopg.errors.DivisionByZero):
            async with tx.whole():
                await tx.all_of(two_rows, broken, no_rows)
        for _ in range(2):
            assert await tx.all_of(two_rows, no_rows, two_rows) == [
                [Inner(1, "x"), Inner(2, "x")],
                [],
                [Inner(1, "x"), Inner(2, "x")],
            ]
        round_trips(tx)
        await tx.all_of(two_rows, no_rows)
        assert round_trips(tx) == ["_run_pipeline"]
    assert await db.single(lambda tx: tx.values("select 1")) == [(1,)]


@pytest.mark.postgres_only("statements wait for locks of shards, not of the table")
@pytest.mark.parametrize("how", ["cancel", "cancel while it is left running", "timeout"])
async def test_a_transaction_that_does_not_begin_leaves_its_connection_in_order(
    settings: Settings, how: str
) -> None:
    """Its identity waits for a lock."""
    short = replace(settings, pool_size=1, statement_timeout_seconds=0.2 if how == "timeout" else 60)
    who = TransactionIdentity(SOMEBODY)
    async with (
        Database(str(settings.database_url), settings) as other,
        Database(str(settings.database_url), short) as db,
    ):
        if how == "cancel while it is left running":
            async with db.transaction() as tx:
                tx.connection.leave_statement_running()
        async with other.transaction() as tx:
            await tx.run("lock table fairlead.tenants in access exclusive mode")
            beginning = asyncio.create_task(_begin(db, who))

            async def waits() -> bool:
                return bool(await tx.values(WAITING))

            await until(waits, "the identity to wait for the lock")
            if how != "timeout":
                beginning.cancel()
            with pytest.raises(psycopg.errors.QueryCanceled if how == "timeout" else asyncio.CancelledError):
                await beginning
        async with db.transaction(who) as tx:
            assert await tx.values("select 1") == [(1,)]


async def _begin(db: Database, who: TransactionIdentity) -> None:
    async with db.transaction(who):
        pytest.fail("it began")


async def test_a_serialization_failure_is_repeated_from_the_start(db: Database) -> None:
    async with db.transaction() as tx:
        await tx.run("create table public.counter as select 0 as n")

    async def add_one(tx: Tx) -> None:
        await tx.run("set transaction isolation level repeatable read")
        [(n,)] = await tx.values("select n from public.counter")
        await tx.run("update public.counter set n = %s", [n + 1])

    await asyncio.gather(*(db.transact(add_one) for _ in range(4)))

    async with db.transaction() as tx:
        assert await tx.values("select n from public.counter") == [(4,)]


async def test_a_deadlock_is_repeated_from_the_start(db: Database) -> None:
    async with db.transaction() as tx:
        await tx.run("create table public.pair as select n from generate_series(1, 2) n")
    both = asyncio.Barrier(2)
    tries = 0

    async def cross(tx: Tx, order: tuple[int, int]) -> None:
        nonlocal tries
        tries += 1
        await tx.run("update public.pair set n = n where n = %s", [order[0]])
        if tries <= 2:
            await both.wait()
        await tx.run("update public.pair set n = n where n = %s", [order[1]])

    await asyncio.gather(db.transact(lambda tx: cross(tx, (1, 2))), db.transact(lambda tx: cross(tx, (2, 1))))

    assert tries >= 3  # the one that is repeated may be faster than the one that was waiting, and clash again


async def test_other_errors_are_not_repeated(db: Database) -> None:
    tries = 0

    async def fail(tx: Tx) -> None:
        nonlocal tries
        tries += 1
        await tx.run("select 1 / 0")

    with pytest.raises(psycopg.errors.DivisionByZero):
        await db.transact(fail)
    assert tries == 1


async def test_connections_that_were_cut_heal_by_themselves(fl: Fairlead, database_url: str) -> None:
    await asyncio.gather(*(fl.enqueue("anything", tenant=TENANT) for _ in range(20)))
    with psycopg.connect(database_url, autocommit=True) as other:
        other.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and pid <> pg_backend_pid()"
        )

    handles = await asyncio.gather(*(fl.enqueue("anything", tenant=TENANT) for _ in range(20)))

    assert len({handle.id for handle in handles}) == 20
    async with fl.transaction() as tx:
        assert await given.count(tx, "jobs") == 40


async def test_a_transaction_begins_on_a_connection_that_lives(fl: Fairlead, database_url: str) -> None:
    """Also on the first one after the server has ended those that were idle."""
    for _ in range(2):
        async with fl.transaction() as tx:
            await given.count(tx, "jobs")
        with psycopg.connect(database_url, autocommit=True) as other:
            other.execute(
                "select pg_terminate_backend(pid, 30000) from pg_stat_activity "
                "where datname = current_database() and pid <> pg_backend_pid()"
            )
    async with fl.transaction() as tx:
        assert await given.count(tx, "jobs") == 0


async def test_statements_and_waits_are_bounded(settings: Settings) -> None:
    bounded = replace(settings, statement_timeout_seconds=60)
    async with Fairlead(settings=bounded) as fl:
        async with fl.database.transaction(unhurried=True) as tx:
            assert await tx.values("show statement_timeout") == [("0",)]
        for ask in (fl.database.transact, fl.database.reach):
            assert await ask(lambda tx: tx.values("show statement_timeout")) == [("1min",)]

        async def sleep(tx: Tx) -> None:
            """Sleep until the timeout, which is lowered for this statement alone: no other one must be that quick."""
            async with tx.whole():
                await tx.run("set local statement_timeout = '200ms'")
                await tx.run("select pg_sleep(600)")

        with pytest.raises(DatabaseBusy):
            await fl.database.reach(sleep)
        with pytest.raises(DatabaseBusy):
            await fl.database.transact(sleep)


async def test_a_database_that_stays_away_is_given_up_with_a_plain_word(settings: Settings) -> None:
    async with Fairlead(settings=settings) as fl:
        # from now on: to open it may take longer
        fl.database.settings = replace(settings, connect_timeout_seconds=0.5)

        async def lost(tx: Tx) -> None:
            raise psycopg.OperationalError("server closed the connection unexpectedly")

        with pytest.raises(DatabaseUnreachable):
            await fl.database.reach(lost)


def test_a_query_is_found_by_its_name(tmp_path: Any) -> None:
    (tmp_path / "x.sql").write_text("-- about\n\n-- name: one\nselect 1;\n\n-- name: two\n-- why\nselect 2\n")
    sql = queries_beside(str(tmp_path / "x.py"))
    assert (sql.one, sql.two) == ("select 1;", "-- why\nselect 2")
    (tmp_path / "x.sql").write_text("-- name: one\nselect 1\n-- name: one\nselect 2\n")
    with pytest.raises(ValueError, match="named twice"):
        queries_beside(str(tmp_path / "x.py"))


def test_the_schemas_word_is_replaced_and_no_other() -> None:
    text = "select fairlead.f('fairlead.x'), fairlead_y, my.fairlead"
    assert in_schema(text, "fairlead") is text
    assert in_schema(text, "s2") == "select s2.f('s2.x'), fairlead_y, my.s2"


async def test_a_connection_that_died_without_a_word_is_given_up(settings: Settings) -> None:
    with Proxy(str(settings.database_url)) as proxy:
        async with Database(proxy.url, replace(settings, database_url=proxy.url)) as database:
            assert await database.single(lambda tx: tx.values("select 1")) == [(1,)]
            proxy.forsake()  # the connections that are there hang for good; new ones work
            database._patience = 1.0

            assert await database.reach(lambda tx: tx.values("select 2")) == [(2,)]


async def test_whoever_waits_for_a_connection_gets_the_next_one(
    settings: Settings, database_url: str
) -> None:
    """Callers that come again at once would otherwise pass the connections on among themselves."""
    done = dict.fromkeys(("transaction", *range(6)), 0)

    async def repeat(number: int) -> None:
        while min(done.values()) < 5:
            await db.single(lambda tx: tx.values("select 1"))
            done[number] += 1

    async def transact() -> None:
        while min(done.values()) < 5:
            async with db.transaction() as tx:
                await tx.values("select 1")
            done["transaction"] += 1

    async with (
        Database(database_url, replace(settings, pool_size=3)) as db,
        asyncio.timeout(20),
        asyncio.TaskGroup() as group,
    ):
        for number in range(6):
            group.create_task(repeat(number))
        group.create_task(transact())
