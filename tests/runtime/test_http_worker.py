"""A worker over HTTP in this process, against a real server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from fairlead import Context, Fairlead, Settings
from fairlead.actions import access
from fairlead.cli.http_worker import build_execution
from fairlead.errors import InvalidInput, ServerUnreachable, Unauthenticated
from fairlead.model.job import JobStatus
from fairlead.model.outcome import Backoff, RetryBudget, Succeeded, decide
from fairlead.runtime.claim_requests import CLAIM_ERRORS, ClaimRequests
from fairlead.runtime.http_worker import HttpWorker, HttpWorkerPlan
from fairlead.runtime.http_worker_source import HttpWorkerSource
from fairlead.runtime.job_source import HeldJob
from fairlead.runtime.server_client import ServerClient
from fairlead.runtime.unstarted import UnreadClaims
from tests import given
from tests.processes import free_port
from tests.server.world import World, listening, world_on
from tests.waiting import SECONDS, eventually

KEY = "anything"
BUDGET = RetryBudget(max_attempts=3, failure_count=0, lost_count=0, backoff=Backoff())
NO_DATABASE = Settings(database_url="postgresql://127.0.0.1:1/none")


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with world_on(database_url) as made:
        yield made


@pytest.fixture
async def url(world: World) -> AsyncIterator[str]:
    async with listening(world) as port:
        yield f"http://127.0.0.1:{port}"


def plan_of(fl: Fairlead, url: str, token: str, **changes: Any) -> HttpWorkerPlan:
    plan = HttpWorkerPlan(
        server=url,
        token=token,
        start=lambda means: build_execution(fl, means, "A worker over HTTP"),
        threads=fl.threads,
        keys=sorted(fl.functions),
        concurrency=10,
        drain_seconds=1,
        version="1",
    )
    return replace(plan, **changes)


def secret_of(world: World) -> str:
    return world.secrets[given.TENANT, "worker"]


@asynccontextmanager
async def working(plan: HttpWorkerPlan) -> AsyncIterator["asyncio.Task[None]"]:
    """A running worker, which drains at the end of the block."""
    stop, begun = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(HttpWorker(plan).run(stop, asyncio.Event(), begun.set))
    try:
        yield task
    finally:
        stop.set()
        await asyncio.wait_for(task, SECONDS)


async def enqueued(world: World, **payload: Any) -> UUID:
    return (await world.fl.enqueue(definition=KEY, tenant=given.TENANT, payload=payload)).id


async def ended(world: World, job_id: UUID) -> Any:
    async with asyncio.timeout(SECONDS):
        while not (job := await world.fl.read(job_id)).status.terminal:
            await asyncio.sleep(0.02)
    return job


def app() -> Fairlead:
    return Fairlead(settings=NO_DATABASE)


@asynccontextmanager
async def sources(
    world: World, url: str, unread: UnreadClaims | None = None
) -> AsyncIterator[tuple[HttpWorkerSource, ClaimRequests]]:
    async with ServerClient(url, secret_of(world), known=CLAIM_ERRORS) as client:
        claims = ClaimRequests(
            client, worker_id="w", keys=[KEY], version="1", stop=asyncio.Event(), unread=unread
        )
        assert await claims.begin()
        yield HttpWorkerSource(client, claims), claims


async def test_a_function_that_enqueues_fails_and_the_error_says_what_to_do(world: World, url: str) -> None:
    fl = app()

    @fl.job(key=KEY, max_attempts=1)
    async def anything(ctx: Context, **_: Any) -> None:
        await ctx.enqueue(KEY)

    job_id = await enqueued(world)
    async with working(plan_of(fl, url, secret_of(world))):
        job = await failed_once(world, job_id)

    assert "A worker over HTTP has no database and cannot enqueue: use a trigger" in job.last_error


async def failed_once(world: World, job_id: UUID) -> Any:
    """The job after its first failure."""
    async with asyncio.timeout(SECONDS):
        while not (job := await world.fl.read(job_id)).last_error:
            await asyncio.sleep(0.02)
    return job


async def test_functions_that_the_server_does_not_know_are_left_out(world: World, url: str) -> None:
    fl = app()

    @fl.job(key=KEY)
    async def anything(**payload: Any) -> Any:
        return payload

    for key in ("absent", "zebra"):

        @fl.job(key=key)
        async def other() -> None:
            pass

    job_id = await enqueued(world, n=1)
    async with working(plan_of(fl, url, secret_of(world))):
        job = await ended(world, job_id)

    assert (job.status, job.output) == (JobStatus.SUCCEEDED, {"n": 1})


async def test_a_worker_that_the_server_knows_nothing_of_says_what_to_do(world: World, url: str) -> None:
    fl = app()

    @fl.job(key="absent")
    async def absent() -> None:
        pass

    worker = HttpWorker(plan_of(fl, url, secret_of(world)))
    with pytest.raises(InvalidInput, match=r"none of this worker's definitions \(absent\). Publish them"):
        await worker.run(asyncio.Event(), asyncio.Event())


async def test_a_wrong_token_ends_the_worker(world: World, url: str) -> None:
    plan = plan_of(app(), url, "fl_wrong", keys=[KEY])

    with pytest.raises(Unauthenticated):
        await HttpWorker(plan).run(asyncio.Event(), asyncio.Event())
    assert "fl_wrong" not in repr(plan)


async def test_a_token_that_is_revoked_ends_the_worker_and_stops_its_functions(
    world: World, url: str
) -> None:
    fl, began, stopped = app(), asyncio.Event(), asyncio.Event()

    @fl.job(key=KEY)
    async def anything(**_: Any) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    await enqueued(world)
    worker = HttpWorker(plan_of(fl, url, secret_of(world), drain_seconds=60))
    running = asyncio.create_task(worker.run(asyncio.Event(), asyncio.Event()))
    async with asyncio.timeout(SECONDS):
        await began.wait()
        async with world.fl.database.transaction() as tx:
            await access.revoke_token(tx, given.TESTER, world.token_ids[given.TENANT, "worker"])
        with pytest.raises(Unauthenticated):
            await running

    assert stopped.is_set()


async def test_a_worker_waits_for_its_server_and_stops_without_it(world: World) -> None:
    stop = asyncio.Event()
    plan = plan_of(app(), f"http://127.0.0.1:{free_port()}", secret_of(world), keys=[KEY])
    running = asyncio.create_task(HttpWorker(plan).run(stop, asyncio.Event()))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(running), 0.3)

    stop.set()
    await asyncio.wait_for(running, SECONDS)


async def test_the_jobs_of_an_unanswered_claim_are_released_before_the_worker_ends(
    world: World, url: str
) -> None:
    job_id = await enqueued(world)
    async with sources(world, url) as (source, _):
        assert (await world.fl.read(job_id)).status is JobStatus.RUNNING
        await source.give_back()

    job = await world.fl.read(job_id)
    assert (job.status, job.failure_count) == (JobStatus.QUEUED, 0)


async def test_the_first_claim_gets_the_job_that_the_first_request_took(world: World, url: str) -> None:
    job_id = await enqueued(world)
    async with sources(world, url) as (source, _):
        [held] = await source.claim(5)

        assert (held.job.job_id, held.job.attempt_no) == (job_id, 1)
        assert (await source.finish([(held.lease, decide(BUDGET, Succeeded()))])) == {job_id: "succeeded"}


async def claimed(world: World, source: HttpWorkerSource) -> HeldJob:
    await enqueued(world)
    [held] = await source.claim(1)
    return held


async def test_an_outcome_that_the_server_refuses_fails_the_job(world: World, url: str) -> None:
    async with sources(world, url) as (source, _):
        held = await claimed(world, source)
        too_large = decide(BUDGET, Succeeded("x" * 2_000_000))
        done = await source.finish([(held.lease, too_large)])

    assert done == {held.job.job_id: JobStatus.FAILED}
    job = await world.fl.read(held.job.job_id)
    assert "The server cannot store this attempt's outcome" in str(job.last_error)


async def test_a_lease_is_not_lost_while_its_outcome_is_on_its_way(world: World, url: str) -> None:
    async with sources(world, url) as (source, _), ServerClient(url, secret_of(world)) as client:
        held = await claimed(world, source)
        ending = {held.lease}
        heart = HttpWorkerSource(client, ending=ending)
        await source.finish([(held.lease, decide(BUDGET, Succeeded()))])

        assert held.lease in await heart.heartbeat([held.lease])
        ending.clear()
        assert await heart.heartbeat([held.lease]) == {}


async def test_outcomes_wait_for_the_rate_limit(database_url: str) -> None:
    fl, ran = app(), list[int]()

    @fl.job(key=KEY)
    async def anything(n: int) -> int:
        ran.append(n)
        return n

    limits = {"rate_limit_per_second": 30.0, "rate_limit_burst": 15}
    async with world_on(database_url, **limits) as world, listening(world) as port:
        url = f"http://127.0.0.1:{port}"
        jobs = [await enqueued(world, n=number) for number in range(20)]
        async with working(plan_of(fl, url, secret_of(world))):
            await eventually(lambda: len(ran) == len(jobs), "all jobs to run")
            outputs = [(await ended(world, one)).output for one in jobs]

    assert outputs == list(range(20))
    assert sorted(ran) == list(range(20))


async def test_outcomes_that_cannot_be_sent_are_given_up_at_the_end(world: World, url: str) -> None:
    async with sources(world, url) as (source, _):
        held = await claimed(world, source)
    change = decide(BUDGET, Succeeded())
    async with ServerClient(f"http://127.0.0.1:{free_port()}", "secret") as away:
        unheard = HttpWorkerSource(away)
        with pytest.raises(ServerUnreachable):
            await unheard.finish([(held.lease, change)])
        unheard.leave()
        assert await unheard.finish([(held.lease, change)]) == {held.job.job_id: JobStatus.RUNNING}


async def test_the_heartbeat_thread_releases_the_jobs_of_a_claim_that_was_not_read(
    world: World, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered, goes_on, plain = asyncio.Event(), asyncio.Event(), ClaimRequests._claim

    async def claim(claims: ClaimRequests, wanted: int) -> Any:
        """As if the event loop was blocked after the answer."""
        jobs = await plain(claims, wanted)
        answered.set()
        await goes_on.wait()
        return jobs

    unread = UnreadClaims()
    async with sources(world, url, unread) as (source, _), sources(world, url, unread) as (beside, _):
        job_id = await enqueued(world)
        monkeypatch.setattr(ClaimRequests, "_claim", claim)
        claiming = asyncio.create_task(source.claim(1))
        await answered.wait()

        await beside.give_back_unstarted([])

        job = await world.fl.read(job_id)
        assert (job.status, job.failure_count, job.lost_count) == (JobStatus.QUEUED, 0, 0)
        goes_on.set()
        assert await claiming == []
        [held] = await source.claim(1)
        assert held.lease.attempt_no == job.attempt_count + 1
