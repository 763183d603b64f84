"""Recording the steps of durable functions while the database cannot be reached."""

from collections.abc import Sequence
from typing import Any

import pytest

from fairlead import Backoff, Context, Fairlead, JobStatus, Retry
from fairlead.db.tx import Tx
from fairlead.errors import DatabaseBusy, DatabaseUnreachable
from fairlead.runtime import durable_steps
from fairlead.store import durable
from tests.given import TENANT
from tests.working import start


@pytest.mark.parametrize("lost", [DatabaseUnreachable, DatabaseBusy])
async def test_a_step_whose_answer_was_lost_does_not_run_again_and_costs_no_attempt(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch, lost: type[Exception]
) -> None:
    ran: list[str] = []
    record, answers = durable.record_steps, [lost("the answer was lost")]

    async def record_and_lose(tx: Tx, steps: Sequence[bytes]) -> Any:
        done = await record(tx, steps)
        if answers:
            raise answers.pop()
        return done

    monkeypatch.setattr(durable, "record_steps", record_and_lose)

    @fl.job(durable=True, max_attempts=1)
    async def flow(ctx: Context) -> str:
        try:
            await ctx.step("one", ran.append, "one", retry=Retry(3, Backoff(0, 1, 0, 0)))
        except Exception:  # noqa: BLE001 - the function must not get it
            ran.append("caught")
        await ctx.step("two", ran.append, "two")
        return "done"

    job = await start(fl, flow)
    await fl.tick()
    await fl.tick()

    done = await job.read()
    assert (done.status, done.output, done.failure_count) == (JobStatus.SUCCEEDED, "done", 0)
    assert ran == ["one", "two"]


async def test_a_wait_that_could_not_be_recorded_costs_no_attempt(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, answers = durable.begin_wait, [DatabaseUnreachable("the answer was lost")]

    async def begin_and_lose(*args: Any) -> Any:
        done = await begin(*args)
        if answers:
            raise answers.pop()
        return done

    monkeypatch.setattr(durable, "begin_wait", begin_and_lose)

    @fl.job(durable=True, max_attempts=1)
    async def flow(ctx: Context) -> Any:
        event = await ctx.wait_for_event("paid")
        return event.data

    job = await start(fl, flow)
    await fl.emit("paid", data={"n": 1}, tenant=TENANT)
    await fl.tick()
    await fl.tick()

    done = await job.read()
    assert (done.status, done.output, done.failure_count) == (JobStatus.SUCCEEDED, {"n": 1}, 0)


async def test_results_that_do_not_fit_into_one_statement_are_written_in_several(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    record = durable.record_steps

    async def count(tx: Tx, steps: Sequence[bytes]) -> Any:
        sizes.append(len(steps))
        return await record(tx, steps)

    monkeypatch.setattr(durable, "record_steps", count)
    monkeypatch.setattr(durable_steps, "BATCH_BYTES", 3000)

    @fl.job(durable=True)
    async def flow(ctx: Context) -> int:
        async def make() -> str:
            return "x" * 1000

        return len(await ctx.gather(*(ctx.step(f"part {n}", make) for n in range(10))))

    job = await start(fl, flow)
    await fl.tick()

    assert (await job.read()).output == 10
    assert (sum(sizes), max(sizes)) == (10, 2)
