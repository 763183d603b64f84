"""The door of `fairlead serve`: real sockets at a real process that has few descriptors."""

import asyncio
import contextlib
import json
import resource
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

import httpx2
import psycopg
import pytest
from fastapi import FastAPI
from structlog.testing import capture_logs

from fairlead.server import connection_limits
from fairlead.server.connection_limits import (
    MOST_HEADER_BYTES,
    RESERVED_DESCRIPTORS,
    ServerConfig,
    max_connections,
)
from fairlead.settings import Settings
from tests.processes import FAIRLEAD, free_port, run, started, until
from tests.server.test_live import served as served_here
from tests.server.world import world_on
from tests.thorough import mostly_thorough
from tests.waiting import SECONDS, eventually

DESCRIPTORS = 256


@dataclass(frozen=True)
class Served:
    port: int
    token: str

    def jobs(self) -> int | None:
        """What another tenant's program gets, on a connection of its own."""
        headers = {"Authorization": f"Bearer {self.token}"}
        try:
            return httpx2.get(
                f"http://127.0.0.1:{self.port}/api/v1/jobs", headers=headers, timeout=SECONDS
            ).status_code
        except httpx2.TransportError:
            return None

    def connect(self, sent: bytes = b"") -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)
        made.sendall(sent)
        return made


@contextlib.contextmanager
def served(database_url: str, **settings: str) -> Iterator[Served]:
    env = {"FAIRLEAD_DATABASE_URL": database_url, **settings}
    made = run("tokens", "create", uuid4().hex, "--role", "operator", "--tenant", "acme", "--json", env=env)
    port = free_port()
    argv = [FAIRLEAD, "serve", "--port", str(port)]
    # to nowhere: a log that is not read would stop it
    with started(argv, env=env, stdout=subprocess.DEVNULL, descriptors=DESCRIPTORS):
        at = Served(port, json.loads(made.stdout)["secret"])
        until(lambda: at.jobs() == 200, "the server")
        yield at


HALF_A_HEADER = b"GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\nX-Slow: "
HALF_A_BODY = b"POST /api/v1/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"


@pytest.fixture(scope="module")
def door(module_url: str) -> Iterator[Served]:
    with served(module_url) as at:
        yield at


@pytest.mark.parametrize("sent", mostly_thorough([HALF_A_BODY, HALF_A_HEADER, b""]))
def test_slow_clients_do_not_shut_others_out(door: Served, sent: bytes) -> None:
    with contextlib.ExitStack() as opened:
        for _ in range(300):
            with contextlib.suppress(ConnectionError):  # some are cut for those that come after them
                opened.enter_context(door.connect(sent))

        assert [door.jobs() for _ in range(5)] == [200] * 5


TOO_LONG = b"GET / HTTP/1.1\r\nX-Long: "
ENDS: dict[str, tuple[bytes, int | None, str]] = {
    "silent": (b"", None, ""),
    "empty line": (b"\r\n", None, ""),
    "header": (HALF_A_HEADER, 408, "request_too_slow"),
    "body": (HALF_A_BODY, 408, "request_too_slow"),
    "idle": (b"GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\n\r\n", 401, "unauthenticated"),
    # answered before its body is here: the rest is not waited for
    "unwanted body": (
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
        401,
        "unauthenticated",
    ),
    # one byte too many: with more on its way, the connection would be reset
    "long header": (TOO_LONG + b"x" * (MOST_HEADER_BYTES + 1 - len(TOO_LONG)), 431, "header_too_large"),
}


@pytest.fixture(scope="module")
def answers(module_url: str) -> dict[str, bytes]:
    """What comes on each connection until the server ends it. All of them are open at the same time: most only wait."""
    settings = {
        # this test may stand still for a while before it sends
        "FAIRLEAD_REQUEST_HEADER_SECONDS": "5",
        "FAIRLEAD_REQUEST_BODY_SECONDS": "5",
        "FAIRLEAD_CONNECTION_IDLE_SECONDS": "0.5",
    }
    with served(module_url, **settings) as at, contextlib.ExitStack() as stack:
        made = {name: stack.enter_context(at.connect(sent)) for name, (sent, _, _) in ENDS.items()}
        return {name: b"".join(iter(partial(one.recv, 65_536), b"")) for name, one in made.items()}


