"""A claim over HTTP whose answer was lost is asked for again under its id: the same jobs, and none is charged."""

import asyncio
import importlib
import itertools
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from fairlead.actions import definitions, leases
from fairlead.db.database import Database
from fairlead.errors import DatabaseUnreachable
from fairlead.runtime import store_source
from fairlead.server.problems import PREFIX
from fairlead.store import jobs, rescue, testing, worker_claims
from fairlead.store.queue import Claim
from tests import given
from tests.acceptance.http_faults import DROP, LATE, PASS, RESET, FaultyProxy
from tests.acting import act
from tests.server import test_worker_api
from tests.server.test_worker_api import enqueued, read, tell
from tests.server.world import World, listening
from tests.waiting import SECONDS, until_somebody_waits

EXAMPLES = str(Path(__file__).parents[2] / "examples")


async def claim(
    world: World, claim_id: UUID | None, tenant: str | None = None, **body: Any
) -> httpx2.Response:
    named = {} if claim_id is None else {"claim_id": str(claim_id)}
    return await test_worker_api.claim(world, tenant=tenant, **named, **body)


async def claimed(world: World, claim_id: UUID | None, **more: Any) -> list[dict[str, Any]]:
    answer = await claim(world, claim_id, **more)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["items"])


async def complete(world: World, item: dict[str, Any], tenant: str | None = None) -> httpx2.Response:
    return await tell(world, item, "complete", tenant)


async def attempts(world: World, job_id: UUID) -> list[str]:
    async with world.transaction() as tx:
        return [attempt.status for attempt in await jobs.list_attempts(tx, job_id)]


async def lose(world: World) -> None:
    """The leases expire, and a watchdog sees it; the jobs are due again."""
    async with world.fl.transaction() as tx:
        await given.end_leases(tx)
        assert await rescue.rescue(tx)
        await testing.make_all_due(tx)


async def test_a_repeated_claim_is_given_the_same_jobs_and_no_others(world: World) -> None:
    taken = [await enqueued(world) for _ in range(3)]
    mine = uuid4()
    lost = await claimed(world, mine, limit=2)  # the answer does not arrive

    again = await claimed(world, mine, limit=2)

    assert again == lost
    assert [one["attempt_no"] for one in again] == [1, 1]
    for item in again:
        assert (await complete(world, item)).json()["status"] == "succeeded"
    [rest] = await claimed(world, uuid4(), limit=3)
    assert {one["job_id"] for one in [*again, rest]} == {str(job_id) for job_id in taken}


async def test_a_repeated_claim_has_the_time_of_a_whole_lease(world: World) -> None:
    await enqueued(world)
    mine = uuid4()
    await claimed(world, mine)
    before = await given.lease_end(world)

    await claimed(world, mine)

    assert await given.lease_end(world) > before


async def test_an_empty_answer_leaves_the_id_to_be_used_again(world: World) -> None:
    mine = uuid4()
    assert await claimed(world, mine) == []
    job_id = await enqueued(world)

    [item] = await claimed(world, mine)

    assert item["job_id"] == str(job_id)


async def test_a_claim_without_an_id_is_answered_as_before(world: World) -> None:
    first, second = await enqueued(world), await enqueued(world)

    taken = [*(await claimed(world, None)), *(await claimed(world, None))]

    assert [one["job_id"] for one in taken] == [str(first), str(second)]
    assert await given.count(world, "worker_claims") == 0


async def test_an_id_whose_jobs_have_ended_is_refused(world: World) -> None:
    """A request that was long on its way takes nothing for a worker that does not wait for it."""
    await enqueued(world)
    mine = uuid4()
    [item] = await claimed(world, mine)
    await complete(world, item)
    waiting = await enqueued(world)

    late = await claim(world, mine)

    assert (late.status_code, late.json()["code"]) == (409, "claim_settled")
    assert "new claim_id" in late.json()["detail"]
    assert (await read(world, waiting)).status == "queued"


@pytest.mark.parametrize("rescued", [True, False])
async def test_a_claim_that_is_repeated_after_its_lease_is_not_charged(
    world: World, *, rescued: bool
) -> None:
    job_id = await enqueued(world)
    mine = uuid4()
    for _ in range(4):  # the fourth loss would have been one too many
        await claimed(world, mine)
        if rescued:
            await lose(world)
            assert (await read(world, job_id)).lost_count == 1
        else:
            await given.end_leases(world)

    [item] = await claimed(world, mine)

    job = await read(world, job_id)
    assert (item["attempt_no"], job.status, job.lost_count, job.failure_count) == (5, "running", 0, 0)
    assert await attempts(world, job_id) == ["lost" if rescued else "released"] * 4 + ["running"]


async def test_a_worker_of_another_tenant_learns_nothing_of_a_claim(world: World) -> None:
    job_id = await enqueued(world)
    mine = uuid4()
    [item] = await claimed(world, mine, tenant=given.TENANT, worker_id="box")

    assert await claimed(world, mine, tenant=given.OTHER, worker_id="box") == []
    assert await claimed(world, mine, tenant=None, worker_id="box") == []
    assert await claimed(world, mine, tenant=given.TENANT, worker_id="other-box") == []

    assert (await read(world, job_id)).status == "running"
    assert (await complete(world, item, tenant=given.TENANT)).json()["status"] == "succeeded"


