"""What goes wrong around runs: late reports, lost workers, cancels and retries at bad moments, too much of everything."""

import asyncio
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from fairlead import Context, Fairlead, Flow, JobStatus, WorkflowRun
from fairlead.actions import definitions, hosts, workflow_jobs, workflow_progress, workflows
from fairlead.db.tx import Tx
from fairlead.errors import HostInUse, InvalidInput, WorkflowInvalid
from fairlead.model.outcome import Succeeded, decide
from fairlead.model.template.spec import Template
from fairlead.model.workflow.run import RunStatus
from fairlead.runtime.duties import Duties
from fairlead.runtime.maintenance import LeftSteps, StepSettler, release_left_steps
from fairlead.runtime.store_source import StoreSource
from fairlead.store import jobs, queue, testing, triggers
from fairlead.store import workflows as stored
from fairlead.turns.owner import Owner, owner_of_task
from tests import broken, given
from tests.given import OTHER, TENANT, TESTER
from tests.plans import count_rows, read_scans
from tests.runs import (
    ANY,
    begun,
    claimed,
    diamond,
    end_all,
    ends_with_its_step,
    job_of_one_step,
    published,
    states,
    succeeded,
)
from tests.waiting import SECONDS, until_somebody_waits

NOWHERE = "00000000-0000-7000-8000-000000000001"


async def waiting_job(fl: Fairlead, **more: Any) -> Any:
    """A job that waits for its run of the workflow w."""
    job = await fl.enqueue("ENGINE_RUN", tenant=TENANT, payload={"workflow": "w", **more})
    await fl.tick()
    return job


async def only_run(fl: Fairlead) -> UUID:
    [run] = await fl.database.transact(lambda tx: workflows.list_runs(tx, TESTER))
    return run.id


async def again_now(fl: Fairlead) -> None:
    """What waits for its time is due."""
    await fl.database.transact(testing.make_all_due)
    await fl.database.transact(queue.stage_due)


# Workers


async def test_the_late_report_of_a_lost_attempt_takes_nothing_from_the_next(fl: Fairlead) -> None:
    flow = Flow("w")
    flow.step("b", ANY, after=flow.step("a", ANY))
    run = await begun(fl, flow)
    source = StoreSource(fl.database, worker="w", lease_seconds=30)
    [first] = await source.claim(1)
    await end_all(fl)
    await again_now(fl)
    [second] = await source.claim(1)  # by the same process

    await source.finish([(first.lease, decide(first.job, Succeeded(1)))])  # late, and refused
    assert await source.finish([(second.lease, decide(second.job, Succeeded(2)))])

    assert await states(run) == {"a": "succeeded", "b": "running"}


@pytest.mark.parametrize("how", ["failed", "canceled"])
async def test_a_worker_that_dies_before_it_tells_revives_no_run(fl: Fairlead, how: str) -> None:
    job = await job_of_one_step(fl)
    await fl.tick()
    run_id = await only_run(fl)
    if how == "failed":
        await (await claimed(fl))["a"].fail("no", retryable=False)
    else:
        await fl.cancel_run(run_id)
    [lease] = await fl.claim(1)
    told = await fl.database.transact(
        lambda tx: workflow_jobs.continue_job(tx, TESTER, lease.job_id, tenant=TENANT, workflow="w")
    )
    assert told is not None
    await end_all(fl)
    await again_now(fl)
    await fl.tick()

    assert (await fl.run_standing(run_id)).status == told.status == how
    assert (await job.read()).status == how


async def test_a_job_that_fails_for_the_moment_waits_its_time_also_if_its_run_is_over(fl: Fairlead) -> None:
    job = await job_of_one_step(fl)
    await fl.tick()
    await (await claimed(fl))["a"].succeed("yes")
    [lease] = await fl.claim(1)
    await lease.fail("the database was away")
    assert await fl.claim() == []

    await again_now(fl)
    await fl.tick()

    assert (await job.result(1))["output"] == {"a": "yes"}


# Cancel and retry


async def test_a_canceled_job_that_is_retried_lets_its_run_go_on(fl: Fairlead) -> None:
    job = await job_of_one_step(fl)
    await fl.tick()
    await fl.cancel(job.id)

    await fl.retry(job.id)
    await fl.tick()
    assert await ends_with_its_step(fl, job)


