"""The job functions of a run: each records the start and the end of its attempts, and does what its payload says."""

import asyncio
import os
import signal
import time
from typing import Annotated, Any

import msgspec

from fairlead.chaos import scenario
from fairlead.chaos.faults.fail_points import block_loop, install_fail_point
from fairlead.chaos.history import BatchRecord, SecretRecord, now
from fairlead.chaos.load.attempt_records import list_options, open_history, record_attempt
from fairlead.chaos.load.commits import commit_attempt
from fairlead.chaos.load.durable_function import FunctionPlan, run_function
from fairlead.chaos.load.secret_values import parse_secret
from fairlead.handlers.batch_job import BatchJob
from fairlead.handlers.context import Context, Fatal, Snooze
from fairlead.library.app import Fairlead
from fairlead.model.secrets.redact import Secret

SNOOZE_SECONDS = 0.2
LONGEST_SECONDS = 6.0
# How often a function in a thread looks whether it should stop.
LOOK_SECONDS = 0.05
# Attempts that run at least so long report progress.
REPORTED_SECONDS = 0.2
LINE = "a line of output, as any function logs it: " + "0123456789" * 5

# Served by workers with a database, and by workers over HTTP.
fl = Fairlead(name="fairlead-chaos")
http_fl = Fairlead(name="fairlead-chaos-http")
install_fail_point()


class WorkPlan(msgspec.Struct, frozen=True):
    """The payload of a job: what its attempts do. The first `snooze` attempts snooze, the next `fail` ones fail.

    Each costs `cost` cents.
    """

    call: str = ""
    n: int = 0
    seconds: float = 0.0
    fail: int = 0
    snooze: int = 0
    text: int = 0
    cost: int = 0
    # the number of the edit that the payload is of
    edit: int | None = None
    # of a join: the outputs of the steps before it
    outs: list[int] = []

    @property
    def sum(self) -> int:
        """The output of a step of a workflow: its number, or the sum of the outputs before it."""
        return sum(self.outs) if self.outs else self.n

    def finish(self, attempt_no: int) -> dict[str, int]:
        """End an attempt as planned. The output tells which attempt has written it."""
        if attempt_no <= self.snooze:
            raise Snooze(SNOOZE_SECONDS)
        if attempt_no <= self.snooze + self.fail:
            raise RuntimeError(f"attempt {attempt_no} fails as planned")
        return {"attempt": attempt_no, **({} if self.edit is None else {"edit": self.edit})}


async def _work(ctx: Context, plan: WorkPlan) -> dict[str, int]:
    """An attempt on the event loop."""
    with record_attempt(ctx):
        _report(ctx, plan)
        ctx.add_cost(plan.cost)
        block_loop()
        if plan.seconds:
            await asyncio.sleep(plan.seconds)
        if ctx.attempt_no == 1:
            # if its worker was stopped meanwhile, another attempt runs, and nothing of this may be accepted
            _tell_attempt(ctx, plan)
        return plan.finish(ctx.attempt_no)


def _work_in_thread(ctx: Context, plan: WorkPlan, *, in_worker: bool = True) -> dict[str, int]:
    """An attempt in a thread, which looks itself whether it should stop."""
    with record_attempt(ctx, in_worker=in_worker):
        _report(ctx, plan)
        ends_at = now() + plan.seconds
        while (left := ends_at - now()) > 0:
            ctx.check_canceled()
            time.sleep(min(left, LOOK_SECONDS))
        return plan.finish(ctx.attempt_no)


