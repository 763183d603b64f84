"""What our sessions are like, whatever the server's own defaults are."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import LiteralString

import psycopg
import pytest

from fairlead import Settings
from fairlead.db.connection import Connection
from fairlead.db.database import Database
from fairlead.db.database_errors import unreachable_error
from fairlead.db.lent_connections import LentConnections
from fairlead.db.tx import Tx
from fairlead.errors import DatabaseRefused, DatabaseUnreachable, TransactionIdle
from fairlead.runtime.heartbeat import MARGIN
from tests.tables import each_case
from tests.waiting import SECONDS

SLEEPING = "select from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()"
HOLD = "select from fairlead.tenants for update"


@pytest.fixture
def stricter(database_url: str) -> None:
    """A server whose transactions see one moment only, unless they say otherwise."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(
            f"alter database {name} set default_transaction_isolation = 'repeatable read'".encode()
        )


@pytest.fixture
async def short(settings: Settings) -> AsyncIterator[Database]:
    """Sessions whose transactions may be idle for a second."""
    database = Database(str(settings.database_url), replace(settings, lease_seconds=3))
    async with database:
        yield database


@pytest.mark.usefixtures("stricter")
@pytest.mark.parametrize("pooled", [False, True])
async def test_every_transaction_reads_what_is_committed(settings: Settings, *, pooled: bool) -> None:
    url = str(settings.database_url)
    async with Database(url, replace(settings, direct_url=url if pooled else None)) as database:
        async with database.transaction() as tx:
            assert await tx.values("show transaction_isolation") == [("read committed",)]
        assert await database.single(lambda tx: tx.values("show transaction_isolation")) == [
            ("read committed",)
        ]


@pytest.mark.parametrize(
    "claim",
    [
        "select fairlead.claim('w', gen_random_uuid(), 1, 30, null, null, 0)",
        "select fairlead.claim_suspect('w', gen_random_uuid(), 30, null)",
    ],
)
def test_jobs_are_not_claimed_in_an_older_snapshot(database_url: str, claim: LiteralString) -> None:
    """It would not show the claims that committed before this one had the lock of a limit."""
    with psycopg.connect(database_url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="READ COMMITTED"):
            connection.execute(claim)


async def test_a_transaction_that_is_left_idle_holds_up_the_others_for_a_third_of_a_lease_only(
    short: Database, db: Database
) -> None:
    """As that of a process that was stopped: it does nothing, and its end of the connection stays open."""
    with pytest.raises(TransactionIdle, match="FAIRLEAD_LEASE_SECONDS"):
        async with short.transaction() as stopped:
            await stopped.values(HOLD)
            assert len(await db.single(lambda tx: tx.values(HOLD))) == 3
            await stopped.values("select 1")
    assert await short.single(lambda tx: tx.values("select 1")) == [(1,)]


