"""The door of `fairlead serve`: real sockets at a real process that has few descriptors."""

import contextlib
import json
import resource
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import httpx2
import pytest

from fairlead.server.connection_limits import RESERVED_DESCRIPTORS, max_connections
from fairlead.settings import Settings
from tests.processes import FAIRLEAD, free_port, run, started, until

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
                f"http://127.0.0.1:{self.port}/api/v1/jobs", headers=headers, timeout=10
            ).status_code
        except httpx2.TransportError:
            return None

    def connect(self, sent: bytes = b"") -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        made.sendall(sent)
        return made


@contextlib.contextmanager
def served(database_url: str, **settings: str) -> Iterator[Served]:
    env = {"FAIRLEAD_DATABASE_URL": database_url, **settings}
    made = run("tokens", "create", "ci", "--role", "operator", "--tenant", "acme", "--json", env=env)
    port = free_port()
    argv = [FAIRLEAD, "serve", "--port", str(port)]
    # to nowhere: a log that is not read would stop it
    with started(argv, env=env, stdout=subprocess.DEVNULL, descriptors=DESCRIPTORS):
        at = Served(port, json.loads(made.stdout)["secret"])
        until(lambda: at.jobs() == 200, "the server")
        yield at


HALF_A_HEADER = b"GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\nX-Slow: "
HALF_A_BODY = b"POST /api/v1/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"


@pytest.mark.parametrize("sent", [b"", HALF_A_HEADER, HALF_A_BODY])
def test_slow_clients_do_not_shut_others_out(database_url: str, sent: bytes) -> None:
    with served(database_url) as at, contextlib.ExitStack() as opened:
        for _ in range(300):
            with contextlib.suppress(ConnectionError):  # some are cut for those that come after them
                opened.enter_context(at.connect(sent))

        assert [at.jobs() for _ in range(5)] == [200] * 5


@pytest.mark.parametrize(
    ("sent", "status", "told"),
    [
        (b"", None, ""),
        (b"\r\n", None, ""),
        (HALF_A_HEADER, 408, "request_too_slow"),
        (HALF_A_BODY, 408, "request_too_slow"),
        (b"GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\n\r\n", 401, "unauthenticated"),
        # answered before its body is here: the rest is not waited for
        (b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n", 401, "unauthenticated"),
        (b"GET / HTTP/1.1\r\nX-Long: " + b"x" * 70_000, 431, "header_too_large"),
    ],
    ids=["silent", "empty line", "header", "body", "idle", "unwanted body", "long header"],
)
def test_a_connection_ends_by_itself(
    door_of_seconds: Served, sent: bytes, status: int | None, told: str
) -> None:
    with door_of_seconds.connect(sent) as made:
        answer = b"".join(iter(lambda: made.recv(65_536), b""))  # to its end, or the test times out

    assert (answer[:12] == f"HTTP/1.1 {status}".encode()) == (status is not None)
    assert told.encode() in answer


def test_a_client_that_does_not_read_its_answer_is_cut(door_of_seconds: Served) -> None:
    with door_of_seconds.connect() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        asked = b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
        until(lambda: _is_cut(made, asked), "the connection to be cut")


def _is_cut(made: socket.socket, asked: bytes) -> bool:
    """Whether asking once more fails: answers that nobody reads fill every buffer."""
    made.settimeout(0.05)
    try:
        made.sendall(asked)
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return False


@pytest.fixture(scope="module")
def door_of_seconds(module_url: str) -> Iterator[Served]:
    settings = {
        "FAIRLEAD_REQUEST_HEADER_SECONDS": "0.5",
        "FAIRLEAD_REQUEST_BODY_SECONDS": "0.5",
        "FAIRLEAD_CONNECTION_IDLE_SECONDS": "0.5",
    }
    with served(module_url, **settings) as at:
        yield at


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
        refused = until(lambda: _answer_to(at), "a refusal")

    assert b"503 Service Unavailable" in refused
    assert b"FAIRLEAD_MAX_CONNECTIONS_PER_ADDRESS" in refused


def run_job(at: Served) -> str:
    body = {"definition_key": "greet", "payload": {"name": "Ada"}}
    headers = {"Authorization": f"Bearer {at.token}"}
    made = httpx2.post(f"http://127.0.0.1:{at.port}/api/v1/jobs", json=body, headers=headers)
    return str(made.json()["id"])


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
