"""Runs of workflows: each step a job, released by the end of the last one before it."""

import asyncio
from collections.abc import Iterable
from uuid import UUID, uuid4

import pytest
from msgspec.structs import asdict

from fairlead import Fairlead, Flow, JobStatus
from fairlead.actions import bulk_jobs, definitions, hosts, jobs, leases, workflow_progress, workflows
from fairlead.actions.jobs import JobFilter
from fairlead.actions.leases import AttemptDetails
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.errors import (
    FairleadError,
    JobNotRetryable,
    WorkflowRunFailed,
    WorkflowRunNotRetryable,
    WorkflowRunOver,
)
from fairlead.model.access import Principal, Role
from fairlead.model.job import Lease
from fairlead.model.workflow.run import RunStatus
from fairlead.runtime.watchdog import Watchdog
from fairlead.store import queue, retention, testing
from fairlead.store import workflows as stored
from tests import given
from tests.given import TENANT, TESTER
from tests.runs import (
    ANY,
    begun,
    claimed,
    diamond,
    end_all,
    states,
    step_of,
    succeeded,
    success_of,
)
from tests.store.test_claim_flat import Cost, cost, is_flat, opened, tidy

# the fields of a job that differ between two steps
OF_ONE_JOB = {"id", "scheduled_for", "queued_at", "started_at", "source_ref", "workflow_step"}


async def test_steps_run_after_those_they_wait_for_and_see_their_outputs(fl: Fairlead) -> None:
    run = await begun(fl, diamond(), input={"n": 7}, correlation_id="c-1")
    first = (await claimed(fl))["first"]
    assert first.payload == {"n": 7}
    assert await fl.claim() == []

    await first.succeed({"n": [1, None, "x"]})

    both = await claimed(fl)
    assert set(both) == {"left", "right"}
    assert both["left"].payload == {"n": [1, None, "x"]}
    job = await fl.read(both["left"].job_id)
    assert (job.workflow_run_id, job.correlation_id, job.created_by) == (run.id, "c-1", "workflow:diamond")
    await both["right"].succeed()
    assert await fl.claim() == []
    await both["left"].succeed({"deep": True})
    last = (await claimed(fl))["last"]
    assert last.payload == {"l": {"deep": True}}
    assert (await run.read()).run.status is RunStatus.RUNNING
    await last.succeed("done")
    assert await run.result(1) == {"last": "done"}
    assert set((await states(run)).values()) == {"succeeded"}


@pytest.mark.thorough
async def test_two_that_end_together_release_the_next_one_once(fl: Fairlead) -> None:
    for _ in range(15):
        run = await begun(fl, diamond())
        await (await claimed(fl))["first"].succeed({"n": 1})
        both = await claimed(fl)

        await asyncio.gather(*(lease.succeed() for lease in both.values()))

        found = await fl.claim(10)
        assert len(found) == 1
        await found[0].succeed()
        assert (await run.read()).run.status is RunStatus.SUCCEEDED


async def test_a_report_that_is_repeated_counts_once(fl: Fairlead) -> None:
    flow = Flow("w")
    flow.step("each", ANY, {"i": "{{item}}"}, for_each=[0, 1])
    run = await begun(fl, flow)
    first, second = await fl.claim(10)
    report = [(first._lease, success_of(first))]

    for _ in range(2):
        done = await fl.database.single(
            lambda tx: workflow_progress.finish_attempts(tx, report, actor="tester")
        )
        assert done == {first.job_id: JobStatus.SUCCEEDED}

    assert (await step_of(run, "each")).remaining == 1
    await second.succeed()
    assert (await run.read()).run.status is RunStatus.SUCCEEDED


