"""Scenarios of durable functions: what completes a wait, and what moves the job at the same time."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from fairlead.db.tx import Tx
from fairlead.errors import JobNotEditable, JobNotSignalable
from fairlead.model.durable import StepKind
from fairlead.model.job import JobStatus
from fairlead.store import queue, tenants
from tests import given
from tests.interleavings import operations as do
from tests.interleavings.explorer import Results, Scenario, World
from tests.interleavings.operations import by_itself, in_transaction, in_transactions
from tests.interleavings.scenarios import Check, lost_job, read_state, running_job
from tests.interleavings.stops import Stops

WITHIN_COMPLETION: Stops = {"complete_waits": ("    with done as (", "    return case when jobs is null")}


async def read_place(tx: Tx, job_id: UUID) -> str:
    """Where a job is in the queue."""
    [(place,)] = await tx.values(
        """
        select concat_ws(' ', (select 'ready' from fairlead.ready where job_id = %(id)s),
            (select case when waits then 'asleep' else 'later' end from fairlead.later where job_id = %(id)s),
            (select 'leased' from fairlead.leases where job_id = %(id)s))
        """,
        {"id": job_id},
    )
    return str(place)


async def read_steps(tx: Tx, job_id: UUID) -> list[str]:
    rows = await tx.values(
        "select status from fairlead.job_steps where job_id = %s order by branch, position", [job_id]
    )
    return [str(status) for (status,) in rows]


# What scenarios begin with


def begun_wait(*, expired: bool = False, **fields: Any) -> Any:
    """A function that runs, and has begun a wait."""

    async def prepare(tx: Tx) -> World:
        lease = await given.begun_wait(tx, **fields)
        seconds = -3600 if expired else 3600
        await tx.run(
            "update fairlead.leases set expires_at = clock_timestamp() + make_interval(secs => %s)", [seconds]
        )
        return {"lease": lease, "job": lease.job_id}

    return prepare


async def waiting_function(tx: Tx) -> World:
    return {"job": await given.waiting_function(tx)}


async def due_function(tx: Tx) -> World:
    """A function that sleeps, and whose time is over."""
    world = await waiting_function(tx)
    await tx.run("update fairlead.later set due_at = due_at - interval '2 hours'")
    await tx.run("update fairlead.job_records set scheduled_for = scheduled_for - interval '2 hours'")
    return world


async def running_function(tx: Tx) -> World:
    """A function that runs."""
    lease = await given.claimed_job(tx)
    await tx.run("update fairlead.leases set expires_at = clock_timestamp() + interval '1 hour'")
    tenant_id = (await tenants.get_ids(tx, [given.TENANT]))[given.TENANT]
    return {"lease": lease, "job": lease.job_id, "tenant": tenant_id}


async def event_wait_out_of_time(tx: Tx) -> World:
    """A function that runs, and whose wait for an event is over. The event was stored in time."""
    world = await running_function(tx)
    await do.begin_wait(StepKind.EVENT, given.EVENT)(tx, world)
    event_id = await given.event(tx)
    await tx.run("update fairlead.job_steps set due_at = clock_timestamp()")
    return {**world, "event": event_id}


async def late_event(tx: Tx) -> World:
    """The same, but the event was stored when the time was over."""
    world = await event_wait_out_of_time(tx)
    await tx.run("update fairlead.events set recorded_at = clock_timestamp()")
    return world


async def running_parent(tx: Tx) -> World:
    """A function that runs, and its child, which runs, too."""
    world = await running_function(tx)
    child = await given.claimed_job(tx, parent_id=world["job"])
    await tx.run("update fairlead.leases set expires_at = clock_timestamp() + interval '1 hour'")
    return {**world, "child": child.job_id, "child_lease": child}


async def parent_of_ended_child(tx: Tx) -> World:
    """A function that has begun to wait for its child, which has ended: nobody has told the function."""
    world = await running_parent(tx)
    await do.begin_wait(StepKind.CALL)(tx, world)
    await queue.finish(tx, [(world["child_lease"], do.SUCCEEDED)], actor="worker")
    assert await given.count(tx, "ended_children") == 1
    return world


# What has to be true at the end


async def woken(tx: Tx, world: World, results: Results) -> None:
    assert await read_steps(tx, world["job"]) == ["succeeded"]
    place = await read_place(tx, world["job"])
    assert place == "ready", f"the wait was completed, and the function is {place}"


async def asleep_or_canceled(tx: Tx, world: World, results: Results) -> None:
    state = await read_state(tx, world["job"])
    assert state.status is JobStatus.CANCELED
    assert await read_place(tx, world["job"]) == ""


async def slept_or_lost(tx: Tx, world: World, results: Results) -> None:
    state = await read_state(tx, world["job"])
    place = await read_place(tx, world["job"])
    if results["rescue"]:
        assert (results["suspend"], state.attempts, place) == (None, [(1, "lost")], "later")
    else:
        assert (results["suspend"], state.attempts, place) == (
            JobStatus.QUEUED,
            [(1, "released")],
            "asleep",
        )


async def signaled_and_canceled(tx: Tx, world: World, results: Results) -> None:
    state = await read_state(tx, world["job"])
    assert (results["cancel"], state.status) == (JobStatus.CANCELED, JobStatus.CANCELED)
    assert await read_place(tx, world["job"]) == ""
    refused = isinstance(results["signal"], JobNotSignalable)
    assert await read_steps(tx, world["job"]) == (["waiting"] if refused else ["succeeded"])


async def woken_with_its_edit(tx: Tx, world: World, results: Results) -> None:
    await woken(tx, world, results)
    [(priority,)] = await tx.values("select priority from fairlead.ready")
    assert (priority, results["edit"]) == (9, "queued")


async def one_signal_taken(tx: Tx, world: World, results: Results) -> None:
    await woken(tx, world, results)
    [(taken, kept)] = await tx.values(
        "select count(taken_at), count(*) filter (where taken_at is null) from fairlead.job_signals"
    )
    assert (taken, kept) == (1, 1)


def received(*, kind: str = "signal") -> Check:
    """The wait has its result, whichever came first."""

    async def check(tx: Tx, world: World, results: Results) -> None:
        assert results["wait"] is not None
        assert await read_steps(tx, world["job"]) == ["succeeded"], f"the {kind} was missed"

    return check


async def told_or_noted(tx: Tx, world: World, results: Results) -> None:
    """The wait sees the end of the child, or the end of the child saw the wait."""
    noted = await given.count(tx, "ended_children")
    assert await read_steps(tx, world["job"]) == (["waiting"] if noted else ["succeeded"])
    assert (results["wait"].status == "succeeded") == (not noted)


async def timed_out_or_received(tx: Tx, world: World, results: Results) -> None:
    [status] = await read_steps(tx, world["job"])
    assert results["give up"] is not None, "the function was told that its lease is lost"
    assert results["give up"].status == status
    [(taken,)] = await tx.values("select count(taken_at) from fairlead.job_signals")
    assert taken == (1 if status == "succeeded" else 0)


async def received_in_time(tx: Tx, world: World, results: Results) -> None:
    """The event was stored in time: the function has it."""
    assert results["give up"].status == "succeeded", (
        "an event that was stored in time was reported as a timeout"
    )
    assert results["give up"].result["id"] == str(world["event"])
    assert await read_steps(tx, world["job"]) == ["succeeded"]
    assert await given.count(tx, "events_waiting") == 0


async def timed_out_or_received_late(tx: Tx, world: World, results: Results) -> None:
    """The event came after the time was over: whatever the function was told stays."""
    [(status, result)] = await tx.values("select status, result from fairlead.job_steps")
    assert (results["give up"].status, results["give up"].result) == (status, result)
    assert (status == "timeout") == (result is None)


async def stale_step_is_not_recorded(tx: Tx, world: World, results: Results) -> None:
    assert results["record"] is False, "a step of a lost attempt was recorded"
    assert await read_steps(tx, world["job"]) == []


DURABLE: list[Scenario] = [
    Scenario(
        name="suspend × signal",
        prepare=begun_wait(),
        participants=in_transactions(suspend=do.suspend(), signal=do.send_signal),
        check=woken,
        stops=WITHIN_COMPLETION,
    ),
    Scenario(
        name="suspend × children",
        prepare=parent_of_ended_child,
        participants=in_transactions(suspend=do.suspend(), settle=do.settle_children),
        check=woken,
        stops=WITHIN_COMPLETION,
    ),
    Scenario(
        name="suspend × cancel",
        prepare=begun_wait(),
        participants=in_transactions(suspend=do.suspend(), cancel=do.cancel),
        check=asleep_or_canceled,
    ),
    Scenario(
        name="suspend × rescue",
        prepare=begun_wait(expired=True),
        participants=in_transactions(suspend=do.suspend(), rescue=do.rescue_expired),
        check=slept_or_lost,
    ),
    Scenario(
        name="signal × cancel",
        prepare=waiting_function,
        participants=in_transactions(signal=do.send_signal, cancel=do.cancel),
        check=signaled_and_canceled,
        stops=WITHIN_COMPLETION,
        allowed=(JobNotSignalable,),
    ),
    Scenario(
        name="signal × edit",
        prepare=waiting_function,
        participants=in_transactions(signal=do.send_signal, edit=do.edit(priority=9)),
        check=woken_with_its_edit,
        stops=WITHIN_COMPLETION,
        allowed=(JobNotEditable,),
        switches=2,
    ),
    Scenario(
        name="signal × stage",
        prepare=due_function,
        participants=in_transactions(signal=do.send_signal, stage=do.stage),
        check=woken,
        stops=WITHIN_COMPLETION,
    ),
    Scenario(
        name="signal × signal",
        prepare=waiting_function,
        participants={name: in_transaction(do.send_signal) for name in ("first", "second")},
        are_alike=True,
        check=one_signal_taken,
    ),
    Scenario(
        name="begin a wait × signal",
        prepare=running_function,
        participants={"wait": by_itself(do.begin_wait()), "signal": in_transaction(do.send_signal)},
        check=received(),
        stops={"begin_wait": ("    moment := clock_timestamp();",)},
    ),
    Scenario(
        name="begin a wait × dispatch",
        prepare=running_function,
        participants={
            "wait": in_transaction(do.begin_wait(StepKind.EVENT, given.EVENT)),
            "dispatch": do.emit_and_dispatch,
        },
        check=received(kind="event"),
    ),
    Scenario(
        name="begin a call × end of the child",
        prepare=running_parent,
        participants={
            "wait": by_itself(do.begin_wait(StepKind.CALL)),
            "finish": in_transaction(do.finish(lease="child_lease")),
        },
        check=told_or_noted,
        stops={"begin_wait": ("    moment := clock_timestamp();",)},
    ),
    Scenario(
        name="give up × signal",
        prepare=begun_wait(),
        participants={"give up": in_transaction(do.give_up_wait), "signal": in_transaction(do.send_signal)},
        check=timed_out_or_received,
        stops=WITHIN_COMPLETION,
    ),
    Scenario(
        name="give up × dispatch",
        prepare=event_wait_out_of_time,
        participants=in_transactions(**{"give up": do.give_up_event_wait, "dispatch": do.dispatch_events}),
        check=received_in_time,
        stops=WITHIN_COMPLETION,
    ),
    Scenario(
        name="give up × dispatch, late",
        prepare=late_event,
        participants=in_transactions(**{"give up": do.give_up_event_wait, "dispatch": do.dispatch_events}),
        check=timed_out_or_received_late,
        stops=WITHIN_COMPLETION,
    ),
    Scenario(
        name="stale step × claim",
        prepare=lost_job,
        participants={"record": by_itself(do.record_step), "claim": in_transaction(do.claim())},
        check=stale_step_is_not_recorded,
    ),
    Scenario(
        name="late step × rescue",
        prepare=running_job(expired=True),
        participants={"record": by_itself(do.record_step), "rescue": in_transaction(do.rescue_expired)},
        check=stale_step_is_not_recorded,
    ),
]
DURABLE_BY_NAME: Mapping[str, Scenario] = {one.name: one for one in DURABLE}
