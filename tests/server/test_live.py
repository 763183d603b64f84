"""Live sockets over a real server: who is let in, what they are told, and when they are cut."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from fairlead.actions import access, definitions, gates
from fairlead.db.database import Database
from fairlead.db.tx import TransactionIdentity
from fairlead.model.access import Role
from fairlead.model.outcome import Backoff, RetryBudget, Succeeded, decide
from fairlead.server import live_sockets as feeding
from fairlead.server.live_feed import Frame, TenantWatch
from fairlead.server.live_sockets import MOST_WAITING, LiveSocket, SocketCredential, TenantFeed
from fairlead.store import live, queue
from tests import given
from tests.acting import act
from tests.server.world import World, listening, world_on
from tests.tables import each_case
from tests.waiting import SECONDS

pytestmark = pytest.mark.usefixtures("patient_feeds")


class Viewer:
    """A socket and what came through it."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.frames: list[dict[str, Any]] = []

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(SECONDS):
            frame: dict[str, Any] = json.loads(await self.socket.recv())
        self.frames.append(frame)
        return frame

    async def until(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The first frame of a kind, with these fields."""
        async with asyncio.timeout(SECONDS):
            while True:
                frame = await self.next()
                if frame["type"] == kind and all(frame.get(name) == value for name, value in fields.items()):
                    return frame

    async def closed(self) -> int:
        """The code that it is closed with."""
        with pytest.raises(ConnectionClosed) as raised:
            while True:
                await self.next()
        assert raised.value.rcvd is not None
        return int(raised.value.rcvd.code)


@pytest.fixture
async def address(world: World) -> AsyncIterator[str]:
    async with served(world) as where:
        yield where


@contextlib.asynccontextmanager
async def served(world: World) -> AsyncIterator[str]:
    """Where a real server answers for the world."""
    async with listening(world) as port:
        yield f"ws://127.0.0.1:{port}/api/v1/live"


@contextlib.asynccontextmanager
async def watching(
    address: str, headers: dict[str, str] | None = None, **query: str
) -> AsyncIterator[Viewer]:
    """A socket that was greeted: from then on everything is told."""
    question = "&".join(f"{name}={value}" for name, value in query.items())
    async with connect(
        f"{address}?{question}", additional_headers=headers, open_timeout=SECONDS, ping_timeout=SECONDS
    ) as socket:
        viewer = Viewer(socket)
        await viewer.until("hello")
        yield viewer


async def ticket(world: World, **asking: Any) -> str:
    answer = await world.call("POST", "/live/ticket", **asking)
    assert answer.status_code == 201, answer.text
    assert answer.json()["expires_in"] == 30
    return str(answer.json()["ticket"])


async def refusal(address: str, headers: dict[str, str] | None = None, **query: str) -> tuple[int, str]:
    """The status and code that a socket is refused with, before it is accepted."""
    with pytest.raises(InvalidStatus) as raised:
        async with watching(address, headers, **query):
            pass
    response = raised.value.response
    return response.status_code, json.loads(response.body)["code"]


# Who is let in


@each_case("who", ["viewer", "operator", "tenant_admin", "super_admin"])
async def test_people_watch_with_a_ticket_that_is_good_once(world: World, address: str, who: str) -> None:
    bought = await ticket(world, who=who)

    async with watching(address, ticket=bought) as viewer:
        assert viewer.frames[0]["type"] == "hello"
    assert await refusal(address, ticket=bought) == (401, "unauthenticated")


async def test_a_ticket_is_good_for_half_a_minute(world: World, address: str) -> None:
    bought = await ticket(world)
    await given.age(world, "tickets", seconds=31)

    assert await refusal(address, ticket=bought) == (401, "unauthenticated")


async def test_a_ticket_dies_with_the_token_that_bought_it(world: World, address: str) -> None:
    bought = await ticket(world)
    await act(world.fl.database, access.revoke_token, given.TESTER, world.token_ids[given.TENANT, "operator"])

    assert await refusal(address, ticket=bought) == (401, "unauthenticated")


async def test_a_page_of_another_site_is_refused_even_with_a_ticket(world: World, address: str) -> None:
    bought = await ticket(world)

    assert await refusal(address, {"Origin": "http://elsewhere.test"}, ticket=bought) == (403, "cross_site")
    async with watching(address, ticket=bought):
        pass  # and the ticket was not used up by it


async def test_no_ticket_is_kept_as_it_was_given(world: World) -> None:
    bought = await ticket(world)

    assert bought not in await given.stored_text(world, "live_tickets")


async def test_a_program_watches_with_its_token(world: World, address: str) -> None:
    async with watching(address, world.headers("viewer")) as viewer:
        assert viewer.frames[0]["tenant_id"] == str(world.tenants[given.TENANT])


async def test_a_brief_socket_learns_that_jobs_changed_and_no_more(world: World, address: str) -> None:
    async with watching(address, world.headers("viewer"), brief="true") as viewer:
        async with world.fl.database.transaction() as tx:
            for _ in range(5):
                await given.queued_job(tx)
        await viewer.until("jobs.changed")

    assert not [frame for frame in viewer.frames if "job_id" in frame]


async def test_a_page_of_ours_watches_with_its_cookie(world: World, address: str) -> None:
    cookie = {"Cookie": await world.signed_in()}
    host = address.removeprefix("ws://").partition("/")[0]

    async with watching(address, {**cookie, "Origin": f"http://{host}"}):
        pass
    assert await refusal(address, {**cookie, "Origin": "http://elsewhere.test"}) == (403, "cross_site")
    assert await refusal(address, {**cookie, "Sec-Fetch-Site": "cross-site"}) == (403, "cross_site")


async def test_a_token_in_the_address_is_refused(world: World, address: str) -> None:
    secret = world.secrets[given.TENANT, "operator"]

    assert await refusal(address, token=secret) == (422, "invalid_input")


async def test_a_tenant_cannot_watch_another(world: World, address: str) -> None:
    unknown = await refusal(address, world.headers("operator"), tenant="nobody")

    assert await refusal(address, world.headers("operator"), tenant=given.OTHER) == unknown
    assert unknown[0] == 404


# What they are told


async def enqueue(world: World, tenant: str = given.TENANT, **fields: Any) -> str:
    return str((await world.fl.enqueue("greet", tenant=tenant, payload={"name": "Ada"}, **fields)).id)


async def run_at_once(database: Database, number: int) -> None:
    """Claim so many jobs in one transaction, and let them succeed in another: a look sees all of them or none."""
    claim = await act(database, queue.claim, worker="w", wanted=number, lease_seconds=600)
    assert len(claim.jobs) == number
    done = decide(RetryBudget(3, 0, 0, Backoff()), Succeeded(None))
    await act(database, queue.finish, [(claim.lease(job), done) for job in claim.jobs], actor="w")


async def test_a_job_is_told_from_its_creation_to_its_end(world: World, address: str) -> None:
    async with watching(address, world.headers("viewer")) as viewer:
        job = await enqueue(world)
        created = await viewer.until("job.created", job_id=job)
        [lease] = await world.fl.claim(1)
        started = await viewer.until("job_run.started", job_id=job)
        await lease.progress(40, "half way")
        progress = await viewer.until("job_run.progress", job_id=job)
        await lease.succeed({"secret": "never shown"})
        completed = await viewer.until("job_run.completed", job_id=job)

    assert (created["status"], created["definition_key"]) == ("queued", "greet")
    assert started["attempt_no"] == 1
    run_id = await given.attempt_id(world, job)
    assert {one["job_run_id"] for one in (started, progress, completed)} == {str(run_id)}
    assert progress["progress"] == {"percent": 40, "message": "half way"}
    assert completed["status"] == "succeeded"
    assert completed["duration_ms"] >= 0
    assert "never shown" not in json.dumps(viewer.frames)
    assert "Ada" not in json.dumps(viewer.frames)
    kinds = [frame["type"] for frame in viewer.frames if frame.get("job_id") == job]
    assert kinds == ["job.created", "job_run.started", "job_run.progress", "job_run.completed"]


async def test_a_failure_that_will_be_retried_is_told_with_its_first_line(world: World, address: str) -> None:
    async with watching(address, world.headers("viewer")) as viewer:
        job = await enqueue(world)
        [lease] = await world.fl.claim(1)
        await lease.fail("the first line\nand the rest")
        failed = await viewer.until("job_run.failed", job_id=job)

    assert (failed["status"], failed["attempt_no"]) == ("queued", 1)
    assert failed["error"].endswith("the first line")
    # it may have begun and ended between two looks: its start is told all the same
    kinds = [frame["type"] for frame in viewer.frames if frame.get("job_id") == job]
    assert kinds == ["job.created", "job_run.started", "job_run.failed"]


async def test_no_frame_shows_what_the_settings_hide(database_url: str) -> None:
    async with (
        world_on(database_url, redact_patterns=("canary-[0-9]+",)) as hiding,
        served(hiding) as address,
        watching(address, hiding.headers("viewer")) as viewer,
    ):
        job = await enqueue(hiding)
        [lease] = await hiding.fl.claim(1)
        await lease.progress(10, "now at canary-1")
        await viewer.until("job_run.progress", job_id=job)
        await lease.fail("refused canary-2")
        failed = await viewer.until("job_run.failed", job_id=job)

    assert "refused" in failed["error"]
    assert "canary" not in json.dumps(viewer.frames)


async def test_cancel_and_retry_are_told(world: World, address: str) -> None:
    async with watching(address, world.headers("viewer")) as viewer:
        job = await enqueue(world)
        await world.call("POST", f"/jobs/{job}/cancel")
        await viewer.until("job.canceled", job_id=job, status="canceled")
        await world.call("POST", f"/jobs/{job}/retry")
        await viewer.until("job.retried", job_id=job, status="queued")


async def test_a_retry_tells_nothing_of_the_attempts_before_it(world: World, address: str) -> None:
    job = await enqueue(world)
    [lease] = await world.fl.claim(1)
    await lease.fail("no use", retryable=False)
    await given.age(world, "attempts", seconds=2 * SECONDS)
    async with watching(address, world.headers("viewer")) as viewer:
        await world.call("POST", f"/jobs/{job}/retry")
        await viewer.until("job.retried", job_id=job)
        [lease] = await world.fl.claim(1)
        await lease.succeed()
        await viewer.until("job_run.completed", job_id=job, attempt_no=2)

    assert [frame for frame in viewer.frames if frame.get("attempt_no") == 1] == []


async def test_a_success_that_is_not_audited_is_told_too(world: World, address: str) -> None:
    await act(world.fl.database, definitions.patch, given.TESTER, "greet", {"audit_action": None})
    async with watching(address, world.headers("viewer")) as viewer:
        job = await enqueue(world)
        [lease] = await world.fl.claim(1)
        await viewer.until("job_run.started", job_id=job)
        await lease.succeed()
        await viewer.until("job_run.completed", job_id=job)


async def test_what_commits_long_after_its_time_shows_in_the_counts(world: World, address: str) -> None:
    async with watching(address, world.headers("viewer")) as viewer:
        async with world.fl.database.transaction() as tx:
            await given.queued_job(tx)
            # as if the transaction had been open for long: nobody looks that far back
            await tx.run("alter table fairlead.audit_log disable trigger all")
            await tx.run(
                "update fairlead.audit_log set at = at - interval '10 minutes' where action = 'job_created'"
            )
            await tx.run("alter table fairlead.audit_log enable trigger all")
        changed = await viewer.until("jobs.changed")

    assert changed["counts"]["queued"] == 1


async def test_many_at_once_are_one_frame_with_counts(world: World, address: str) -> None:
    async with watching(address, world.headers("viewer")) as viewer:
        await world.fl.enqueue_many([given.request() for _ in range(1000)])
        changed = await viewer.until("jobs.changed")
        await run_at_once(world.fl.database, 500)
        async with asyncio.timeout(SECONDS):
            while changed["counts"]["succeeded"] < 500:
                changed = await viewer.until("jobs.changed")

    assert len(viewer.frames) < 200


async def test_gates_are_told_to_those_they_concern(world: World, address: str) -> None:
    async with (
        watching(address, world.headers("viewer")) as ours,
        watching(address, world.headers("viewer", given.OTHER)) as theirs,
    ):
        await act(world.fl.database, gates.pause, given.TESTER, tenant=given.TENANT)
        await ours.until("gate.changed", gate="tenant", paused=True)
        await act(world.fl.database, gates.pause, given.TESTER)
        await ours.until("gate.changed", gate="system", paused=True)
        await theirs.until("gate.changed", gate="system", paused=True)

    assert [frame for frame in theirs.frames if frame.get("gate") == "tenant"] == []


async def test_nobody_is_told_of_another_tenant(world: World, address: str) -> None:
    async with (
        watching(address, world.headers("tenant_admin")) as ours,
        watching(address, world.headers("tenant_admin", given.OTHER)) as theirs,
        watching(address, world.headers("super_admin")) as everything,
        watching(address, world.headers("super_admin"), tenant=given.OTHER) as one,
    ):
        our_job, their_job = await enqueue(world), await enqueue(world, given.OTHER)
        await ours.until("job.created", job_id=our_job)
        for viewer in (theirs, one):
            await viewer.until("job.created", job_id=their_job)
        async with asyncio.timeout(SECONDS):
            while {our_job, their_job} - {frame.get("job_id") for frame in everything.frames}:
                await everything.next()

    assert their_job not in json.dumps(ours.frames)
    assert our_job not in json.dumps(theirs.frames + one.frames)


@pytest.mark.parametrize(
    ("tenant", "look"), [(given.TENANT, live.sql.tail), (None, live.sql.tail), (None, live.sql.system_tail)]
)
async def test_a_look_is_the_end_of_an_index(world: World, tenant: str | None, look: str) -> None:
    """However long the log: also under row-level security, which keeps some conditions from an index."""
    tenant_id = None if tenant is None else world.tenants[tenant]
    async with world.fl.database.transaction(TransactionIdentity(tenant_id)) as tx:
        await tx.prefer_indexes()
        values = {"tenant_id": tenant_id, "since": await live.read_clock(tx), "limit": 10}
        plan = "\n".join(line for (line,) in await tx.values("explain " + look, values))

    assert re.search(r"Index Cond: \(\(tenant_id .*\bat > ", plan), plan
    assert "Seq Scan on audit_log" not in plan


async def test_a_super_admin_sees_workers_come_and_go(
    world: World, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "WORKER_SECONDS", 0.05)
    world.fl.job(key="known")(lambda: None)
    stop = asyncio.Event()
    async with watching(address, world.headers("super_admin")) as viewer:
        async with asyncio.timeout(SECONDS):
            while world.app.state.live._workers is None:
                await asyncio.sleep(0.01)
        working = asyncio.create_task(world.fl.work(stop))
        came = await viewer.until("worker.appeared")
        stop.set()
        await working
        await viewer.until("worker.gone", worker_id=came["worker_id"])


# Coming back


async def test_who_comes_back_is_told_what_it_missed(world: World, address: str) -> None:
    async with watching(address, world.headers("viewer")) as viewer:
        cursor = viewer.frames[-1]["cursor"]
    job = await enqueue(world)
    [lease] = await world.fl.claim(1)
    await lease.succeed()

    async with watching(address, world.headers("viewer"), since=cursor) as viewer:
        kinds = [frame["type"] for frame in viewer.frames if frame.get("job_id") == job]

    assert kinds == ["job.created", "job_run.started", "job_run.completed"]


@pytest.mark.parametrize("since", ["1", "nonsense", "9" * 16])
async def test_who_was_away_too_long_is_told_to_refetch(world: World, address: str, since: str) -> None:
    async with watching(address, world.headers("viewer"), since=since) as viewer:
        assert [frame["type"] for frame in viewer.frames] == ["refetch", "hello"]


# When they are cut


async def test_a_revoked_token_closes_its_socket_soon(
    world: World, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "CHECK_SECONDS", 0.1)
    async with (
        watching(address, world.headers("viewer")) as viewer,
        watching(address, ticket=await ticket(world, who="viewer")) as by_ticket,
        watching(address, world.headers("operator")) as other,
    ):
        async with world.fl.database.transaction() as tx:
            await access.revoke_token(tx, given.TESTER, world.token_ids[given.TENANT, "viewer"])
        assert await viewer.closed() == 4401
        assert await by_ticket.closed() == 4401
        job = await enqueue(world)
        await other.until("job.created", job_id=job)


async def test_signing_out_closes_the_socket(
    world: World, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "CHECK_SECONDS", 0.1)
    async with watching(address, {"Cookie": await world.signed_in(Role.VIEWER)}) as viewer:
        await given.end_sessions(world)
        assert await viewer.closed() == 4401


async def test_a_server_that_stops_closes_its_sockets(world: World) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with served(world) as address:
            viewer = await stack.enter_async_context(watching(address, world.headers("viewer")))
        assert await viewer.closed() == 1012
    assert world.app.state.live._tasks == []


def pushed(socket: LiveSocket, count: int) -> None:
    socket.push([f"{n}" for n in range(count)], "refetch")


async def test_one_that_falls_behind_is_told_to_refetch_and_then_cut() -> None:
    socket = LiveSocket(SocketCredential(None, b""))
    pushed(socket, MOST_WAITING)
    assert len(socket._waiting) == MOST_WAITING

    pushed(socket, 1)
    assert list(socket._waiting) == ["refetch"]
    assert socket.closing is None

    pushed(socket, MOST_WAITING)
    assert socket.closing == (4408, "too slow")


async def test_one_that_reads_nothing_is_cut_and_the_others_go_on(
    world: World, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "CLOSE_SECONDS", 0.5)
    host, port = address.removeprefix("ws://").partition("/")[0].split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    key = world.headers("viewer")["Authorization"]
    writer.write(
        f"GET /api/v1/live HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        f"Authorization: {key}\r\n\r\n".encode()
    )
    assert b"101" in await reader.readline()
    async with watching(address, world.headers("operator")) as viewer:
        room: TenantFeed = world.app.state.live._feeds[world.tenants[given.TENANT]]
        async with asyncio.timeout(SECONDS):
            while len(room.sockets) < 2:
                await asyncio.sleep(0.01)
            now = await world.fl.database.transact(live.read_clock)
            big = [Frame(type="job_run.failed", at=now, error="x" * 20_000) for _ in range(100)]
            while len(room.sockets) > 1:  # as fast as the one that reads takes them
                room.tell(big, now)
                for _ in big:
                    await viewer.next()
        job = await enqueue(world)
        await viewer.until("job.created", job_id=job)
    writer.close()


# Many


@pytest.mark.thorough
async def test_two_hundred_sockets_receive_a_burst(world: World, address: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        viewers = [
            await stack.enter_async_context(watching(address, world.headers("viewer"))) for _ in range(200)
        ]
        assert world.app.state.live.connections == 200
        await world.fl.enqueue_many([given.request() for _ in range(300)])
        await run_at_once(world.fl.database, 300)

        async def told(viewer: Viewer) -> None:
            async with asyncio.timeout(SECONDS):
                while (await viewer.until("jobs.changed"))["counts"]["succeeded"] < 300:
                    pass

        await asyncio.gather(*map(told, viewers))
        assert max(len(viewer.frames) for viewer in viewers) < 50


async def test_nobody_is_looked_at_when_nobody_watches(world: World, address: str) -> None:
    rooms = world.app.state.live
    async with watching(address, world.headers("viewer")):
        assert rooms._tasks
    async with asyncio.timeout(SECONDS):
        while rooms._tasks:
            await asyncio.sleep(0.01)
    assert rooms.connections == 0


async def test_a_room_remembers_a_bounded_part_of_what_it_saw(world: World) -> None:
    watch = TenantWatch(None)
    watch._remember_ended((job, 1) for job in [world.tenants[given.TENANT]])
    watch._remember_ended((world.tenants[given.TENANT], n) for n in range(100_000))

    assert len(watch._ended) <= 4 * 500


async def test_one_slow_look_is_no_dear_room_but_slow_looks_are(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, takes = 1000.0, 0.2
    rooms = feeding.LiveFeeds(world.fl)
    tenant_id = world.tenants[given.TENANT]
    room = rooms._feeds[tenant_id] = TenantFeed(
        TenantWatch(tenant_id), {LiveSocket(SocketCredential(None, None))}
    )

    async def look(*_: object) -> None:
        nonlocal now
        now += takes

    async def pause_after_a_look() -> float:
        nonlocal now
        now = begun = max(now, room.due_at)
        await rooms._poll_feeds()
        return room.due_at - begun

    monkeypatch.setattr(rooms, "_poll_feed", look)
    monkeypatch.setattr(feeding, "time", SimpleNamespace(monotonic=lambda: now))

    assert await pause_after_a_look() < 1
    assert await pause_after_a_look() < 1
    assert await pause_after_a_look() == pytest.approx(2.0)
    takes = 0.01
    assert await pause_after_a_look() < 1