async def test_a_failure_stops_what_waits_and_a_retry_goes_on_from_there(fl: Fairlead) -> None:
    run = await begun(fl, diamond())
    await (await claimed(fl))["first"].succeed({"n": 1})
    both = await claimed(fl)

    await both["left"].fail("no luck", retryable=False)

    assert (await run.read()).run.status is RunStatus.RUNNING  # the other one goes on to its end
    await both["right"].succeed()
    with pytest.raises(WorkflowRunFailed, match=r"left: .*no luck"):
        await run.result(1)
    assert await states(run) == {
        "first": "succeeded",
        "left": "failed",
        "right": "succeeded",
        "last": "stopped",
    }
    assert await fl.claim() == []
    with pytest.raises(JobNotRetryable, match="fairlead workflows retry"):
        await fl.retry(both["left"].job_id)

    await run.retry()

    again = await claimed(fl)
    assert {name: (lease.job_id, lease.attempt_no) for name, lease in again.items()} == {
        "left": (both["left"].job_id, 2)
    }
    await again["left"].succeed("now")
    assert (await claimed(fl))["last"].payload == {"l": "now"}
    await end_all(fl)
    await fl.cancel_run(run.id)


async def test_attempts_that_are_retried_are_no_failures_of_the_step(fl: Fairlead) -> None:
    flow = Flow("w")
    flow.step("only", ANY, max_attempts=2, priority=-5)
    run = await begun(fl, flow)
    [lease] = await fl.claim()
    job = await fl.read(lease.job_id)
    assert (job.max_attempts, job.priority) == (2, -5)
    await lease.fail("once")
    assert await states(run) == {"only": "running"}
    await fl.database.transact(testing.make_all_due)

    [lease] = await fl.claim()
    assert await lease.fail("twice") is JobStatus.DEAD_LETTER

    assert (await run.read()).run.error == {"step": "only", "message": "Failed: twice"}


async def test_a_failure_that_may_be_ignored_is(fl: Fairlead) -> None:
    run = await begun(fl, diamond(on_failure="continue"))
    await (await claimed(fl))["first"].succeed({"n": 1})
    both = await claimed(fl)
    await both["left"].fail("no luck", retryable=False)
    await both["right"].succeed()

    assert (await claimed(fl))["last"].payload == {"l": None}
    await end_all(fl)
    await succeeded(fl)
    assert (await run.read()).run.status is RunStatus.RUNNING
    await fl.database.transact(testing.make_all_due)
    await succeeded(fl)
    assert (await run.read()).run.status is RunStatus.SUCCEEDED
    assert (await states(run))["left"] == "failed"


async def test_what_was_done_is_undone_once_however_many_steps_fail(fl: Fairlead) -> None:
    flow = Flow("w")
    undo = flow.step("undo", ANY, {"who": "{{run.workflow}} of {{tenant.slug}}"})
    for name in ("a", "b"):
        flow.step(name, ANY, on_failure=undo)
    run = await begun(fl, flow)
    both = await claimed(fl)
    assert set(both) == {"a", "b"}
    for lease in both.values():
        await lease.fail("no", retryable=False)

    found = await claimed(fl)
    assert found["undo"].payload == {"who": f"w of {TENANT}"}
    assert (await run.read()).run.status is RunStatus.RUNNING
    await found["undo"].succeed()
    assert (await run.read()).run.status is RunStatus.FAILED
    assert await states(run) == {"undo": "succeeded", "a": "failed", "b": "failed"}

    # what was undone is not done: it cannot go on from there
    with pytest.raises(WorkflowRunNotRetryable, match="undone by its step 'undo'"):
        await run.retry()
    assert await states(run) == {"undo": "succeeded", "a": "failed", "b": "failed"}


async def test_what_is_not_wanted_is_skipped_and_so_is_what_only_follows_it(fl: Fairlead) -> None:
    flow = Flow("w")
    a = flow.step("a", ANY)
    yes = flow.step("yes", ANY, after=[a], when={"steps.a.output.vip": True})
    no = flow.step("no", ANY, after=[a], when={"steps.a.output.vip": False})
    flow.step("after_no", ANY, {"x": "{{steps.no.output}}"}, after=[no])
    flow.step("join", ANY, {"which": "{{steps.yes.status}} {{steps.no.status}}"}, after=[yes, no])
    run = await begun(fl, flow)
    await (await claimed(fl))["a"].succeed({"vip": True})
    await (await claimed(fl))["yes"].succeed()

    assert (await claimed(fl))["join"].payload == {"which": "succeeded skipped"}
    assert await states(run) == {
        "a": "succeeded",
        "yes": "succeeded",
        "no": "skipped",
        "after_no": "skipped",
        "join": "running",
    }
    await fl.cancel_run(run.id)
    await end_all(fl)


