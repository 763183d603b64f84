"""The socket of a connection stays with the event loop between statements, and never longer than it is open."""

import asyncio
import fcntl
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psycopg
import pytest
import uvloop

from fairlead.db.connection import Connection
from tests.waiting import SECONDS


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=request.param) as running:
        yield running


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    async with await Connection.connect(url, autocommit=True) as connection:
        yield connection


async def end(url: str, connection: Connection) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as other:
        await other.execute("select pg_terminate_backend(%s, 10000)", [connection.info.backend_pid])


async def cut(url: str, connection: Connection) -> None:
    """As when the server's process is killed: the socket ends without a word, and the loop has not heard of it yet."""
    with socket.socket(fileno=os.dup(connection.pgconn.socket)) as same:
        same.shutdown(socket.SHUT_RDWR)


async def is_registered(descriptor: int) -> bool:
    """Whether an event loop of this process watches this descriptor, as the kernel says."""
    await asyncio.sleep(0.001)  # uvloop tells the kernel only when it waits
    return descriptor in _watched()


def _watched() -> set[int]:
    found: set[int] = set()
    for one in Path("/proc/self/fdinfo").iterdir():
        with suppress(FileNotFoundError):  # that of this listing
            lines = [line.split() for line in one.read_text().splitlines() if line.startswith("tfd:")]
            found.update(int(line[1]) for line in lines)
    return found


def test_large_statements_and_answers_go_through(database_url: str, runner: asyncio.Runner) -> None:
    async def go() -> None:
        async with connected(database_url) as connection:
            for size in (1, 20_000_000, 2):
                [(text,)] = await connection.run("select %s || 'x'", ["y" * size])
                assert len(text) == size + 1
            rows = await connection.run("select repeat('z', 1000) from generate_series(1, %s::int)", [30_000])
            assert len(rows) == 30_000

    runner.run(go())


def test_a_socket_is_registered_until_its_connection_is_closed(
    database_url: str, runner: asyncio.Runner
) -> None:
    async def go() -> None:
        async with connected(database_url) as connection:
            descriptor = connection.pgconn.socket
            assert not await is_registered(descriptor)
            await connection.run("select %s::int", [1])
            assert await is_registered(descriptor)
        assert not await is_registered(descriptor)

    runner.run(go())


@pytest.mark.parametrize("lose", [end, cut])
@pytest.mark.parametrize("statement", ["select %s::int", "select %s::int, 'not prepared'"])
def test_the_number_of_a_lost_connections_socket_can_be_used_again(
    database_url: str,
    runner: asyncio.Runner,
    lose: Callable[[str, Connection], Awaitable[None]],
    statement: str,
) -> None:
    async def use_again() -> bool:
        async with connected(database_url) as connection:
            await connection.run("select %s::int", [1])
            descriptor = connection.pgconn.socket
            readable, writable = os.pipe()
            await lose(database_url, connection)
            with pytest.raises(psycopg.OperationalError):
                await connection.run(statement, [2])
            same = fcntl.fcntl(readable, fcntl.F_DUPFD, descriptor)
            try:
                heard = asyncio.Event()
                asyncio.get_running_loop().add_reader(same, heard.set)
                os.write(writable, b"x")
                async with asyncio.timeout(SECONDS):
                    await heard.wait()
                asyncio.get_running_loop().remove_reader(same)
            finally:
                for one in {readable, writable, same}:
                    os.close(one)
        return same == descriptor

    async def go() -> None:
        while not await use_again():
            pass  # another thread has taken the number meanwhile

    runner.run(go())


def test_what_comes_on_an_idle_connection_does_not_keep_the_loop_busy(
    database_url: str, runner: asyncio.Runner
) -> None:
    async def go() -> None:
        async with connected(database_url) as connection:
            await connection.run("select %s::int", [1])
            descriptor = connection.pgconn.socket
            await end(database_url, connection)
            async with asyncio.timeout(SECONDS):
                while await is_registered(descriptor):
                    pass
            with pytest.raises(psycopg.OperationalError):
                await connection.run("select %s::int", [2])

    runner.run(go())


def test_a_statement_whose_task_is_cancelled_ends_on_the_server(
    database_url: str, runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "cancel_seconds", 90)

    async def go() -> None:
        async with connected(database_url) as connection:
            await connection.run("select pg_sleep(%s)", [0])  # prepared, so that the next one is sent at once
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await connection.run("select pg_sleep(%s)", [3600])
            assert await connection.run("select %s::int", [2]) == [(2,)]

    runner.run(go())


def test_a_connection_whose_statement_does_not_end_is_closed(
    database_url: str, runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "cancel_seconds", 0.1)

    async def unheard(self: Connection, *, timeout: float) -> None:  # noqa: ASYNC109
        """A cancel that the server never gets."""

    monkeypatch.setattr(Connection, "cancel_safe", unheard)

    async def go() -> None:
        async with connected(database_url) as connection:
            await connection.run("select pg_sleep(%s)", [0])  # prepared, so that the next one is sent at once
            descriptor = connection.pgconn.socket
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await connection.run("select pg_sleep(%s)", [60])
            assert connection.closed
            assert not await is_registered(descriptor)

    runner.run(go())


def test_a_connection_that_a_late_cancel_may_reach_is_closed(
    database_url: str, runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its statement ends by itself meanwhile: the cancel would end the next one."""
    monkeypatch.setattr(Connection, "cancel_seconds", SECONDS)

    async def late(self: Connection, *, timeout: float) -> None:  # noqa: ASYNC109
        raise psycopg.errors.CancellationTimeout("cancellation timeout expired")

    monkeypatch.setattr(Connection, "cancel_safe", late)

    async def go() -> None:
        async with connected(database_url) as connection:
            await connection.run("select pg_sleep(%s)", [0])  # prepared, so that the next one is sent at once
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await connection.run("select pg_sleep(%s)", [0.5])
            assert connection.closed

    runner.run(go())


def test_a_statement_whose_connection_is_closed_ends(database_url: str, runner: asyncio.Runner) -> None:
    async def go() -> None:
        async with connected(database_url) as connection:
            waiting = asyncio.create_task(connection.run("select pg_sleep(%s)", [60]))
            while not await is_registered(connection.pgconn.socket):
                pass
            await connection.close()
            assert (await asyncio.wait([waiting], timeout=SECONDS))[0], "it waits for ever"
            with pytest.raises(psycopg.OperationalError):
                await waiting

    runner.run(go())


def test_a_statement_whose_server_dies_in_the_middle_of_an_answer_ends(
    database_url: str, runner: asyncio.Runner
) -> None:
    """A server that dies before it has read all that was sent resets the connection; uvloop reports that only once."""

    async def go() -> None:
        async with connected(database_url) as connection:
            ours, theirs = socket.socketpair()
            os.dup2(ours.fileno(), connection.pgconn.socket)
            ours.close()
            waiting = asyncio.create_task(connection.run("select %s::int", [1]))
            while not await is_registered(connection.pgconn.socket):
                pass
            theirs.send(b"T\0")
            theirs.close()
            ended, _ = await asyncio.wait([waiting], timeout=SECONDS)
            await connection.close()  # which ends it in any case
            assert ended, "it waits for ever"
            with pytest.raises(psycopg.OperationalError):
                await waiting

    runner.run(go())
