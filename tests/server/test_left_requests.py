"""A long read ends when its client disconnects, also in the database. A write goes on."""

from collections.abc import Callable, Iterator
from contextlib import closing
from socket import create_connection

import psycopg
import pytest
from structlog.testing import capture_logs

from fairlead.server import left_requests
from tests.server.world import World, listening
from tests.waiting import SECONDS, eventually

# not the statements of other tests
WAITING = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
JOBS = "select from fairlead.jobs"


@pytest.fixture
def look(database_url: str) -> Iterator[Callable[[str], int]]:
    """Counts the rows of a query."""
    with closing(psycopg.connect(database_url, autocommit=True)) as connection:
        yield lambda query: connection.execute(query.encode()).rowcount


@pytest.fixture
def holding(database_url: str) -> Iterator[psycopg.Connection]:
    """A transaction that lets nobody read definitions."""
    with closing(psycopg.connect(database_url)) as connection:
        connection.execute("lock table fairlead.job_definitions in access exclusive mode")
        yield connection


def request(world: World, line: str, body: bytes = b"") -> bytes:
    token = world.headers("tenant_admin")["Authorization"]
    head = f"{line} HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}\r\n".encode() + body


async def ask_and_leave(port: int, sent: bytes, look: Callable[[str], int]) -> None:
    """Send a request, and disconnect when a statement of it waits."""
    with closing(create_connection(("127.0.0.1", port), timeout=SECONDS)) as client:
        client.sendall(sent)
        await eventually(lambda: look(WAITING), "a statement that waits")


async def test_a_read_ends_when_its_client_has_left(
    world: World, look: Callable[[str], int], holding: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_requests, "WATCHED_AFTER_SECONDS", 0.05)
    with capture_logs() as logs:
        async with listening(world) as port:
            await ask_and_leave(port, request(world, "GET /api/v1/definitions"), look)
            await eventually(lambda: not look(WAITING), "the statement to end")
            holding.rollback()
    assert [log["status"] for log in logs if log["event"] == "request"] == [499]


async def test_a_write_goes_on_when_its_client_has_left(
    world: World, look: Callable[[str], int], holding: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_requests, "WATCHED_AFTER_SECONDS", 0.0)
    body = b'{"definition_key": "greet", "payload": {"name": "Ada"}}'
    async with listening(world) as port:
        await ask_and_leave(port, request(world, "POST /api/v1/jobs", body), look)
        holding.rollback()
        await eventually(lambda: look(JOBS), "the job")
