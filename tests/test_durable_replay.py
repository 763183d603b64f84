"""Histories of durable functions, and new code that is compared with them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead import Context, Fairlead, JobStatus, Nondeterministic, Settings, testing
from fairlead.errors import InvalidInput
from fairlead.testing import replay
from tests.cli.test_commands import Shell
from tests.given import TENANT


@pytest.fixture
async def fl(settings: Settings) -> AsyncIterator[Fairlead]:
    """A Fairlead with a durable function, open."""
    fl = Fairlead(settings=settings, actor="tester")

    @fl.job(durable=True)
    async def order(ctx: Context, amount: int) -> dict[str, Any]:
        charge = await ctx.step("charge", lambda: {"id": amount})
        await ctx.sleep(days=3)
        both = await ctx.gather(_branch(ctx, "left"), _branch(ctx, "right"))
        signal = await ctx.wait_for_signal("packed")
        return {"charge": charge["id"], "both": both, "parcels": signal.data, "luck": ctx.random()}

    @fl.job(durable=True, max_attempts=1)
    def broken(ctx: Context) -> None:
        ctx.step("first", lambda: 1)
        raise LookupError("not there")

    await fl.open()
    yield fl
    await fl.close()


async def _branch(ctx: Context, name: str) -> int:
    return int(await ctx.step(name, lambda: len(name)))


def never() -> None:
    raise AssertionError("a replay ran a step")


async def changed(
    ctx: Context, amount: int, *, steps: Callable[[Context], Any] | None = None
) -> dict[str, Any]:
    """The same calls in other code; `steps` are new ones at the end."""
    charge = await ctx.step("charge", never)
    await ctx.sleep(days=30)
    both = await ctx.gather(_branch(ctx, "left"), _branch(ctx, "right"))
    signal = await ctx.wait_for_signal("packed", timeout=5)
    if steps is not None:
        await steps(ctx)
    return {"charge": charge["id"], "both": both, "parcels": signal.data, "luck": ctx.random()}


async def recorded(fl: Fairlead, *, signaled: bool) -> str:
    job = await fl.enqueue("order", tenant=TENANT, payload={"amount": 7})
    await fl.tick()
    await testing.pass_time(fl, days=3)
    await fl.tick()
    if signaled:
        await fl.signal(job.id, "packed", 2)
        await fl.tick()
    return str(job.id)


async def test_code_with_the_same_calls_replays_to_the_same_output(
    fl: Fairlead, database_url: str, tmp_path: Path
) -> None:
    job_id = await recorded(fl, signaled=True)
    done = await fl.read(job_id)
    assert done.status is JobStatus.SUCCEEDED

    shell = Shell(database_url)
    document = (await asyncio.to_thread(shell, "jobs", "history", job_id, "--json")).stdout
    file = tmp_path / "order.json"
    file.write_text(document)
    for history in (document, file, json.loads(document), await fl.history(job_id)):
        found = replay(changed, history)
        assert (found.ended, found.output, found.goes_on_with) == (True, done.output, ())
    assert replay(fl.functions["order"], file).output == done.output
    assert "charge" in (await asyncio.to_thread(shell, "jobs", "history", job_id)).output


async def test_a_waiting_job_goes_on_where_its_records_end(fl: Fairlead) -> None:
    history = await fl.history(await recorded(fl, signaled=False))
    found = replay(changed, history)
    assert (found.ended, found.goes_on_with) == (False, ("signal 'packed'",))

    first = await fl.enqueue("order", tenant=TENANT, payload={"amount": 1})
    assert replay(changed, await fl.history(first.id)).goes_on_with == ("step 'charge'",)


async def test_the_first_difference_is_named(fl: Fairlead) -> None:
    async def renamed(ctx: Context, amount: int) -> None:
        await ctx.step("charge", never)
        await ctx.wait_for_event("paid")

    async def shorter(ctx: Context, amount: int) -> None:
        await ctx.step("charge", never)

    async def other_branch(ctx: Context, amount: int) -> None:
        await ctx.step("charge", never)
        await ctx.sleep(1)
        await ctx.gather(_branch(ctx, "left"), _branch(ctx, "wrong"))

    async def longer(ctx: Context, amount: int) -> dict[str, Any]:
        return await changed(ctx, amount, steps=lambda ctx: ctx.step("mail", never))

    async def versioned(ctx: Context, amount: int) -> dict[str, Any]:
        return await changed(ctx, amount, steps=lambda ctx: ctx.version("v2"))

    history = await fl.history(await recorded(fl, signaled=True))
    for function, message in (
        (renamed, "call 2 was sleep 'sleep', and now it is event 'paid'"),
        (shorter, "the function returned before call 2, sleep 'sleep'"),
        (other_branch, "call 1 of branch /2.0.1 was step 'right', and now it is step 'wrong'"),
        (longer, "the job succeeded without call 4, step 'mail'"),
    ):
        with pytest.raises(Nondeterministic, match=message):
            replay(function, history)
    assert replay(versioned, history).ended


async def test_an_exception_is_expected_only_where_the_job_had_it(fl: Fairlead) -> None:
    job = await fl.enqueue("broken", tenant=TENANT)
    await fl.tick()
    history = await fl.history(job.id)
    assert isinstance(replay(fl.functions["broken"], history).error, LookupError)

    async def worse(ctx: Context) -> None:
        await ctx.step("first", never)
        raise KeyError("a new fault")

    with pytest.raises(KeyError):
        replay(worse, history)


def test_what_is_no_history_is_refused() -> None:
    for document in ("{", "{}", b"[]", {"job": 1}, {"format": "other"}):
        with pytest.raises(InvalidInput, match="fairlead jobs history JOB_ID --json"):
            replay(changed, document)
