"""Results of durable steps that are or have secrets: sealed in the database, plain for the function."""

from typing import Annotated, Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from fairlead import Context, Fairlead, Secret, Settings
from fairlead.actions import approvals, encryption
from fairlead.model.job import JobStatus
from tests.databases import find_in_database
from tests.encrypted_app import VALUE, App, app, enable, key, own, reseal, rotate
from tests.given import TENANT, TESTER

pytestmark = pytest.mark.thorough

__all__ = ["app", "key", "own"]

STEP = "step-secret-4711-canary"
# what jsonb stores in another form
ISSUED = {"code": STEP, "amounts": [1e22, -0.0], "b": 1}


def build(settings: Settings) -> tuple[Fairlead, list[Any]]:
    """An application with a durable function that fails once after its steps, and what it got from them."""
    fl, seen = Fairlead(settings=settings), list[Any]()

    @fl.job(key="order", durable=True, max_attempts=3)
    async def order(ctx: Context, token: Annotated[str, Secret()], fails: int = 1) -> str:
        issued = await ctx.step("issue", lambda: dict(ISSUED), secret=True)
        copied = await ctx.step("copy", lambda: {"with": token})
        plain = await ctx.step("plain", lambda: {"amount": 3})
        seen.append((issued, copied, plain))
        if len(seen) <= fails:
            raise ValueError("once more")
        return "done"

    return fl, seen


EXPECTED = (ISSUED, {"with": VALUE}, {"amount": 3})


def read_results(url: str, job_id: UUID) -> dict[str, Any]:
    with psycopg.connect(url) as connection:
        return dict(
            connection.execute(
                "select name, result from fairlead.job_steps where job_id = %s", [job_id]
            ).fetchall()
        )


async def run(fl: Fairlead, **payload: Any) -> UUID:
    """Run a job to its end, through its retries."""
    job = await fl.enqueue("order", tenant=TENANT, payload={"token": VALUE, **payload})
    for _ in range(3):
        await fl.tick()
        if (await fl.read(job.id)).status is not JobStatus.QUEUED:
            break
        await fl.edit(job.id, delay=0)
    return job.id


async def test_a_later_attempt_gets_the_results_and_the_database_has_none_in_plain_form(
    app: App, database_url: str
) -> None:
    fl, seen = app
    job_id = await run(fl)

    assert (await fl.read(job_id)).status is JobStatus.SUCCEEDED
    assert list(map(repr, seen)) == [repr(EXPECTED)] * 2
    stored = read_results(database_url, job_id)
    assert stored["issue"].keys() == stored["copy"].keys() == {"$sealed"}
    assert stored["plain"] == {"amount": 3}
    assert find_in_database(database_url, STEP) == find_in_database(database_url, VALUE) == []


async def test_the_steps_are_shown_without_secrets_with_and_without_the_key(
    app: App, settings: Settings
) -> None:
    fl, _ = app
    job_id = await run(fl)
    without, _ = build(settings)

    shown = {step.name: step.result for step in (await fl.steps(job_id))}
    async with without:
        hidden = {step.name: step.result for step in (await without.steps(job_id))}

    assert shown == {"issue": "[redacted]", "copy": "[redacted]", "plain": {"amount": 3}}
    assert STEP not in str(hidden)
    assert VALUE not in str(hidden)


async def test_a_result_that_was_moved_to_another_step_is_refused(app: App, database_url: str) -> None:
    fl, seen = app
    job = await fl.enqueue("order", tenant=TENANT, payload={"token": VALUE})
    await fl.tick()
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "update fairlead.job_steps set result = %s where job_id = %s and name = 'copy'",
            [Jsonb(read_results(database_url, job.id)["issue"]), job.id],
        )
    await fl.edit(job.id, delay=0)
    await fl.tick()

    assert len(seen) == 1
    assert (await fl.read(job.id)).status is not JobStatus.SUCCEEDED