async def test_the_same_where_the_run_had_not_yet_stopped(fl: Fairlead) -> None:
    job = await job_of_one_step(fl)
    await fl.tick()
    step = (await claimed(fl))["a"]
    await fl.cancel(job.id)
    await fl.retry(job.id)
    await fl.tick()  # it waits for the end of what it was asked to do anew
    assert (await job.read()).status is JobStatus.QUEUED

    await step.fail("stopped", retryable=False)
    await fl.tick()
    assert await ends_with_its_step(fl, job)


async def test_a_canceled_run_of_runs_goes_on_when_it_is_retried(fl: Fairlead) -> None:
    fl.workflow("w").step("a", ANY)
    fl.workflow("outer").step("sub", "ENGINE_RUN", {"workflow": "w"})
    await published(fl)
    run = await fl.start("outer", tenant=TENANT)
    await fl.tick()
    await run.cancel()
    assert (await run.read()).run.status is RunStatus.CANCELED

    await run.retry()
    await fl.tick()
    assert (await run.read()).run.status is RunStatus.RUNNING
    await (await claimed(fl))["a"].succeed()
    await fl.tick()

    assert (await run.read()).run.status is RunStatus.SUCCEEDED


async def test_a_job_ends_canceled_with_its_run_and_goes_on_with_its_retry(fl: Fairlead) -> None:
    job = await job_of_one_step(fl)
    await fl.tick()
    run_id = await only_run(fl)
    await fl.cancel_run(run_id)
    await fl.tick()
    ended = await job.read()
    assert (ended.status, (await fl.run_standing(run_id)).error) == (JobStatus.CANCELED, None)

    await fl.retry_run(run_id)
    await fl.tick()  # the job waits again
    assert await ends_with_its_step(fl, job)


async def test_what_the_cancel_ended_runs_again_also_if_its_failure_would_not_matter(fl: Fairlead) -> None:
    flow = Flow("w")
    flow.step("a", ANY, on_failure="continue")
    run = await begun(fl, flow)
    await run.cancel()

    await run.retry()

    assert await states(run) == {"a": "running"}


async def test_a_second_cancel_reaches_what_the_first_could_not(fl: Fairlead) -> None:
    run = await begun(fl, diamond())
    first = (await claimed(fl))["first"]
    async with fl.transaction() as tx:
        await given.hold(tx, "lease", first.job_id)
        await run.cancel()
    await run.cancel()

    assert (await fl.read(first.job_id)).cancel_requested_at is not None


async def test_the_end_of_a_run_and_the_cancel_of_its_job_do_not_wait_for_each_other(fl: Fairlead) -> None:
    job = await job_of_one_step(fl)
    await fl.tick()
    step = (await claimed(fl))["a"]
    async with fl.transaction() as tx:
        assert await jobs.cancel_queued(tx, job.id)  # the first half of a cancel
        await asyncio.wait_for(
            step.succeed(1), SECONDS
        )  # ends the run, and leaves the job that somebody holds
        await workflow_progress.settle_jobs(tx, {job.id: JobStatus.CANCELED})

    assert (await job.read()).status is JobStatus.CANCELED


async def test_a_job_whose_cancel_was_rolled_back_as_its_run_ended_is_woken(fl: Fairlead) -> None:
    job = await job_of_one_step(fl)
    await fl.tick()
    step = (await claimed(fl))["a"]
    with pytest.raises(ZeroDivisionError):
        async with fl.transaction() as tx:
            assert await jobs.cancel_queued(tx, job.id)
            await asyncio.wait_for(
                step.succeed("made"), SECONDS
            )  # ends the run, and does not wait for the canceled job
            raise ZeroDivisionError
    [(run_id, told)] = await fl.database.transact(stored.list_inconsistencies)
    assert run_id == await only_run(fl)
    assert str(job.id) in told

    await Duties(fl.database, retention_days=30, audit_retention_days=365)()
    await fl.tick()

    assert (await job.read()).status is JobStatus.SUCCEEDED


async def test_runs_that_jobs_wait_for_are_held_in_the_order_of_their_ids(fl: Fairlead) -> None:
    fl.workflow("w").step("a", ANY)
    await published(fl)
    waiting = [await waiting_job(fl) for _ in range(3)]

    async def held(tx: Tx) -> list[UUID]:
        await tx.prefer_indexes()
        return [run_id for run_id, _ in await stored.list_awaited_runs(tx, [one.id for one in waiting[::-1]])]

    found = await fl.database.transact(held)
    assert found == sorted(found)


