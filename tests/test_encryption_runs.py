"""Secrets in inputs of workflow runs: sealed in the database, plain only for the jobs of their steps."""

from functools import partial
from typing import Annotated, Any

import psycopg
import pytest

from fairlead import Context, Fairlead, Flow, NewJob, Secret, Settings
from fairlead.actions import encryption, triggers, workflow_release, workflows
from fairlead.actions.workflow_progress import settle_ended_steps
from fairlead.errors import PayloadInvalid
from fairlead.model.job import JobStatus
from fairlead.model.workflow.run import RunStatus
from tests import given
from tests.databases import find_in_database
from tests.encrypted_app import VALUE, App, app, enable, key, own, reseal, rotate
from tests.given import TENANT, TESTER
from tests.tables import each_case

pytestmark = pytest.mark.thorough

__all__ = ["app", "key", "own"]

# `token` is marked here, and `other` because a step copies it into a secret field
SCHEMA = {
    "type": "object",
    "properties": {"token": {"type": "string", "x-secret": True}, "other": {"type": "string"}},
}
RESEAL = partial(encryption.reseal_documents, documents="inputs of runs")
OTHER_VALUE = "ak-0123456789-second-canary"
INPUT = {"token": VALUE, "other": OTHER_VALUE, "n": 3}


def build(settings: Settings) -> tuple[Fairlead, list[Any]]:
    """An application with a workflow whose input has secrets, and what its functions got."""
    fl, seen = Fairlead(settings=settings), list[Any]()

    @fl.job(key="prepare")
    async def prepare(ctx: Context, n: int) -> int:
        return n + 1

    @fl.job(key="pay")
    async def pay(ctx: Context, token: Annotated[str, Secret()], note: str = "") -> str:
        seen.append((token, note))
        return f"paid with {token} {note}"

    flow = fl.workflow("billing", input_schema=SCHEMA)
    first = flow.step("prepare", "prepare", {"n": "{{input.n}}"})
    flow.step("pay", "pay", {"token": "{{input.other}}", "note": "by {{input.token}}"}, after=first)
    return fl, seen


GOT = (OTHER_VALUE, f"by {VALUE}")


def find_plain(url: str) -> list[str]:
    return sorted({*find_in_database(url, VALUE), *find_in_database(url, OTHER_VALUE)})


async def finish(fl: Fairlead) -> None:
    for _ in range(5):
        await fl.tick()


async def test_steps_get_the_secrets_of_the_input_and_the_database_does_not(
    app: App, database_url: str
) -> None:
    fl, seen = app
    run = await fl.start("billing", tenant=TENANT, input=INPUT)
    assert find_plain(database_url) == []
    await finish(fl)

    shown = (await run.read()).run
    assert seen == [GOT]
    assert shown.status is RunStatus.SUCCEEDED
    assert shown.input == {"token": "[redacted]", "other": "[redacted]", "n": 3}
    assert shown.output == {"pay": "paid with [redacted] [redacted]"}
    assert find_plain(database_url) == []


async def test_a_run_that_fails_and_is_retried_has_its_secrets_again(app: App, database_url: str) -> None:
    fl, seen = app
    run = await fl.start("billing", tenant=TENANT, input={**INPUT, "n": "not a number"})
    assert (await run.read()).run.status is RunStatus.FAILED
    assert VALUE not in str(await run.read())
    with psycopg.connect(database_url) as connection:
        connection.execute("update fairlead.workflow_runs set input = input || '{\"n\": 1}'")

    await run.retry()
    await finish(fl)

    assert seen == [GOT]
    assert find_plain(database_url) == []


