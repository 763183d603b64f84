"""A durable function that runs again: retried from a step, or replayed as a new job beside the original."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any
from uuid import UUID

import pytest

from fairlead import Context, Fairlead, JobStatus, Secret, Settings, testing
from fairlead.actions.jobs import JobFilter
from fairlead.errors import JobNotReplayable, JobNotRetryable, JobUnknown, StepUnknown
from fairlead.handlers.context import StepFailed
from fairlead.model.durable import Place, comes_after
from fairlead.store import jobs
from tests import given
from tests.cli.test_commands import Shell
from tests.given import TENANT
from tests.tables import each_case
from tests.working import reopen, tick_until


class Stage:
    """An application whose function fails at its end until it may succeed, and what ran."""

    def __init__(self, settings: Settings) -> None:
        self.ran: list[str] = []
        self.fails = True
        self.fl = fl = Fairlead(settings=settings, actor="tester")

        def note(name: str) -> str:
            self.ran.append(name)
            return name

        @fl.job
        async def child(n: int) -> int:
            self.ran.append(f"child {n}")
            return n

        @fl.job(durable=True, max_attempts=1)
        async def order(ctx: Context) -> Any:
            async def branch(name: str) -> None:
                await ctx.step("begin", note, f"{name} begins")
                await ctx.step(f"end {name}", note, f"{name} ends")

            await ctx.step("charge", note, "charge")
            await ctx.gather(branch("left"), branch("right"))
            signal = await ctx.wait_for_signal("packed")
            called = await ctx.call(child, {"n": 1})
            await ctx.step("mail", note, "mail")
            if self.fails:
                raise ValueError("broken")
            return [signal.data, called]

    async def start(self) -> str:
        """The id of a job that has failed."""
        self.fails = True
        job = await self.fl.enqueue("order", tenant=TENANT)
        await self.fl.signal(job.id, "packed", 3)
        await self.run(str(job.id), JobStatus.DEAD_LETTER)
        self.ran.clear()
        self.fails = False
        return str(job.id)

    async def run(self, job_id: str, status: JobStatus = JobStatus.SUCCEEDED) -> Any:
        return await tick_until(self.fl, job_id, status)


@pytest.fixture
async def stage(settings: Settings) -> AsyncIterator[Stage]:
    stage = Stage(settings)
    await stage.fl.open()
    yield stage
    await given.no_inconsistencies(stage.fl.database)
    await stage.fl.close()


FROM_PACKED = ["child 1", "mail"]


@each_case(
    ("from_step", "ran"),
    [
        (None, []),
        ("mail", ["mail"]),
        ("packed", FROM_PACKED),
        (2, FROM_PACKED),
        ("2", FROM_PACKED),
        ("end left", ["left ends", *FROM_PACKED]),
        ("/1.0.1:1", ["right begins", "right ends", *FROM_PACKED]),
        ("charge", ["charge", "left begins", "right begins", "left ends", "right ends", *FROM_PACKED]),
    ],
)
async def test_a_step_and_what_came_after_it_run_again(stage: Stage, from_step: Any, ran: list[str]) -> None:
    job_id = await stage.start()
    await stage.fl.retry(job_id, from_step=from_step)
    # the signal is received again, and the child is a new one
    assert await stage.run(job_id) == [3, 1]
    assert sorted(stage.ran) == sorted(ran)


async def test_each_retry_from_a_step_calls_a_new_child(stage: Stage) -> None:
    job_id = await stage.start()
    stage.fails = True
    for _ in range(2):
        await stage.fl.retry(job_id, from_step="child")
        await stage.run(job_id, JobStatus.DEAD_LETTER)
    assert stage.ran == [*FROM_PACKED, *FROM_PACKED]
    assert [step.place for step in await stage.fl.steps(job_id)][:4] == ["1", "2", "3", "4"]


async def test_unknown_steps_are_refused_and_nothing_changes(stage: Stage, database_url: str) -> None:
    job_id = await stage.start()
    before = await stage.fl.steps(job_id)
    for wrong, message in (
        ("begin", "2 steps with the name 'begin': give the place of one instead, such as /1.0.0:1, /1.0.1:1"),
        ("nothing", "no step 'nothing'"),
        ("9", "no step '9'"),
        (0, "no step '0'"),
    ):
        with pytest.raises(StepUnknown, match=message):
            await stage.fl.retry(job_id, from_step=wrong)
    assert await stage.fl.steps(job_id) == before
    shell = Shell(database_url)
    assert await asyncio.to_thread(shell.refused, "jobs", "retry", "--from-step", "mail") == "invalid_input"
    await asyncio.to_thread(shell, "jobs", "retry", job_id, "--from-step", "mail")
    await stage.run(job_id)
    assert stage.ran == ["mail"]
    with pytest.raises(JobNotRetryable):
        await stage.fl.retry(job_id, from_step="mail")


@each_case(
    ("place", "start", "after"),
    [
        (("", 3), ("", 3), True),
        (("", 2), ("", 3), False),
        (("/3.0.0", 0), ("", 3), False),
        (("/4.0.0", 0), ("", 3), True),
        (("/3.0.0", 5), ("/3.0.0", 5), True),
        (("/3.0.0", 4), ("/3.0.0", 5), False),
        (("/3.0.1", 9), ("/3.0.0", 5), False),
        (("/3.1.1", 0), ("/3.0.0", 5), True),
        (("", 3), ("/3.0.0", 5), True),
        (("", 2), ("/3.0.0", 5), False),
        (("/3.0.0/6.0.1", 0), ("/3.0.0", 5), True),
        (("/3.0.0/5.0.1", 0), ("/3.0.0", 5), False),
        (("/10.0.0", 0), ("/9.0.0", 0), True),
    ],
)
def test_what_comes_after_a_call(place: tuple[str, int], start: tuple[str, int], after: bool) -> None:  # noqa: FBT001
    assert comes_after(Place(*place), Place(*start)) is after


# A replay of an ended job: a new job that begins with copies of the records before a step, beside the original


PIN = "pin-4711-which-is-long-enough-that-no-one-guesses-it"


BEGIN = ["charge", "left begins", "right begins", "left ends", "right ends"]


@pytest.mark.thorough
@each_case(
    ("from_step", "ran"),
    [
        ("mail", ["mail"]),
        ("child", FROM_PACKED),
        ("packed", FROM_PACKED),
        (2, FROM_PACKED),
        ("end left", ["left ends", *FROM_PACKED]),
        ("charge", [*BEGIN, *FROM_PACKED]),
        (None, [*BEGIN, *FROM_PACKED]),
    ],
)
async def test_a_replay_runs_a_step_and_what_came_after_it(
    stage: Stage, from_step: Any, ran: list[str]
) -> None:
    job_id = await stage.start()
    await stage.fl.retry(job_id)
    await stage.run(job_id)
    before = await stage.fl.read(job_id), await stage.fl.steps(job_id)
    made = await stage.fl.replay(job_id, from_step=from_step)
    assert (made.status, made.parent_id, made.attempt_count) == (JobStatus.QUEUED, UUID(job_id), 0)
    # the signal is received again if its wait was not copied
    assert await stage.run(str(made.id)) == [3, 1]
    assert sorted(stage.ran) == sorted(ran)
    assert (await stage.fl.read(job_id), await stage.fl.steps(job_id)) == before
    steps = await stage.fl.steps(made.id)
    assert [one.place for one in steps] == [one.place for one in before[1]]
    [called] = [one.child_id for one in steps if one.kind == "call"]
    [original] = [one.child_id for one in before[1] if one.kind == "call"]
    assert (called == original) is (from_step == "mail")


async def test_replays_can_be_retried_and_replayed_again(stage: Stage) -> None:
    job_id = await stage.start()
    stage.fails = True
    first = await stage.fl.replay(job_id, from_step="child")
    await stage.run(str(first.id), JobStatus.DEAD_LETTER)
    await stage.fl.retry(first.id, from_step="child")
    await stage.run(str(first.id), JobStatus.DEAD_LETTER)
    stage.fails = False
    second = await stage.fl.replay(first.id, from_step="child")
    assert await stage.run(str(second.id)) == [3, 1]
    assert stage.ran == FROM_PACKED * 3


async def test_what_cannot_be_replayed_is_refused_and_nothing_is_enqueued(
    stage: Stage, database_url: str
) -> None:
    job = await stage.fl.enqueue("order", tenant=TENANT)
    with pytest.raises(JobNotReplayable, match="is queued: only jobs that have ended"):
        await stage.fl.replay(job.id)
    await stage.fl.cancel(job.id)
    job_id = await stage.start()
    count = len((await stage.fl.list_jobs(JobFilter())).items)
    for wrong in ("begin", "nothing", "9", 0):
        with pytest.raises(StepUnknown):
            await stage.fl.replay(job_id, from_step=wrong)
    with pytest.raises(JobUnknown):
        await stage.fl.replay("01a1ec77-0f2a-7b48-a24f-c226afbe469a")
    assert len((await stage.fl.list_jobs(JobFilter())).items) == count
    shell = Shell(database_url)
    assert (
        await asyncio.to_thread(shell.refused, "jobs", "replay", job_id, "--from-step", "x") == "step_unknown"
    )
    made = await asyncio.to_thread(shell.json, "jobs", "replay", job_id, "--from-step", "mail")
    await stage.run(made["id"])
    assert stage.ran == ["mail"]


async def test_random_numbers_and_times_before_the_step_are_those_of_the_original(fl: Fairlead) -> None:
    @fl.job(durable=True)
    async def draw(ctx: Context) -> Any:
        first = ctx.random()
        moment = await ctx.now()
        kept = await ctx.step("keep", lambda: first)
        return [first, moment.isoformat(), kept, ctx.random()]

    await reopen(fl)
    job = await fl.enqueue("draw", tenant=TENANT)
    drawn = await tick_until(fl, job.id)
    assert drawn[0] == drawn[2]
    first = await fl.replay(job.id, from_step="keep")
    assert await tick_until(fl, first.id) == drawn
    second = await fl.replay(first.id)
    again = await tick_until(fl, second.id)
    assert [again[0], again[2], again[3]] == [drawn[0], drawn[2], drawn[3]]
    # the history of a replay has its numbers, too
    replayed = await asyncio.to_thread(testing.replay, draw, await fl.history(first.id))
    assert replayed.output == drawn


async def test_failures_and_sleeps_before_the_step_are_kept_and_open_ones_begin_anew(fl: Fairlead) -> None:
    ran: list[str] = []
    broken = True

    def note(name: str) -> str:
        ran.append(name)
        if name == "fails" or (name == "unsure" and broken):
            raise ValueError(name)
        return name

    @fl.job(durable=True, max_attempts=1)
    async def try_all(ctx: Context) -> Any:
        try:
            await ctx.step("caught", note, "fails")
        except StepFailed:
            await ctx.sleep(0)
        await ctx.gather(ctx.step("unsure", note, "unsure"), ctx.step("sure", note, "sure"))
        return await ctx.step("last", note, "last")

    await reopen(fl)
    job = await fl.enqueue("try_all", tenant=TENANT)
    await tick_until(fl, job.id, JobStatus.DEAD_LETTER)
    assert ran == ["fails", "unsure", "sure"]
    broken = False
    made = await fl.replay(job.id, from_step="sure")
    assert await tick_until(fl, made.id) == "last"
    assert ran == ["fails", "unsure", "sure", "unsure", "sure", "last"]


async def test_events_since_the_original_was_enqueued_count_for_a_replay(fl: Fairlead) -> None:
    @fl.job(durable=True)
    async def listen(ctx: Context) -> Any:
        first = await ctx.wait_for_event("paid")
        await ctx.step("between", lambda: 1)
        second = await ctx.wait_for_event("paid")
        return [first.data["n"], second.data["n"]]

    await reopen(fl)
    job = await fl.enqueue("listen", tenant=TENANT)
    await fl.tick()
    for n in (1, 2):
        await fl.emit("paid", data={"n": n}, tenant=TENANT)
        await testing.dispatch_events(fl)
        await fl.tick()
    assert await tick_until(fl, job.id) == [1, 2]
    made = await fl.replay(job.id, from_step="between")
    # the copied wait has received the first event already
    assert await tick_until(fl, made.id) == [1, 2]


async def test_secrets_are_copied_and_stay_hidden(fl: Fairlead) -> None:
    @fl.job(durable=True)
    async def sign_in(ctx: Context, pin: Annotated[str, Secret()]) -> Any:
        await ctx.step("hello", lambda: f"hello {pin}")
        token = await ctx.step("token", lambda: "token-0815-secret", secret=True)
        return await ctx.step("compare", lambda: [pin == PIN, token == "token-0815-secret"])  # noqa: S105

    await reopen(fl)
    job = await fl.enqueue(
        "sign_in", tenant=TENANT, payload={"pin": PIN}, tags=[f"of {PIN}"], correlation_id=f"for {PIN}"
    )
    await tick_until(fl, job.id)
    original = await fl.read(job.id)
    made = await fl.replay(job.id, from_step="compare")
    assert await tick_until(fl, made.id) == [True, True]
    done = await fl.read(made.id)
    shown = f"{done} {list(await fl.steps(made.id))} {made}"
    assert PIN not in shown
    assert "token-0815" not in shown
    assert (done.payload, done.tags, done.correlation_id) == (
        original.payload,
        original.tags,
        original.correlation_id,
    )


async def test_secret_paths_of_the_job_alone_are_copied(fl: Fairlead) -> None:
    @fl.job
    async def plain(pin: str) -> str:
        return f"got {pin}"

    await reopen(fl)
    job = await fl.enqueue("plain", tenant=TENANT, payload={"pin": PIN})
    await fl.database.transact(lambda tx: jobs.add_secret_paths(tx, job.id, ["/pin"]))
    await tick_until(fl, job.id)
    made = await fl.replay(job.id)
    await tick_until(fl, made.id)
    done = await fl.read(made.id)
    assert (done.payload, done.output) == ({"pin": "[redacted]"}, "got [redacted]")
