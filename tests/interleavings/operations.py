"""The operations of scenarios: the product's own functions, each on its participant's connection."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from uuid import UUID

from fairlead.actions import (
    dispatch,
    durable,
    edit_job,
    enqueue,
    events,
    gates,
    jobs,
    leases,
    schedule_firing,
    workflow_progress,
)
from fairlead.actions.leases import AttemptDetails
from fairlead.db.tx import Tx
from fairlead.model.durable import NewWait, StepEnd, StepKind, StepRecord
from fairlead.model.event import NewEvent
from fairlead.model.job import JobEdit, JobStatus, Lease
from fairlead.model.outcome import (
    Backoff,
    Change,
    Failed,
    Released,
    RetryBudget,
    Snoozed,
    Succeeded,
    Suspended,
    decide,
)
from fairlead.store import durable as durable_store
from fairlead.store import queue, rescue
from tests import given
from tests.given import TENANT, TESTER
from tests.interleavings.explorer import Operation, World
from tests.interleavings.steps import SteppedDatabase

T = TypeVar("T")
Work = Callable[[Tx, World], Awaitable[Any]]
LEASE_SECONDS = 600.0
# an hour of backoff: nothing falls due during a test
BUDGET = RetryBudget(3, 0, 0, Backoff(base_seconds=3600))

SUCCEEDED = decide(BUDGET, Succeeded("done"))
FAILED_TO_RETRY = decide(BUDGET, Failed("E", "again"))
FATAL = decide(BUDGET, Failed("E", "never", retryable=False))
SNOOZED = decide(BUDGET, Snoozed(3600))
RELEASED = decide(BUDGET, Released())
CHANGES: dict[str, Change] = {
    "success": SUCCEEDED,
    "failure": FAILED_TO_RETRY,
    "fatal": FATAL,
    "snooze": SNOOZED,
    "release": RELEASED,
}


def in_transaction(work: Work) -> Operation:
    """The work as one transaction, with a step for each statement and one for the commit."""

    async def act(database: SteppedDatabase, world: World) -> Any:
        async with database.transaction() as tx:
            return await work(tx, world)

    return act


def in_transactions(**works: Work) -> dict[str, Operation]:
    """Participants, each with its work as one transaction."""
    return {name: in_transaction(work) for name, work in works.items()}


def by_itself(work: Work) -> Operation:
    """The work with each statement as its own transaction, as workers do it."""

    async def act(database: SteppedDatabase, world: World) -> Any:
        return await database.single(lambda tx: work(tx, world))

    return act


def claim(*, worker: str = "worker", wanted: int = 1, host: bool = False) -> Work:
    async def act(tx: Tx, world: World) -> list[Lease]:
        claimed = await queue.claim(
            tx,
            worker=worker,
            wanted=wanted,
            lease_seconds=LEASE_SECONDS,
            host=world["host"] if host else None,
        )
        return [claimed.lease(job) for job in claimed.jobs]

    return act


def finish(change: Change = SUCCEEDED, *, lease: str = "lease") -> Work:
    """What a worker's finisher does."""

    async def act(tx: Tx, world: World) -> JobStatus | None:
        owned: Lease = world[lease]
        done = await workflow_progress.finish_attempts(tx, [(owned, change)], actor="worker")
        return done.get(owned.job_id)

    return act


def finish_joined(*, lease: str = "lease") -> Work:
    """What a handler does that ends its job in its own transaction."""

    async def act(tx: Tx, world: World) -> JobStatus | None:
        owned: Lease = world[lease]
        exchange = queue.finish_joined([(owned, SUCCEEDED)], actor="worker", database=None)
        [(answer,)] = await tx.values("select fairlead.finish_joined(%s)", [next(exchange)])
        try:
            exchange.send(answer)
        except StopIteration as over:
            return JobStatus.SUCCEEDED if over.value and owned.job_id in over.value else None
        raise AssertionError("the exchange goes on")

    return act


def complete(*, lease: str = "lease") -> Work:
    """What the API does when a worker reports a success."""

    async def act(tx: Tx, world: World) -> JobStatus:
        return await leases.complete(tx, TESTER, world[lease], output="done", ending=AttemptDetails())

    return act


def heartbeat(*, lease: str = "lease", seconds: float = LEASE_SECONDS) -> Work:
    async def act(tx: Tx, world: World) -> bool:
        owned: Lease = world[lease]
        result = await queue.heartbeat(tx, [owned], lease_seconds=seconds)
        return owned in result and result[owned].renewed

    return act


def claim_and_finish(change: Change = SUCCEEDED) -> Operation:
    """A worker: it claims a job, runs it, and reports its end."""

    async def act(database: SteppedDatabase, world: World) -> list[JobStatus | None]:
        held: list[Lease] = await by_itself(claim(worker="second"))(database, world)
        return [await by_itself(finish(change))(database, {"lease": lease}) for lease in held]

    return act


async def rescue_expired(tx: Tx, world: World) -> dict[UUID, JobStatus]:
    """What the watchdog does, without its limit on waits for locks."""
    rescued = await rescue.rescue(tx, lease_seconds=LEASE_SECONDS)
    await workflow_progress.settle_jobs(tx, rescued)
    return rescued


