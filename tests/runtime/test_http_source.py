"""An agent's jobs over a line that loses what it likes."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from fairlead.errors import (
    AgentSuperseded,
    FairleadError,
    LeaseLost,
    ServerRefused,
    ServerUnreachable,
    Unauthenticated,
)
from fairlead.model.job import JobStatus, Lease
from fairlead.model.log import NewChunk
from fairlead.model.outcome import (
    Backoff,
    Canceled,
    Change,
    Failed,
    Outcome,
    RetryBudget,
    Snoozed,
    Succeeded,
    decide,
)
from fairlead.runtime.http_jobs import ReceivedJob
from fairlead.runtime.http_source import HttpSource
from fairlead.runtime.job_source import HeldJob
from fairlead.runtime.server_client import ServerClient, api_url
from fairlead.runtime.spool import Spool, SpooledRequest
from fairlead.store.queue import HeartbeatResult

Answer = Callable[[httpx2.Request], httpx2.Response]
HOST = uuid4()
BUDGET = RetryBudget(max_attempts=3, failure_count=0, lost_count=0, backoff=Backoff())


def fine(request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(200, json={"status": "succeeded", "truncated": False, "kept": 1})


def away(request: httpx2.Request) -> httpx2.Response:
    raise httpx2.ConnectError("nobody is there")


def lost(request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(409, json={"code": "lease_lost", "detail": "not yours any more"})


class Server:
    """Answers as it is told: each request with the next of `then`, and all others well."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.then: list[Answer] = []
        self.always: Answer = fine

    async def answer(self, request: httpx2.Request) -> httpx2.Response:
        self.heard.append((request.url.path.rpartition("/")[2], json.loads(request.content or b"{}")))
        return (self.then.pop(0) if self.then else self.always)(request)

    @property
    def asked(self) -> list[str]:
        return [what for what, _ in self.heard]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def line(server: Server) -> AsyncIterator[ServerClient]:
    async with ServerClient(
        "http://box.test/below", "secret", transport=httpx2.MockTransport(server.answer)
    ) as opened:
        yield opened


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool")


@pytest.fixture
def source(line: ServerClient, spool: Spool) -> HttpSource:
    return HttpSource(line, spool, HOST)


def job() -> ReceivedJob:
    return ReceivedJob(
        job_id=uuid4(),
        attempt_no=1,
        lease_token=uuid4(),
        tenant="acme",
        tenant_id=uuid4(),
        definition_key="SERVER_START",
        payload={},
        max_attempts=3,
        timeout_seconds=60,
    )


async def taken(source: HttpSource) -> HeldJob:
    source.give([job()])
    [held] = await source.claim(1)
    return held


def ending(outcome: Outcome) -> Change:
    return decide(BUDGET, outcome)


async def test_a_job_that_is_given_again_is_taken_once(source: HttpSource, server: Server) -> None:
    one = job()
    assert source.give([one, one]) == 1
    assert source.give([one]) == 0

    [held] = await source.claim(10)

    assert (held.job.definition_key, held.job.tenant, held.job.timeout_seconds) == (
        "SERVER_START",
        "acme",
        60,
    )
    assert source.give([one]) == 0  # an answer that was long on its way
    assert await source.claim(10) == []
    assert server.asked == ["accept"]


async def test_nobody_starts_what_may_not_have_been_accepted(source: HttpSource, server: Server) -> None:
    unsure, _refused, accepted = jobs = [job(), job(), job()]
    source.give(jobs)
    server.then = [away, lost, fine]

    claims = [await source.claim(3) for _ in range(3)]

    assert [[held.lease.job_id for held in claim] for claim in claims] == [
        [accepted.job_id],
        [unsure.job_id],
        [],
    ]
    assert server.asked == ["accept"] * 4


async def test_who_leaves_gives_back_what_was_not_accepted(source: HttpSource, server: Server) -> None:
    source.give([job(), job()])
    server.then = [away]

    await source.give_back()

    assert (server.asked, source.waiting) == (["release", "release"], 0)
    assert await source.claim(2) == []


async def test_a_heartbeat_tells_what_is_lost_and_what_is_to_stop(source: HttpSource, server: Server) -> None:
    kept, stopped, gone = (Lease(uuid4(), 1, uuid4()) for _ in range(3))
    beats = [
        {
            "job_id": str(one.job_id),
            "lost": one is gone,
            "renewed": one is kept,
            "cancel_requested": one is stopped,
        }
        for one in (kept, stopped, gone)
    ]
    server.then = [lambda _: httpx2.Response(200, json={"leases": beats, "lease_seconds": 30})]

    alive = await source.heartbeat([kept, stopped, gone])

    assert alive == {kept: HeartbeatResult(), stopped: HeartbeatResult(renewed=False, cancel=True)}
    assert [UUID(one["job_id"]) for one in server.heard[0][1]["leases"]] == [
        kept.job_id,
        stopped.job_id,
        gone.job_id,
    ]


async def test_a_result_is_on_the_disk_until_it_is_answered(
    source: HttpSource, server: Server, spool: Spool
) -> None:
    held = await taken(source)
    ends = [(held.lease, ending(Succeeded({"pid": 7})))]
    server.then = [away, lambda _: httpx2.Response(502)]
    for _ in range(2):
        with pytest.raises(ServerUnreachable):
            await source.finish(ends)
        assert spool.leases() == [held.lease]

    assert await source.finish(ends) == {held.lease.job_id: JobStatus.SUCCEEDED}

    assert server.asked == ["accept", "result", "result", "result"]
    assert server.heard[1][1] == server.heard[3][1]  # the same, whoever heard it
    assert (server.heard[3][1]["status"], server.heard[3][1]["output"]) == ("succeeded", {"pid": 7})
    assert spool.leases() == []