async def test_a_run_that_is_started_while_its_job_is_canceled_stops_with_it(fl: Fairlead) -> None:
    job = await job_of_one_step(fl)
    [lease] = await fl.claim(1)
    await fl.cancel(job.id)
    async with fl.transaction() as tx:
        await workflow_jobs.continue_job(tx, TESTER, job.id, tenant=TENANT, workflow="w")
        ending = asyncio.create_task(lease.fail("asked to stop"))
        await until_somebody_waits(tx)
    await ending

    assert (await fl.run_standing(await only_run(fl))).status is RunStatus.CANCELED
    assert (await job.read()).status is JobStatus.CANCELED


async def test_a_job_that_runs_no_more_starts_no_run(fl: Fairlead) -> None:
    job = await job_of_one_step(fl)
    [_] = await fl.claim(1)
    await end_all(fl)

    async with fl.transaction() as tx:
        assert await workflow_jobs.continue_job(tx, TESTER, job.id, tenant=TENANT, workflow="w") is None
        assert await given.count(tx, "workflow_runs") == 0


async def test_a_run_with_a_key_that_is_a_jobs_is_not_that_jobs_run(fl: Fairlead) -> None:
    job = await job_of_one_step(fl)
    other = await fl.start("w", tenant=TENANT, key=f"job:{job.id}")
    await other.cancel()

    await fl.tick()
    assert await ends_with_its_step(fl, job)


async def test_a_retry_waits_for_whoever_holds_a_job_and_makes_no_second_one(fl: Fairlead) -> None:
    run = await begun(fl, diamond())
    first = (await claimed(fl))["first"]
    await first.fail("no", retryable=False)
    async with fl.transaction() as tx:
        await given.hold(tx, "job", first.job_id)
        retrying = asyncio.create_task(run.retry())
        await until_somebody_waits(tx)
    await retrying

    assert (await claimed(fl))["first"].job_id == first.job_id


async def test_a_host_is_not_removed_under_a_run_that_is_being_retried(fl: Fairlead) -> None:
    host_id, there = await bound(fl)
    flow = Flow("w")
    flow.step("a", "bound", {"r": there})
    run = await begun(fl, flow)
    await run.cancel()
    async with fl.transaction() as tx:
        await workflows.retry(tx, TESTER, run.id)
        removing = asyncio.create_task(fl.database.transact(lambda tx: hosts.remove(tx, TESTER, host_id)))
        await until_somebody_waits(tx)
    with pytest.raises(HostInUse):
        await removing

    assert await run_there(fl, host_id) == 1
    assert (await run.read()).run.status is RunStatus.SUCCEEDED


# Too much


@pytest.mark.thorough
async def test_a_workflow_that_runs_itself_comes_to_an_end(fl: Fairlead) -> None:
    fl.workflow("w").step("again", "ENGINE_RUN", {"workflow": "w"})
    await published(fl)
    run = await fl.start("w", tenant=TENANT)
    for _ in range(60):
        await fl.tick()

    ended = (await run.read()).run
    assert (ended.status, ended.error["step"]) == (RunStatus.FAILED, "again")
    [deepest, *_] = await fl.database.transact(lambda tx: workflows.list_runs(tx, TESTER))
    assert "Check whether the workflow starts itself." in deepest.error["message"]
    assert await given.count(fl, "workflow_runs") == workflows.MAX_DEPTH + 1


async def test_outputs_that_are_too_much_together_are_not_there(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "MOST_OUTPUT_BYTES", 100)
    flow = Flow("w")
    each = flow.step("each", ANY, for_each=[1, 2])
    flow.step("all", ANY, {"all": "{{steps.each.output}}"}, after=each)
    run = await begun(fl, flow)
    for lease in await fl.claim(2):
        await lease.succeed("x" * 90)

    ended = (await run.read()).run
    assert (ended.status, ended.error["step"]) == (RunStatus.FAILED, "all")
    assert "steps.each.output" in ended.error["message"]


