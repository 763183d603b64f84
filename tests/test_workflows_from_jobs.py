"""Jobs that run workflows, chains, and sub-tasks that a job begins."""

import json
from typing import Any

import pytest

from fairlead import Context, Fairlead, JobStatus, Settings, sync
from fairlead.actions import workflows
from fairlead.model.workflow.run import RunStatus
from tests import given
from tests.given import TENANT, TESTER
from tests.runs import ANY, claimed, ends_with_its_step, job_of_one_step, published
from tests.waiting import SECONDS


async def test_a_job_waits_for_its_run_without_a_worker(fl: Fairlead) -> None:
    fl.workflow("w").step("a", ANY, {"x": "{{input.x}}"})
    await published(fl)
    job = await fl.enqueue("ENGINE_RUN", tenant=TENANT, payload={"workflow": "w", "input": {"x": 1}})

    await fl.tick()

    assert (await job.read()).status is JobStatus.QUEUED
    [step] = await fl.claim(10)
    assert step.payload == {"x": 1}
    await step.succeed("made")
    await fl.tick()
    result = await job.result(1)
    assert result["output"] == {"a": "made"}
    assert (await fl.read_run(result["run_id"])).run.parent_job_id == job.id


async def test_a_job_fails_with_its_run_and_its_retry_is_the_runs(fl: Fairlead) -> None:
    job = await job_of_one_step(fl)
    await fl.tick()
    await (await claimed(fl))["a"].fail("no", retryable=False)
    await fl.tick()
    assert (await job.read()).status is JobStatus.FAILED
    assert "a: Failed: no" in str((await job.read()).last_error)

    await fl.retry(job.id)
    await fl.tick()

    assert await ends_with_its_step(fl, job)


async def test_canceling_the_job_cancels_its_run(fl: Fairlead) -> None:
    job = await job_of_one_step(fl)
    await fl.tick()

    await fl.cancel(job.id)

    [run] = await fl.database.transact(lambda tx: workflows.list_runs(tx, TESTER))
    assert run.status is RunStatus.CANCELED
    assert await fl.claim() == []


async def test_a_run_that_ends_before_its_job_has_given_itself_back_wakes_it(fl: Fairlead) -> None:
    flow = fl.workflow("w")
    flow.step("a", ANY, when={"input.no": 1})  # so it is over as soon as it is started
    await published(fl)
    job = await fl.enqueue("ENGINE_RUN", tenant=TENANT, payload={"workflow": "w"})

    await fl.tick()
    await fl.tick()

    assert (await job.result(1))["output"] == {}


@pytest.mark.parametrize(
    ("payload", "words"),
    [({"workflow": "none"}, "no workflow 'none'"), ({"workflow": "w", "input": {}}, "does not fit w")],
)
async def test_a_job_whose_workflow_cannot_be_started_fails_for_good(
    fl: Fairlead, payload: Any, words: str
) -> None:
    fl.workflow("w", input_schema={"type": "object", "required": ["x"]}).step("a", ANY)
    await published(fl)
    job = await fl.enqueue("ENGINE_RUN", tenant=TENANT, payload=payload)

    await fl.tick()

    assert (await job.read()).status is JobStatus.FAILED
    assert words in str((await job.read()).last_error)


@pytest.mark.timeout(SECONDS)
async def test_a_stored_schema_that_would_never_end_fails_the_job_and_holds_up_no_worker(
    fl: Fairlead,
) -> None:
    """It was stored before schemas were bounded."""
    fl.workflow("w").step("a", ANY)
    await published(fl)
    parts = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    schema = {"$defs": {**parts, "d40": {"required": ["x"]}}, "$ref": "#/$defs/d0"}
    async with fl.database.transaction() as tx:
        await tx.run(
            "update fairlead.workflows set spec = jsonb_set(spec, '{input_schema}', %(schema)s::jsonb)",
            {"schema": json.dumps(schema)},
        )
    job = await fl.enqueue("ENGINE_RUN", tenant=TENANT, payload={"workflow": "w", "input": {}})

    await fl.tick()

    assert (await job.read()).status is JobStatus.FAILED
    assert "may take too long to check" in str((await job.read()).last_error)


async def test_a_chain_hands_on_what_each_one_made(fl: Fairlead) -> None:
    run = await fl.chain(
        ANY, (ANY, {"got": "{{previous.output.n}}"}), (ANY, {"got": "{{previous.output}}"}), tenant=TENANT
    )
    seen = []
    for n in range(3):
        [lease] = await fl.claim(10)
        seen.append(lease.payload)
        await lease.succeed({"n": n})

    assert seen == [{}, {"got": 0}, {"got": {"n": 1}}]
    assert await run.result(1) == {"anything_3": {"n": 2}}


async def test_sub_tasks_are_joined_once_and_begun_once_though_their_job_runs_again(fl: Fairlead) -> None:
    @fl.job(max_attempts=1)
    async def parent(ctx: Context) -> str:
        run = await ctx.fan_out(
            ANY, [{"n": n} for n in range(3)], join="collect", payload={"outs": "{{steps.tasks.output}}"}
        )
        return str(run.id)

    @fl.job
    def collect(ctx: Context, outs: list[int]) -> int:
        ctx.start("more", input={"sum": sum(outs)})  # from a thread too
        return sum(outs)

    fl.workflow("more").step("a", ANY, {"sum": "{{input.sum}}"})
    await published(fl)
    first = await parent.enqueue(tenant=TENANT)
    await fl.tick()
    run_id = await first.result(1)
    for lease in await fl.claim(10, definitions=[ANY]):
        await lease.succeed(lease.payload["n"])

    await fl.tick()

    assert (await fl.read_run(run_id)).run.output == {"join": 3}
    [more] = await fl.claim(10, definitions=[ANY])
    assert more.payload == {"sum": 3}
    await more.succeed()
    assert await given.count(fl, "workflow_runs") == 2


def test_the_synchronous_face_runs_them_too(settings: Settings) -> None:
    with sync.Fairlead(settings=settings) as fl:
        flow = fl.workflow("w")
        flow.step("a", ANY)
        run = fl.start("w", tenant=TENANT)
        with fl.claim()[0]:
            pass
        assert run.result(5) == {"a": None}
        chain = fl.chain(ANY, tenant=TENANT)
        assert chain.cancel().status is RunStatus.CANCELED
        assert chain.retry().status is RunStatus.RUNNING
        fanned = fl.fan_out(ANY, [], tenant=TENANT)
        assert fanned.read().run.status is RunStatus.SUCCEEDED