async def test_a_result_whose_lease_was_lost_is_forgotten(
    source: HttpSource, server: Server, spool: Spool
) -> None:
    held = await taken(source)
    server.always = lost

    assert await source.finish([(held.lease, ending(Succeeded()))]) == {}

    assert spool.leases() == []


async def test_who_leaves_keeps_what_nobody_heard_for_the_next_start(
    source: HttpSource, server: Server, line: ServerClient, spool: Spool
) -> None:
    held = await taken(source)
    server.always = away
    source.leaving = True
    await source.finish([(held.lease, ending(Succeeded()))])
    server.always = fine

    [left] = spool.leases()
    assert await HttpSource(line, spool, HOST).tell(left) is JobStatus.SUCCEEDED

    assert (left, spool.leases()) == (held.lease, [])


async def test_what_was_said_while_nobody_listened_is_told_before_the_end(
    source: HttpSource, server: Server, spool: Spool
) -> None:
    held = await taken(source)
    server.always = away
    assert await source.say(held.lease, [NewChunk(1, "stdout", "one\n")])
    assert await source.say(held.lease, [NewChunk(2, "stderr", "two\n")])
    server.heard, server.always = [], fine

    await source.finish([(held.lease, ending(Succeeded()))])

    assert server.asked == ["logs", "logs", "result"]
    assert [body["chunks"][0]["text"] for _, body in server.heard[:2]] == ["one\n", "two\n"]
    assert spool.leases() == []


async def test_a_result_that_was_heard_is_known_by_its_answer_though_nothing_more_may_be_said(
    source: HttpSource, server: Server
) -> None:
    held = await taken(source)
    server.then = [away]
    await source.say(held.lease, [NewChunk(1, "stdout", "one\n")])
    ends = [(held.lease, ending(Succeeded()))]
    server.then = [fine, away]  # heard, and the answer lost
    with pytest.raises(ServerUnreachable):
        await source.finish(ends)
    server.then = [lost, fine]

    assert await source.finish(ends) == {held.lease.job_id: JobStatus.SUCCEEDED}


@pytest.mark.parametrize(
    ("outcome", "what", "told"),
    [
        (Succeeded(cost_cents=3), "result", {"status": "succeeded", "cost_cents": 3}),
        (
            Failed("CommandFailed", "exited with 1"),
            "result",
            {
                "status": "failed",
                "error": {"type": "CommandFailed", "message": "exited with 1", "traceback": None},
                "retryable": True,
                "timed_out": False,
            },
        ),
        (Failed("Fatal", "never", retryable=False), "result", {"status": "failed", "retryable": False}),
        (Failed("Timeout", "too long", timed_out=True), "result", {"timed_out": True, "retryable": True}),
        (Canceled(), "release", {"delay_seconds": 0}),
        (Snoozed(5), "release", {"delay_seconds": 5}),
    ],
)
async def test_each_way_to_end_is_told_as_the_server_knows_it(
    source: HttpSource, server: Server, outcome: Outcome, what: str, told: dict[str, Any]
) -> None:
    held = await taken(source)

    await source.finish([(held.lease, ending(outcome))])

    assert server.asked[1:] == [what]
    assert told.items() <= server.heard[1][1].items()
    assert server.heard[1][1]["lease_token"] == str(held.lease.token)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (away, ServerUnreachable),
        (lambda _: httpx2.Response(503), ServerUnreachable),
        (lambda _: httpx2.Response(200, text="<html>Sign in to the network</html>"), ServerUnreachable),
        (lambda _: httpx2.Response(404, text="nothing here"), ServerRefused),
        (lambda _: httpx2.Response(422, json={"code": "invalid_input", "detail": "no"}), ServerRefused),
        (lambda _: httpx2.Response(401, json={"code": "unauthenticated", "detail": "no"}), Unauthenticated),
        (lambda _: httpx2.Response(409, json={"code": "agent_superseded", "detail": "no"}), AgentSuperseded),
        (lost, LeaseLost),
    ],
)
async def test_an_answer_is_the_error_that_it_stands_for(
    line: ServerClient, server: Server, answer: Answer, error: type[FairleadError]
) -> None:
    server.always = answer
    with pytest.raises(error):
        await line.post("/agent/hosts", {}, dict[str, Any])


@pytest.mark.parametrize(
    "given", ["https://a.test/x", "https://a.test/x/", "https://a.test/x/api/v1", "https://a.test/x/api/v1/"]
)
def test_a_server_may_be_below_a_path_and_its_api_be_named(given: str) -> None:
    assert api_url(given) == "https://a.test/x/api/v1"


def test_a_full_spool_takes_ends_but_nothing_that_was_said(tmp_path: Path) -> None:
    spool, lease = Spool(tmp_path, most_bytes=50), Lease(uuid4(), 1, uuid4())
    logs = SpooledRequest("logs", {"chunks": [{"text": "x" * 100}]})

    assert [spool.add_logs(lease, logs), spool.add_logs(lease, logs)] == [True, False]
    spool.add(lease, SpooledRequest("result", {}))

    assert [one.what for one in spool.requests(lease)] == ["logs", "result"]


def test_a_line_that_was_cut_off_is_left_out_and_spoils_no_other(tmp_path: Path) -> None:
    spool, lease = Spool(tmp_path), Lease(uuid4(), 1, uuid4())
    spool.add_logs(lease, SpooledRequest("logs", {"chunks": []}))
    [file] = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-9])
    spool.add(lease, SpooledRequest("result", {"status": "succeeded"}))

    assert list(Spool(tmp_path).requests(lease)) == [SpooledRequest("result", {"status": "succeeded"})]
