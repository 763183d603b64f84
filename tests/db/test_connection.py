"""Statements without a cursor, alone and with notifications behind them."""

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest

from fairlead.db import connection as connections
from fairlead.db.connection import Connection, number_placeholders
from tests.waiting import SECONDS

CHANNEL = "fairlead"


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[Connection]:
    async with await Connection.connect(database_url, autocommit=True) as connected:
        yield connected


@pytest.fixture
async def listener(database_url: str) -> AsyncIterator[psycopg.AsyncConnection[tuple[object, ...]]]:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connected:
        await connected.execute("listen fairlead")
        yield connected


async def prepared(connection: Connection) -> int:
    cursor = await connection.execute(
        "select count(*) from pg_prepared_statements where name like 'fairlead%'"
    )
    [(number,)] = await cursor.fetchall()
    return int(number)


def test_placeholders_are_numbered_and_each_name_once() -> None:
    assert number_placeholders("select %s, %s") == ("select $1, $2", ())
    assert number_placeholders("select %(b)s, %(a)s, %(b)s") == ("select $1, $2, $1", ("b", "a"))
    assert number_placeholders("select 7 %% %s") == ("select 7 % $1", ())


async def test_rows_come_as_from_a_cursor(connection: Connection) -> None:
    for _ in range(2):
        assert await connection.run("select %s::int + 1, %s::jsonb, null", [1, '{"a": 1}']) == [
            (2, {"a": 1}, None)
        ]
    assert await connection.run("select %(n)s::int + %(n)s::int", {"n": 2}) == [(4,)]
    assert await connection.run("select 1 where %s::bool", [False]) == []


async def test_a_text_is_prepared_once_for_each_connection(connection: Connection) -> None:
    for n in range(3):
        await connection.run("select %s::int", [n])
    assert await prepared(connection) == 1


async def test_no_more_than_so_many_texts_are_prepared(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MOST_PREPARED", 2)
    for n in range(5):
        assert await connection.run(f"select {n} + %s::int", [1]) == [(n + 1,)]
    assert await prepared(connection) == 2


async def test_nothing_is_prepared_behind_a_pooler(connection: Connection) -> None:
    connection.prepare_threshold = None
    assert await connection.run("select %s::int", [1]) == [(1,)]
    assert await prepared(connection) == 0


async def test_a_transaction_that_is_rolled_back_does_not_leave_names_without_a_statement(
    connection: Connection,
) -> None:
    await connection.execute("select 1", prepare=True)
    with pytest.raises(KeyError):
        async with connection.transaction():
            await connection.run("select %s::int", [1])
            raise KeyError
    assert await connection.run("select %s::int", [2]) == [(2,)]


@pytest.mark.parametrize("words", [(), ("ready",)])
async def test_a_statement_that_fails_leaves_the_connection_as_it_was(
    connection: Connection, words: tuple[str, ...]
) -> None:
    for _ in range(2):
        with pytest.raises(psycopg.errors.DivisionByZero):
            await connection.run("select 1 / %s::int", [0], channel=CHANNEL, words=words)
        assert await connection.run("select 1 / %s::int", [1], channel=CHANNEL, words=words) == [(1,)]
    with pytest.raises(psycopg.errors.UndefinedTable):
        await connection.run("select %s from nowhere", [0], channel=CHANNEL, words=words)
    assert (await (await connection.execute("select 1")).fetchall()) == [(1,)]


async def test_notifications_are_transactions_of_their_own(
    connection: Connection, listener: psycopg.AsyncConnection[tuple[object, ...]]
) -> None:
    await connection.execute("create temporary table note (xid text)")
    # its own transaction's notification would come with its number
    query = "insert into note select pg_current_xact_id()::text where %s returning xid"
    [(xid,)] = await connection.run(query, [True], channel=CHANNEL, words=["ready", "later"])
    [(after,)] = await connection.run("select pg_current_xact_id()::text where %s", [True])
    assert (
        int(str(after)) >= int(str(xid)) + 3
    )  # more if other sessions of the server began transactions meanwhile

    heard = [notice.payload async for notice in listener.notifies(timeout=SECONDS, stop_after=2)]
    assert heard == ["ready", "later"]


async def test_a_notification_that_is_refused_does_not_fail_the_statement(connection: Connection) -> None:
    too_long = "x" * 9000
    assert await connection.run("select %s::int", [1], channel=CHANNEL, words=[too_long]) == [(1,)]
    assert await connection.run("select %s::int", [2]) == [(2,)]


@pytest.mark.parametrize("words", [(), ("ready",)])
async def test_a_statement_that_is_given_up_answers_no_other(
    connection: Connection, database_url: str, words: tuple[str, ...]
) -> None:
    await connection.run("select 1, pg_sleep(%s)", [0], channel=CHANNEL, words=words)
    waiting = asyncio.create_task(
        connection.run("select 1, pg_sleep(%s)", [600], channel=CHANNEL, words=words)
    )
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other:
        query = "select wait_event from pg_stat_activity where pid = %s"
        async with asyncio.timeout(SECONDS):
            while (await (await other.execute(query, [connection.info.backend_pid])).fetchall()) != [
                ("PgSleep",)
            ]:
                await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    if not connection.closed:
        assert await connection.run("select %s::int", [2]) == [(2,)]


async def test_a_connection_that_is_cut_off_says_so(connection: Connection, database_url: str) -> None:
    await connection.run("select %s::int", [1])
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other:
        await other.execute("select pg_terminate_backend(%s, 10000)", [connection.info.backend_pid])
    with pytest.raises(psycopg.OperationalError):
        await connection.run("select %s::int", [2], channel=CHANNEL, words=["ready"])
    assert connection.closed