async def test_jobs_triggers_and_steps_that_start_a_run_hide_its_secrets(app: App, database_url: str) -> None:
    fl, seen = app
    payload = {"workflow": "billing", "input": INPUT}
    job = await fl.enqueue("ENGINE_RUN", tenant=TENANT, payload=payload)
    await fl.enqueue_many([NewJob(definition="ENGINE_RUN", tenant=TENANT, payload=payload)])
    async with fl.database.transaction() as tx:
        trigger = await given.trigger(
            tx, cron_expr="0 2 * * *", definition_key="ENGINE_RUN", payload_template=payload
        )
        shown = await triggers.get(tx, TESTER, trigger.id)
        await triggers.fire_now(tx, TESTER, given.catalog(), trigger.id)
    assert find_plain(database_url) == []
    nested = {"key": "outer", "steps": [{"name": "run", "definition": "ENGINE_RUN"}]}
    nested["steps"][0]["payload"] = {"workflow": "billing", "input": "{{input}}"}  # type: ignore[index]
    async with fl.database.transaction() as tx:
        asked = workflows.RunRequest(tenant=TENANT, input=INPUT)
        await workflows.start_inline(tx, TESTER, {**nested, "input_schema": SCHEMA}, asked)
    await finish(fl)
    await finish(fl)

    assert seen == [GOT] * 4
    assert shown.payload_template["input"] == {"token": "[redacted]", "other": "[redacted]", "n": 3}
    assert (await fl.read(job.id)).payload["input"] == shown.payload_template["input"]
    assert find_plain(database_url) == []


@each_case("options", [{"correlation_id": f"x {VALUE}"}, {"key": VALUE}])
async def test_a_secret_beside_the_input_is_refused(app: App, options: dict[str, Any]) -> None:
    fl, _ = app
    with pytest.raises(PayloadInvalid, match="holds a secret") as refused:
        await fl.start("billing", tenant=TENANT, input=INPUT, **options)

    assert VALUE not in refused.value.message


async def test_an_input_that_was_moved_to_another_run_fails_it(app: App, database_url: str) -> None:
    fl, seen = app
    runs = [await fl.start("billing", tenant=TENANT, input=INPUT) for _ in range(2)]
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "update fairlead.workflow_runs set input = (select input from fairlead.workflow_runs where id = %s) "
            "where id = %s",
            [runs[0].id, runs[1].id],
        )
    await finish(fl)

    found = [(await run.read()).run for run in runs]
    assert [one.status for one in found] == [RunStatus.SUCCEEDED, RunStatus.FAILED]
    assert found[1].error["code"] == "seal_broken"
    assert seen == [GOT]


async def test_a_worker_without_the_key_leaves_the_run_to_a_process_that_has_it(
    app: App, settings: Settings, database_url: str
) -> None:
    fl, seen = app
    run = await fl.start("billing", tenant=TENANT, input=INPUT)
    without, _ = build(settings)
    async with without:
        await without.tick()
    details = await run.read()
    assert details.steps[0].job_status is JobStatus.SUCCEEDED
    assert details.run.status is RunStatus.RUNNING
    assert count_ended_steps(database_url) == 1

    async with fl.database.transaction() as tx:
        assert await settle_ended_steps(tx, limit=10) == 1
    await finish(fl)
    assert (await run.read()).run.status is RunStatus.SUCCEEDED
    assert seen == [GOT]


async def test_a_step_of_much_work_waits_for_a_process_that_has_the_key(
    app: App, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow_release, "MOST_BESIDE_BYTES", 1)
    fl, seen = app
    hidden = await fl.start("billing", tenant=TENANT, input=INPUT)
    flow = Flow("plain")
    flow.step("prepare", "prepare", {"n": "{{input.n}}"})
    plain = await fl.run_inline(flow, tenant=TENANT, input={"n": 1})
    without, _ = build(settings)
    async with without:
        leases = [*await without.claim(10), *await without.claim(10)]
        claimed = [await without.read(lease.job_id) for lease in leases]

        for lease in leases:
            await lease.succeed()

    assert [job.workflow_run_id for job in claimed] == [plain.id]
    await finish(fl)
    assert (await hidden.read()).run.status is RunStatus.SUCCEEDED
    assert seen == [GOT]


def count_ended_steps(url: str) -> int:
    with psycopg.connect(url) as connection:
        [number] = connection.execute("select count(*) from fairlead.ended_steps").fetchone() or [0]
        return int(number)


async def test_inputs_from_before_encryption_are_sealed_and_rotated(
    own: Settings, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fl, seen = build(own)
    async with fl:
        run = await fl.start("billing", tenant=TENANT, input=INPUT)
        assert find_plain(database_url) == ["workflow_runs"]
        await enable(fl)
        assert [await reseal(fl, RESEAL) for _ in range(2)] == [1, 0]
        assert find_plain(database_url) == []

        assert await rotate(fl, monkeypatch, lambda: reseal(fl, RESEAL)) == 1
        await finish(fl)
        assert (await run.read()).run.status is RunStatus.SUCCEEDED
    assert seen == [GOT]
    assert find_plain(database_url) == []