async def test_a_run_in_which_nothing_is_wanted_is_over_at_once(fl: Fairlead) -> None:
    flow = Flow("w")
    flow.step("a", ANY, when={"input.n": 2})

    assert await (await begun(fl, flow)).result(1) == {}


async def test_a_step_for_each_item_is_a_job_for_each_and_a_list_of_outputs_in_order(fl: Fairlead) -> None:
    flow = Flow("w")
    each = flow.step("each", ANY, {"is": "{{item}}", "n": "{{index}}"}, for_each="{{input.items}}")
    flow.step("all", ANY, {"outs": "{{steps.each.output}}"}, after=[each])
    run = await begun(fl, flow, input={"items": ["a", {"b": 1}, None]})
    found = await fl.claim(10)
    assert [lease.payload for lease in found] == [
        {"is": "a", "n": 0},
        {"is": {"b": 1}, "n": 1},
        {"is": None, "n": 2},
    ]
    for lease in reversed(found):
        assert await claimed(fl) == {}
        await lease.succeed(lease.payload["n"])

    join = (await claimed(fl))["all"]
    assert join.payload == {"outs": [0, 1, 2]}
    step = await step_of(run, "each")
    assert (step.items, step.remaining, step.failed) == (3, 0, 0)
    await join.succeed()
    assert await run.result(1) == {"all": None}


async def test_items_may_be_none_and_may_not_be_too_many_or_no_list(fl: Fairlead) -> None:
    flow = Flow("w")
    each = flow.step("each", ANY, {"i": "{{item}}"}, for_each="{{input.items}}", max_items=2)
    flow.step("all", ANY, {"outs": "{{steps.each.output}}"}, after=[each])
    none = await begun(fl, flow, input={"items": []})
    assert (await claimed(fl))["all"].payload == {"outs": []}
    for given_, words in (([1, 2, 3], "3 items, and max_items is 2"), ("abc", "must be a list")):
        run = await begun(fl, flow, input={"items": given_})
        with pytest.raises(WorkflowRunFailed, match=words):
            await run.result(1)
    await fl.cancel_run(none.id)
    await end_all(fl)


async def test_one_item_that_fails_fails_the_step_when_all_are_over_and_alone_runs_again(
    fl: Fairlead,
) -> None:
    flow = Flow("w")
    each = flow.step("each", ANY, {"i": "{{item}}"}, for_each=[0, 1, 2])
    flow.step("all", ANY, {"outs": "{{steps.each.output}}"}, after=[each])
    run = await begun(fl, flow)
    found = await fl.claim(10)
    await found[1].fail("no", retryable=False)
    assert await states(run) == {"each": "running", "all": "waiting"}
    await found[0].succeed("zero")
    await found[2].succeed("two")
    assert (await run.read()).run.status is RunStatus.FAILED

    await run.retry()
    [again] = await fl.claim(10)
    assert again.job_id == found[1].job_id
    await again.succeed("one")
    assert (await claimed(fl))["all"].payload == {"outs": ["zero", "one", "two"]}
    await fl.cancel_run(run.id)
    await end_all(fl)