async def cancel(tx: Tx, world: World) -> JobStatus:
    return (await jobs.cancel(tx, TESTER, world["job"])).status


EDITED = {"name": "Grace"}


def edit(**changes: Any) -> Work:
    async def act(tx: Tx, world: World) -> str:
        change = JobEdit(**(changes or {"payload": EDITED, "priority": 7}))
        return str((await edit_job.edit(tx, TESTER, given.catalog(), world["job"], change)).status)

    return act


async def claim_payload(tx: Tx, world: World) -> list[Any]:
    """The payloads that a worker gets."""
    claimed = await queue.claim(tx, worker="worker", wanted=1, lease_seconds=LEASE_SECONDS)
    return [job.payload for job in claimed.jobs]


async def retry(tx: Tx, world: World) -> JobStatus:
    return (await jobs.retry(tx, TESTER, given.catalog(), world["job"])).status


async def stage(tx: Tx, world: World) -> int:
    return await queue.stage_due(tx)


def enqueue_deduplicated(**fields: Any) -> Work:
    async def act(tx: Tx, world: World) -> UUID:
        made = await enqueue.enqueue(tx, TESTER, given.catalog(), given.request(dedupe_key="key", **fields))
        return made.id

    return act


async def enqueue_plain(tx: Tx, world: World) -> UUID:
    return await given.queued_job(tx)


def enqueue_joined(level: str) -> Operation:
    """The library's enqueue in the caller's own transaction, at the caller's isolation level."""

    async def act(database: SteppedDatabase, world: World) -> UUID:
        async with database.transaction() as tx:
            await tx.run(f"set transaction isolation level {level}")
            # takes the snapshot of the transaction
            await tx.run("select from fairlead.active_keys")
            job = await world["library"].enqueue(
                "greet", tenant=TENANT, payload={"name": "Ada"}, dedupe_key="key", tx=tx.connection
            )
            found: UUID = job.id
            return found

    return act


async def pause_definition(tx: Tx, world: World) -> None:
    await gates.pause(tx, TESTER, definition="greet")


async def fire_due(tx: Tx, world: World) -> int:
    return await schedule_firing.fire_due(tx, given.catalog(), limit=10, grace_seconds=60)


async def dispatch_events(tx: Tx, world: World) -> int:
    return await dispatch.dispatch(tx, given.catalog(), limit=10, patience_seconds=600)


async def emit_and_dispatch(database: SteppedDatabase, world: World) -> int:
    """An application, and then the dispatcher."""

    async def emit(tx: Tx, world: World) -> UUID:
        return await given.event(tx)

    await in_transaction(emit)(database, world)
    dispatched: int = await in_transaction(dispatch_events)(database, world)
    return dispatched


async def emit_early(tx: Tx, world: World) -> UUID:
    """Emit an event whose id is less than those of the events that wait."""
    new = NewEvent(name=given.EVENT, tenant=TENANT, id=world["early"])
    return await events.emit(tx, TESTER, given.catalog(), new)


# Durable functions


def suspend(*, seconds: float = 3600.0) -> Work:
    """What a worker does with an attempt of a durable function that waits, but no longer than that."""
    change = decide(BUDGET, Suspended(seconds, (given.WAIT,)))

    async def act(tx: Tx, world: World) -> JobStatus | None:
        owned: Lease = world["lease"]
        return (await queue.suspend(tx, [(owned, change)], actor="worker")).get(owned.job_id)

    return act


async def send_signal(tx: Tx, world: World) -> UUID:
    return await durable.send_signal(tx, TESTER, world["job"], "go", {"n": 1})


def begin_wait(kind: StepKind = StepKind.SIGNAL, name: str = "go") -> Work:
    async def act(tx: Tx, world: World) -> StepRecord | None:
        owned: Lease = world["lease"]
        wait = NewWait(place=given.WAIT, kind=kind, name=name, child_id=world.get("child"))
        if kind is StepKind.EVENT:
            return await durable.begin_event_wait(tx, owned, world["tenant"], wait, lookback=3600)
        return await durable_store.begin_wait(tx, owned, wait)

    return act


async def give_up_wait(tx: Tx, world: World) -> StepRecord | None:
    return await durable_store.give_up_wait(tx, world["lease"], given.WAIT)


async def give_up_event_wait(tx: Tx, world: World) -> StepRecord | None:
    lease: Lease = world["lease"]
    return await durable.give_up_event_wait(
        tx, lease, world["tenant"], given.WAIT, given.EVENT, lookback=None
    )


async def record_step(tx: Tx, world: World) -> bool:
    owned: Lease = world["lease"]
    step = StepEnd(owned.job_id, owned.attempt_no, owned.token, 0, "one", result="done")
    return bool(await durable_store.record_steps(tx, [durable_store.encode_step(step)]))


def pass_time(seconds: int) -> Operation:
    """A participant that lets time pass, on connections with virtual time."""

    async def act(tx: Tx, world: World) -> None:
        await tx.run("select fairlead.pass_time(%s)", [seconds])

    return by_itself(act)


async def settle_children(tx: Tx, world: World) -> int:
    return await durable.settle_children(tx, limit=10)