async def test_a_run_whose_outputs_are_too_much_has_none_of_its_own(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []
    monkeypatch.setattr(stored, "get_step_ends", lambda *given: read.append(given))
    flow = Flow("w")
    for name in ("a", "b"):
        flow.step(name, ANY)
    run = await begun(fl, flow)
    for lease in await fl.claim(2):
        await lease.succeed([uuid4().hex for _ in range(6000)])

    ended = (await run.read()).run
    assert (ended.status, ended.output, read) == (RunStatus.SUCCEEDED, None, [])


async def test_payloads_that_are_too_much_together_fail_their_step(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.actions.workflow_release.MOST_STEP_BYTES", 1 << 20)
    flow = Flow("w")
    flow.step("each", ANY, {"big": "{{input.big}}"}, for_each=list(range(20)))
    made: list[object] = []
    render = Template.render

    def counting(template: Template, *given: Any, **more: Any) -> Any:
        made.extend([template] if "encoded" in more else [])
        return render(template, *given, **more)

    run = await begun(fl, flow, input={"big": "x" * 100_000})
    monkeypatch.setattr(Template, "render", counting)
    await release_left_steps(fl.database)

    assert len(made) == 11  # what goes beyond the limit is not made
    ended = (await run.read()).run
    assert (ended.status, ended.error["step"]) == (RunStatus.FAILED, "each")
    assert "more than 1 MiB together, if each" in ended.error["message"]
    assert await fl.claim() == []


# Much work

HEAVY = {"big": "x" * 50_000}


def heavy_flow() -> Flow:
    flow = Flow("w")
    flow.step("heavy", ANY, {"big": "{{input.big}}"}, for_each=list(range(30)))
    return flow


async def test_a_step_of_much_work_is_left_to_a_transaction_of_its_own(fl: Fairlead) -> None:
    flow = Flow("w")
    first = flow.step("first", ANY)
    flow.step("light", ANY, after=first)
    flow.step("heavy", ANY, {"big": "{{input.big}}"}, for_each=list(range(30)), after=first)
    flow.step("last", ANY, after=["heavy", "light"])
    run = await begun(fl, flow, input={"big": "x" * 50_000})
    await (await claimed(fl))["first"].succeed()

    assert await states(run) == {
        "first": "succeeded",
        "light": "running",
        "heavy": "running",
        "last": "waiting",
    }
    assert set(await claimed(fl)) == {"light"}
    await given.no_inconsistencies(fl.database)
    await release_left_steps(fl.database)
    leases = await fl.claim(100)
    assert len(leases) == 30
    for lease in leases:
        await lease.succeed()
    await end_all(fl)
    await again_now(fl)
    await succeeded(fl)
    assert (await run.read()).run.status is RunStatus.SUCCEEDED


async def test_a_left_step_is_canceled_with_its_run_and_runs_when_that_is_retried(fl: Fairlead) -> None:
    flow = Flow("w")
    flow.step("heavy", ANY, {"big": "{{input.big}}"}, for_each=list(range(30)), on_failure="continue")
    flow.step("last", ANY, after="heavy")
    run = await begun(fl, flow, input=HEAVY)
    await run.cancel()
    assert (await run.read()).run.status is RunStatus.CANCELED
    assert (await states(run))["heavy"] == "canceled"
    await release_left_steps(fl.database)
    assert await fl.claim() == []
    await given.no_inconsistencies(fl.database)
    await run.retry()

    assert await states(run) == {"heavy": "running", "last": "waiting"}
    await release_left_steps(fl.database)
    await succeeded(fl)
    ended = await run.read()
    assert (ended.run.status, {step.state for step in ended.steps}) == (RunStatus.SUCCEEDED, {"succeeded"})
    assert ended.steps[0].items == 30


async def test_much_work_of_a_tenant_leaves_no_step_of_another(fl: Fairlead) -> None:
    runs = dict[str, WorkflowRun]()
    for tenant, size in ((TENANT, 50_000), (OTHER, 1)):
        flow = Flow("w")
        first = flow.step("first", ANY)
        for name in ("b", "c"):
            flow.step(name, ANY, {"big": "{{input.big}}"}, for_each=list(range(30)), after=first)
        runs[tenant] = await fl.run_inline(flow, tenant=tenant, input={"big": "x" * size})
    source = StoreSource(fl.database, worker="w", lease_seconds=30)
    ends = [(one.lease, decide(one.job, Succeeded(1))) for one in await source.claim(10)]
    async with fl.transaction() as tx:
        assert len(await workflow_progress.finish_attempts(tx, ends, actor="w")) == 2

    async with fl.transaction() as tx:
        counted = await tx.values(
            "select workflow_run_id, count(*) from fairlead.jobs where status = 'queued' group by 1"
        )
    assert counted == [(runs[OTHER].id, 60)]


async def test_tenants_take_turns_with_their_steps_of_much_work(fl: Fairlead) -> None:
    for tenant in (TENANT, TENANT, TENANT, OTHER):
        await fl.run_inline(heavy_flow(), tenant=tenant, input=HEAVY)
    order = [UUID(int=0)]
    while await fl.database.transact(
        partial(workflow_progress.release_left_step, after=order[-1], taken=order.append)
    ):
        pass
    order = order[1:]

    assert len(order) == 4
    assert len(set(order[:2])) == 2, "the other tenant is first or second, whatever its steps"


async def test_a_process_that_hears_of_no_left_step_looks_for_one_within_minutes(fl: Fairlead) -> None:
    settler = StepSettler(fl.database)
    assert await settler() <= 60
    await begun(fl, heavy_flow(), input=HEAVY)
    await settler()
    assert len(await fl.claim(100)) == 30


async def test_a_claim_makes_the_jobs_of_one_left_step_and_not_in_the_name_of_its_request(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners, release = list[Owner | None](), workflow_progress.release_left_step

    async def releasing(*given: Any, **more: Any) -> bool:
        owners.append(owner_of_task.get())
        return await release(*given, **more)

    monkeypatch.setattr(workflow_progress, "release_left_step", releasing)
    for _ in range(3):
        await begun(fl, heavy_flow(), input=HEAVY)
    before = owner_of_task.set(Owner("tenant"))
    try:
        claimed_now = [len(await fl.claim(100)) for _ in range(4)]
    finally:
        owner_of_task.reset(before)

    assert claimed_now == [30, 30, 30, 0]
    assert owners == [None] * 4


async def test_steps_of_much_work_that_a_left_step_frees_are_left_too(fl: Fairlead) -> None:
    flow = heavy_flow()
    none = flow.step("none", ANY, for_each=[])
    for name in ("b", "c"):
        flow.step(name, ANY, {"big": "{{input.big}}"}, for_each=list(range(30)), after=none)
    await begun(fl, flow, input=HEAVY)
    left, made = LeftSteps(fl.database), list[int]()
    while await left.release_next():
        made.append(await given.count(fl, "job_records"))

    assert made == [30, 30, 60, 90]


async def test_however_many_steps_are_left_one_is_read(tx: Tx) -> None:
    await broken.sleeping_parent(tx)  # for its run
    await tx.run(
        """
        insert into fairlead.workflow_steps (
            run_id, place, tenant_id, name, definition_key, spec, before, next, on_failure, state, pending, remaining, left_at)
        select r.id, n, r.tenant_id, 's' || n, 'anything', '{}', '{}', '{}', 'fail', 'running', 0, 1, clock_timestamp()
        from fairlead.workflow_runs r, generate_series(1, 5000) n
        """
    )
    await tx.run("analyze fairlead.workflow_steps")
    values = {"after": UUID(int=0), "has_key": False, "mark": "x", "engine_run": "x", "but": []}
    for node in await read_scans(tx, stored.sql.lock_left, values, "workflow_steps"):
        assert count_rows(node) <= 2


async def test_a_left_step_that_fails_delays_no_other_tenant(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_run = await begun(fl, heavy_flow(), input=HEAVY)
    fine = await fl.run_inline(heavy_flow(), tenant=OTHER, input=HEAVY)
    release = stored.release_begun

    async def failing(tx: Tx, run: stored.LockedRun, *given: Any) -> stored.AdvancedRuns:
        if run.id == failing_run.id:
            raise RuntimeError("a fault")
        return await release(tx, run, *given)

    monkeypatch.setattr(stored, "release_begun", failing)
    settler = StepSettler(fl.database)
    failures = 0
    for _ in range(2):
        try:
            await settler()
        except RuntimeError:
            failures += 1

    assert failures == 1
    async with fl.transaction() as tx:
        runs = await tx.values("select distinct workflow_run_id from fairlead.job_records")
    assert runs == [(fine.id,)]


async def test_many_small_values_are_too_much_together_before_their_bytes_are(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.actions.workflow_release.MOST_STEP_BYTES", 1 << 20)
    flow = Flow("w")
    flow.step("each", ANY, {"big": "{{input.big}}"}, for_each=list(range(20)))
    run = await begun(fl, flow, input={"big": [{}] * 5000})  # 15 kB for each item, 300 kB together
    await release_left_steps(fl.database)

    ended = (await run.read()).run
    assert (ended.status, ended.error["step"]) == (RunStatus.FAILED, "each")
    assert "more than 1 MiB together" in ended.error["message"]


async def test_steps_that_are_much_together_are_written_one_after_the_other(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.actions.workflow_release.MOST_STEP_BYTES", 1 << 20)
    at_once: list[int] = []
    release = stored.insert_jobs

    async def watched(tx: Tx, jobs: list[stored.StepJob]) -> None:
        at_once.append(len(jobs))
        await release(tx, jobs)

    monkeypatch.setattr(stored, "insert_jobs", watched)
    flow = Flow("w")
    for name in ("a", "b", "c", "d"):
        flow.step(name, ANY, {"big": "{{input.big}}"}, for_each=list(range(8)))
    monkeypatch.setattr("fairlead.actions.workflow_release.MOST_BESIDE_BYTES", 1 << 30)
    run = await begun(fl, flow, input={"big": "x" * 100_000})

    assert at_once == [16, 16]
    await succeeded(fl)
    assert (await run.read()).run.status is RunStatus.SUCCEEDED


async def test_a_step_of_many_payloads_lets_others_go_on(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.actions.workflow_release.SILENCE_SECONDS", 0)
    pauses: list[object] = []
    moment = triggers.read_clock

    async def counting(tx: Tx) -> Any:
        pauses.append(tx)
        return await moment(tx)

    monkeypatch.setattr(triggers, "read_clock", counting)
    flow = Flow("w")
    flow.step("each", ANY, {"i": "{{item}}"}, for_each=list(range(20)))
    await begun(fl, flow)
    assert len(pauses) >= 20


async def test_many_payloads_go_in_parts(fl: Fairlead, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "MOST_RELEASED_BYTES", 30)
    flow = Flow("w")
    flow.step("each", ANY, {"i": "{{item}}"}, for_each=list(range(20)))
    run = await begun(fl, flow)

    await succeeded(fl)

    assert (await run.result(1))["each"] == [{"i": number} for number in range(20)]


def test_a_line_of_too_many_steps_is_refused() -> None:
    flow = Flow("w")
    last = flow.step("s0", ANY)
    for number in range(1, 2001):
        last = flow.step(f"s{number}", ANY, after=last)
    with pytest.raises(WorkflowInvalid, match="the longest chain has 2001 steps"):
        flow.check()


# Items


async def bound(fl: Fairlead) -> tuple[UUID, str]:
    """A host, and a resource there that jobs of `bound` name."""

    async def make(tx: Tx) -> tuple[UUID, str]:
        tenant_id = await given.tenant_id(tx)
        host = await hosts.add(tx, TESTER, tenant_id=tenant_id, name="box")
        resource = await hosts.add_resource(
            tx, TESTER, tenant_id=tenant_id, host_id=host.id, kind="k", name="r"
        )
        await definitions.patch(tx, TESTER, "bound", {"key": "bound", "resource_pointer": "/r"})
        return host.id, str(resource.id)

    return await fl.database.transact(make)


async def run_there(fl: Fairlead, host_id: UUID) -> int:
    """Run what waits for a host. How many."""

    async def run(tx: Tx) -> int:
        claim = await queue.claim(tx, worker="agent", wanted=5, lease_seconds=30, host=host_id)
        ends = [(claim.lease(job), decide(job, Succeeded("there"))) for job in claim.jobs]
        await workflow_progress.finish_attempts(tx, ends, actor="t")
        return len(ends)

    return await fl.database.transact(run)


async def test_outputs_of_items_stay_in_their_places(fl: Fairlead) -> None:
    """Also where one was refused and never became a job."""
    host_id, there = await bound(fl)
    flow = Flow("w")
    items = [NOWHERE, there]
    each = flow.step("each", "bound", {"r": "{{item}}"}, for_each=items, on_failure="continue")
    flow.step("all", ANY, {"all": "{{steps.each.output}}"}, after=each)
    await begun(fl, flow)

    await run_there(fl, host_id)

    assert (await claimed(fl))["all"].payload == {"all": [None, "there"]}


async def test_many_items_for_hosts_take_few_statements(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the way to the database is, and each item would take its time."""
    host_id, there = await bound(fl)
    flow = Flow("w")
    items = [there] * 499 + [NOWHERE]
    flow.step("each", "bound", {"r": "{{item}}"}, for_each=items, on_failure="continue")
    statements = 0
    execute = psycopg.AsyncCursor.execute

    async def counted(cursor: Any, *args: Any, **options: Any) -> Any:
        nonlocal statements
        statements += 1
        return await execute(cursor, *args, **options)

    monkeypatch.setattr(psycopg.AsyncCursor, "execute", counted)
    run = await begun(fl, flow)

    [step] = (await run.read()).steps
    assert statements < 40
    assert (step.items, step.remaining, step.failed) == (500, 499, 1)
    async with fl.transaction() as tx:
        where = "select host_id, resource_id::text, count(*) from fairlead.jobs group by 1, 2"
        assert await tx.values(where) == [(host_id, there, 499)]


async def test_an_item_that_succeeded_does_not_run_again_for_one_that_was_refused(fl: Fairlead) -> None:
    host_id, there = await bound(fl)
    flow = Flow("w")
    flow.step("each", "bound", {"r": "{{item}}"}, for_each=[there, NOWHERE])
    run = await begun(fl, flow)
    assert await run_there(fl, host_id) == 1
    assert (await run.read()).run.status is RunStatus.FAILED

    await run.retry()

    assert await run_there(fl, host_id) == 0
    assert (await run.read()).run.status is RunStatus.FAILED


# From jobs


async def test_each_call_of_a_job_starts_a_run_and_none_twice(fl: Fairlead) -> None:
    fl.workflow(ANY).step("a", ANY, {"n": "{{input.n}}"})
    started: list[list[Any]] = []

    @fl.job(key="starter")
    async def starter(ctx: Context) -> None:
        runs = [await ctx.start(ANY, input={"n": number}) for number in range(3)]
        runs += [await ctx.fan_out(ANY, [{"n": 3}]), await ctx.fan_out(ANY, [{"n": 4}])]
        runs += [await ctx.start(ANY, input={"n": 5}, key=f"{'k' * 300}{number}") for number in range(2)]
        runs += [await ctx.start(ANY, input={"n": 5}, key=f"{'k' * 300}0")]
        started.append([run.id for run in runs])
        if len(started) == 1:
            raise RuntimeError("again")

    await published(fl)
    await fl.enqueue("starter", tenant=TENANT)
    await fl.tick()
    await fl.database.transact(testing.make_all_due)
    await fl.tick()

    first, second = started
    assert first == second
    assert len(set(first)) == 7
    assert first[-1] == first[-3]


async def test_a_run_hides_the_secrets_of_its_input_from_the_job_that_waits(fl: Fairlead) -> None:
    schema = {"type": "object", "properties": {"token": {"type": "string", "x-secret": True}}}
    fl.workflow("w", input_schema=schema).step("a", ANY, {"t": "{{input.token}}"})
    await published(fl)
    job = await waiting_job(fl, input={"token": "hunter2-hunter2"})
    step = (await claimed(fl))["a"]
    await step.succeed(step.payload)
    await fl.tick()

    assert "hunter2" not in repr((await job.read()).output)


async def test_what_cannot_be_is_refused_by_name(fl: Fairlead) -> None:
    anything: Any = 5
    wrong: Any = "x"
    for attempt in (
        lambda: fl.start(anything, tenant=TENANT),
        lambda: fl.start("w", tenant=TENANT, version=wrong),
        lambda: fl.run_inline(diamond(), tenant=TENANT, key=anything),
        lambda: fl.chain((ANY, {}, 3), tenant=TENANT),
        lambda: fl.fan_out(ANY, anything, tenant=TENANT),
        lambda: fl.fan_out(ANY, wrong, tenant=TENANT),
        lambda: fl.read_run("nope"),
    ):
        with pytest.raises(InvalidInput):
            await attempt()
    with pytest.raises(InvalidInput, match="not a run's id"):
        await fl.read_run("nope")
