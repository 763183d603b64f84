"""The steps of durable functions, and signals to them, over HTTP: a tenant's own only, and without secrets."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest

from fairlead import Context, Fairlead, JobStatus, Secret
from tests.given import TENANT
from tests.server.world import World
from tests.test_durable_restart import FROM_PACKED, Stage

PIN = "pin-4711-secret"
TOKEN = "token-0815-secret"  # noqa: S105


@pytest.fixture
async def app(world: World) -> AsyncIterator[Fairlead]:
    """An application with a durable function, on the database of the server."""
    fl = Fairlead(settings=world.fl.settings, actor="tester")

    @fl.job(durable=True)
    async def talk(ctx: Context, pin: Annotated[str, Secret()] = PIN) -> Any:
        await ctx.step("hello", lambda: {"greeting": f"hello {pin}"})
        token = await ctx.step("sign in", lambda: TOKEN, secret=True)
        await ctx.gather(ctx.step("left", lambda: token), ctx.step(f"right {pin}", lambda: [1]))
        signal = await ctx.wait_for_signal("answer")
        return signal.data

    await fl.open()
    yield fl
    await fl.close()


async def start(app: Fairlead) -> str:
    job = await app.enqueue("talk", tenant=TENANT, payload={"pin": PIN})
    await app.tick()
    return str(job.id)


async def test_steps_are_listed_in_pages_without_secrets(world: World, app: Fairlead) -> None:
    job = await start(app)
    answer = await world.call("GET", f"/jobs/{job}/steps", who="viewer")
    assert answer.status_code == 200, answer.text
    assert PIN not in answer.text
    assert TOKEN not in answer.text
    items = answer.json()["items"]
    assert [(one["place"], one["kind"], one["name"], one["status"], one["result"]) for one in items] == [
        ("1", "step", "hello", "succeeded", {"greeting": "hello [redacted]"}),
        ("2", "step", "sign in", "succeeded", "[redacted]"),
        ("3", "step", "left", "succeeded", "[redacted]"),
        ("4", "step", "right [redacted]", "succeeded", [1]),
        ("5", "signal", "answer", "waiting", None),
    ]
    assert [one["secret"] for one in items] == [False, True, False, False, False]

    first = (await world.call("GET", f"/jobs/{job}/steps", params={"limit": 2})).json()
    assert (len(first["items"]), first["next_cursor"]) == (2, "2")
    rest = await world.call("GET", f"/jobs/{job}/steps", params={"cursor": first["next_cursor"]})
    assert [one["place"] for one in rest.json()["items"]] == ["3", "4", "5"]
    assert rest.json()["next_cursor"] is None


async def test_a_signal_ends_the_wait_once_for_each_key(world: World, app: Fairlead) -> None:
    job = await start(app)
    again = {"Idempotency-Key": "the same"}
    path = f"/jobs/{job}/signals/answer"
    sent = await world.call("POST", path, json={"data": {"n": 1}}, headers=again)
    assert sent.status_code == 202, sent.text
    assert (await world.call("POST", path, json={"data": {"n": 1}}, headers=again)).json() == sent.json()
    await app.tick()
    done = await app.read(job)
    assert (done.status, done.output) == (JobStatus.SUCCEEDED, {"n": 1})
    audited = await world.call("GET", "/audit", who="tenant_admin", params={"action": "JOB_SIGNALED"})
    assert len(audited.json()["items"]) == 1

    assert await world.refusal("POST", path) == (409, "job_not_signalable")


async def test_bad_requests_are_refused_with_a_code(world: World, app: Fairlead) -> None:
    job = await start(app)
    for name in ("x" * 201, "%00"):
        answer = await world.call("POST", f"/jobs/{job}/signals/{name}")
        assert answer.status_code == 422, (name, answer.text)
    for cursor in ("0", "x", "/1.0:2", "1" * 10, "/1.0.0:0"):
        answer = await world.call("GET", f"/jobs/{job}/steps", params={"cursor": cursor})
        assert answer.status_code == 422, (cursor, answer.text)


async def test_a_retry_from_a_step_over_http_is_audited(world: World) -> None:
    stage = Stage(world.fl.settings)
    async with stage.fl:
        job_id = await stage.start()
        path = f"/jobs/{job_id}/retry"
        assert await world.refusal("POST", path, json={"from_step": "nothing"}) == (422, "step_unknown")
        done = await world.call("POST", path, json={"from_step": "packed"})
        assert (done.status_code, done.json()["status"]) == (200, "queued"), done.text
        await stage.run(job_id)
        assert stage.ran == FROM_PACKED
    audited = await world.call("GET", "/audit", who="tenant_admin", params={"action": "JOB_RETRIED"})
    [row] = audited.json()["items"]
    assert row["details"]["from_step"] == {"place": "2", "name": "packed"}


async def test_a_replay_over_http_is_a_new_job_once_for_each_key(world: World) -> None:
    stage = Stage(world.fl.settings)
    async with stage.fl:
        job_id = await stage.start()
        path = f"/jobs/{job_id}/replay"
        refused = await world.call("POST", path, json={"from_step": "nothing"})
        assert (refused.status_code, refused.json()["code"]) == (422, "step_unknown"), refused.text
        again = {"Idempotency-Key": "the same"}
        made = await world.call("POST", path, json={"from_step": "packed"}, headers=again)
        assert (made.status_code, made.json()["status"]) == (201, "queued"), made.text
        repeated = await world.call("POST", path, json={"from_step": "packed"}, headers=again)
        assert repeated.json() == made.json()
        assert await world.refusal("POST", f"/jobs/{made.json()['id']}/replay") == (409, "job_not_replayable")
        await stage.run(made.json()["id"])
        assert stage.ran == FROM_PACKED
    audited = await world.call("GET", "/audit", who="tenant_admin", params={"action": "JOB_REPLAYED"})
    [row] = audited.json()["items"]
    assert row["resource_id"] == made.json()["id"]
    assert row["details"]["replay_of"] == job_id
    assert row["details"]["from_step"] == {"place": "2", "name": "packed"}