async def test_steps_from_before_encryption_are_sealed_and_rotated(
    own: Settings, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fl, seen = build(own)
    async with fl:
        job_id = await run(fl, fails=5)
        assert find_in_database(database_url, STEP) == ["job_steps"]
        await enable(fl)

        assert [await reseal(fl, encryption.reseal_steps) for _ in range(2)] == [1, 0]
        assert find_in_database(database_url, STEP) == []
        before = read_results(database_url, job_id)["issue"]

        assert await rotate(fl, monkeypatch, lambda: reseal(fl, encryption.reseal_steps)) == 1
        assert read_results(database_url, job_id)["issue"] != before

        seen.clear()
        await fl.retry(job_id)
        await fl.tick()
        assert seen == [EXPECTED]


async def test_a_worker_without_the_key_gives_the_job_back_before_a_secret_step_runs(
    app: App, settings: Settings
) -> None:
    fl, _ = app
    calls = list[str]()

    def call(name: str) -> str:
        calls.append(name)
        return STEP

    def build_issuer(own: Settings) -> Fairlead:
        other = Fairlead(settings=own)

        @other.job(key="issue", durable=True, max_attempts=1)
        async def issue(ctx: Context) -> str:
            await ctx.step("prepare", lambda: len(call("prepare")))
            issued = await ctx.step("issue", call, "issue", secret=True)
            await ctx.sleep(seconds=0)
            return "done" if issued == STEP else "lost"

        return other

    async with build_issuer(settings) as without:
        job = await without.enqueue("issue", tenant=TENANT)
        await without.tick()
        waiting, attempts = await without.show(job.id)
        assert (waiting.status, waiting.failure_count) == (JobStatus.QUEUED, 0)
        assert attempts[-1].status == "released"
        assert "encryption_key_missing" in str(waiting.last_error)
        assert calls == ["prepare"]
        assert "encryption_key" in [one.code for one in (await without.why(job.id)).reasons]

    async with build_issuer(fl.settings) as having:
        await having.edit(job.id, delay=0)
        await having.tick()
        assert (await having.read(job.id)).output == "done"
    assert calls == ["prepare", "issue"]


FORM = {"type": "object", "properties": {"code": {"type": "string", "x-secret": True}}}


@pytest.mark.parametrize("enabled", ["before", "after"])
async def test_secret_answers_to_approvals_are_sealed_and_reach_the_function(
    own: Settings, database_url: str, enabled: str
) -> None:
    fl, seen = Fairlead(settings=own), list[Any]()

    @fl.job(key="release", durable=True)
    async def release(ctx: Context) -> str:
        answer = await ctx.wait_for_approval("sign", title="Sign", form=FORM)
        seen.append(answer and answer.values)
        return "released"

    async with fl:
        if enabled == "before":
            await enable(fl)
        job = await fl.enqueue("release", tenant=TENANT)
        await fl.tick()
        async with fl.database.transaction() as tx:
            [asked] = (await approvals.list_approvals(tx, TESTER)).items
            shown = await approvals.approve(tx, TESTER, asked.id, {"code": STEP})
        assert shown.values == {"code": "[redacted]"}
        if enabled == "after":
            assert set(find_in_database(database_url, STEP)) == {"approvals", "job_steps"}
            await enable(fl)
            hide = encryption.reseal_documents
            batch = await fl.database.transact(lambda tx: hide(tx, TESTER, "answers to approvals"))
            assert (batch.changed, await reseal(fl, encryption.reseal_steps)) == (1, 1)
        assert find_in_database(database_url, STEP) == []
        await fl.tick()
        assert (await fl.read(job.id)).output == "released"
        assert STEP not in str(await fl.steps(job.id))
    assert seen == [{"code": STEP}]
    assert find_in_database(database_url, STEP) == []


async def test_a_replay_from_a_step_has_the_results_before_it(app: App, database_url: str) -> None:
    fl, seen = app
    job_id = await run(fl, fails=0)
    seen.clear()

    again = await fl.replay(job_id, from_step="plain")
    await fl.tick()

    assert seen == [EXPECTED]
    assert read_results(database_url, again.id)["issue"] != read_results(database_url, job_id)["issue"]
    assert find_in_database(database_url, STEP) == []


async def test_what_a_secret_step_or_answer_gave_is_masked_in_all_that_the_attempt_says(
    own: Settings, database_url: str
) -> None:
    fl = Fairlead(settings=own)

    @fl.job(key="tell", durable=True, max_attempts=2)
    async def tell(ctx: Context) -> dict[str, Any]:
        issued = await ctx.step("issue", lambda: dict(ISSUED), secret=True)
        answer = await ctx.wait_for_approval("sign", title="Sign", form=FORM)
        ctx.log.info("issued", code=issued["code"])
        ctx.progress(50, f"with {issued['code']}")
        await ctx.step("copy", lambda: {"of": issued["code"]})
        if ctx.attempt_no < 3:
            raise ValueError(f"{issued['code']} and {answer.values['code']}")
        return {"code": issued["code"], "answer": answer.values, "b": 1}

    async with fl:
        await enable(fl)
        job = await fl.enqueue("tell", tenant=TENANT)
        await fl.tick()
        async with fl.database.transaction() as tx:
            [asked] = (await approvals.list_approvals(tx, TESTER)).items
            await approvals.approve(tx, TESTER, asked.id, {"code": VALUE})
        for _ in range(2):
            await fl.tick()
            if (await fl.read(job.id)).status is JobStatus.QUEUED:
                await fl.edit(job.id, delay=0)
        done = await fl.read(job.id)
        _, attempts = await fl.show(job.id)

    assert done.output == {"code": "[redacted]", "answer": {"code": "[redacted]"}, "b": 1}
    assert [one.error_text for one in attempts if one.error_text] == ["ValueError: [redacted] and [redacted]"]
    assert find_in_database(database_url, STEP) == find_in_database(database_url, VALUE) == []


@pytest.mark.parametrize("what", ["step", "signal", "event"])
async def test_a_secret_in_the_name_or_the_condition_of_a_step_is_refused(
    own: Settings, database_url: str, what: str
) -> None:
    fl = Fairlead(settings=own)

    @fl.job(key="expose", durable=True, max_attempts=3)
    async def expose(ctx: Context, token: Annotated[str, Secret()]) -> None:
        match what:
            case "step":
                await ctx.step(f"pay {token}", lambda: 1)
            case "signal":
                await ctx.wait_for_signal(token)
            case "event":
                await ctx.wait_for_event("confirmed", where={"code": token})

    async with fl:
        plain = await fl.enqueue("expose", tenant=TENANT, payload={"token": f"{VALUE}-plain"})
        await fl.tick()  # a database that does not encrypt stores it
        assert (await fl.read(plain.id)).error is None
        await enable(fl)
        job = await fl.enqueue("expose", tenant=TENANT, payload={"token": f"{VALUE}-sealed"})
        await fl.tick()
        found = await fl.read(job.id)

    assert found.status is JobStatus.FAILED
    assert "holds a secret, and would be stored in plain form" in str(found.error)
    assert find_in_database(database_url, f"{VALUE}-sealed") == []