async def test_an_item_that_could_not_be_retried_has_still_failed(fl: Fairlead) -> None:
    flow = Flow("w")
    flow.step("each", ANY, {"i": "{{item}}"}, for_each=[0, 1])
    run = await begun(fl, flow)
    found = await fl.claim(10)
    for lease in found:
        await lease.fail("no", retryable=False)
    await given.set_job(fl, found[0].job_id, host_id=uuid4())  # as if its host had been removed
    await run.retry()
    await succeeded(fl)

    assert await states(run) == {"each": "failed"}
    assert (await run.read()).run.status is RunStatus.FAILED
    await given.set_job(fl, found[0].job_id, host_id=None)
    await run.retry()
    await succeeded(fl)
    assert (await run.read()).run.status is RunStatus.SUCCEEDED


async def test_a_payload_that_does_not_fit_is_the_failure_of_its_step(fl: Fairlead) -> None:
    flow = Flow("w")
    first = flow.step("first", ANY)
    flow.step("second", "greet", {"name": "{{steps.first.output.name}}"}, after=[first])
    for output, words in (({"name": 5}, "does not fit greet"), ({}, "steps.first.output.name is missing")):
        run = await begun(fl, flow)
        await (await claimed(fl))["first"].succeed(output)
        with pytest.raises(WorkflowRunFailed, match=f"second: .*{words}"):
            await run.result(1)
        step = await step_of(run, "second")
        assert (step.state, step.job_id) == ("failed", None)

    await run.retry()
    with pytest.raises(WorkflowRunFailed):
        await run.result(1)
    assert await fl.claim() == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"is_active": False}, "not active"),
        ({"arg_schema": {"properties": {"name": {"type": "integer"}}}}, "does not fit greet"),
    ],
)
async def test_a_definition_that_is_changed_or_retired_meanwhile_fails_the_step(
    fl: Fairlead, change: dict[str, object], why: str
) -> None:
    flow = Flow("w")
    flow.step("second", "greet", {"name": "x"}, after=[flow.step("first", ANY)])
    run = await begun(fl, flow)
    await fl.database.transact(lambda tx: definitions.patch(tx, TESTER, "greet", change))
    await succeeded(fl)

    with pytest.raises(WorkflowRunFailed, match=why):
        await run.result(1)


async def test_a_literal_payload_makes_the_same_job_as_one_that_is_filled_in(fl: Fairlead) -> None:
    flow = Flow("w")
    first = flow.step("first", ANY)
    for name, value in (("literal", [1, {"a": None}]), ("filled", "{{input.n}}")):
        flow.step(name, ANY, {"n": value}, after=[first], priority=7, max_attempts=2, timeout=30)
    run = await begun(fl, flow, input={"n": [1, {"a": None}]}, correlation_id="c-1")
    await (await claimed(fl))["first"].succeed()

    made = [await fl.read(lease.job_id) for lease in (await claimed(fl)).values()]

    literal, filled = (
        {name: value for name, value in asdict(job).items() if name not in OF_ONE_JOB} for job in made
    )
    assert literal == filled
    assert (literal["priority"], literal["max_attempts"]) == (7, 2)
    assert (literal["workflow_run_id"], literal["correlation_id"]) == (run.id, "c-1")
    assert [job.timeout_seconds for job in made] == [30, 30]


async def test_a_canceled_run_ends_what_waits_asks_what_runs_and_begins_nothing(fl: Fairlead) -> None:
    flow = diamond()
    flow.step("free", ANY)
    run = await begun(fl, flow)
    [first] = [lease for name, lease in (await claimed(fl, 1)).items()]

    canceled = await run.cancel()

    assert canceled.status is RunStatus.RUNNING
    assert canceled.cancel_requested_at is not None
    assert await fl.claim() == []
    assert await first.heartbeat()
    await first.succeed({"n": 1})
    assert (await run.read()).run.status is RunStatus.CANCELED
    found = await states(run)
    assert sorted(found.values()) == ["canceled", "stopped", "stopped", "stopped", "succeeded"]
    with pytest.raises(WorkflowRunFailed, match="canceled"):
        await run.result(1)
    assert (await run.cancel()).status is RunStatus.CANCELED

    await run.retry()
    await succeeded(fl)
    assert (await run.read()).run.status is RunStatus.SUCCEEDED
    with pytest.raises(WorkflowRunOver):
        await run.cancel()
    with pytest.raises(WorkflowRunNotRetryable):
        await run.retry()


