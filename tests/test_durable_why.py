"""Why a durable function is not running: what it waits for, since when, until when."""

from datetime import timedelta
from typing import Annotated, Any

from fairlead import Backoff, Context, EnqueuedJob, Fairlead, Retry, Secret, testing
from fairlead.model.reason import Reason
from tests.given import TENANT
from tests.working import reopen, start

PIN = "pin-4711-secret"


async def reasons(fl: Fairlead, job: EnqueuedJob) -> list[Reason]:
    """Why the job does not run, besides that no worker is alive between two ticks."""
    return [one for one in (await fl.why(job.id)).reasons if one.code != "no_worker"]


async def test_each_wait_is_a_reason_with_its_times(fl: Fairlead) -> None:
    @fl.job(durable=True)
    async def visit(ctx: Context, email: str) -> None:
        await ctx.step("first", lambda: 1)
        await ctx.sleep(hours=2)
        await ctx.wait_for_event("user.confirmed", where={"email": email}, timeout=timedelta(days=7))
        await ctx.wait_for_signal("go")
        await ctx.wait_for_approval("spend", title="Spend 10 EUR?", timeout=timedelta(hours=3))

    job = await start(fl, visit, email="ada@example.com")
    await fl.tick()
    [asleep] = await reasons(fl, job)
    assert (asleep.code, asleep.facts["step"]) == ("sleeping", "2")
    assert asleep.facts["until"] - asleep.facts["since"] == timedelta(hours=2)
    assert 0 < asleep.facts["in_seconds"] <= 7200
    assert "another 2 h" in asleep.message

    await testing.pass_time(fl, hours=2)
    await fl.tick()
    # the sleep that is over is no reason any more
    [event] = await reasons(fl, job)
    assert (event.code, event.facts["name"], event.facts["step"]) == (
        "waiting_for_event",
        "user.confirmed",
        "3",
    )
    assert event.facts["where"] == {"email": "ada@example.com"}
    assert event.facts["until"] - event.facts["since"] == timedelta(days=7)
    assert 'for the event user.confirmed where {"email":"ada@example.com"}. Its timeout' in event.message

    await testing.pass_time(fl, days=7)
    await fl.tick()
    [signal] = await reasons(fl, job)
    assert (signal.code, signal.facts["name"], signal.facts["until"]) == ("waiting_for_signal", "go", None)
    assert signal.message.endswith("for the signal go. It has no timeout.")

    await fl.signal(job.id, "go")
    await fl.tick()
    [approval] = await reasons(fl, job)
    [asked] = (await fl.list_approvals(tenant=TENANT)).items
    assert (approval.code, approval.facts["approval_id"]) == ("waiting_for_approval", str(asked.id))
    assert approval.facts["title"] == "Spend 10 EUR?"
    await fl.reject(asked.id)
    # it has been woken: only a worker is missing
    assert "waiting_for_approval" not in [one.code for one in await reasons(fl, job)]


async def test_a_function_that_waits_for_its_children_names_them(fl: Fairlead) -> None:
    @fl.job
    async def child(n: int) -> int:
        return n

    @fl.job(durable=True)
    async def parent(ctx: Context) -> Any:
        return await ctx.gather(*[ctx.call(child, {"n": n}) for n in range(12)])

    await reopen(fl)
    await fl.pause(definition="child")
    job = await parent.enqueue(tenant=TENANT)
    await fl.tick()
    found = await reasons(fl, job)
    assert [one.code for one in found] == ["waiting_for_child"] * 10
    assert {one.facts["status"] for one in found} == {"queued"}
    assert found[0].facts["name"] == "child"
    assert str(found[0].facts["child_id"]) in found[0].message
    assert found[-1].facts["more"] == 2
    assert found[-1].message.endswith("Besides these 10 waits it has 2 more.")
    assert "more" not in found[0].facts


async def test_a_step_between_two_tries_is_a_reason_with_its_error(fl: Fairlead) -> None:
    def fail() -> None:
        raise ConnectionError("no route")

    @fl.job(durable=True)
    async def flow(ctx: Context) -> None:
        await ctx.step("send", fail, retry=Retry(3, Backoff(3600, 1, 3600, 0)))

    job = await start(fl, flow)
    await fl.tick()
    [pause] = await reasons(fl, job)
    assert (pause.code, pause.facts["tries"], pause.facts["last_error"]) == (
        "step_backing_off",
        1,
        "no route",
    )
    assert "Try 1 of step send failed" in pause.message
    assert pause.message.endswith("Last error: no route")


async def test_secrets_of_the_payload_are_masked_in_the_filter(fl: Fairlead) -> None:
    @fl.job(durable=True)
    async def flow(ctx: Context, pin: Annotated[str, Secret()]) -> None:
        await ctx.wait_for_event("typed", where={"pin": pin})

    job = await start(fl, flow, pin=PIN)
    await fl.tick()
    [event] = await reasons(fl, job)
    assert event.facts["where"] == {"pin": "[redacted]"}
    assert PIN not in event.message
