"""Why is this job not running? Every reason, from rows as the system itself leaves them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given as cases
from hypothesis import strategies

from fairlead.actions import definitions, gates, jobs, why
from fairlead.db.tx import Tx
from fairlead.model.job import JobStatus
from fairlead.model.outcome import Change, Failed, Outcome, Released, Snoozed, decide
from fairlead.model.reason import Reason, ReasonCode
from fairlead.model.why import (
    ClosedGate,
    JobSnapshot,
    Limit,
    QueueConditions,
    WorkerCounts,
    explain,
)
from fairlead.store import hosts, queue, rescue
from fairlead.store import why as store
from fairlead.store.testing import make_all_due
from tests import given
from tests.given import OTHER, TENANT, TESTER
from tests.plans import count_rows, read_plan

SOON = timedelta(hours=1)


async def answer(tx: Tx, job_id: UUID) -> list[Reason]:
    return (await why.explain_job(tx, TESTER, job_id)).reasons


async def codes(tx: Tx, job_id: UUID) -> list[str]:
    return [reason.code for reason in await answer(tx, job_id)]


async def worker(tx: Tx, *, serves: Sequence[str] = (), ago: timedelta = timedelta()) -> None:
    await given.add_worker(tx, str(uuid4()), seen=-ago, definitions=serves)


async def claim_one(tx: Tx, *, host_id: UUID | None = None) -> queue.Claim:
    claim = await queue.claim(tx, worker="box:1:boot", wanted=1, lease_seconds=30, host=host_id)
    assert len(claim.jobs) == 1
    return claim


async def ended(tx: Tx, outcome: Outcome) -> UUID:
    """Claim one job, let its attempt end so, and answer which it was."""
    claim = await claim_one(tx)
    [job] = claim.jobs
    change: Change = decide(job, outcome)
    await queue.finish(tx, [(claim.lease(job), change)], actor="tester")
    return job.job_id


async def limit(tx: Tx, whose: str, column: str, most: int) -> None:
    if whose == "tenant":
        await given.set_tenant(tx, TENANT, **{column: most})
    else:
        await given.set_definition(tx, "greet", **{column: most})


async def host(tx: Tx, *, ago: timedelta | None = timedelta(), name: str = "rack-1") -> UUID:
    return await given.host(tx, name, seen=ago)


# Over, or running


@pytest.mark.parametrize("status", ["succeeded", "failed", "dead_letter", "canceled"])
async def test_a_job_that_is_over_says_how_and_when(tx: Tx, status: str) -> None:
    job_id = await given.ended_job(tx, status)
    await gates.pause(tx, TESTER)  # no longer matters

    [reason] = await answer(tx, job_id)

    assert reason.code == "terminal"
    assert reason.facts["status"] == status
    assert reason.facts["finished_at"] is not None
    assert reason.message.startswith(status.replace("_", " ").capitalize())
    assert ("Retry to run it again" in reason.message) is (status != "succeeded")


async def test_a_running_job_says_where_and_since_when(tx: Tx) -> None:
    job_id = await given.queued_job(tx)
    await claim_one(tx)

    [reason] = await answer(tx, job_id)

    assert (reason.code, reason.facts["worker"], reason.facts["attempt"]) == ("running", "box:1:boot", 1)
    assert reason.facts["lease_expires_at"] - reason.facts["since"] == timedelta(seconds=30)
    assert reason.facts["cancel_requested_at"] is None
    assert "Cancel" not in reason.message


async def test_a_running_job_that_is_asked_to_stop_says_so(tx: Tx) -> None:
    job_id = await given.running_job(tx)
    await jobs.cancel(tx, TESTER, job_id)

    [reason] = await answer(tx, job_id)

    assert reason.code == "running"
    assert reason.facts["cancel_requested_at"] is not None
    assert "Cancel was requested" in reason.message


async def test_a_job_whose_lease_expired_waits_for_the_watchdog(tx: Tx) -> None:
    job_id = await given.running_job(tx)
    await given.end_leases(tx)

    [reason] = await answer(tx, job_id)

    assert (reason.code, reason.facts["worker"]) == ("worker_lost", "somebody")
    assert "watchdog" in reason.message
    await rescue.rescue(tx)
    assert (await codes(tx, job_id))[0] == "backing_off"


async def test_a_suspect_says_that_it_waits_to_run_by_itself_and_what_happens_next(tx: Tx) -> None:
    await worker(tx)
    job_id = await given.running_job(tx)
    await given.running_job(tx)
    await given.set_job(tx, suspected=1)
    await given.end_leases(tx)
    await rescue.rescue(tx)
    await make_all_due(tx)

    [reason] = await answer(tx, job_id)

    assert reason.code == "suspect"
    assert reason.facts == {"suspected": 2, "charged": 0, "needs_idle_worker": False}
    assert "waits to run alone" in reason.message
    assert "this job and others" in reason.message
    assert "dead letter" in reason.message


# Not yet


async def test_a_job_with_a_time_says_when(tx: Tx) -> None:
    await worker(tx)
    at = datetime.now(UTC) + SOON
    job_id = await given.queued_job(tx, scheduled_for=at)

    [reason] = await answer(tx, job_id)

    assert (reason.code, reason.facts["at"]) == ("not_due", at)
    assert 0 < reason.facts["in_seconds"] <= 3600
    assert at.strftime("%H:%M") in reason.message


async def test_a_job_whose_time_has_come_does_not_wait_for_it(tx: Tx) -> None:
    """Nobody has moved it from later to ready yet."""
    await worker(tx)
    job_id = await given.queued_job(tx, scheduled_for=datetime.now(UTC) + SOON)
    await given.fall_due(tx)

    assert await codes(tx, job_id) == ["ready"]


@pytest.mark.parametrize("timed_out", [False, True])
async def test_a_job_that_failed_says_which_retry_comes_when_and_why(tx: Tx, *, timed_out: bool) -> None:
    await worker(tx)
    job_id = await given.queued_job(tx, max_attempts=4)
    assert await ended(tx, Failed("ValueError", "no such folder", timed_out=timed_out)) == job_id

    [reason] = await answer(tx, job_id)

    assert reason.code == "backing_off"
    assert (reason.facts["failures"], reason.facts["max_attempts"]) == (1, 4)
    assert reason.facts["after"] == ("timeout" if timed_out else "failed")
    assert reason.facts["in_seconds"] <= 11
    assert "retry 1 of 3" in reason.message
    assert "no such folder" in reason.message


async def test_a_snoozed_job_is_not_said_to_have_failed(tx: Tx) -> None:
    await worker(tx)
    job_id = await given.queued_job(tx)
    await ended(tx, Snoozed(600))

    assert await codes(tx, job_id) == ["not_due"]


async def test_a_released_job_is_ready_again(tx: Tx) -> None:
    await worker(tx)
    job_id = await given.queued_job(tx)
    await ended(tx, Released())

    assert await codes(tx, job_id) == ["ready"]


@pytest.mark.parametrize("in_record", [True, False])
async def test_a_job_without_a_time_waits_for_other_jobs(tx: Tx, *, in_record: bool) -> None:
    await worker(tx)
    job_id = await given.queued_job(tx, scheduled_for=datetime.now(UTC) + SOON)
    await given.wait_for_ever(tx)
    if in_record:
        await given.set_job(tx, job_id, scheduled_for="infinity")

    assert await codes(tx, job_id) == ["waiting_for_jobs"]


async def test_a_job_that_is_not_due_still_names_closed_gates_and_missing_workers(tx: Tx) -> None:
    await limit(tx, "tenant", "max_running", 1)
    await given.running_job(tx)
    await given.queued_job(tx)
    await gates.pause(tx, TESTER)
    job_id = await given.queued_job(tx, scheduled_for=datetime.now(UTC) + SOON, priority=1000)

    # what is full or ahead now says nothing about then
    assert await codes(tx, job_id) == ["not_due", "system_paused", "no_worker"]


# Gates


@pytest.mark.parametrize(
    ("named", "code", "name"),
    [
        ({}, "system_paused", "The whole system"),
        ({"tenant": TENANT}, "tenant_paused", "Tenant acme"),
        ({"definition": "greet"}, "definition_paused", "Definition greet"),
        ({"host": "rack-1"}, "host_paused", "Host rack-1"),
    ],
    ids=str,
)
async def test_a_closed_gate_says_who_closed_it_since_when_and_why(
    tx: Tx, named: dict[str, str], code: str, name: str
) -> None:
    await worker(tx)
    job_id = await given.host_job(tx, await host(tx))
    closed = await gates.pause(tx, TESTER, **named, note="new disk")

    [reason] = await answer(tx, job_id)

    assert reason.code == code
    assert (reason.facts["by"], reason.facts["since"], reason.facts["note"]) == (
        "tester",
        closed.paused_at,
        "new disk",
    )
    assert reason.message.startswith(f"{name} is paused by tester")
    assert "new disk" in reason.message
    await gates.resume(tx, TESTER, **named)
    assert await codes(tx, job_id) == ["ready"]


async def test_gates_of_others_are_not_in_the_way(tx: Tx) -> None:
    await worker(tx)
    await host(tx)
    job_id = await given.queued_job(tx)
    await gates.pause(tx, TESTER, tenant=OTHER)
    await gates.pause(tx, TESTER, definition="anything")
    await gates.pause(tx, TESTER, host="rack-1")

    assert await codes(tx, job_id) == ["ready"]


# Limits


@pytest.mark.parametrize(
    ("whose", "column", "code"),
    [
        ("tenant", "max_running", "tenant_limit"),
        ("definition", "max_running", "definition_limit"),
        ("definition", "max_running_per_tenant", "definition_tenant_limit"),
    ],
)
async def test_a_limit_says_how_many_run_and_who_holds_it(tx: Tx, whose: str, column: str, code: str) -> None:
    await worker(tx)
    await limit(tx, whose, column, 2)
    first = await given.running_job(tx)
    job_id = await given.queued_job(tx)
    assert await codes(tx, job_id) == ["ready"]  # there is room for one
    second = await given.running_job(tx)

    [reason] = await answer(tx, job_id)

    assert reason.code == code
    assert reason.facts == {"limit": 2, "running": 2, "held_by": [first, second]}
    assert str(first) in reason.message
    assert (await queue.claim(tx, worker="w", wanted=9, lease_seconds=9)).jobs == []  # the claim agrees


async def test_a_limit_counts_only_what_is_under_it(tx: Tx) -> None:
    await worker(tx)
    await limit(tx, "tenant", "max_running", 1)
    await limit(tx, "definition", "max_running_per_tenant", 1)
    await given.running_job(tx, tenant=OTHER)
    job_id = await given.queued_job(tx)

    assert await codes(tx, job_id) == ["ready"]


async def test_a_host_limit_says_who_holds_the_host(tx: Tx) -> None:
    at = await host(tx)
    elsewhere = await host(tx, name="rack-2")
    await given.running_job(tx)  # of the same tenant and definition, on no host
    running = await given.host_job(tx, at)
    await claim_one(tx, host_id=at)
    job_id, free = await given.host_job(tx, at), await given.host_job(tx, elsewhere)

    [reason] = await answer(tx, job_id)

    assert reason.code == "host_limit"
    assert reason.facts == {"limit": 1, "running": 1, "held_by": [running]}
    assert "rack-1" in reason.message
    assert await codes(tx, free) == ["ready"]


async def test_another_tenants_jobs_are_counted_but_never_named(tx: Tx) -> None:
    await worker(tx)
    await limit(tx, "definition", "max_running", 2)
    theirs = [await given.running_job(tx, tenant=OTHER) for _ in range(2)]
    ahead = await given.queued_job(tx, tenant=OTHER)
    job_id = await given.queued_job(tx)

    reasons = await answer(tx, job_id)

    assert [reason.code for reason in reasons] == ["definition_limit"]
    assert reasons[0].facts == {"limit": 2, "running": 2, "held_by": []}
    said = repr(reasons)
    assert not [one for one in [*theirs, ahead] if str(one) in said]
    assert OTHER not in said


async def test_at_most_five_holders_are_named_the_oldest_first(tx: Tx) -> None:
    await worker(tx)
    await limit(tx, "definition", "max_running", 7)
    await given.running_job(tx, tenant=OTHER)
    own = [await given.running_job(tx) for _ in range(6)]

    [reason] = await answer(tx, await given.queued_job(tx))

    assert reason.facts["held_by"] == own[:5]
    assert "and 2 more" in reason.message


# Nobody there


async def test_without_any_worker_it_says_that_none_runs(tx: Tx) -> None:
    await worker(tx, ago=timedelta(seconds=61))
    job_id = await given.queued_job(tx)

    [reason] = await answer(tx, job_id)

    assert (reason.code, reason.facts["workers"]) == ("no_worker", 0)
    assert reason.facts["last_seen_at"] is not None
    await worker(tx, ago=timedelta(seconds=10))
    assert await codes(tx, job_id) == ["ready"]


async def test_with_workers_that_serve_other_definitions_it_says_so(tx: Tx) -> None:
    await worker(tx, serves=["anything"])
    await worker(tx, serves=["greet"], ago=SOON)
    job_id = await given.queued_job(tx)

    [reason] = await answer(tx, job_id)

    assert (reason.code, reason.facts["workers"], reason.facts["definition"]) == ("no_worker", 1, "greet")
    assert "serves greet" in reason.message
    await worker(tx, serves=["anything", "greet"])
    assert await codes(tx, job_id) == ["ready"]


async def test_a_worker_that_serves_a_definition_for_another_tenant_only_is_none(tx: Tx) -> None:
    await worker(tx, serves=[f"greet {await given.tenant_id(tx, OTHER)}"])
    job_id = await given.queued_job(tx)

    assert await codes(tx, job_id) == ["no_worker"]
    assert await codes(tx, await given.queued_job(tx, tenant=OTHER)) == ["ready"]
    await worker(tx, serves=[f"greet {await given.tenant_id(tx)}"])
    assert await codes(tx, job_id) == ["ready"]


@pytest.mark.parametrize(("minutes", "found"), [(None, "never"), (2, "2 min ago"), (0, None)])
async def test_a_host_job_waits_for_its_agent_and_for_no_worker(
    tx: Tx, minutes: int | None, found: str | None
) -> None:
    ago = None if minutes is None else timedelta(minutes=minutes)
    job_id = await given.host_job(tx, await host(tx, ago=ago))

    [reason] = await answer(tx, job_id)

    assert reason.code == ("no_agent" if found else "ready")
    assert (found or "") in reason.message


async def test_a_job_whose_host_is_gone_says_so(tx: Tx) -> None:
    rack = await host(tx)
    job_id = await given.host_job(tx, rack)
    await hosts.remove(tx, rack)

    [reason] = await answer(tx, job_id)

    assert reason.code == "no_agent"
    assert "was removed" in reason.message


# In the queue


async def test_those_ahead_are_of_its_tenant_of_any_definition_by_priority_then_age(tx: Tx) -> None:
    await worker(tx)
    await given.queued_job(tx, tenant=OTHER, priority=1)
    await given.host_job(tx, await host(tx), priority=1)  # goes to its host
    older = await given.queued_job(tx, priority=7)
    job_id = await given.queued_job(tx, priority=7)
    await given.queued_job(tx, priority=7)
    await given.queued_job(tx, definition="anything", priority=9)
    assert await codes(tx, older) == ["ready"]
    [reason] = await answer(tx, job_id)
    assert (reason.code, reason.facts) == ("queued_behind", {"ahead": 1, "at_least": False})
    assert reason.message.startswith("1 job of tenant acme is ahead")

    await given.queued_job(tx, definition="anything", priority=6)

    [reason] = await answer(tx, job_id)
    assert reason.facts["ahead"] == 2
    taken = [(await claim_one(tx)).jobs[0] for _ in range(6)]
    own = [job.job_id for job in taken if job.tenant == TENANT]
    assert own.index(job_id) == 2  # as the claim has it


@pytest.mark.parametrize("bound", ["paused", "max_running", "max_running_per_tenant"])
@pytest.mark.parametrize("on_host", [False, True])
async def test_jobs_of_a_definition_that_is_paused_or_at_its_limit_are_in_nobodys_way_but_their_own(
    tx: Tx, bound: str, *, on_host: bool
) -> None:
    await worker(tx)
    at = await host(tx)
    await given.set_hosts(tx, max_running=5)
    place = {"host_id": at} if on_host else {}

    async def queued(**fields: Any) -> UUID:
        return await (given.host_job(tx, at, **fields) if on_host else given.queued_job(tx, **fields))

    for priority in (1, 2):
        same = await queued(definition="anything", priority=priority)
    job_id = await queued(priority=7)
    if bound != "paused":
        await given.set_definition(tx, "anything", **{bound: 1})
    assert await ahead(tx, job_id) == 2
    if bound == "paused":
        await gates.pause(tx, TESTER, definition="anything")
    else:
        await queued(definition="anything", priority=0)
        await claim_one(tx, **place)

    assert await codes(tx, job_id) == ["ready"]
    assert await ahead(tx, same) == 1
    assert (await claim_one(tx, **place)).jobs[0].job_id == job_id


async def ahead(tx: Tx, job_id: UUID) -> int:
    """How many jobs are said to be ahead of a job."""
    [number] = [
        one.facts["ahead"] for one in await answer(tx, job_id) if one.code is ReasonCode.QUEUED_BEHIND
    ]
    return int(number)


async def test_those_ahead_of_a_host_job_are_on_its_host(tx: Tx) -> None:
    at, elsewhere = await host(tx), await host(tx, name="rack-2")
    await given.host_job(tx, at)
    await given.host_job(tx, elsewhere)
    await given.queued_job(tx, priority=1)

    [reason] = await answer(tx, await given.host_job(tx, at))

    assert (reason.code, reason.facts["ahead"]) == ("queued_behind", 1)
    assert "host rack-1" in reason.message


async def test_those_ahead_are_counted_to_a_bound(tx: Tx, monkeypatch: pytest.MonkeyPatch) -> None:
    await worker(tx)
    monkeypatch.setattr(store, "MOST_AHEAD", 3)
    for definition in ("greet", "anything"):
        for _ in range(3):
            await given.queued_job(tx, definition=definition, priority=1)
    job_id = await given.queued_job(tx, priority=2)
    job = await store.find_standing(tx, job_id)
    assert job is not None

    assert (await store.find_surroundings(tx, job)).ahead == 4  # one past the bound says that there are more


@pytest.mark.parametrize("on_host", [False, True])
async def test_the_count_of_those_ahead_does_not_read_those_behind(tx: Tx, *, on_host: bool) -> None:
    at = await host(tx) if on_host else None
    await given.backlog(tx, 5000, host_id=at)
    job_id = await (given.host_job(tx, at, priority=1) if at else given.queued_job(tx, priority=1))
    job = await store.find_standing(tx, job_id)
    assert job is not None
    await store.find_surroundings(tx, job)  # and from here on as there
    nodes = await read_plan(tx, store.sql.ahead, {"id": job_id, "bound": 10_001})

    assert max(map(count_rows, nodes)) < 100


async def test_all_reasons_are_told_most_decisive_first(tx: Tx) -> None:
    await limit(tx, "tenant", "max_running", 1)
    await definitions.patch(tx, TESTER, "greet", {"max_running": 1, "max_running_per_tenant": 1})
    await given.running_job(tx)
    await given.queued_job(tx)
    job_id = await given.queued_job(tx)
    for named in ({"definition": "greet"}, {"tenant": TENANT}, {}):
        await gates.pause(tx, TESTER, **named)

    assert await codes(tx, job_id) == [
        "system_paused",
        "tenant_paused",
        "definition_paused",
        "tenant_limit",
        "definition_limit",
        "definition_tenant_limit",
        "no_worker",
        "queued_behind",
    ]


# Who may ask


# The decision itself

NOW = datetime(2026, 2, 16, 10, 30, tzinfo=UTC)


def standing(**known: Any) -> JobSnapshot:
    nothing: dict[str, Any] = dict.fromkeys(JobSnapshot.__struct_fields__)
    counts = {"attempt_count": 0, "failure_count": 0, "max_attempts": 3, "waits_for_jobs": False, "slots": 1}
    names = {"job_id": UUID(int=1), "tenant_id": UUID(int=2), "tenant": TENANT, "definition_key": "greet"}
    return JobSnapshot(**{**nothing, "now": NOW, "status": JobStatus.QUEUED, **counts, **names, **known})


@pytest.mark.parametrize(
    ("ahead", "said"),
    [(10_000, "10,000 jobs of tenant acme are"), (10_001, "At least 10,000 jobs of tenant acme are")],
)
def test_past_the_bound_the_number_is_only_the_least(ahead: int, said: str) -> None:
    [reason] = explain(standing(), QueueConditions(workers=WorkerCounts(1, 1), ahead=ahead))

    assert reason.message.startswith(said)
    assert reason.facts == {"ahead": 10_000, "at_least": ahead > 10_000}


scopes = strategies.sampled_from(["system", "tenant", "definition", "host"])
limited = strategies.sampled_from(["tenant", "definition", "definition_tenant", "host"])
surroundings = strategies.builds(
    QueueConditions,
    gates=strategies.lists(
        strategies.builds(
            ClosedGate,
            scopes,
            strategies.text(),
            strategies.just(NOW),
            strategies.none(),
            strategies.none() | strategies.text(),
        ),
        max_size=3,
    ),
    limits=strategies.lists(
        strategies.builds(
            Limit,
            limited,
            strategies.integers(1, 9),
            strategies.integers(0, 9),
            strategies.just([]),
        ),
        max_size=3,
    ),
    workers=strategies.builds(WorkerCounts, strategies.integers(0, 3), strategies.integers(0, 3)),
    ahead=strategies.integers(0, 10_001),
)


@cases(
    surroundings,
    strategies.sampled_from(JobStatus),
    strategies.none() | strategies.timedeltas(-SOON, SOON),
    strategies.sampled_from([None, "failed", "timeout", "lost", "released", "succeeded"]),
)
def test_there_is_always_a_reason_and_ready_stands_alone(
    around: QueueConditions, status: JobStatus, due: timedelta | None, last: str | None
) -> None:
    job = standing(status=status, due_at=None if due is None else NOW + due, last_attempt_status=last)

    found = [reason.code for reason in explain(job, around)]

    assert found
    assert (ReasonCode.READY not in found) or found == [ReasonCode.READY]
    free = not (around.gates or around.ahead or any(one.running >= one.most for one in around.limits))
    due_now = due is None or due <= timedelta(0)
    can_run = status is JobStatus.QUEUED and free and due_now and around.workers.serving > 0
    assert (found == [ReasonCode.READY]) is can_run