@pytest.mark.parametrize("name", ENDS)
def test_a_connection_ends_by_itself(answers: dict[str, bytes], name: str) -> None:
    _, status, told = ENDS[name]

    assert (answers[name][:12] == f"HTTP/1.1 {status}".encode()) == (status is not None)
    assert told.encode() in answers[name]


async def test_a_client_that_does_not_read_its_answer_is_cut(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limits, "BYTES_PER_SECOND", 1_000_000_000)
    asked = b"GET /api/v1/docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.socket() as made, capture_logs() as logged:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        async with world_on(database_url, request_body_seconds=0.5) as world, served_here(world) as address:
            port = int(address.removeprefix("ws://127.0.0.1:").partition("/")[0])
            await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
            await eventually(lambda: _is_cut(made, asked), "the connection to be cut")

    assert "the client does not read its response" in [line.get("why") for line in logged]


def _is_cut(made: socket.socket, asked: bytes) -> bool:
    """Whether asking once more fails: answers that nobody reads fill every buffer."""
    try:
        made.send(asked)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return False


def test_one_address_has_so_many_connections_unless_it_is_a_proxy(database_url: str) -> None:
    settings = {"FAIRLEAD_MAX_CONNECTIONS_PER_ADDRESS": "3", "FORWARDED_ALLOW_IPS": "192.0.2.1"}
    with served(database_url, **settings) as at, contextlib.ExitStack() as opened:
        silent = [opened.enter_context(at.connect()) for _ in range(3)]
        # the first makes room: it owed its request for longest
        assert at.jobs() == 200
        assert silent[0].recv(1) == b""

        job = run_job(at)
        follow = f"GET /api/v1/jobs/{job}/logs?follow HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {at.token}\r\n\r\n"
        for _ in range(3):
            opened.enter_context(at.connect(follow.encode()))
        with psycopg.connect(database_url, autocommit=True) as database:
            until(partial(_are_followed, database, 3), "the server to have read what the three ask")
        refused = until(lambda: _answer_to(at), "a refusal")

    assert b"503 Service Unavailable" in refused
    assert b"FAIRLEAD_MAX_CONNECTIONS_PER_ADDRESS" in refused


def run_job(at: Served) -> str:
    body = {"definition_key": "greet", "payload": {"name": "Ada"}}
    headers = {"Authorization": f"Bearer {at.token}"}
    made = httpx2.post(f"http://127.0.0.1:{at.port}/api/v1/jobs", json=body, headers=headers, timeout=SECONDS)
    return str(made.json()["id"])


def _are_followed(database: "psycopg.Connection[Any]", number: int) -> bool:
    [(held,)] = database.execute("select coalesce(sum(held), 0) from fairlead.openings").fetchall()
    return bool(held == number)


def _answer_to(at: Served) -> bytes | None:
    """What one more connection is told as it comes, if it is refused."""
    with at.connect() as made:
        made.settimeout(0.2)
        try:
            return made.recv(65_536) or None
        except TimeoutError:
            return None


def test_connections_leave_descriptors_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    assert max_connections(Settings(pool_size=10)) == 1024 - 10 - RESERVED_DESCRIPTORS
    assert max_connections(Settings(max_connections=100)) == 100


def test_the_server_keeps_idle_connections_longer_than_a_proxy_does() -> None:
    # many proxies keep theirs for 60 s: a request on a connection that the server has just closed is answered with 502
    assert 60 < ServerConfig(FastAPI(), Settings()).timeout_keep_alive == Settings().connection_idle_seconds
