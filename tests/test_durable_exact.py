"""A call of a durable function returns the same value in the attempt that records it as in every later one."""

import asyncio
import struct
from dataclasses import dataclass
from typing import Any

import pytest

from fairlead import Backoff, Context, Fairlead, JobStatus, Retry, StepFailed, testing
from fairlead.errors import PayloadTooLarge
from tests import given
from tests.given import TENANT
from tests.test_durable import steps_of
from tests.working import reopen, run, start

NOW = Backoff(0, 1, 0, 0)
# What jsonb stores in another form: the order of names, floats that are whole numbers, and negative zero.
ODD = {
    "zebra": 1,
    "ab": 1e22,
    "mid": [1e300, -0.0, 10**30, 5e-324, 1.0, 0.1],
    "a": {"y": None, "x": True},
    "ü\u2028": 'ö\\"\u0001',
}


def describe(value: Any) -> Any:
    """A value as JSON that shows its order and its types."""
    if isinstance(value, dict):
        return [[name, describe(part)] for name, part in value.items()]
    if isinstance(value, list):
        return [describe(part) for part in value]
    if isinstance(value, float):
        return f"float {struct.pack('!d', value).hex()}"
    return f"{type(value).__name__} {value!r}"


@dataclass
class Point:
    x: float
    names: dict[str, int]


def load() -> dict[str, Any]:
    return dict(ODD)


def load_tuple() -> tuple[int, ...]:
    return (1, 2)


def load_anything() -> Any:
    return {"pair": (1, 2), "z": 1, "a": 2}


def load_point() -> Point:
    return Point(1e22, {"zebra": 1, "ab": 2})


async def test_each_attempt_gets_the_same_values_in_the_same_order(fl: Fairlead) -> None:
    seen: list[Any] = []

    @fl.job(durable=True, max_attempts=3, backoff=NOW)
    async def flow(ctx: Context) -> None:
        plain = await ctx.step("plain", load)
        secret = await ctx.step("secret", load, secret=True)
        both = await ctx.gather(ctx.step("left", load), ctx.step("right", load_anything))
        point = await ctx.step("point", load_point)
        pair = await ctx.step("pair", load_tuple)
        for name in plain:
            await ctx.step(f"do {name[0]}", load_anything)
        seen.append([describe([plain, secret, *both]), repr(point), pair])
        if ctx.attempt_no < 3:
            raise ValueError("again")

    done = await run(fl, flow)

    assert done.status is JobStatus.SUCCEEDED
    assert seen[0] == seen[1] == seen[2]
    assert seen[0][0][0] == describe(ODD)
    assert seen[0][1:] == [repr(load_point()), (1, 2)]


async def test_a_function_in_a_thread_and_a_replay_of_its_history_get_the_same_values(fl: Fairlead) -> None:
    seen: list[Any] = []

    @fl.job(durable=True, max_attempts=2, backoff=NOW)
    def flow(ctx: Context) -> Any:
        odd = ctx.step("odd", load)
        moment = ctx.now()
        seen.append([describe(odd), moment, ctx.random()])
        ctx.step("last", load_anything)
        if ctx.attempt_no < 2:
            raise ValueError("again")

    job = await start(fl, flow)
    await testing.run_due(fl, until_idle=True)
    again = await fl.replay(job.id, from_step="last")
    await testing.run_due(fl, until_idle=True)
    assert (await fl.read(again.id)).status is JobStatus.SUCCEEDED
    history = await fl.history(job.id)
    testing.replay(flow, history)

    # two attempts of the job, two of its replay, and the replay of its history
    assert len(seen) == 5
    assert seen == seen[:1] * 5


async def test_what_ends_a_wait_is_the_same_in_every_attempt(fl: Fairlead) -> None:
    seen: list[Any] = []

    @fl.job
    async def child() -> Any:
        return ODD

    @fl.job(durable=True, max_attempts=2, backoff=NOW)
    async def flow(ctx: Context) -> None:
        output = await ctx.call(child)
        event = await ctx.wait_for_event("odd")
        signal = await ctx.wait_for_signal("odd")
        seen.append([describe(output), describe(event.data), describe(signal.data), event, signal])
        await ctx.step("last", load_anything)
        if ctx.attempt_no > 0 and len(seen) < 3:
            raise ValueError("again")

    job = await start(fl, flow)
    await fl.emit("odd", data=ODD, tenant=TENANT)
    await fl.signal(job.id, "odd", ODD)
    await testing.run_due(fl, until_idle=True)

    assert len(seen) >= 2
    assert seen == seen[:1] * len(seen)


@dataclass
class Account:
    number: int

    def __post_init__(self) -> None:
        raise RuntimeError("no connection")


async def test_a_recorded_step_whose_result_cannot_be_converted_does_not_run_again(fl: Fairlead) -> None:
    ran: list[int] = []

    async def create() -> Account:
        ran.append(1)
        account = object.__new__(Account)
        account.number = 7
        return account

    def create_in_thread() -> Account:
        return asyncio.run(create())

    @fl.job(durable=True, max_attempts=3, backoff=NOW)
    async def on_the_loop(ctx: Context) -> None:
        await ctx.step("create", create, retry=Retry(3, NOW))

    @fl.job(durable=True, max_attempts=3, backoff=NOW)
    def in_a_thread(ctx: Context) -> None:
        ctx.step("create", create_in_thread, retry=Retry(3, NOW))

    await reopen(fl)
    for function in (on_the_loop, in_a_thread):
        ran.clear()
        job = await function.enqueue(tenant=TENANT)
        await testing.run_due(fl, until_idle=True)
        await fl.retry(job.id)
        await testing.run_due(fl, until_idle=True)

        failed = await job.read()
        assert (failed.status, len(ran)) == (JobStatus.FAILED, 1)
        assert "ResultInvalid: Step 'create' has succeeded" in (failed.last_error or "")
        assert "Account cannot be made of it: RuntimeError: no connection" in (failed.last_error or "")
        assert [one[-1] for one in await steps_of(fl, job)] == ["succeeded"]


@pytest.mark.thorough
async def test_a_result_that_cannot_be_stored_fails_its_step_for_good_in_every_attempt(fl: Fairlead) -> None:
    ran: list[int] = []
    seen: list[str] = []

    def load_much() -> str:
        ran.append(1)
        return "x" * 1_048_577

    @fl.job(durable=True, max_attempts=2, backoff=NOW)
    async def flow(ctx: Context) -> None:
        try:
            await ctx.step("much", load_much, retry=Retry(3, NOW))
        except StepFailed as error:
            seen.append(f"{error.type} {error.retryable} {error.message}")
        await ctx.step("after", load_anything)
        if ctx.attempt_no == 1:
            raise ValueError("again")

    done = await run(fl, flow)

    assert (done.status, len(ran)) == (JobStatus.SUCCEEDED, 1)
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert seen[0].startswith(
        "OutputInvalid False Step 'much': The output cannot be stored as JSON: larger than"
    )


async def test_a_call_whose_payload_is_too_large_is_refused_before_it_has_effects(fl: Fairlead) -> None:
    @fl.job
    async def child(text: str) -> str:
        return text

    @fl.job(durable=True)
    async def flow(ctx: Context) -> str:
        try:
            await ctx.call(child, {"text": "x" * 300_000})
        except PayloadTooLarge as error:
            return error.code
        return "called"

    job = await start(fl, flow)
    await testing.run_due(fl, until_idle=True)

    assert (await job.read()).output == "payload_too_large"
    assert await steps_of(fl, job) == []
    assert [one.id for one in await given.all_jobs(fl)] == [job.id]