async def test_a_job_that_goes_back_to_the_queue_of_a_canceled_run_is_canceled(fl: Fairlead) -> None:
    """One that nobody could ask to stop, since somebody was just finishing it."""
    run = await begun(fl, diamond())
    first = (await claimed(fl))["first"]
    await fl.database.transact(lambda tx: stored.request_cancel(tx, run.id))

    await first.fail("again later")

    assert (await fl.read(first.job_id)).status is JobStatus.CANCELED
    assert (await run.read()).run.status is RunStatus.CANCELED


@pytest.mark.parametrize("many", [False, True])
async def test_canceling_the_job_of_a_step_is_its_failure(fl: Fairlead, many: bool) -> None:  # noqa: FBT001
    run = await begun(fl, diamond(on_failure="continue"))
    await (await claimed(fl))["first"].succeed({"n": 1})
    left = (await step_of(run, "left")).job_id
    assert left is not None
    if many:
        wanted = JobFilter(tenant=TENANT, q=str(left))
        await fl.database.transact(lambda tx: bulk_jobs.cancel(tx, TESTER, wanted))
    else:
        await fl.cancel(left)
    await succeeded(fl)

    assert (await run.read()).run.status is RunStatus.SUCCEEDED
    assert (await states(run))["left"] == "canceled"


@pytest.mark.thorough
async def test_a_step_whose_workers_keep_dying_settles_its_run(fl: Fairlead) -> None:
    flow = Flow("w")
    flow.step("poison", ANY)
    run = await begun(fl, flow)
    for _ in range(3):
        await fl.database.transact(testing.make_all_due)
        assert len(await fl.claim()) == 1
        await given.end_leases(fl)
        await Watchdog(fl.database, lease_seconds=60, sweep_seconds=0)()

    with pytest.raises(WorkflowRunFailed, match="poison"):
        await run.result(1)


async def test_a_step_that_is_completed_over_http_moves_the_run_on(fl: Fairlead) -> None:
    await begun(fl, diamond())
    first = (await claimed(fl))["first"]
    worker = Principal("worker", Role.WORKER)
    lease = Lease(first.job_id, first.attempt_no, first._lease.token)

    await fl.database.transact(
        lambda tx: leases.complete(tx, worker, lease, output={"n": 3}, ending=AttemptDetails())
    )

    assert (await claimed(fl))["left"].payload == {"n": 3}
    await end_all(fl)
    [run_id] = await given.run_statuses(fl)
    await fl.cancel_run(run_id)


@pytest.mark.thorough
async def test_steps_have_their_own_timeout_and_host(fl: Fairlead) -> None:
    async def host(tx: Tx) -> UUID:
        return (await hosts.add(tx, TESTER, tenant_id=await given.tenant_id(tx), name="box")).id

    host_id = await fl.database.transact(host)
    flow = Flow("w")
    flow.step("timed", ANY, timeout=7)
    flow.step("there", ANY, host_id="{{input.host}}", timeout=9)
    flow.step("nowhere", ANY, host_id="00000000-0000-7000-8000-000000000001", on_failure="continue")
    run = await begun(fl, flow, input={"host": str(host_id)})

    assert (await claimed(fl))["timed"]._job.timeout_seconds == 7
    async with fl.transaction() as tx:
        claim = await queue.claim(tx, worker="agent", wanted=5, lease_seconds=30, host=host_id)
    [job] = claim.jobs
    assert job.timeout_seconds == 9
    assert claim.of_runs == [job.job_id]
    assert (await step_of(run, "nowhere")).error["code"] == "host_unknown"
    await fl.cancel_run(run.id)
    await end_all(fl)


