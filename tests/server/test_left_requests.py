"""A long read ends when its client disconnects, also in the database. A write goes on, and so does what must not be lost."""

import asyncio
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import closing
from socket import create_connection
from typing import Any

import psycopg
import pytest
from starlette.types import Message, Receive, Scope, Send
from structlog.testing import capture_logs

from fairlead.actions import access, address_lists, definitions
from fairlead.errors import SignInRefused
from fairlead.model.access import Role
from fairlead.server import left_requests
from fairlead.server.console.pages import downloads
from fairlead.server.left_requests import LeftRequests
from tests import given
from tests.acting import act
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


def request(world: World, line: str, body: bytes = b"", who: str = "tenant_admin") -> bytes:
    token = world.headers(who)["Authorization"]
    head = f"{line} HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}\r\n".encode() + body


async def ask_and_leave(port: int, sent: bytes, look: Callable[[str], int]) -> None:
    """Send a request, and disconnect when a statement of it waits."""
    with closing(create_connection(("127.0.0.1", port), timeout=SECONDS)) as client:
        client.sendall(sent)
        await eventually(lambda: look(WAITING), "a statement that waits")


@pytest.mark.postgres_only("statements wait for locks of shards, not of the table")
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


@pytest.mark.postgres_only("statements wait for locks of shards, not of the table")
async def test_a_write_goes_on_when_its_client_has_left(
    world: World, look: Callable[[str], int], holding: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_requests, "WATCHED_AFTER_SECONDS", 0.0)
    body = b'{"definition_key": "greet", "payload": {"name": "Ada"}}'
    async with listening(world) as port:
        await ask_and_leave(port, request(world, "POST /api/v1/jobs", body), look)
        holding.rollback()
        await eventually(lambda: look(JOBS), "the job")