async def test_a_statement_that_cannot_be_canceled_is_left_before_the_lease_is_over(
    short: Database, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a stalled network: a handler that awaits it must stop before another worker runs its job."""
    patience = list[float]()

    async def unheard(_: Connection, *, timeout: float) -> None:  # noqa: ASYNC109
        patience.append(timeout)

    monkeypatch.setattr(Connection, "cancel_safe", unheard)
    lent = LentConnections(short)

    async def sleep_as_a_handler() -> None:
        async with lent.lend() as connection:
            await connection.execute("select pg_sleep(60)")

    async with asyncio.timeout(SECONDS):
        works = (short.single(lambda tx: tx.values("select pg_sleep(60)")), sleep_as_a_handler())
        for number, work in enumerate(works, 1):
            sleeping = asyncio.create_task(work)
            while len(await db.single(lambda tx: tx.values(SLEEPING))) < number:
                await asyncio.sleep(0.02)
            sleeping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sleeping
    await lent.close()
    assert len(patience) == 2
    # once for the cancel, once for the end
    assert all(2 * seconds < MARGIN * short.settings.lease_seconds / 2 for seconds in patience)


async def test_a_database_whose_opening_is_cancelled_connects_no_more(settings: Settings) -> None:
    connected = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        database = Database(f"postgresql://nobody@127.0.0.1:{port}/nothing", settings)
        opening = asyncio.create_task(database.open())
        async with asyncio.timeout(SECONDS):
            await connected.wait()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
    assert database._pool.closed


async def test_a_transaction_that_is_stopped_among_single_statements_is_ended_too(
    short: Database, db: Database
) -> None:
    async def work(tx: Tx) -> None:
        async with tx.whole():
            await tx.values(HOLD)
            await db.single(lambda other: other.values(HOLD))
            await tx.values("select 1")

    with pytest.raises(TransactionIdle):
        await short.reach(work)


async def test_a_transaction_whose_process_was_stopped_for_a_moment_is_repeated(
    short: Database, db: Database
) -> None:
    tries = 0

    async def work(tx: Tx) -> int:
        nonlocal tries
        tries += 1
        await tx.values(HOLD)
        if tries == 1:  # PostgreSQL ends the transaction, which then lets go of the lock
            await db.single(lambda other: other.values(HOLD))
        await tx.values("select 1")
        return tries

    # on a busy machine the second one may be stopped, too
    assert await short.transact(work) >= 2


async def test_a_bulk_load_may_look_through_its_rows_for_minutes(db: Database) -> None:
    async with db.transaction(unhurried=True) as tx:
        assert await tx.values("show idle_in_transaction_session_timeout") == [("10min",)]
    async with db.transaction() as tx:
        assert await tx.values("show idle_in_transaction_session_timeout") == [("10s",)]


@pytest.mark.parametrize(
    ("query", "advice"),
    [
        ("select repeat('x', 1 << 30)", "make it smaller"),
        ("do $$ begin raise 'no space left' using errcode = '53100'; end $$", "free some space"),
    ],
)
async def test_what_the_database_cannot_do_is_not_asked_for_again(
    db: Database, query: str, advice: str
) -> None:
    tries = 0

    async def ask(tx: Tx) -> None:
        nonlocal tries
        tries += 1
        await tx.run(query)

    with pytest.raises(DatabaseRefused, match=advice):
        await db.reach(ask)
    assert tries == 1
    for run in (db.single, db.transact):
        with pytest.raises(DatabaseRefused, match=advice):
            await run(ask)


async def test_a_database_that_was_set_read_only_is_reported_at_once(
    database_url: str, settings: Settings, new_database: None
) -> None:
    with psycopg.connect(database_url, autocommit=True) as admin:
        admin.execute(f"alter database {admin.info.dbname} set default_transaction_read_only = on".encode())
    tries = 0

    async def ask(tx: Tx) -> None:
        nonlocal tries
        tries += 1
        await tx.run("create table t ()")

    async with Database(database_url, settings) as database:
        with pytest.raises(DatabaseUnreachable, match=r"It is read-only: .*default_transaction_read_only"):
            await database.reach(ask)
        assert tries == 1
        with pytest.raises(DatabaseUnreachable, match="It is read-only"):
            await database.transact(ask)


@each_case(
    ("message", "advice"),
    [
        ('FATAL:  password authentication failed for user "ada"', "the password"),
        ('FATAL:  database "jobs" does not exist', "Create this database"),
        ('FATAL:  role "ada" does not exist', "Create this role"),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.1"', "pg_hba.conf, or"),
        ("failed to resolve host 'db': [Errno -2] Name or service not known", "No address was found"),
        ("FATAL:  sorry, too many clients already", "max_connections"),
        ("FATAL:  the database system is starting up", "Try again"),
        ("connection refused", "Start PostgreSQL there"),
    ],
)
def test_the_advice_for_a_refused_connection_depends_on_its_cause(message: str, advice: str) -> None:
    error = unreachable_error("postgresql://ada:secret@db/jobs", psycopg.OperationalError(message))

    assert advice in error.message
    assert advice == "Start PostgreSQL there" or "Start PostgreSQL" not in error.message
    assert "secret" not in error.message


async def test_a_session_that_the_server_ended_is_made_anew(db: Database) -> None:
    tries = 0

    async def ask(tx: Tx) -> int:
        nonlocal tries
        tries += 1
        if tries == 1:
            await tx.run("select pg_terminate_backend(pg_backend_pid())")
        return tries

    assert await db.reach(ask) == 2