async def test_two_requests_with_one_id_take_jobs_once(world: World) -> None:
    """The first was given up by its worker, and goes on in the server."""
    for _ in range(2):
        await enqueued(world)
    mine = uuid4()
    async with world.fl.transaction() as tx:
        await tx.run("lock table fairlead.worker_claims in share mode")
        asked = [asyncio.create_task(claimed(world, mine)) for _ in range(2)]
        await until_somebody_waits(tx)

    answers = await asyncio.gather(*asked)

    assert answers[0] == answers[1]
    assert len(answers[0]) == 1
    assert await given.count(world, "leases") == 1


async def test_a_long_poll_with_an_id_hears_what_another_request_took(world: World) -> None:
    mine = uuid4()
    waiting = [asyncio.create_task(claimed(world, mine, wait=30)) for _ in range(2)]
    async with asyncio.timeout(SECONDS):
        while world.app.state.claims._polls._subscribers < 2:
            await asyncio.sleep(0.01)
        job_id = await enqueued(world)
        answers = await asyncio.gather(*waiting)

    assert [[one["job_id"] for one in answer] for answer in answers] == [[str(job_id)]] * 2


@pytest.mark.parametrize("repeats", [False, True])
async def test_what_a_worker_that_hung_up_has_asked_for_again_is_not_given_back(
    world: World, *, repeats: bool
) -> None:
    job_id = await enqueued(world)
    claims = world.app.state.claims
    mine = uuid4()
    served = await act(world.fl, leases.resolve_scope, given.TESTER, None)
    asked: dict[str, Any] = {"keys": None, "limit": 1, "wait": 0, "claim_id": mine}
    heard: list[Any] = []

    async def waits() -> bool:
        return True

    async def gone() -> bool:
        if repeats:
            heard.extend(await claims.claim("w", served, **asked, waits=waits))
        return False

    assert await claims.claim("w", served, **asked, waits=gone) == []

    assert [one.lease.job_id for one in heard] == ([job_id] if repeats else [])
    job = await read(world, job_id)
    assert (job.status, job.lost_count) == ("running" if repeats else "queued", 0)
    if not repeats:
        [held] = await claims.claim("w", served, **asked, waits=waits)
        assert (held.lease.job_id, held.lease.attempt_no) == (job_id, 2)


@pytest.mark.parametrize("repeats", [False, True])
async def test_a_claim_whose_commit_went_unheard_is_given_back_unless_the_worker_asks_again(
    world: World, monkeypatch: pytest.MonkeyPatch, *, repeats: bool
) -> None:
    monkeypatch.setattr(store_source, "LOOK_AGAIN_SECONDS", 0.0)
    job_id = await enqueued(world)
    mine = uuid4()
    answered, transact = asyncio.Event(), Database.transact

    async def deaf(self: Database, work: Any, **more: Any) -> Any:
        answer = await transact(self, work, **more)
        if isinstance(answer, Claim) and answer.jobs and not answered.is_set():
            answered.set()
            raise DatabaseUnreachable("the connection broke")
        return answer

    monkeypatch.setattr(Database, "transact", deaf)
    assert (await claim(world, mine)).status_code == 503
    if repeats:
        async with world.fl.transaction() as tx:
            # another server process was asked
            worker = str((await given.read_job(tx, job_id)).claimed_by_worker)
            assert await worker_claims.repeat_claim(tx, worker=worker, claim_id=mine) is not None

    [item] = await claimed(world, mine)

    assert (item["job_id"], item["attempt_no"]) == (str(job_id), 1 if repeats else 2)
    await claimed(world, uuid4())
    assert (await complete(world, item)).json()["status"] == "succeeded"


async def test_claims_are_forgotten_after_an_hour(world: World) -> None:
    async with world.fl.transaction() as tx:
        for age in ("59 minutes", "61 minutes"):
            await tx.run(
                "insert into fairlead.worker_claims values "
                "('w', gen_random_uuid(), gen_random_uuid(), '{}', false, clock_timestamp() - %s::interval)",
                [age],
            )

        assert await worker_claims.remove_old(tx) == 1


async def test_a_worker_on_a_bad_line_runs_every_job_once_and_none_is_charged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers to claims and reports are lost, and requests arrive that nobody waits for any more."""
    monkeypatch.syspath_prepend(EXAMPLES)
    http_only = importlib.import_module("http_only")
    monkeypatch.setattr(http_only, "PAUSE_SECONDS", 0.01)
    await act(world.fl, definitions.patch, given.TESTER, "example.shout", {})
    names = [f"n{n}" for n in range(6)]
    jobs = [
        (await world.fl.enqueue("example.shout", tenant=given.TENANT, payload={"name": name})).id
        for name in names
    ]
    # a bad line, the same at each run: of three requests in a row one comes through
    faults = itertools.cycle([DROP, LATE, PASS, RESET, DROP, PASS, DROP, PASS])
    async with listening(world) as port, FaultyProxy(port) as line, asyncio.timeout(SECONDS):
        line.choose = lambda: next(faults)
        worker = http_only.Worker(f"{line.url}{PREFIX}", world.secrets[given.TENANT, "worker"])
        done = 0
        while done < len(jobs):  # a job that is on its way back may come after an empty answer
            done += await asyncio.to_thread(worker.work)
        assert line.met.count(DROP) > len(jobs)

    for job_id, name in zip(jobs, names, strict=True):
        job = await read(world, job_id)
        assert (job.status, job.output, job.lost_count) == ("succeeded", name.upper(), 0)
        assert await attempts(world, job_id) == ["succeeded"]