def _report(ctx: Context, plan: WorkPlan) -> None:
    """Report progress and log lines that tell which attempt has written them."""
    _tell_attempt(ctx, plan)
    for _ in range(plan.text // len(LINE)):
        ctx.log.info(LINE)


def _tell_attempt(ctx: Context, plan: WorkPlan) -> None:
    if plan.seconds >= REPORTED_SECONDS:
        ctx.progress(50, f"attempt {ctx.attempt_no}")
        ctx.log.info("running", attempt=ctx.attempt_no)


def _plan(payload: dict[str, Any]) -> WorkPlan:
    return msgspec.convert(payload, WorkPlan)


@fl.job(**list_options(scenario.QUICK))
async def quick(ctx: Context, **payload: Any) -> dict[str, int]:
    return await _work(ctx, _plan(payload))


@fl.job(**list_options(scenario.SLOW))
async def slow(ctx: Context, **payload: Any) -> dict[str, int]:
    return await _work(ctx, _plan(payload))


@fl.job(**list_options(scenario.NARROW))
def narrow(ctx: Context, **payload: Any) -> dict[str, int]:
    return _work_in_thread(ctx, _plan(payload))


@fl.job(**list_options(scenario.FLAKY))
async def flaky(ctx: Context, **payload: Any) -> dict[str, int]:
    return await _work(ctx, _plan(payload))


@fl.job(**list_options(scenario.ISOLATED), isolate=True)
def run_isolated(ctx: Context, **payload: Any) -> dict[str, int]:
    return _work_in_thread(ctx, _plan(payload), in_worker=False)


@fl.job(**list_options(scenario.FATAL))
async def fatal(ctx: Context, **payload: Any) -> None:
    with record_attempt(ctx):
        raise Fatal(f"the job {_plan(payload).n} cannot succeed")


@fl.job(**list_options(scenario.POISON))
async def poison(ctx: Context, **_payload: Any) -> None:
    """Kills its worker at each attempt."""
    with record_attempt(ctx):
        os.kill(os.getpid(), signal.SIGKILL)


@fl.job(**list_options(scenario.LONG))
async def long(ctx: Context, **payload: Any) -> dict[str, int]:
    """Runs until it is canceled, or for `LONGEST_SECONDS`."""
    plan = _plan(payload)
    with record_attempt(ctx):
        ctx.progress(50, f"attempt {ctx.attempt_no}")
        await asyncio.sleep(LONGEST_SECONDS)
        return plan.finish(ctx.attempt_no)


@fl.job(**list_options(scenario.STEP))
async def step(ctx: Context, **payload: Any) -> int:
    plan = _plan(payload)
    await _work(ctx, plan)
    return plan.sum


@fl.job(**list_options(scenario.JOIN))
async def join(ctx: Context, **payload: Any) -> int:
    plan = _plan(payload)
    await _work(ctx, plan)
    return plan.sum


@fl.job(**list_options(scenario.ON_EVENT))
async def on_event(ctx: Context, **payload: Any) -> dict[str, int]:
    return await _work(ctx, _plan(payload))


@fl.job(**list_options(scenario.ON_TIME))
def on_time(ctx: Context, **payload: Any) -> dict[str, int]:
    return _work_in_thread(ctx, _plan(payload))


@fl.job(**list_options(scenario.DURABLE), durable=True)
async def durable(ctx: Context, **payload: Any) -> dict[str, Any]:
    with record_attempt(ctx):
        return await run_function(
            ctx, msgspec.convert(payload, FunctionPlan), open_history(os.getpid()).write
        )


@fl.job(**list_options(scenario.COMMITTED))
async def commit(ctx: Context, **payload: Any) -> None:
    plan = _plan(payload)
    with record_attempt(ctx):
        output = plan.finish(ctx.attempt_no)
        await commit_attempt(
            ctx, plan.seconds, output if plan.n % 2 else None, open_history(os.getpid()).write
        )


@fl.job(**list_options(scenario.BATCHED), batch=scenario.BATCH_SIZE)
async def run_batch(jobs: list[BatchJob[dict[str, Any]]]) -> list[Any]:
    """Each job of a batch is an attempt of its own."""
    open_history(os.getpid()).write(BatchRecord(now(), [job.id for job in jobs]))
    works = (_work(job.ctx, _plan(job.payload)) for job in jobs)
    return await asyncio.gather(*works, return_exceptions=True)


@fl.job(**list_options(scenario.SECRET))
async def use_secret(ctx: Context, token: Annotated[str, Secret()], **payload: Any) -> dict[str, Any]:
    """Tells its secret wherever Fairlead masks it, and in the history only which one it was."""
    plan = _plan(payload)
    with record_attempt(ctx):
        record = SecretRecord(now(), ctx.job_id, ctx.attempt_no, *parse_secret(token))
        open_history(os.getpid()).write(record)
        ctx.log.info("used", secret=token)
        ctx.progress(50, f"attempt {ctx.attempt_no} uses {token}")
        await asyncio.sleep(plan.seconds)
        if ctx.attempt_no <= plan.fail:
            raise RuntimeError(f"{token} was refused, as planned")
        return {**plan.finish(ctx.attempt_no), "used": token}


for limited in (
    scenario.LINE,
    scenario.PAIRED,
    scenario.PACED,
    scenario.DROP_NEW,
    scenario.REPLACE_QUEUED,
    scenario.CANCEL_RUNNING,
    scenario.RATED,
    scenario.COSTLY,
    scenario.SETTLED,
    scenario.WIDE,
    scenario.LABELED,
):

    @fl.job(**list_options(limited))
    async def work_within_limits(ctx: Context, **payload: Any) -> dict[str, int]:
        return await _work(ctx, _plan(payload))


@http_fl.job(**list_options(scenario.HTTP))
async def over_http(ctx: Context, **payload: Any) -> dict[str, int]:
    return await _work(ctx, _plan(payload))
