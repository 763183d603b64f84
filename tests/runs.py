"""Runs of workflows to begin a test with, and what tests do with their steps."""

from collections.abc import Awaitable, Callable
from typing import Any

from fairlead import EnqueuedJob, Fairlead, Flow, JobLease, WorkflowRun
from fairlead.actions import workflow_progress
from fairlead.db.tx import Tx
from fairlead.model.workflow.run import RunStep
from fairlead.store import rescue
from tests.given import TENANT

ANY = "anything"
Act = Callable[[JobLease], Awaitable[object]]


def diamond(**options: Any) -> Flow:
    """One, then two beside each other, then one."""
    flow = Flow("diamond")
    first = flow.step("first", ANY, {"n": "{{input.n}}"})
    left = flow.step("left", ANY, {"n": "{{steps.first.output.n}}"}, after=[first], **options)
    right = flow.step("right", ANY, after=[first])
    flow.step("last", ANY, {"l": "{{steps.left.output | default: null}}"}, after=[left, right])
    return flow


async def begun(fl: Fairlead, flow: Flow, **options: Any) -> WorkflowRun:
    return await fl.run_inline(flow, tenant=TENANT, **{"input": {"n": 1}, **options})


async def published(fl: Fairlead) -> None:
    """What was written after it was opened is known."""
    await fl.close()
    await fl.open()


async def claimed(fl: Fairlead, most: int = 100) -> dict[str, JobLease]:
    """What can be run now, by the names of steps."""
    found = await fl.claim(most)
    return {str((await fl.read(lease.job_id)).source_ref): lease for lease in found}


async def succeeded(fl: Fairlead) -> None:
    """Everything runs, and gives back its payload, until there is nothing left to run."""
    while leases_ := await fl.claim(100):
        for lease in leases_:
            await lease.succeed(lease.payload)


async def states(run: WorkflowRun) -> dict[str, str]:
    return {step.name: str(step.state) for step in (await run.read()).steps}


async def step_of(run: WorkflowRun, name: str) -> RunStep:
    return next(step for step in (await run.read()).steps if step.name == name)


def success_of(lease: JobLease) -> Any:
    from fairlead.model.outcome import Succeeded, decide  # noqa: PLC0415

    return decide(lease._job, Succeeded({"n": 1}))


async def end_all(fl: Fairlead) -> None:
    """What still runs in the names of earlier claims is given up."""

    async def expire(tx: Tx) -> None:
        await tx.run("update fairlead.leases set expires_at = clock_timestamp() - interval '1 ms'")
        await workflow_progress.settle_jobs(tx, await rescue.rescue(tx))

    await fl.database.transact(expire)


async def job_of_one_step(fl: Fairlead) -> EnqueuedJob:
    """A job that runs a workflow with the one step a."""
    fl.workflow("w").step("a", ANY)
    await published(fl)
    return await fl.enqueue("ENGINE_RUN", tenant=TENANT, payload={"workflow": "w"})


async def ends_with_its_step(fl: Fairlead, job: EnqueuedJob) -> bool:
    """Whether the success of the step a is that of the job."""
    await (await claimed(fl))["a"].succeed("yes")
    await fl.tick()
    return bool((await job.result(1))["output"] == {"a": "yes"})
