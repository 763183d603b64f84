"""The scenarios: what acts at the same time, and what has to be true whichever was first."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.errors import SerializationFailure
from uuid_utils.compat import uuid7

from fairlead.actions import hosts, workflows
from fairlead.actions.workflows import RunRequest
from fairlead.db.tx import Tx
from fairlead.errors import DedupeClash, JobNotCancelable, JobNotEditable, JobNotRetryable
from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Change
from fairlead.store import queue, rescue, tenants
from tests import given
from tests.given import TENANT, TESTER
from tests.interleavings import operations as do
from tests.interleavings.explorer import Results, Scenario, World
from tests.interleavings.operations import by_itself, in_transaction, in_transactions
from tests.interleavings.steps import CONTENDED
from tests.interleavings.stops import (
    AROUND_LIMITS,
    BEFORE_COUNTING_LEASES,
    BEFORE_READING_KEY,
    WITHIN_CLAIM,
    WITHIN_DEDUPE,
    WITHIN_ENQUEUE,
)

Prepare = Callable[[Tx], Awaitable[World]]
Check = Callable[[Tx, World, Results], Awaitable[None]]
WITH_GATES = re.compile(CONTENDED.pattern + r"|\bjob_definitions\b")


class JobState(NamedTuple):
    """What the database says of a job."""

    status: JobStatus
    attempts: list[tuple[int, str]]
    lease: Lease | None
    is_cancel_requested: bool


async def read_state(tx: Tx, job_id: UUID) -> JobState:
    [(status, requested)] = await tx.values(
        "select status, cancel_requested_at is not null from fairlead.jobs where id = %s", [job_id]
    )
    attempts = await tx.values(
        "select attempt_no, status from fairlead.attempts where job_id = %s order by attempt_no", [job_id]
    )
    held = await tx.values(
        "select job_id, attempt_no, token from fairlead.leases where job_id = %s", [job_id]
    )
    return JobState(
        JobStatus(status), [(n, s) for n, s in attempts], Lease(*held[0]) if held else None, requested
    )


async def count_jobs(tx: Tx) -> int:
    return await given.count(tx, "job_records")


# What scenarios begin with


async def queued_job(tx: Tx) -> World:
    return {"job": await given.queued_job(tx)}


def running_job(*, expired: bool = False, **fields: Any) -> Prepare:
    """A job with a lease, which its worker still renews or has let expire."""

    async def prepare(tx: Tx) -> World:
        lease = await given.claimed_job(tx, **fields)
        seconds = -3600 if expired else 3600
        await tx.run(
            "update fairlead.leases set expires_at = clock_timestamp() + make_interval(secs => %s)", [seconds]
        )
        return {"lease": lease, "job": lease.job_id}

    return prepare


async def lost_job(tx: Tx) -> World:
    """A job whose first lease expired and was rescued; it is ready again."""
    world = await running_job(expired=True)(tx)
    await rescue.rescue(tx, lease_seconds=30)
    await tx.run("update fairlead.later set due_at = clock_timestamp() - interval '1 s', alone = false")
    await tx.run("update fairlead.job_records set scheduled_for = (select due_at from fairlead.later)")
    assert await queue.stage_due(tx) == 1
    return world


async def due_job(tx: Tx) -> World:
    """A job that waits in later and is due."""
    [(soon,)] = await tx.values("select clock_timestamp() + interval '1 hour'")
    job_id = await given.queued_job(tx, scheduled_for=soon)
    await tx.run("update fairlead.later set due_at = due_at - interval '2 hours'")
    await tx.run("update fairlead.job_records set scheduled_for = scheduled_for - interval '2 hours'")
    return {"job": job_id}


def failed_job(status: str = "failed", **fields: Any) -> Prepare:
    async def prepare(tx: Tx) -> World:
        return {"job": await given.ended_job(tx, status, **fields)}

    return prepare


LIMITS = {
    "tenant": "update fairlead.tenants set max_running = %s",
    "definition": "update fairlead.job_definitions set max_running = %s",
    "definition and tenant": "update fairlead.job_definitions set max_running_per_tenant = %s",
}


def limited_jobs(scope: str, *, known: bool, running: bool = False) -> Prepare:
    """Two queued jobs, of which a limit lets one run. `known`: a claim has met the limit before."""

    async def prepare(tx: Tx) -> World:
        world: World = {}
        fields: dict[str, Any] = {}
        if scope == "host":
            tenant_id = (await tenants.get_ids(tx, [TENANT]))[TENANT]
            world["host"] = fields["host_id"] = (
                await hosts.add(tx, TESTER, tenant_id=tenant_id, name="host", max_running=1)
            ).id
        else:
            await tx.run(LIMITS[scope], [1])
        if known or running:
            world["lease"] = await given.claimed_job(tx, **fields)
        if known and not running:
            await queue.finish(tx, [(world["lease"], do.SUCCEEDED)], actor="worker")
        world["jobs"] = [await given.queued_job(tx, **fields) for _ in range(2)]
        return world

    return prepare


async def joined_steps(tx: Tx) -> World:
    """A run whose last step waits for two running ones."""
    step = {"definition": "anything"}
    spec = {
        "key": "join",
        "steps": [
            {**step, "name": "left"},
            {**step, "name": "right"},
            {**step, "name": "last", "after": ["left", "right"]},
        ],
    }
    run = await workflows.start_inline(tx, TESTER, spec, RunRequest(tenant=TENANT))
    claimed = await queue.claim(tx, worker="worker", wanted=2, lease_seconds=do.LEASE_SECONDS)
    left, right = [claimed.lease(job) for job in claimed.jobs]
    return {"left": left, "right": right, "run": run.id}


async def due_schedule(tx: Tx) -> World:
    return {"trigger": await given.due_trigger(tx, every_seconds=3600)}


async def waiting_events(tx: Tx) -> World:
    early = uuid7()
    await given.trigger(tx, dedupe_window_seconds=0)
    return {"early": early, "events": [await given.event(tx), await given.event(tx)]}


# What has to be true at the end


def claimed_once(most: int = 1) -> Check:
    async def check(tx: Tx, world: World, results: Results) -> None:
        held = [lease for leases in results.values_of(list) for lease in leases]
        assert len(held) == most, f"{len(held)} jobs were claimed, not {most}"
        assert len({lease.job_id for lease in held}) == most, "a job was claimed twice"

    return check


async def canceled_or_asked(tx: Tx, world: World, results: Results) -> None:
    state = await read_state(tx, world["job"])
    if results["claim"]:
        assert results["cancel"] is JobStatus.RUNNING
        assert state.lease == results["claim"][0]
        assert state.is_cancel_requested
    else:
        assert results["cancel"] is JobStatus.CANCELED
        assert (state.status, state.lease) == (JobStatus.CANCELED, None)


def ended_once(change: Change) -> Check:
    """The worker or the watchdog ended the attempt, and not both."""

    async def check(tx: Tx, world: World, results: Results) -> None:
        state = await read_state(tx, world["job"])
        assert state.lease is None
        assert len(state.attempts) == 1
        if results["rescue"]:
            assert results["finish"] is None, "a lost lease was accepted"
            assert state.attempts == [(1, "lost")]
            assert state.status is JobStatus.QUEUED
        else:
            assert results["finish"] is state.status is change.status
            assert state.attempts == [(1, change.attempt_status)]

    return check


def ended_or_canceled(change: Change) -> Check:
    """After a cancel request, every end but a success is a cancel."""

    async def check(tx: Tx, world: World, results: Results) -> None:
        state = await read_state(tx, world["job"])
        refused = isinstance(results["cancel"], JobNotCancelable)
        assert state.lease is None
        assert len(state.attempts) == 1
        if change.status is JobStatus.SUCCEEDED:
            assert state.status is JobStatus.SUCCEEDED
        elif refused:
            assert state.status is change.status is JobStatus.FAILED
        else:
            assert state.status is JobStatus.CANCELED, f"canceled, and yet {state.status}"

    return check


async def both_told_the_same(tx: Tx, world: World, results: Results) -> None:
    state = await read_state(tx, world["job"])
    assert len(state.attempts) == 1
    assert list(results.values()) == [state.status] * len(results)


async def one_report_accepted(tx: Tx, world: World, results: Results) -> None:
    state = await read_state(tx, world["job"])
    accepted = [value for value in results.values() if value is not None]
    assert accepted == [state.status], f"accepted {accepted}, and the job is {state.status}"
    assert len(state.attempts) == 1


async def expired_lease_stays_lost(tx: Tx, world: World, results: Results) -> None:
    assert results["heartbeat"] is False, "an expired lease was renewed"
    assert list(results["rescue"]) == [world["job"]]


async def live_lease_stays(tx: Tx, world: World, results: Results) -> None:
    state = await read_state(tx, world["job"])
    assert results["rescue"] == {}, "a live lease was rescued"
    assert results["heartbeat"] is True
    assert state.lease == world["lease"]


async def stale_heartbeat_changes_nothing(tx: Tx, world: World, results: Results) -> None:
    assert results["heartbeat"] is False, "a heartbeat with an old token was accepted"
    state = await read_state(tx, world["job"])
    assert state.lease == results["claim"][0]
    assert state.attempts == [(1, "lost"), (2, "running")]


def stale_finish_changes_nothing() -> Check:
    async def check(tx: Tx, world: World, results: Results) -> None:
        assert results["finish"] is None, "a finish with an old token was accepted"
        state = await read_state(tx, world["job"])
        assert state.lease == results["claim"][0]
        assert state.attempts == [(1, "lost"), (2, "running")]

    return check


async def rescued_once(tx: Tx, world: World, results: Results) -> None:
    rescued = [job_id for one in results.values() for job_id in one]
    assert rescued == [world["job"]]
    state = await read_state(tx, world["job"])
    assert (state.status, state.attempts) == (JobStatus.QUEUED, [(1, "lost")])


async def retried_once(tx: Tx, world: World, results: Results) -> None:
    assert len(results.values_of(JobNotRetryable)) == 1
    assert len(results.values_of(JobStatus)) == 1
    assert (await read_state(tx, world["job"])).status is JobStatus.QUEUED


async def retried_and_perhaps_canceled(tx: Tx, world: World, results: Results) -> None:
    state = await read_state(tx, world["job"])
    assert results["retry"] is JobStatus.QUEUED
    if results["cancel"] is JobStatus.CANCELED:
        assert state.status is JobStatus.CANCELED
    else:
        assert isinstance(results["cancel"], JobNotCancelable)
        assert state.status is JobStatus.QUEUED


async def deduplicated_or_after_the_end(tx: Tx, world: World, results: Results) -> None:
    ended = await read_state(tx, world["job"])
    assert ended.status is JobStatus.SUCCEEDED
    if results["enqueue"] == world["job"]:
        assert await count_jobs(tx) == 1
    else:
        assert await count_jobs(tx) == 2
        assert (await read_state(tx, results["enqueue"])).status is JobStatus.QUEUED


async def one_job_for_the_key(tx: Tx, world: World, results: Results) -> None:
    made = set(results.values_of(UUID))
    assert len(made) == 1, "the key made two jobs, or none"
    assert await count_jobs(tx) == 1


async def nothing_lost(tx: Tx, world: World, results: Results) -> None:
    held = results["claim"]
    state = await read_state(tx, results["enqueue"])
    assert (state.lease is not None) == bool(held)
    assert await count_jobs(tx) == 1


async def staged_and_canceled(tx: Tx, world: World, results: Results) -> None:
    state = await read_state(tx, world["job"])
    assert results["cancel"] is state.status is JobStatus.CANCELED
    assert state.lease is None


async def _read_edited(tx: Tx, job_id: UUID) -> tuple[Any, int]:
    [(payload, priority)] = await tx.values(
        "select payload, priority from fairlead.jobs where id = %s", [job_id]
    )
    return payload, priority


async def edited_or_claimed(tx: Tx, world: World, results: Results) -> None:
    """The worker runs what the record says: an edit comes before the claim, or is refused."""
    payload, priority = await _read_edited(tx, world["job"])
    state = await read_state(tx, world["job"])
    assert (state.lease is not None) == bool(results["claim"])
    assert (priority == 7) == (payload == do.EDITED) == (results["edit"] == "queued")
    assert results["claim"] in ([], [payload]), "the worker got another payload"
    if isinstance(results["edit"], Exception):
        assert results["claim"], "the edit was refused, and no claim took the job"


async def edited_twice(tx: Tx, world: World, results: Results) -> None:
    assert results.values_of(str) == ["queued", "queued"]
    assert await _read_edited(tx, world["job"]) == (do.EDITED, 9)
    assert await given.count(tx, "ready") == 1


async def edited_or_canceled(tx: Tx, world: World, results: Results) -> None:
    state = await read_state(tx, world["job"])
    assert results["cancel"] is state.status is JobStatus.CANCELED
    _, priority = await _read_edited(tx, world["job"])
    assert (priority == 7) == (results["edit"] == "queued")


async def edited_and_staged(tx: Tx, world: World, results: Results) -> None:
    assert results["edit"] == "queued"
    assert (await _read_edited(tx, world["job"]))[1] == 7
    assert await given.count(tx, "ready") + await given.count(tx, "later") == 1


async def staged_once(tx: Tx, world: World, results: Results) -> None:
    assert sum(results.values_of(int)) == 1
    assert await given.count(tx, "ready") == 1


async def closed_gate_holds(tx: Tx, world: World, results: Results) -> None:
    """A claim that begins after the pause was committed takes nothing."""
    order: list[tuple[str, str]] = world["order"]
    paused = order.index(("pause", "commit"))
    begun = next(place for place, (name, _) in enumerate(order) if name == "claim")
    if paused < begun:
        assert results["claim"] == []
    state = await read_state(tx, world["job"])
    assert (state.lease is not None) == bool(results["claim"])


async def joined_once(tx: Tx, world: World, results: Results) -> None:
    assert list(results.values()) == [JobStatus.SUCCEEDED] * 2
    last = await tx.values(
        "select status from fairlead.jobs where workflow_run_id = %s and source_ref = 'last'", [world["run"]]
    )
    assert [status for (status,) in last] == ["queued"], f"the last step has {len(last)} jobs"


async def fired_once(tx: Tx, world: World, results: Results) -> None:
    assert await given.count(tx, "trigger_firings") == 1
    assert await count_jobs(tx) == 1


async def dispatched_once(tx: Tx, world: World, results: Results) -> None:
    """Each event has one firing and one job; the next round of a dispatcher takes what was committed late."""
    await do.dispatch_events(tx, world)
    wanted = {*world["events"], *([world["early"]] if "emit" in results else [])}
    fired = [UUID(slot) for (slot,) in await tx.values("select slot from fairlead.trigger_firings")]
    assert sorted(fired) == sorted(wanted), f"{len(fired)} firings of {len(wanted)} events"
    assert await count_jobs(tx) == len(wanted)
    assert await given.count(tx, "events_waiting") == 0


# Pairs


# Whether a claim has met the limit before: the first one inserts the row that later ones lock.
LIMITED = {"tenant": True, "definition": False, "definition and tenant": True, "host": False}


def _claims_under_limits() -> list[Scenario]:
    return [
        Scenario(
            name=f"claim × claim, limit of {scope}",
            prepare=limited_jobs(scope, known=known),
            participants={
                name: in_transaction(do.claim(worker=name, wanted=2, host=scope == "host"))
                for name in ("first", "second")
            },
            are_alike=True,
            check=claimed_once(),
            stops=AROUND_LIMITS,
        )
        for scope, known in LIMITED.items()
    ]


def _finishes() -> list[Scenario]:
    found = []
    ends = [(name, change, do.finish(change)) for name, change in do.CHANGES.items()]
    ends.append(("success in the handler's transaction", do.SUCCEEDED, do.finish_joined()))
    for name, change, finish in ends:
        found.append(
            Scenario(
                name=f"finish ({name}) × rescue",
                prepare=running_job(expired=True),
                participants=in_transactions(finish=finish, rescue=do.rescue_expired),
                check=ended_once(change),
            )
        )
        found.append(
            Scenario(
                name=f"finish ({name}) × cancel",
                prepare=running_job(),
                participants=in_transactions(finish=finish, cancel=do.cancel),
                check=ended_or_canceled(change),
                allowed=(JobNotCancelable,),
            )
        )
        found.append(
            Scenario(
                name=f"finish ({name}) × the same finish",
                prepare=running_job(),
                participants={
                    "first": by_itself(finish),
                    "again": in_transaction(finish),
                },
                check=both_told_the_same,
            )
        )
        found.append(
            Scenario(
                name=f"stale finish ({name}) × claim",
                prepare=lost_job,
                participants=in_transactions(finish=finish, claim=do.claim()),
                check=stale_finish_changes_nothing(),
            )
        )
    return found


def _enqueues() -> list[Scenario]:
    found = [
        Scenario(
            name="enqueue (deduplicated) × finish",
            prepare=running_job(dedupe_key="key"),
            participants=in_transactions(enqueue=do.enqueue_deduplicated(), finish=do.finish()),
            check=deduplicated_or_after_the_end,
            stops=WITHIN_DEDUPE,
        ),
        Scenario(
            name="enqueue (deduplicated) × enqueue (deduplicated)",
            prepare=nothing,
            participants={
                "first": in_transaction(do.enqueue_deduplicated()),
                "second": by_itself(do.enqueue_deduplicated()),
            },
            check=one_job_for_the_key,
            stops=WITHIN_ENQUEUE,
        ),
        Scenario(
            name="enqueue × claim",
            prepare=nothing,
            participants=in_transactions(enqueue=do.enqueue_plain, claim=do.claim()),
            check=nothing_lost,
            stops=WITHIN_CLAIM,
        ),
    ]
    for level in ("read committed", "repeatable read", "serializable"):
        found.append(
            Scenario(
                name=f"enqueue (joined, {level}) × enqueue (deduplicated)",
                prepare=nothing,
                participants={
                    "joined": do.enqueue_joined(level),
                    "second": in_transaction(do.enqueue_deduplicated()),
                },
                check=one_job_for_the_key,
                allowed=() if level == "read committed" else (DedupeClash, SerializationFailure),
            )
        )
        found.append(
            Scenario(
                name=f"enqueue (joined, {level}) × finish",
                prepare=running_job(dedupe_key="key"),
                participants={"enqueue": do.enqueue_joined(level), "finish": in_transaction(do.finish())},
                check=deduplicated_or_after_the_end
                if level == "read committed"
                else deduplicated_or_after_the_end_or_clash,
                allowed=() if level == "read committed" else (DedupeClash, SerializationFailure),
            )
        )
    return found


async def deduplicated_or_after_the_end_or_clash(tx: Tx, world: World, results: Results) -> None:
    if isinstance(results["enqueue"], Exception):
        assert await count_jobs(tx) == 1
    else:
        await deduplicated_or_after_the_end(tx, world, results)


async def nothing(tx: Tx) -> World:
    return {}


PAIRS: list[Scenario] = [
    Scenario(
        name="claim × claim",
        prepare=queued_job,
        participants={name: in_transaction(do.claim(worker=name)) for name in ("first", "second")},
        are_alike=True,
        check=claimed_once(),
        stops=WITHIN_CLAIM,
    ),
    Scenario(
        name="claim × claim, each statement by itself",
        prepare=queued_job,
        participants={name: by_itself(do.claim(worker=name)) for name in ("first", "second")},
        are_alike=True,
        check=claimed_once(),
        stops=WITHIN_CLAIM,
    ),
    *_claims_under_limits(),
    Scenario(
        name="claim × cancel",
        prepare=queued_job,
        participants=in_transactions(claim=do.claim(), cancel=do.cancel),
        check=canceled_or_asked,
        stops=WITHIN_CLAIM,
    ),
    Scenario(
        name="claim × edit",
        prepare=queued_job,
        participants=in_transactions(claim=do.claim_payload, edit=do.edit()),
        check=edited_or_claimed,
        stops=WITHIN_CLAIM,
        allowed=(JobNotEditable,),
    ),
    Scenario(
        name="edit × edit",
        prepare=queued_job,
        participants=in_transactions(payload=do.edit(payload=do.EDITED), priority=do.edit(priority=9)),
        check=edited_twice,
    ),
    Scenario(
        name="edit × cancel",
        prepare=queued_job,
        participants=in_transactions(edit=do.edit(), cancel=do.cancel),
        check=edited_or_canceled,
        allowed=(JobNotEditable,),
    ),
    Scenario(
        name="stage × edit",
        prepare=due_job,
        participants=in_transactions(stage=do.stage, edit=do.edit()),
        check=edited_and_staged,
    ),
    *_finishes(),
    Scenario(
        name="finish (success) × finish (failure)",
        prepare=running_job(),
        participants=in_transactions(success=do.finish(), failure=do.finish(do.FAILED_TO_RETRY)),
        check=one_report_accepted,
    ),
    Scenario(
        name="heartbeat × rescue, expired",
        prepare=running_job(expired=True),
        participants=in_transactions(heartbeat=do.heartbeat(), rescue=do.rescue_expired),
        check=expired_lease_stays_lost,
    ),
    Scenario(
        name="heartbeat × rescue, live",
        prepare=running_job(),
        participants=in_transactions(heartbeat=do.heartbeat(), rescue=do.rescue_expired),
        check=live_lease_stays,
    ),
    Scenario(
        name="stale heartbeat × claim",
        prepare=lost_job,
        participants=in_transactions(heartbeat=do.heartbeat(), claim=do.claim()),
        check=stale_heartbeat_changes_nothing,
    ),
    Scenario(
        name="rescue × rescue",
        prepare=running_job(expired=True),
        participants={name: in_transaction(do.rescue_expired) for name in ("first", "second")},
        are_alike=True,
        check=rescued_once,
    ),
    Scenario(
        name="retry × retry",
        prepare=failed_job(dedupe_key="key"),
        participants={name: in_transaction(do.retry) for name in ("first", "second")},
        are_alike=True,
        check=retried_once,
        allowed=(JobNotRetryable,),
    ),
    Scenario(
        name="retry × cancel",
        prepare=failed_job(),
        participants=in_transactions(retry=do.retry, cancel=do.cancel),
        check=retried_and_perhaps_canceled,
        allowed=(JobNotCancelable,),
    ),
    *_enqueues(),
    Scenario(
        name="stage × cancel",
        prepare=due_job,
        participants=in_transactions(stage=do.stage, cancel=do.cancel),
        check=staged_and_canceled,
    ),
    Scenario(
        name="stage × stage",
        prepare=due_job,
        participants={name: in_transaction(do.stage) for name in ("first", "second")},
        are_alike=True,
        check=staged_once,
    ),
    Scenario(
        name="claim × pause",
        prepare=queued_job,
        participants=in_transactions(claim=do.claim(), pause=do.pause_definition),
        check=closed_gate_holds,
        stops=WITHIN_CLAIM,
        contended=WITH_GATES,
    ),
    Scenario(
        name="finish × finish of two steps before a join",
        prepare=joined_steps,
        participants=in_transactions(left=do.finish(lease="left"), right=do.finish(lease="right")),
        check=joined_once,
    ),
    Scenario(
        name="two schedulers at the same instant",
        prepare=due_schedule,
        participants={name: in_transaction(do.fire_due) for name in ("first", "second")},
        are_alike=True,
        check=fired_once,
    ),
    Scenario(
        name="two dispatchers",
        prepare=waiting_events,
        participants={name: in_transaction(do.dispatch_events) for name in ("first", "second")},
        are_alike=True,
        check=dispatched_once,
    ),
    Scenario(
        name="dispatch × emit of an older event",
        prepare=waiting_events,
        participants=in_transactions(dispatch=do.dispatch_events, emit=do.emit_early),
        check=dispatched_once,
    ),
]
# Triples


async def claimed_after_the_end(tx: Tx, world: World, results: Results) -> None:
    """One of two claims takes the place that the finish has left, or none that looked too early."""
    held = [*results["first"], *results["second"]]
    assert results["finish"] is JobStatus.SUCCEEDED
    assert len(held) <= 1, f"{len(held)} jobs were claimed in one place"


async def run_by_one_owner(tx: Tx, world: World, results: Results) -> None:
    """The first owner's end counts, or the lease was lost and a second worker's attempt counts."""
    state = await read_state(tx, world["job"])
    assert state.lease is None
    if results["finish"] is None:
        assert world["job"] in results["rescue"]
        assert state.attempts[0] == (1, "lost")
    else:
        assert results["rescue"] == {}
        assert results["finish"] is JobStatus.SUCCEEDED
        assert state.attempts == [(1, "succeeded")]
        assert results["second"] == []


async def ended_once_and_canceled(tx: Tx, world: World, results: Results) -> None:
    state = await read_state(tx, world["job"])
    assert state.lease is None
    assert len(state.attempts) == 1
    assert (results["finish"] is None) == bool(results["rescue"])
    assert state.status is JobStatus.CANCELED


async def taken_or_canceled(tx: Tx, world: World, results: Results) -> None:
    state = await read_state(tx, world["job"])
    assert (state.lease is not None) == bool(results["claim"])
    if results["claim"]:
        assert results["cancel"] is JobStatus.RUNNING
        assert state.is_cancel_requested
    else:
        assert results["cancel"] is state.status is JobStatus.CANCELED


async def retried_and_taken_or_canceled(tx: Tx, world: World, results: Results) -> None:
    state = await read_state(tx, world["job"])
    assert results["retry"] is JobStatus.QUEUED
    assert (state.lease is not None) == bool(results["claim"])
    if results["cancel"] is JobStatus.CANCELED:
        assert state.status is JobStatus.CANCELED
    elif results["cancel"] is JobStatus.RUNNING:
        assert state.is_cancel_requested
    else:
        assert isinstance(results["cancel"], JobNotCancelable)


async def one_active_job_for_the_key(tx: Tx, world: World, results: Results) -> None:
    made = {results["first"], results["second"]}
    assert (await read_state(tx, world["job"])).status is JobStatus.SUCCEEDED
    assert await count_jobs(tx) == len(made | {world["job"]})
    assert len(made - {world["job"]}) <= 1, "the key made two jobs"


TRIPLES: list[Scenario] = [
    Scenario(
        name="claim and finish × finish × rescue",
        prepare=running_job(expired=True),
        participants={
            "finish": by_itself(do.finish()),
            "rescue": in_transaction(do.rescue_expired),
            "second": do.claim_and_finish(),
        },
        check=run_by_one_owner,
    ),
    Scenario(
        name="claim × claim × finish under a limit",
        prepare=limited_jobs("definition", known=True, running=True),
        participants=in_transactions(
            first=do.claim(worker="first", wanted=2),
            second=do.claim(worker="second", wanted=2),
            finish=do.finish(),
        ),
        check=claimed_after_the_end,
        stops={"budgets": (BEFORE_COUNTING_LEASES,)},
    ),
    Scenario(
        name="finish (failure) × rescue × cancel",
        prepare=running_job(expired=True),
        participants={
            "finish": by_itself(do.finish(do.FAILED_TO_RETRY)),
            "rescue": in_transaction(do.rescue_expired),
            "cancel": in_transaction(do.cancel),
        },
        check=ended_once_and_canceled,
    ),
    Scenario(
        name="stage × claim × cancel",
        prepare=due_job,
        participants=in_transactions(stage=do.stage, claim=do.claim(), cancel=do.cancel),
        check=taken_or_canceled,
    ),
    Scenario(
        name="retry × claim × cancel",
        prepare=failed_job(),
        participants={
            "retry": in_transaction(do.retry),
            "claim": by_itself(do.claim()),
            "cancel": in_transaction(do.cancel),
        },
        check=retried_and_taken_or_canceled,
        allowed=(JobNotCancelable,),
    ),
    Scenario(
        name="enqueue (deduplicated) × enqueue (deduplicated) × finish",
        prepare=running_job(dedupe_key="key"),
        participants=in_transactions(
            first=do.enqueue_deduplicated(), second=do.enqueue_deduplicated(), finish=do.finish()
        ),
        check=one_active_job_for_the_key,
        stops={"enqueue_one": (BEFORE_READING_KEY,)},
    ),
    Scenario(
        name="claim × claim × claim under a limit",
        prepare=limited_jobs("tenant", known=True),
        participants={name: in_transaction(do.claim(worker=name)) for name in ("first", "second", "third")},
        check=claimed_once(),
        stops={"budgets": (BEFORE_COUNTING_LEASES,)},
    ),
    Scenario(
        name="two dispatchers × emit of an older event",
        prepare=waiting_events,
        participants={
            "first": in_transaction(do.dispatch_events),
            "second": in_transaction(do.dispatch_events),
            "emit": by_itself(do.emit_early),
        },
        check=dispatched_once,
    ),
]
BY_NAME: Mapping[str, Scenario] = {one.name: one for one in PAIRS + TRIPLES}
