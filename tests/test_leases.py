"""Leases for those who run their own loop."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec import structs

from fairlead import Fairlead, Fatal, Job, JobLease, JobStatus, Settings, Snooze, sync
from fairlead.actions import jobs
from fairlead.db.tx import Tx
from fairlead.errors import (
    DefinitionUnknown,
    InvalidInput,
    LeaseLost,
    NotOpen,
    PayloadNotJson,
    PayloadTooLarge,
)
from fairlead.model.job import Attempt
from fairlead.model.outcome import Released, decide
from fairlead.store import queue, rescue, testing, workflows
from tests import given
from tests.acting import act
from tests.given import TENANT, TESTER
from tests.tables import each_case
from tests.waiting import until_somebody_waits

TABLES = ("job_records", "ready", "later", "leases", "job_attempts", "active_keys", "counts", "audit_log")


async def leased(fl: Fairlead, **fields: Any) -> JobLease:
    """The lease of a new job."""
    job = await fl.submit(given.request(**fields))
    [lease] = await fl.claim()
    assert lease.job_id == job.id
    return lease


async def claimed_again(fl: Fairlead) -> JobLease:
    """The lease of the only job, whatever it waits for."""
    await fl.database.transact(testing.make_all_due)
    [lease] = await fl.claim()
    return lease


async def attempts(fl: Fairlead, lease: JobLease) -> list[Attempt]:
    return (await act(fl, jobs.show_job, TESTER, lease.job_id))[1]


async def expire(fl: Fairlead) -> None:
    """Every lease has ended, and its job was put back."""

    async def put_back(tx: Tx) -> None:
        await given.end_leases(tx)
        await rescue.rescue(tx)

    await fl.database.transact(put_back)


async def everything(fl: Fairlead) -> list[Any]:
    """All that a lease could change."""
    async with fl.transaction() as tx:
        return [await tx.values(f"select t::text from fairlead.{table} t order by 1") for table in TABLES]


async def audited(fl: Fairlead, lease: JobLease) -> list[str]:
    return [entry.action for entry in await given.audit_entries(fl, resource_id=str(lease.job_id))]


# Claiming


async def test_a_lease_says_what_the_job_is(fl: Fairlead) -> None:
    lease = await leased(fl, correlation_id="c", max_attempts=7)
    job = await fl.read(lease.job_id)

    assert (lease.tenant, lease.tenant_id, lease.definition_key) == (TENANT, job.tenant_id, "greet")
    assert (lease.payload, lease.correlation_id, lease.parent_id) == ({"name": "Ada"}, "c", None)
    assert (lease.attempt_no, lease.max_attempts, lease.timeout_seconds) == (1, 7, 3600)
    assert 0 < lease.remaining() <= fl.settings.lease_seconds
    assert job.status is JobStatus.RUNNING
    assert repr(lease) == f"<lease of job {job.id}, attempt 1>"


async def test_a_claim_takes_up_to_so_many_and_nothing_twice(fl: Fairlead) -> None:
    enqueued = await fl.enqueue_many([given.request() for _ in range(5)])

    taken = [await fl.claim(3), await fl.claim(3), await fl.claim(3)]

    assert [len(leases) for leases in taken] == [3, 2, 0]
    assert {lease.job_id for leases in taken for lease in leases} == {job.id for job in enqueued}


async def test_only_the_definitions_that_are_named_are_claimed(fl: Fairlead) -> None:
    @fl.job(key="anything")
    async def anything() -> None: ...

    await fl.enqueue_many([given.request(), given.request(definition="anything", payload={})])

    assert await fl.claim(9, definitions=[]) == []
    assert [one.definition_key for one in await fl.claim(9, definitions=[anything])] == ["anything"]
    assert [one.definition_key for one in await fl.claim(9, definitions=["greet", "anything"])] == ["greet"]


@each_case("key", ["nothing", "not a key", "", "\x00"])
async def test_an_unknown_definition_is_refused_and_nothing_is_claimed(fl: Fairlead, key: str) -> None:
    job = await fl.submit(given.request())

    with pytest.raises(DefinitionUnknown):
        await fl.claim(definitions=["greet", key])

    assert (await job.read()).status is JobStatus.QUEUED


@each_case("n", [0, -1, 1001, True, 1.5, "1", None])
async def test_a_number_of_jobs_that_cannot_be_is_refused(fl: Fairlead, n: Any) -> None:
    with pytest.raises(InvalidInput, match="n must be 1 to 1000"):
        await fl.claim(n)


@each_case("keys", ["greet", [1], [None]])
async def test_definitions_that_are_no_list_of_keys_are_refused(fl: Fairlead, keys: Any) -> None:
    with pytest.raises(InvalidInput, match="definitions must be a list"):
        await fl.claim(definitions=keys)


async def test_a_claim_puts_back_what_others_left_behind(fl: Fairlead, settings: Settings) -> None:
    async with Fairlead(settings=settings) as dead:
        lease = await leased(dead)
    await given.end_leases(fl)

    await fl.claim()

    assert (await fl.read(lease.job_id)).lost_count == 1
    assert (await claimed_again(fl)).attempt_no == 2


async def test_a_claim_that_is_cancelled_gives_back_what_it_took(fl: Fairlead) -> None:
    job = await fl.submit(given.request())
    async with fl.transaction() as tx:
        await tx.run("lock table fairlead.system in access exclusive mode")
        claiming = asyncio.create_task(fl.claim())
        await until_somebody_waits(tx)
        claiming.cancel()

    with pytest.raises(asyncio.CancelledError):
        await claiming

    there = await job.read()
    assert (there.status, there.attempt_count, there.failure_count) == (JobStatus.QUEUED, 1, 0)
    [again] = await fl.claim()
    assert [one.status for one in await attempts(fl, again)] == ["released", "running"]


async def test_a_fairlead_that_is_not_open_claims_nothing(settings: Settings) -> None:
    with pytest.raises(NotOpen):
        await Fairlead(settings=settings).claim()


# Ending


async def test_a_lease_that_succeeds_ends_the_job(fl: Fairlead) -> None:
    lease = await leased(fl)

    assert await lease.succeed({"id": UUID(int=1), "of": (1, 2)}) is JobStatus.SUCCEEDED

    job = await fl.read(lease.job_id)
    assert (job.status, job.output) == (JobStatus.SUCCEEDED, {"id": str(UUID(int=1)), "of": [1, 2]})
    assert [one.status for one in await attempts(fl, lease)] == ["succeeded"]
    assert lease.remaining() == 0


async def test_a_failure_is_tried_again_after_its_backoff_until_its_attempts_are_spent(fl: Fairlead) -> None:
    lease = await leased(fl, max_attempts=2)
    with pytest.raises(ValueError, match="invalid literal") as raised:
        int("x")

    before = datetime.now(UTC)
    assert await lease.fail(raised.value) is JobStatus.QUEUED
    job = await fl.read(lease.job_id)
    [attempt] = await attempts(fl, lease)
    # ten seconds, give or take a tenth
    assert before + timedelta(seconds=9) <= job.scheduled_for <= datetime.now(UTC) + timedelta(seconds=11)
    assert (job.failure_count, attempt.status, job.error["type"]) == (1, "failed", "ValueError")
    assert 'int("x")' in job.error["traceback"]
    assert await fl.claim() == []

    again = await claimed_again(fl)
    assert again.attempt_no == 2
    assert await again.fail("still broken\x00") is JobStatus.DEAD_LETTER
    job = await fl.read(lease.job_id)
    assert (job.failure_count, job.last_error) == (2, "Failed: still broken\\x00")
    assert "JOB_EXHAUSTED_RETRIES" in await audited(fl, lease)


@each_case(("error", "retryable"), [("no such order", False), (ValueError("x"), False), (Fatal("x"), True)])
async def test_a_failure_that_no_second_attempt_would_mend_ends_the_job(
    fl: Fairlead,
    error: str | Exception,
    retryable: bool,  # noqa: FBT001
) -> None:
    lease = await leased(fl)

    assert await lease.fail(error, retryable=retryable) is JobStatus.FAILED
    assert (await fl.read(lease.job_id)).status is JobStatus.FAILED


async def test_a_released_job_is_charged_nothing(fl: Fairlead) -> None:
    lease = await leased(fl, max_attempts=1)

    assert await lease.release() is JobStatus.QUEUED
    [again] = await fl.claim()
    assert again.attempt_no == 2
    assert await again.release(timedelta(hours=1)) is JobStatus.QUEUED

    job = await fl.read(lease.job_id)
    assert (job.failure_count, job.lost_count, await fl.claim()) == (0, 0, [])
    assert job.scheduled_for > datetime.now(UTC) + timedelta(minutes=59)
    assert await (await claimed_again(fl)).fail(Snooze(0)) is JobStatus.QUEUED
    assert await (await claimed_again(fl)).release(0.5) is JobStatus.QUEUED
    assert [one.status for one in await attempts(fl, lease)] == ["released"] * 4


async def test_a_lease_that_has_ended_is_told_so_and_changes_nothing(fl: Fairlead) -> None:
    lease = await leased(fl)
    await lease.succeed(1)
    before = await everything(fl)

    for call in CALLS.values():
        with pytest.raises(LeaseLost, match="its end was reported, and the job became succeeded"):
            await call(lease)

    assert await everything(fl) == before


@dataclass
class Hostile:
    value: object


@each_case(
    ("output", "refusal"),
    [
        (object(), PayloadNotJson),
        ({"a": [float("nan")]}, PayloadNotJson),
        (Hostile(object()), PayloadNotJson),
        ("x" * 1_048_577, PayloadTooLarge),
    ],
)
async def test_an_output_that_cannot_be_kept_is_refused_and_the_lease_goes_on(
    fl: Fairlead, output: Any, refusal: type[Exception]
) -> None:
    lease = await leased(fl)

    with pytest.raises(refusal, match="The output cannot be stored: "):
        await lease.succeed(output)

    assert await lease.succeed("x" * 1_000_000) is JobStatus.SUCCEEDED


# Staying alive


async def test_a_heartbeat_renews_the_lease(fl: Fairlead) -> None:
    lease = await leased(fl)
    lease._until -= 20
    before, left = (await fl.read(lease.job_id)).lease_expires_at, lease.remaining()

    assert await lease.heartbeat() is False

    after = (await fl.read(lease.job_id)).lease_expires_at
    assert before is not None
    assert after is not None
    assert after > before
    assert lease.remaining() > left + 5


async def test_progress_is_seen_on_the_job(fl: Fairlead) -> None:
    lease = await leased(fl)

    await lease.progress(40, "half\x00way")

    assert (await fl.read(lease.job_id)).progress == {"percent": 40, "message": "half\\x00way"}
    assert await lease.succeed() is JobStatus.SUCCEEDED


async def test_progress_belongs_to_its_attempt_and_stays_at_its_end(fl: Fairlead) -> None:
    lease = await leased(fl)
    await lease.progress(40, "early")
    await lease.release()
    waiting = await fl.read(lease.job_id)
    again = await claimed_again(fl)
    running = await fl.read(lease.job_id)
    await again.progress(90, "late")
    await again.succeed()

    assert (waiting.status, waiting.progress) == (JobStatus.QUEUED, {"percent": 40, "message": "early"})
    assert (running.status, running.progress) == (JobStatus.RUNNING, None)
    assert (await fl.read(lease.job_id)).progress == {"percent": 90, "message": "late"}


async def test_progress_under_another_token_or_after_the_leases_end_is_not_taken(fl: Fairlead) -> None:
    await fl.submit(given.request())
    async with fl.transaction() as tx:
        claim = await queue.claim(tx, worker="w", wanted=1, lease_seconds=30)
        lease = claim.lease(claim.jobs[0])
        stranger = await queue.store_progress(tx, [(structs.replace(lease, token=uuid4()), 50, "")])
        await given.end_leases(tx, in_seconds=0)
        late = await queue.store_progress(tx, [(lease, 50, "")])

    assert (stranger, late) == (set(), set())
    assert (await fl.read(lease.job_id)).progress is None


@pytest.mark.parametrize("taken", [False, True], ids=["waiting", "running elsewhere"])
async def test_a_job_whose_attempt_ends_meanwhile_cannot_be_locked_as_running(
    fl: Fairlead, *, taken: bool
) -> None:
    await fl.submit(given.request())
    claim = await act(fl, queue.claim, worker="w", wanted=1, lease_seconds=30)
    lease = claim.lease(claim.jobs[0])

    async def lock() -> bool:
        return await act(fl, workflows.lock_running_job, lease.job_id)

    assert await lock()
    async with fl.transaction() as ending:
        await queue.finish(ending, [(lease, decide(claim.jobs[0], Released()))], actor="w")
        if taken:
            assert (await queue.claim(ending, worker="w", wanted=1, lease_seconds=30)).jobs
        late = asyncio.create_task(lock())
        await until_somebody_waits(ending)

    assert not await late
    assert await lock() is taken


@pytest.mark.parametrize("taken", [False, True], ids=["waiting", "running elsewhere"])
async def test_progress_that_waited_for_the_end_of_its_attempt_is_not_taken(
    fl: Fairlead, *, taken: bool
) -> None:
    await fl.submit(given.request())
    claim = await act(fl, queue.claim, worker="w", wanted=1, lease_seconds=30)
    lease = claim.lease(claim.jobs[0])

    async def half() -> set[UUID]:
        return await act(fl, queue.store_progress, [(lease, 50, "half")])

    async with fl.transaction() as ending:
        await queue.finish(ending, [(lease, decide(claim.jobs[0], Released()))], actor="w")
        if taken:
            assert (await queue.claim(ending, worker="w", wanted=1, lease_seconds=30)).jobs
        late = asyncio.create_task(half())
        await until_somebody_waits(ending)

    assert await late == set()
    assert (await fl.read(lease.job_id)).progress is None


@each_case(
    "call",
    [
        lambda lease: lease.progress(-1),
        lambda lease: lease.progress(100.1),
        lambda lease: lease.progress(float("nan")),
        lambda lease: lease.progress("50"),
        lambda lease: lease.release(-1),
        lambda lease: lease.release(float("inf")),
        lambda lease: lease.release("soon"),
        lambda lease: lease.fail(None),
    ],
)
async def test_what_cannot_be_is_refused_and_the_lease_goes_on(
    fl: Fairlead, call: Callable[[JobLease], Awaitable[object]]
) -> None:
    lease = await leased(fl)

    with pytest.raises(InvalidInput):
        await call(lease)

    assert await lease.heartbeat() is False


CALLS: dict[str, Callable[[JobLease], Awaitable[object]]] = {
    "heartbeat": lambda lease: lease.heartbeat(),
    "progress": lambda lease: lease.progress(50),
    "succeed": lambda lease: lease.succeed(1),
    "fail": lambda lease: lease.fail("broken"),
    "fail for good": lambda lease: lease.fail("broken", retryable=False),
    "release": lambda lease: lease.release(),
    "snooze": lambda lease: lease.release(60),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("taken", [False, True], ids=["waiting", "running elsewhere"])
async def test_a_lost_lease_changes_nothing(
    fl: Fairlead,
    call: Callable[[JobLease], Awaitable[object]],
    taken: bool,  # noqa: FBT001
) -> None:
    lease = await leased(fl)
    await expire(fl)
    if taken:
        await claimed_again(fl)
    before = await everything(fl)

    with pytest.raises(LeaseLost, match="is lost: it was not renewed in time") as refusal:
        await call(lease)

    assert refusal.value.code == "lease_lost"
    assert await everything(fl) == before
    assert lease.remaining() == 0


@each_case(
    ("call", "status"),
    [
        (lambda lease: lease.release(), JobStatus.CANCELED),
        (lambda lease: lease.release(60), JobStatus.CANCELED),
        (lambda lease: lease.fail("stopped"), JobStatus.CANCELED),
        (lambda lease: lease.fail("stopped", retryable=False), JobStatus.CANCELED),
        (lambda lease: lease.succeed("all the same"), JobStatus.SUCCEEDED),
    ],
)
async def test_a_cancel_is_seen_by_the_heartbeat_and_decides_the_end(
    fl: Fairlead, call: Callable[[JobLease], Awaitable[JobStatus]], status: JobStatus
) -> None:
    lease = await leased(fl)
    before = lease.cancel_requested
    await fl.cancel(lease.job_id)

    assert await lease.heartbeat() is True
    assert (before, lease.cancel_requested) == (False, True)
    assert await call(lease) is status
    assert (await fl.read(lease.job_id)).status is status


# As a context manager


async def ended(fl: Fairlead, lease: JobLease, error: BaseException) -> Job:
    """The job, after this left the block."""
    with pytest.raises(type(error)) as left:
        async with lease:
            raise error
    assert left.value is error
    return await fl.read(lease.job_id)


async def test_a_block_that_ends_is_a_success_unless_it_said_otherwise(fl: Fairlead) -> None:
    async with await leased(fl) as plain:
        assert plain.remaining() > 0
    async with await leased(fl) as told:
        await told.succeed("output")
    async with await leased(fl) as given_back:
        await given_back.release(60)

    standing = [await fl.read(lease.job_id) for lease in (plain, told, given_back)]
    assert [(job.status.value, job.output) for job in standing] == [
        ("succeeded", None),
        ("succeeded", "output"),
        ("queued", None),
    ]


async def test_what_leaves_a_block_is_recorded_and_goes_on(fl: Fairlead) -> None:
    failed = await ended(fl, await leased(fl), ValueError("broken"))
    assert (failed.status, failed.last_error) == (JobStatus.QUEUED, "ValueError: broken")

    fatal = await ended(fl, await leased(fl), Fatal("never"))
    assert fatal.status is JobStatus.FAILED

    for stop in (asyncio.CancelledError(), KeyboardInterrupt(), Snooze(60)):
        lease = await leased(fl)
        released = await ended(fl, lease, stop)
        assert (released.status, released.failure_count, released.error) == (JobStatus.QUEUED, 0, None)
        await fl.cancel(lease.job_id)


async def test_a_block_whose_lease_was_lost_does_not_pass_for_done(fl: Fairlead) -> None:
    with pytest.raises(LeaseLost):
        async with await leased(fl):
            await expire(fl)
    with pytest.raises(LeaseLost):
        async with await claimed_again(fl) as lease:
            await expire(fl)
            await lease.heartbeat()
    assert (await fl.read(lease.job_id)).lost_count == 2


async def test_an_error_is_not_hidden_by_a_lease_that_was_lost(fl: Fairlead) -> None:
    error = ValueError("broken")
    lease = await leased(fl)
    await expire(fl)

    job = await ended(fl, lease, error)

    assert job.failure_count == 0
    assert "could not record this failure: The lease of job" in error.__notes__[0]


# The synchronous face


def test_the_synchronous_face_does_the_same(settings: Settings) -> None:
    with sync.Fairlead(settings=replace(settings, lease_seconds=600)) as fl:
        fl.enqueue_many([given.request() for _ in range(4)])
        with pytest.raises(DefinitionUnknown):
            fl.claim(definitions=["nothing"])
        with pytest.raises(InvalidInput):
            fl.claim(definitions="greet")
        leases = fl.claim(9, definitions=["greet"])
        done, broken, back, block = leases
        fl.cancel(back.job_id)

        assert (done.payload, done.attempt_no) == ({"name": "Ada"}, 1)
        assert 0 < done.remaining() <= 600
        assert (done.heartbeat(), back.heartbeat(), back.cancel_requested) == (False, True, True)
        done.progress(10, "begun")
        assert fl.read(done.job_id).progress == {"percent": 10, "message": "begun"}
        assert done.succeed(1) == "succeeded"
        assert broken.fail("broken", retryable=False) == "failed"
        assert back.release(5) == "canceled"
        with pytest.raises(LeaseLost):
            done.heartbeat()
        with pytest.raises(ZeroDivisionError), block:
            raise ZeroDivisionError
        assert fl.read(block.job_id).last_error == "ZeroDivisionError: "
        fl.enqueue("greet", tenant=TENANT, payload={"name": "Ada"})
        with fl.claim()[0] as last:
            pass
        assert fl.read(last.job_id).status == "succeeded"