async def test_jobs_of_a_run_stay_as_long_as_it_goes_on_and_runs_go_when_their_time_is_over(
    fl: Fairlead,
) -> None:
    run = await begun(fl, diamond())
    await (await claimed(fl))["first"].succeed({"n": 1})

    async def much_later(tx: Tx) -> tuple[int, int]:
        await tx.run(
            "update fairlead.job_records set id = ('00000000' || right(id::text, 28))::uuid, "
            "finished_at = finished_at - interval '100 days' where status = 'succeeded'"
        )
        removed = (await retention.remove(tx, days=30)).removed
        return removed, await stored.remove_old(tx, days=30, limit=10)

    async with fl.transaction() as tx:
        assert await much_later(tx) == (0, 0)
        await tx.connection.execute("rollback")
        await tx.connection.execute("begin")
    await succeeded(fl)
    async with fl.transaction() as tx:
        await tx.run("alter table fairlead.workflow_steps drop constraint workflow_steps_run_id_fkey")
        await tx.run(
            "update fairlead.workflow_runs set id = ('00000000' || right(id::text, 28))::uuid, "
            "finished_at = finished_at - interval '100 days'"
        )
        assert await stored.remove_old(tx, days=30, limit=10) == 1
        await tx.connection.execute("rollback")
        await tx.connection.execute("begin")
    assert (await run.read()).run.status is RunStatus.SUCCEEDED


async def test_what_people_do_is_in_the_audit_log(fl: Fairlead) -> None:
    await fl.database.transact(lambda tx: workflows.publish(tx, TESTER, TENANT, diamond().document))
    run = await fl.start("diamond", tenant=TENANT, input={"n": 1})
    await run.cancel()
    await run.retry()
    await succeeded(fl)

    async with fl.transaction() as tx:
        rows = await tx.values(
            "select action from fairlead.audit_entries where resource_type like 'workflow%%' order by at, action"
        )
    told: Iterable[str] = [action for (action,) in rows if action != "jobs_created"]
    assert list(told) == [
        "workflow_published",
        "workflow_started",
        "workflow_cancel_requested",
        "WORKFLOW_RUN_CANCELED",
        "workflow_retried",
        "WORKFLOW_RUN_SUCCEEDED",
    ]


async def test_a_job_that_is_no_step_is_shown_without_a_run(fl: Fairlead) -> None:
    job = await fl.enqueue(ANY, tenant=TENANT)
    shown, _ = await fl.database.transact(lambda tx: jobs.show_job(tx, TESTER, job.id))

    assert shown.workflow_run_id is None
    with pytest.raises(FairleadError):
        await fl.read_run(job.id)


async def cost_of_one_end(fl: Fairlead, database: Database, steps: int) -> Cost:
    flow = Flow("wide")
    for n in range(steps):
        flow.step(f"next{n}", ANY, after=[flow.step(f"first{n}", ANY)])
    run = await begun(fl, flow)
    [lease] = await fl.claim()
    ends = [(lease._lease, success_of(lease))]
    spent = await cost(database, lambda tx: workflow_progress.finish_attempts(tx, ends, actor="tester"))
    await fl.cancel_run(run.id)
    await lease.release()
    return spent


@pytest.mark.thorough
async def test_the_end_of_a_step_costs_the_same_in_a_run_of_thousands(fl: Fairlead) -> None:
    """Counted is what it reads: rows, index entries and pages."""
    small, large = [await cost_of_one_end(fl, fl.database, steps) for steps in (20, 2000)]

    assert is_flat(small, large, jobs=1), (small, large)


@pytest.mark.thorough
async def test_the_end_of_a_step_costs_the_same_if_the_statistics_know_no_steps(fl: Fairlead) -> None:
    """They may be older than the first run. The plans of a worker's connection stay until there are new ones."""
    later = {"definition": ANY, "tenant": TENANT, "delay": 3600}
    await fl.enqueue_many([later] * 500)
    await tidy(fl.settings, analyze=True)
    async with opened(fl.settings) as database:
        small, large = [await cost_of_one_end(fl, database, steps) for steps in (20, 2000)]

    assert is_flat(small, large, jobs=1), (small, large)
