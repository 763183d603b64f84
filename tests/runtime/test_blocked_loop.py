"""A worker whose event loop is blocked gives back the jobs that it has claimed and not started."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, LiteralString
from uuid import UUID

import psycopg
import pytest

from fairlead import Context, Fairlead, NewJob
from fairlead.runtime import heartbeat, loop_watch, worker
from tests.given import TENANT
from tests.waiting import SECONDS, eventually
from tests.working import reopen, working

JOBS = 400
# from this job on, the worker has claimed ahead
LATER = 200
WAITING_CLAIMS: LiteralString = (
    "select from pg_stat_activity "
    "where wait_event_type = 'Lock' and query like '%%fairlead.claim(%%' and datname = current_database()"
)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_watch, "BLOCKED_SECONDS", 0.1)
    monkeypatch.setattr(loop_watch, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(heartbeat, "GIVE_BACK_SECONDS", 0.05)


@pytest.fixture
def read(database_url: str) -> Iterator[Callable[..., list[tuple[Any, ...]]]]:
    """Reads rows without turning the event loop."""
    with closing(psycopg.connect(database_url, autocommit=True)) as connection:

        def rows(query: LiteralString, *params: Any) -> list[tuple[Any, ...]]:
            return connection.execute(query, params).fetchall()

        yield rows


def block_until(is_so: Callable[[], object], what: str) -> None:
    """Block the event loop until this is so."""
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)


async def all_ended(read: Callable[..., list[tuple[Any, ...]]]) -> None:
    alive = "select from fairlead.jobs where status in ('queued', 'running') limit 1"
    await eventually(lambda: not read(alive), "all jobs to end")


async def test_what_was_claimed_ahead_goes_back_while_a_handler_blocks_the_loop(
    fl: Fairlead, read: Callable[..., list[tuple[Any, ...]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "AHEAD_SECONDS", 10)
    begun, given_back = list[UUID](), list[int]()

    def unstarted() -> set[UUID]:
        return {job_id for (job_id,) in read("select job_id from fairlead.leases")}.difference(begun)

    @fl.job
    async def brief(ctx: Context) -> None:
        begun.append(ctx.job_id)
        if len(begun) > LATER and not given_back and len(ahead := unstarted()) > 5:
            given_back.append(len(ahead))
            block_until(lambda: not unstarted(), "the jobs that have not started to be given back")

    await reopen(fl)
    await fl.enqueue_many([NewJob(definition=brief.key, tenant=TENANT, payload={}) for _ in range(JOBS)])
    async with working(fl, concurrency=2):
        await all_ended(read)

    assert given_back
    assert sorted(begun) == sorted(set(begun))
    assert len(begun) == JOBS
    assert read("select from fairlead.attempts where status not in ('succeeded', 'released')") == []
    assert read("select from fairlead.jobs where lost_count + suspected + failure_count > 0") == []


@pytest.mark.postgres_only("claims wait for locks of shards, not of the table")
async def test_the_jobs_of_a_claim_that_the_blocked_loop_cannot_read_go_back(
    fl: Fairlead, database_url: str, read: Callable[..., list[tuple[Any, ...]]]
) -> None:
    other: list[UUID] = []
    ran = 0

    @fl.job
    async def other_job() -> None:
        nonlocal ran
        ran += 1

    @fl.job
    async def blocks() -> None:
        with closing(psycopg.connect(database_url)) as holding:
            # claims insert into it, and wait
            holding.execute("lock table fairlead.leases in share row exclusive mode")
            other.append((await other_job.enqueue(tenant=TENANT)).id)
            await eventually(lambda: read(WAITING_CLAIMS), "a claim that waits")
            holding.commit()
            block_until(lambda: attempts() == ["released"], "the job of the unread claim to be given back")

    def attempts() -> list[str]:
        ended = read("select status from fairlead.attempts where job_id = %s order by attempt_no", *other)
        return [status for (status,) in ended]

    await reopen(fl)
    await blocks.enqueue(tenant=TENANT)
    async with working(fl, concurrency=2):
        await all_ended(read)

    # on a busy machine it may be given back once more, since the loop is late by itself
    assert attempts()[-1] == "succeeded"
    assert set(attempts()[:-1]) == {"released"}
    assert ran == 1
    assert read("select from fairlead.jobs where lost_count + suspected > 0") == []


async def test_a_handler_that_the_loop_has_not_begun_goes_back_too(
    fl: Fairlead, read: Callable[..., list[tuple[Any, ...]]]
) -> None:
    begun: list[UUID] = []

    @fl.job
    async def slow(ctx: Context) -> None:
        begun.append(ctx.job_id)
        if len(begun) == 1:
            block_until(
                lambda: read("select job_id from fairlead.leases") == [(ctx.job_id,)],
                "the handlers that have not begun to be given back",
            )

    await reopen(fl)
    await fl.enqueue_many([NewJob(definition=slow.key, tenant=TENANT, payload={}) for _ in range(5)])
    async with working(fl, concurrency=5):
        await all_ended(read)

    assert len(begun) == len(set(begun)) == 5
    [(released,)] = read("select count(*) from fairlead.attempts where status = 'released'")
    assert released >= 4
