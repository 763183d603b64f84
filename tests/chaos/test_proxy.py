"""The proxies of a chaos run, in front of a real PostgreSQL and a real HTTP server."""

import asyncio
import contextlib
import http.client
import random
import socket
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import httpx2
import psycopg
import pytest

from fairlead import Settings
from fairlead.chaos.faults.proxy import HttpProxy, PostgresProxy
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.errors import DatabaseUnreachable
from tests.databases import Connection
from tests.processes import until
from tests.waiting import SECONDS, eventually

pytestmark = pytest.mark.thorough

CHANCE = random.Random(1)  # noqa: S311
INSERT = "insert into notes (text) values (%s)"


@pytest.fixture
def proxy(database_url: str) -> Iterator[PostgresProxy]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("create table notes (text text)")
        connection.execute(
            "create function write_note(text) returns int language sql as "
            "'insert into public.notes values ($1) returning 1'"
        )
    with PostgresProxy(database_url) as opened:
        yield opened


def read_notes(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        return [text for (text,) in connection.execute("select text from notes order by 1").fetchall()]


def test_statements_come_through(proxy: PostgresProxy, database_url: str) -> None:
    with psycopg.connect(proxy.url) as connection:
        connection.execute(INSERT, ["one"])
        with connection.cursor() as cursor, cursor.copy("copy notes (text) from stdin") as copy:
            for number in range(20_000):
                copy.write_row([f"row {number}"])
        with connection.pipeline():
            connection.execute(INSERT, ["two"])
            connection.execute(INSERT, ["three"])

    assert len(read_notes(proxy.url)) == 20_003
    assert len(read_notes(database_url)) == 20_003
    assert proxy.count_swallowed() == 0


# Swallowed replies


def commit_simply(connection: Connection) -> None:
    connection.execute(INSERT, ["kept"])
    connection.commit()


def commit_in_a_pipeline(connection: Connection) -> None:
    with connection.pipeline():
        connection.execute(INSERT, ["kept"])
        connection.commit()


def commit_by_the_extended_protocol(connection: Connection) -> None:
    connection.execute(INSERT, ["kept"])
    connection.pgconn.exec_params(b"COMMIT", [])
    connection.execute("select 1")


def insert_by_itself(connection: Connection) -> None:
    connection.autocommit = True
    connection.execute(INSERT, ["kept"])


def call_a_function(connection: Connection) -> None:
    connection.autocommit = True
    connection.execute("select public.write_note(%s)", ["kept"])


def call_a_prepared_function(connection: Connection) -> None:
    connection.autocommit = True
    connection.execute("select public.write_note(%s)", ["kept"], prepare=True)


def copy_by_itself(connection: Connection) -> None:
    connection.autocommit = True
    with connection.cursor() as cursor, cursor.copy("copy notes (text) from stdin") as copy:
        copy.write_row(["kept"])


WAYS = [
    commit_simply,
    commit_in_a_pipeline,
    commit_by_the_extended_protocol,
    insert_by_itself,
    call_a_function,
    call_a_prepared_function,
    copy_by_itself,
]


@pytest.mark.parametrize("way", WAYS)
def test_a_swallowed_commit_has_happened_and_the_client_does_not_know(
    proxy: PostgresProxy, database_url: str, way: Any
) -> None:
    with psycopg.connect(proxy.url) as connection:
        connection.execute("select 1")  # neither this nor BEGIN commits anything
        connection.rollback()
        proxy.swallow(1, share=1.0)
        with pytest.raises(psycopg.OperationalError):
            way(connection)

    assert read_notes(database_url) == ["kept"]
    assert proxy.count_swallowed() == 1
    # the next one comes through
    with psycopg.connect(proxy.url) as connection:
        connection.execute(INSERT, ["next"])
    assert read_notes(proxy.url) == ["kept", "next"]


def test_the_replies_before_a_swallowed_one_come_through(proxy: PostgresProxy, database_url: str) -> None:
    """Of several transactions in one pipeline, the client knows those before it."""
    with psycopg.connect(proxy.url, autocommit=True) as connection:
        raw = connection.pgconn
        raw.enter_pipeline_mode()
        raw.send_query_params(b"select 'first'", [])
        raw.pipeline_sync()
        raw.send_query_params(b"insert into notes values ('second')", [])
        raw.pipeline_sync()
        proxy.swallow(1, share=1.0)
        raw.flush()
        while raw.is_busy():
            raw.consume_input()
        first = raw.get_result()
        assert first is not None
        assert first.get_value(0, 0) == b"first"
        with pytest.raises(psycopg.OperationalError, match=r"closed|reset"):
            while True:
                raw.consume_input()

    assert read_notes(database_url) == ["second"]


def test_the_client_learns_that_its_statement_failed(proxy: PostgresProxy, database_url: str) -> None:
    with psycopg.connect(proxy.url, autocommit=True) as connection:
        proxy.swallow(1, share=1.0)
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("insert into notes select (1 / (1 - count(*)))::text from (select 1) as one")
        with pytest.raises(psycopg.OperationalError):
            connection.execute(INSERT, ["kept"])

    assert read_notes(database_url) == ["kept"]
    assert proxy.count_swallowed() == 1


async def test_a_single_statement_of_ours_is_swallowed(proxy: PostgresProxy, database_url: str) -> None:
    """As our processes send most of their statements: prepared, without a transaction, with notifications after it."""

    async def write(tx: Tx, text: str) -> None:
        tx.notify("word")
        await tx.run_quick("select public.write_note(%(text)s)", {"text": text})

    async with Database(proxy.url, Settings()) as database:
        await database.single(partial(write, text="before"))
        proxy.swallow(1, share=1.0)
        with pytest.raises(DatabaseUnreachable):
            await database.single(partial(write, text="kept"))

    assert read_notes(database_url) == ["before", "kept"]
    assert proxy.count_swallowed() == 1


# Connections


def test_reset_connections_are_lost_and_new_ones_work(proxy: PostgresProxy) -> None:
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(psycopg.connect(proxy.url, autocommit=True)) for _ in range(4)]
        assert proxy.reset(0.5, CHANCE) == 2
        lost = [one for one in opened if not _answers(one)]
        assert len(lost) == 2
        until(lambda: proxy.count_connections() == 2, "the lost ones to be forgotten")
        assert proxy.reset(1.0, CHANCE) == 2
        assert not any(map(_answers, opened))
    assert read_notes(proxy.url) == []


