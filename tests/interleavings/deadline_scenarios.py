"""Scenarios in which a deadline passes: between a statement and its commit, before a lock is granted, beside an edit."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fairlead.actions import expiry
from fairlead.db.tx import Tx
from fairlead.errors import ApprovalClosed, JobNotEditable
from fairlead.model.durable import NewWait, StepKind
from fairlead.model.job import JobStatus
from fairlead.model.outcome import Change
from fairlead.store import durable as durable_store
from fairlead.store import queue
from tests import given
from tests.interleavings import operations as do
from tests.interleavings.approval_scenarios import answer, answered_or_expired
from tests.interleavings.approval_scenarios import asking_function as asking_for_an_hour
from tests.interleavings.durable_scenarios import WITHIN_COMPLETION, read_place, read_steps, running_function
from tests.interleavings.explorer import Operation, Results, Scenario, World
from tests.interleavings.operations import by_itself, in_transaction, pass_time
from tests.interleavings.scenarios import Check, Prepare, count_jobs, ended_once, read_state
from tests.interleavings.steps import SteppedDatabase
from tests.interleavings.stops import WITHIN_CLAIM
from tests.interleavings.virtual_time import WITH_DEADLINES

# Seconds until the deadlines of what scenarios begin with, and how long time passes: long enough for the slowest machine.
SOON = 1_000
MEANWHILE = 10_000
LATER = 100_000
TIME = "time"


class DroppedError(Exception):
    """Ends a transaction that is rolled back."""


# What scenarios begin with


async def leased_job(tx: Tx) -> World:
    """A job whose lease ends soon."""
    lease = await given.claimed_job(tx)
    await tx.run(
        "update fairlead.leases set expires_at = clock_timestamp() + make_interval(secs => %s)", [SOON]
    )
    return {"lease": lease, "job": lease.job_id}


async def expiring_job(tx: Tx) -> World:
    """A job that has to start soon."""
    return {"job": await given.queued_job(tx, expires_in=SOON)}


async def unique_job(tx: Tx) -> World:
    """A job that has ended, and whose key stays taken for a while."""
    job_id = await do.enqueue_deduplicated(unique_for=SOON)(tx, {})
    await queue.finish(tx, [(await given.claim(tx, job_id), do.SUCCEEDED)], actor="worker")
    return {"job": job_id}


async def jobs_of_a_key(tx: Tx) -> World:
    """A job that runs, and one that its key holds back."""
    await given.set_definition(tx, "greet", by_key='{"pointer": "/name", "max_running": 1, "fifo": true}')
    lease = await given.claimed_job(tx)
    await tx.run(
        "update fairlead.leases set expires_at = clock_timestamp() + make_interval(secs => %s)", [LATER]
    )
    return {"lease": lease, "job": await given.queued_job(tx)}


async def function_with_event_wait(tx: Tx) -> World:
    """A function that runs, and waits for an event, but not for long."""
    world = await _lease_for_long(tx, await running_function(tx))
    wait = NewWait(place=given.WAIT, kind=StepKind.EVENT, name=given.EVENT, seconds=SOON)
    await durable_store.begin_wait(tx, world["lease"], wait)
    return world


async def function_with_timeout(tx: Tx) -> World:
    """A function that runs, and has begun a wait for a signal that ends soon."""
    world = await _lease_for_long(tx, await running_function(tx))
    wait = NewWait(place=given.WAIT, kind=StepKind.SIGNAL, name="go", seconds=SOON)
    await durable_store.begin_wait(tx, world["lease"], wait)
    return world


async def asking_function(tx: Tx) -> World:
    """A function that runs, and has asked for an approval."""
    return await _lease_for_long(tx, await asking_for_an_hour(tx))


async def _lease_for_long(tx: Tx, world: World) -> World:
    await tx.run(
        "update fairlead.leases set expires_at = clock_timestamp() + make_interval(secs => %s)", [LATER]
    )
    return world


# What they do


async def expire(tx: Tx, world: World) -> bool:
    return await expiry.expire_jobs(tx, limit=10)


async def edit_in_vain(database: SteppedDatabase, world: World) -> None:
    """An edit that is rolled back."""

    async def edit_and_drop(tx: Tx, world: World) -> None:
        await do.edit(priority=9)(tx, world)
        raise DroppedError

    with suppress(DroppedError, JobNotEditable):
        await in_transaction(edit_and_drop)(database, world)


def after(seconds: int, work: do.Work) -> Operation:
    """The work of a worker whose timer has run out."""

    async def act(database: SteppedDatabase, world: World) -> Any:
        await pass_time(seconds)(database, world)
        return await in_transaction(work)(database, world)

    return act


# What has to be true at the end


def place_of(world: World, name: str, did: str = "") -> int:
    """Where a participant took its first step, or that step."""
    return next(n for n, (who, what) in enumerate(world["order"]) if who == name and did in what)


async def renewed_or_rescued(tx: Tx, world: World, results: Results) -> None:
    """A lease that was renewed in time is not rescued; one that was not is, if not at once."""
    rescued = {**results["rescue"], **await do.rescue_expired(tx, world)}
    if results["heartbeat"]:
        assert place_of(world, "heartbeat") < place_of(world, TIME), "a lease was renewed after its end"
        assert rescued == {}, "a renewed lease was rescued"
    else:
        assert list(rescued) == [world["job"]], "a lease that was not renewed is kept"


async def recorded_while_leased(tx: Tx, world: World, results: Results) -> None:
    """A step is recorded, if its attempt had the lease when it was."""
    in_time = place_of(world, "record") < place_of(world, TIME)
    assert results["record"] is in_time, "recorded without a lease" if results["record"] else "not recorded"
    assert await read_steps(tx, world["job"]) == (["succeeded"] if in_time else [])


async def started_in_time(tx: Tx, world: World, results: Results) -> None:
    """A job starts in time, or it is canceled, and not both."""
    while await expiry.expire_jobs(tx, limit=10):
        pass
    state = await read_state(tx, world["job"])
    if results["claim"]:
        assert place_of(world, "claim") < place_of(world, TIME), "a job started after its time"
        assert state.status is JobStatus.RUNNING
    else:
        assert state.status is JobStatus.CANCELED, "a job whose time is over waits on"


async def unique_for_its_time(tx: Tx, world: World, results: Results) -> None:
    """Enqueues in time get the job that there is; of those afterwards one makes a job."""
    made = {results["first"], results["second"]}
    assert await count_jobs(tx) == len(made | {world["job"]})
    assert len(made - {world["job"]}) <= 1, "the key made two jobs"
    for name in ("first", "second"):
        if place_of(world, name) > place_of(world, TIME):
            assert results[name] != world["job"], "the key was taken after its time"


async def let_go(tx: Tx, world: World, results: Results) -> None:
    """The next job of the key can start, at once or soon."""
    assert results["finish"] is JobStatus.SUCCEEDED
    await tx.run("select fairlead.pass_time(%s)", [SOON])
    await queue.stage_due(tx)
    claimed = await queue.claim(tx, worker="worker", wanted=2, lease_seconds=do.LEASE_SECONDS)
    held = [job.job_id for job in claimed.jobs]
    assert [*(one.job_id for one in results.values_of(list) for one in one), *held] == [world["job"]], (
        "the next job of the key stands still"
    )


async def received_or_timed_out(tx: Tx, world: World, results: Results) -> None:
    """An event that was committed in time is received. Whatever the function was told stays."""
    [(status, result)] = await tx.values("select status, result from fairlead.job_steps")
    told = results["worker"]
    assert (told.status, told.result) == (status, result)
    if place_of(world, "dispatch", "commit") < place_of(world, "worker"):
        assert status == "succeeded", "an event that was stored in time was reported as a timeout"


async def goes_on(tx: Tx, world: World, results: Results) -> None:
    """A function whose wait is over is ready, at once or when it is looked at again."""
    # what was left of the wait counts from the moment at which the function went to sleep
    await tx.run("select fairlead.pass_time(%s)", [SOON])
    await queue.stage_due(tx)
    assert await read_place(tx, world["job"]) == "ready", "a function sleeps on after its time"


def at_its_deadline(
    name: str, prepare: Prepare, participants: Mapping[str, Operation], check: Check, **more: Any
) -> Scenario:
    return Scenario(
        name=name,
        prepare=prepare,
        has_virtual_time=True,
        participants=participants,
        check=check,
        contended=WITH_DEADLINES,
        **more,
    )


def _finishes() -> list[Scenario]:
    ends: dict[str, tuple[Change, do.Work]] = {
        "success": (do.SUCCEEDED, do.finish()),
        "failure": (do.FAILED_TO_RETRY, do.finish(do.FAILED_TO_RETRY)),
        "success in the handler's transaction": (do.SUCCEEDED, do.finish_joined()),
    }
    return [
        at_its_deadline(
            f"finish ({name}) × end of the lease × rescue",
            leased_job,
            {
                "finish": in_transaction(finish),
                TIME: pass_time(MEANWHILE),
                "rescue": in_transaction(do.rescue_expired),
            },
            ended_once(change),
        )
        for name, (change, finish) in ends.items()
    ]


DEADLINES: list[Scenario] = [
    at_its_deadline(
        "heartbeat × end of the lease × rescue",
        leased_job,
        {
            "heartbeat": in_transaction(do.heartbeat(seconds=LATER)),
            TIME: pass_time(MEANWHILE),
            "rescue": in_transaction(do.rescue_expired),
        },
        renewed_or_rescued,
    ),
    *_finishes(),
    at_its_deadline(
        "record a step × end of the lease × rescue",
        leased_job,
        {
            "record": by_itself(do.record_step),
            TIME: pass_time(MEANWHILE),
            "rescue": in_transaction(do.rescue_expired),
        },
        recorded_while_leased,
    ),
    at_its_deadline(
        "claim × expiry × cancel of the expired",
        expiring_job,
        {"claim": in_transaction(do.claim()), TIME: pass_time(MEANWHILE), "expire": in_transaction(expire)},
        started_in_time,
        stops=WITHIN_CLAIM,
    ),
    at_its_deadline(
        "enqueue (unique for a while) × its end × enqueue",
        unique_job,
        {
            "first": in_transaction(do.enqueue_deduplicated()),
            TIME: pass_time(MEANWHILE),
            "second": in_transaction(do.enqueue_deduplicated()),
        },
        unique_for_its_time,
    ),
    at_its_deadline(
        "finish of a key × edit that is rolled back × claim",
        jobs_of_a_key,
        {"finish": by_itself(do.finish()), "edit": edit_in_vain, "claim": in_transaction(do.claim())},
        let_go,
    ),
    at_its_deadline(
        "give up at the end of a wait × emit and dispatch",
        function_with_event_wait,
        {"worker": after(MEANWHILE, do.give_up_event_wait), "dispatch": do.emit_and_dispatch},
        received_or_timed_out,
        stops=WITHIN_COMPLETION,
    ),
    at_its_deadline(
        "suspend × end of the wait × stage",
        function_with_timeout,
        {
            "suspend": in_transaction(do.suspend(seconds=SOON)),
            TIME: pass_time(MEANWHILE),
            "stage": in_transaction(do.stage),
        },
        goes_on,
    ),
    at_its_deadline(
        "suspend × end of the wait × signal",
        function_with_timeout,
        {
            "suspend": in_transaction(do.suspend(seconds=SOON)),
            "stage": after(MEANWHILE, do.stage),
            "signal": in_transaction(do.send_signal),
        },
        goes_on,
    ),
    at_its_deadline(
        "answer × give up at the end of the wait",
        asking_function,
        {"answer": in_transaction(answer()), "give up": after(MEANWHILE, do.give_up_wait)},
        answered_or_expired,
        stops=WITHIN_COMPLETION,
        allowed=(ApprovalClosed,),
    ),
]
DEADLINES_BY_NAME: Mapping[str, Scenario] = {one.name: one for one in DEADLINES}