class Pause:
    """Makes an asynchronous function wait, before it begins or after it, until the client of its request has left."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, *, is_after: bool = False
    ) -> None:
        monkeypatch.setattr(left_requests, "WATCHED_AFTER_SECONDS", 0.0)
        self._function = getattr(owner, name)
        self._is_after = is_after
        self._goes_on = asyncio.Event()
        self.begun = asyncio.Event()
        self.ended = 0
        monkeypatch.setattr(owner, name, self._call)

    async def _call(self, *args: Any, **named: Any) -> Any:
        answer = await self._function(*args, **named) if self._is_after else None
        self.begun.set()
        await self._goes_on.wait()
        answer = answer if self._is_after else await self._function(*args, **named)
        self.ended += 1
        return answer

    async def leave(self, world: World, sent: bytes) -> list[MutableMapping[str, Any]]:
        """Send a request, leave in the pause, and let it go on. The log of the request."""
        with capture_logs() as logs:
            async with listening(world) as port:
                with closing(create_connection(("127.0.0.1", port), timeout=SECONDS)) as client:
                    client.sendall(sent)
                    await asyncio.wait_for(self.begun.wait(), SECONDS)
                await eventually(lambda: [log for log in logs if log["event"] == "client_left"], "the leave")
                self._goes_on.set()
                await eventually(lambda: [log for log in logs if log["event"] == "request"], "the end")
        return [log for log in logs if log["event"] == "request"]


async def test_a_denial_is_audited_though_its_client_has_left(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = Pause(monkeypatch, access, "record_denial")

    await pause.leave(world, request(world, "GET /api/v1/users", who="viewer"))

    [entry] = await given.audit_entries(world, "access_denied")
    assert entry.details["route"] == "/api/v1/users"


async def test_a_refusal_of_an_address_is_audited_though_its_client_has_left(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.transaction() as tx:
        made = await access.create_token(
            tx,
            given.TESTER,
            name="elsewhere",
            role=Role.VIEWER,
            tenant_id=world.tenants[given.TENANT],
            addresses=["198.51.100.0/24"],
        )
    world.secrets[given.TENANT, "elsewhere"] = made.secret
    pause = Pause(monkeypatch, address_lists, "record_refusal")

    await pause.leave(world, request(world, "GET /api/v1/jobs", who="elsewhere"))

    async with world.transaction() as tx:
        assert len(await given.audit_entries(tx, "address_refused")) == 1


async def test_a_guess_counts_though_its_client_has_left(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.secrets[given.TENANT, "guess"] = "a guess"
    pause = Pause(monkeypatch, world.app.state.gatekeeper.failures, "count")

    await pause.leave(world, request(world, "GET /api/v1/jobs", who="guess"))

    assert pause.ended == 1


async def test_jobs_that_a_poll_has_taken_are_given_to_the_next_if_its_client_has_left(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = world.hosts[given.TENANT]
    await act(world, definitions.patch, given.TESTER, "on_host", {"kind": "host"})
    begun = await world.call("POST", f"/agent/hosts/{host}/session", who="agent", json={"version": "1"})
    path = f"/agent/hosts/{host}/jobs?session={begun.json()['session_id']}&wait=0"
    assert (await world.call("GET", path, who="agent")).json()["jobs"] == []
    job = await world.fl.enqueue("on_host", tenant=given.TENANT, host_id=host)
    # when its transaction has committed, and nothing else has noted what it took
    pause = Pause(monkeypatch, world.fl.database, "transact", is_after=True)

    await pause.leave(world, request(world, f"GET /api/v1{path}", who="agent"))

    again = (await world.call("GET", path, who="agent")).json()["jobs"]
    assert [one["job_id"] for one in again] == [str(job.id)]


async def test_a_sign_in_with_a_provider_goes_on_though_the_browser_has_left(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    redeemed: list[bool] = []

    async def redeem(*_: Any) -> None:
        redeemed.append(True)
        raise SignInRefused("it began elsewhere")

    monkeypatch.setattr(world.app.state.oidc, "finish", redeem)
    pause = Pause(monkeypatch, world.app.state.oidc, "finish")

    await pause.leave(world, b"GET /console/sign-in/with/work/callback HTTP/1.1\r\nHost: x\r\n\r\n")

    assert redeemed


async def test_a_download_that_was_sent_whole_is_not_one_that_its_client_left(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_requests, "WATCHED_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(downloads, "PAGE_ROWS", 1)
    async with world.transaction() as tx:
        for _ in range(5):
            await given.event(tx)
    with capture_logs() as logs:
        async with listening(world) as port:
            with closing(create_connection(("127.0.0.1", port), timeout=SECONDS)) as client:
                client.sendall(request(world, "GET /console/events.csv", who="viewer"))
                await eventually(lambda: [log for log in logs if log["event"] == "request"], "the end")
    assert [log["status"] for log in logs if log["event"] == "request"] == [200]
    assert not [log for log in logs if log["event"] == "client_left"]


SCOPE: Scope = {"type": "http", "method": "GET", "path": "/", "headers": []}


class Server:
    """A server that reports a disconnect when the response is complete, as all do."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self._asked = False
        self._complete = asyncio.Event()

    async def receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._complete.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self._complete.set()


async def rest() -> None:
    """Let all others run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_request_is_not_stopped_after_its_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_requests, "WATCHED_AFTER_SECONDS", 0.0)
    server, ended = Server(), []

    async def respond(_scope: Scope, _receive: Receive, send: Send) -> None:
        await rest()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"whole"})
        await rest()  # it closes its transaction, and notes the status
        ended.append(True)

    await LeftRequests(respond)(SCOPE, server.receive, server.send)

    assert ended


async def test_the_application_gets_what_the_watcher_has_received(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_requests, "WATCHED_AFTER_SECONDS", 0.0)
    server, received = Server(), list[Message]()

    async def read_late(_scope: Scope, receive: Receive, _send: Send) -> None:
        await rest()  # its turn comes late
        async with asyncio.timeout(SECONDS):
            received.append(await receive())

    await LeftRequests(read_late)(SCOPE, server.receive, server.send)

    assert [message["type"] for message in received] == ["http.request"]