def _answers(connection: Connection) -> bool:
    try:
        connection.execute("select 1")
    except psycopg.OperationalError:
        return False
    return True


@pytest.mark.parametrize("reset", [False, True])
async def test_a_stalled_connection_gets_nothing_until_it_goes_on(
    proxy: PostgresProxy, database_url: str, *, reset: bool
) -> None:
    async with await psycopg.AsyncConnection.connect(proxy.url, autocommit=True) as connection:
        assert proxy.stall(1.0, CHANCE) == 1
        insert = asyncio.ensure_future(connection.execute(INSERT, ["late"]))
        entering = asyncio.ensure_future(psycopg.AsyncConnection.connect(proxy.url))
        await eventually(lambda: proxy.count_connections() == 2, "the new connection")
        assert read_notes(database_url) == []
        assert not insert.done()
        assert not entering.done()
        proxy.go_on(reset=reset)
        if reset:
            for lost in (insert, entering):
                with pytest.raises(psycopg.OperationalError):
                    await lost
        else:
            await insert
            await (await entering).close()
    assert read_notes(database_url) == ([] if reset else ["late"])
    assert read_notes(proxy.url) == read_notes(database_url)


def test_delayed_bytes_arrive(proxy: PostgresProxy) -> None:
    with psycopg.connect(proxy.url, autocommit=True) as connection:
        proxy.delay(0.001, 0.01)
        assert _answers(connection)
        proxy.delay(0, 0)
        assert _answers(connection)


def test_a_server_that_is_away_refuses() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nothing listens there, and nothing else can
        away = f"postgresql://fairlead@127.0.0.1:{taken.getsockname()[1]}/fairlead"
        with PostgresProxy(away) as proxy, pytest.raises(psycopg.OperationalError):
            psycopg.connect(proxy.url)


def test_an_address_of_several_servers_is_refused() -> None:
    with pytest.raises(DatabaseUnreachable, match="Give one"):
        PostgresProxy("postgresql://one,other/fairlead")


# HTTP


class Counter(BaseHTTPRequestHandler):
    """Counts what it was asked to do."""

    protocol_version = "HTTP/1.1"
    done: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.done.append(self.path)
        self._answer()

    def _answer(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def http_proxy() -> Iterator[HttpProxy]:
    Counter.done.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Counter) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with HttpProxy("127.0.0.1", server.server_address[1]) as proxy:
                yield proxy
        finally:
            server.shutdown()
            thread.join()


def test_a_swallowed_response_belongs_to_a_request_that_was_done(http_proxy: HttpProxy) -> None:
    with httpx2.Client(base_url=http_proxy.url, timeout=SECONDS) as client:
        assert client.post("/before", content=b"x").status_code == 200
        http_proxy.swallow(1, share=1.0)
        assert client.get("/read").status_code == 200  # changes nothing
        with pytest.raises(httpx2.TransportError):
            client.post("/unknown", content=b"x")
        assert client.post("/after", content=b"x").status_code == 200

    assert Counter.done == ["/before", "/unknown", "/after"]
    assert http_proxy.count_swallowed() == 1


def test_http_connections_are_reset(http_proxy: HttpProxy) -> None:
    with contextlib.closing(http.client.HTTPConnection(http_proxy.url.removeprefix("http://"))) as client:
        client.request("GET", "/")
        client.getresponse().read()
        assert http_proxy.reset(1.0, CHANCE) == 1
        with pytest.raises(ConnectionResetError):
            client.sock.recv(1)
    assert httpx2.get(http_proxy.url, timeout=SECONDS).status_code == 200
