"""Outgoing webhooks: how jobs and runs end is told to those who listen, once, signed, and never in circles."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from fairlead import Fairlead, Fatal, Secret, Settings
from fairlead.actions import bulk_jobs, events, jobs, triggers, webhooks, workflows
from fairlead.actions.jobs import JobFilter
from fairlead.db.tx import TransactionIdentity, Tx, json_text
from fairlead.errors import DefinitionUnknown, EventInvalid, TriggerInvalid, TriggerUnknown
from fairlead.handlers.context import Context
from fairlead.model.end_event import JOB_EVENTS, RUN_EVENTS
from fairlead.model.job import JobStatus
from fairlead.model.messages.webhook import decode_key, sign_webhook
from fairlead.store import queue, rescue
from tests import given
from tests.acting import act
from tests.given import OTHER, TENANT, TESTER
from tests.handlers.loopback import Asked, Reply, Server, always, in_turn, serving
from tests.plans import read_scans

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105
FIELDS = {
    "job_id",
    "definition_key",
    "status",
    "attempt_no",
    "correlation_id",
    "parent_id",
    "workflow_run_id",
    "queued_at",
    "started_at",
    "finished_at",
    "duration_ms",
    "last_error",
}


@pytest.fixture
async def hook() -> AsyncIterator[Server]:
    """Somebody who wants to know."""
    async with serving(always(Reply(204))) as server:
        yield server


@pytest.fixture
async def fl(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fairlead]:
    """A Fairlead with http.request, a signing secret, and a job that fails for good, quietly or after another."""
    monkeypatch.setenv("HOOK", SECRET)
    file = tmp_path / "fairlead.toml"
    file.write_text(f'[http.tenants.{TENANT}.secrets]\nhook = "env:HOOK"\n')
    settings = replace(settings, http_requests=True, http_allow=("127.0.0.1",))
    opened = Fairlead(settings=settings, actor="tester")
    opened.allow_builtins(file)

    @opened.job(key="work")
    async def work(
        ctx: Context,
        *,
        wrong: str | None = None,
        key: Annotated[str, Secret()] = "",
        then: bool = False,
    ) -> None:
        if then:
            await ctx.enqueue("work", payload={"wrong": "the child"})
        if wrong:
            raise Fatal(f"{wrong} {key}\nand more")

    @opened.job(key="mend")
    async def mend(ctx: Context) -> None:
        await ctx.start("repair")
        await ctx.fan_out("work", [{"wrong": "the task"}], join="work", on_failure="continue")

    opened.workflow("repair").step("first", "work", {"wrong": "the step"})
    async with opened:
        yield opened
        await given.no_inconsistencies(opened.database)


async def listen(fl: Fairlead, url: str, *names: str, tenant: str = TENANT, **more: Any) -> None:
    await act(fl, webhooks.add, TESTER, tenant, url=url, events=names, **more)


async def settle(fl: Fairlead) -> int:
    """Dispatch and run until nothing is left. How many jobs ran; it gives up where they never end."""
    for total in range(20):
        if not (await fl.tick()).ran:
            return total
    raise AssertionError("it goes round in circles")


def body(asked: Asked) -> dict[str, Any]:
    return dict(msgspec.json.decode(asked.body))


async def told(fl: Fairlead) -> list[str]:
    """The names of all events, oldest first."""
    return [one.name for one in reversed(await act(fl, events.list_events, TESTER, limit=100))]


async def test_a_job_that_fails_for_good_is_told_once_and_signed(fl: Fairlead, hook: Server) -> None:
    await listen(fl, f"{hook.url}/acme", "job.failed", "job.dead_letter", sign_with="hook")
    await listen(fl, f"{hook.url}/other", "job.failed", tenant=OTHER)
    options: dict[str, Any] = {"payload": {"wrong": "no", "key": "s3cret-word"}, "correlation_id": "c-1"}
    failed = await fl.enqueue("work", tenant=TENANT, **options)
    await fl.enqueue("work", tenant=TENANT)
    await settle(fl)

    [asked] = hook.asked
    said = body(asked)
    assert (asked.method, asked.path, asked.headers["content-type"]) == ("POST", "/acme", "application/json")
    assert (set(said), said["type"]) == ({"type", "timestamp", "data"}, "job.failed")
    data = said["data"]
    assert data.keys() == FIELDS
    assert (data["job_id"], data["definition_key"], data["status"]) == (str(failed.id), "work", "failed")
    assert (data["attempt_no"], data["correlation_id"], data["last_error"]) == (
        1,
        "c-1",
        "Fatal: no [redacted]",
    )
    assert datetime.fromisoformat(said["timestamp"]) == datetime.fromisoformat(data["finished_at"])
    assert data["duration_ms"] >= 0
    [event] = await act(fl, events.list_events, TESTER)
    assert (event.name, event.tenant, event.correlation_id) == ("job.failed", TENANT, "c-1")
    sent = {name: value for name, value in asked.headers.items() if name.startswith("webhook-")}
    assert sent["webhook-id"] == str(event.id)
    assert sent == sign_webhook(decode_key(SECRET), str(event.id), int(sent["webhook-timestamp"]), asked.body)


async def test_a_receiver_that_is_busy_is_told_again_under_the_same_id(fl: Fairlead) -> None:
    async with serving(in_turn(Reply(503, headers=(("retry-after", "0"),)), Reply(204))) as hook:
        await listen(fl, hook.url, "job.succeeded", definitions=["work"])
        await fl.enqueue("work", tenant=TENANT)
        await settle(fl)

    first, second = hook.asked
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert "webhook-signature" not in first.headers
    assert first.body == second.body


async def test_only_ends_that_are_asked_for_are_told(fl: Fairlead, hook: Server) -> None:
    """And where nobody listens, none is written."""
    await fl.enqueue("work", tenant=TENANT, payload={"wrong": "x"})
    await settle(fl)
    assert await told(fl) == []

    await listen(fl, hook.url, "job.canceled", definitions=["greet"])
    for number in range(2):
        await fl.enqueue("greet", tenant=TENANT, payload={"name": f"{number}"})
    job = await fl.enqueue("anything", tenant=TENANT)
    kept = await fl.enqueue("anything", tenant=OTHER)
    tenant_id = (await job.read()).tenant_id
    principal = msgspec.structs.replace(TESTER, tenant_id=tenant_id)
    async with fl.database.transaction(TransactionIdentity(tenant_id)) as tx:  # under row-level security
        await jobs.cancel(tx, principal, job.id)
        assert (await bulk_jobs.cancel(tx, principal, JobFilter(status=[JobStatus.QUEUED]))).count == 2
    await fl.cancel(kept.id)
    await settle(fl)

    assert await told(fl) == ["job.canceled"] * 3
    assert [body(one)["data"]["definition_key"] for one in hook.asked] == ["greet", "greet"]
    assert {body(one)["data"]["started_at"] for one in hook.asked} == {None}

    async with fl.transaction() as tx:
        [made] = await webhooks.list_webhooks(tx, TESTER, tenant=TENANT)
        await triggers.change(tx, TESTER, made.id, {"is_enabled": False})
    await fl.cancel((await fl.enqueue("greet", tenant=TENANT, payload={"name": "off"})).id)
    assert len(await told(fl)) == 3


async def test_a_job_that_is_lost_too_often_is_told_as_a_dead_letter(fl: Fairlead, hook: Server) -> None:
    await listen(fl, hook.url, "job.dead_letter")
    async with fl.transaction() as tx:
        job_id = await given.running_job(tx)
        await given.set_job(tx, job_id, lost_count=100)
        await given.end_leases(tx)
    assert list(await fl.database.transact(rescue.rescue)) == [job_id]
    await settle(fl)

    [asked] = hook.asked
    assert (body(asked)["type"], body(asked)["data"]["job_id"]) == ("job.dead_letter", str(job_id))


@pytest.mark.parametrize("then", [False, True])
async def test_what_a_webhook_makes_sets_none_off(fl: Fairlead, hook: Server, then: bool) -> None:  # noqa: FBT001
    """Neither its own failure, nor that of another on the same event, nor that of the jobs they make."""
    await listen(fl, "http://127.0.0.1:1/nowhere", "job.failed", "job.dead_letter", "job.succeeded")
    await listen(fl, "http://192.168.0.1/refused", *JOB_EVENTS)
    await listen(fl, hook.url, *JOB_EVENTS)
    async with fl.transaction() as tx:
        again: dict[str, Any] = {
            "definition_key": "work",
            "payload_template": {"wrong": "again", "then": then},
        }
        await given.trigger(tx, event_name="job.failed", dedupe_window_seconds=0, **again)
        await given.set_definition(tx, "http.request", max_attempts=1)
    await fl.enqueue("work", tenant=TENANT, payload={"wrong": "x"})
    await settle(fl)

    assert await told(fl) == ["job.failed"]
    assert len(hook.asked) == 1
    ended = await act(fl, jobs.list_jobs, TESTER, JobFilter(definition_key="work"))
    assert [one.status for one in ended.items] == [JobStatus.FAILED] * (3 if then else 2)


@pytest.mark.parametrize("event", ["job.failed", "workflow.failed"])
async def test_a_run_that_such_an_event_began_sets_none_off(fl: Fairlead, event: str) -> None:
    """Neither with its own end, nor with those of its steps."""
    async with fl.transaction() as tx:
        template = {"workflow": "repair", "input": {}}
        run: dict[str, Any] = {"definition_key": "ENGINE_RUN", "payload_template": template}
        await given.trigger(tx, event_name=event, dedupe_window_seconds=0, **run)
    await fl.start("repair", tenant=TENANT)
    await settle(fl)

    assert await told(fl) == [event]
    assert len(await act(fl, workflows.list_runs, TESTER)) == 2
    ended = await act(fl, jobs.list_jobs, TESTER, JobFilter(definition_key="work"))
    assert [one.status for one in ended.items] == [JobStatus.FAILED] * 2


async def test_what_a_job_starts_that_such_an_event_made_sets_none_off(fl: Fairlead) -> None:
    """Runs that it does not wait for, and sub-tasks, as well."""
    async with fl.transaction() as tx:
        for name in ("job.failed", "workflow.failed"):
            await given.trigger(tx, event_name=name, dedupe_window_seconds=0, definition_key="mend")
    await fl.enqueue("work", tenant=TENANT, payload={"wrong": "x"})
    await settle(fl)

    assert await told(fl) == ["job.failed"]
    ended = await act(fl, jobs.list_jobs, TESTER, JobFilter(definition_key="work", status=[JobStatus.FAILED]))
    assert len(ended.items) == 3


# Runs


async def test_a_run_that_ends_is_told_with_why_and_without_secrets(fl: Fairlead, hook: Server) -> None:
    await listen(
        fl, f"{hook.url}/acme", "workflow.failed", "workflow.succeeded", workflows=["repair", "fine"]
    )
    await listen(fl, f"{hook.url}/other", *RUN_EVENTS, tenant=OTHER)
    # a secret of the run, and not of the job that says it
    schema = {"type": "object", "properties": {"word": {"type": "string", "x-secret": True}}}
    fl.workflow("repairs", input_schema=schema).step("first", "work", {"wrong": "{{input.word}}"})
    fl.workflow("fine").step("first", "work")
    run = await fl.start("repair", tenant=TENANT, correlation_id="c-1")
    await fl.start("repairs", tenant=TENANT, input={"word": "s3cret-word"})
    await settle(fl)

    [asked] = hook.asked
    said = body(asked)
    assert (asked.path, said["type"]) == ("/acme", "workflow.failed")
    ended = (await run.read()).run
    assert said["data"] == {
        "run_id": str(run.id),
        "workflow": "repair",
        "version": 1,
        "status": "failed",
        "correlation_id": "c-1",
        "started_by_job": None,
        "started_at": said["data"]["started_at"],
        "finished_at": said["data"]["finished_at"],
        "duration_ms": said["data"]["duration_ms"],
        "failed_step": "first",
        "last_error": "Fatal: the step ",
    }
    assert datetime.fromisoformat(said["data"]["started_at"]) == ended.created_at
    assert datetime.fromisoformat(said["timestamp"]) == ended.finished_at
    assert said["data"]["duration_ms"] >= 0
    hidden, _ = await act(fl, events.list_events, TESTER)
    assert (hidden.data["workflow"], hidden.data["last_error"]) == ("repairs", "Fatal: [redacted] ")

    await fl.retry_run(run.id)  # and ends once more
    await settle(fl)
    await fl.start("fine", tenant=TENANT)
    await settle(fl)
    assert [body(one)["type"] for one in hook.asked[1:]] == ["workflow.failed", "workflow.succeeded"]
    assert body(hook.asked[2])["data"]["last_error"] is None


async def test_a_run_that_is_canceled_is_told_and_only_where_somebody_listens(
    fl: Fairlead, hook: Server
) -> None:
    await listen(fl, hook.url, "workflow.failed")
    unheard = await fl.start("repair", tenant=TENANT)
    await fl.cancel_run(unheard.id)
    await listen(fl, hook.url, "workflow.canceled")
    run = await fl.start("repair", tenant=TENANT)
    tenant_id = (await run.read()).run.tenant_id
    async with fl.database.transaction(TransactionIdentity(tenant_id)) as tx:  # under row-level security
        await workflows.cancel(tx, msgspec.structs.replace(TESTER, tenant_id=tenant_id), run.id)
    await settle(fl)

    [asked] = hook.asked
    assert (body(asked)["type"], body(asked)["data"]["run_id"]) == ("workflow.canceled", str(run.id))
    assert await told(fl) == ["workflow.canceled"]


async def test_a_limit_that_limits_nothing_is_refused(fl: Fairlead) -> None:
    with pytest.raises(TriggerInvalid, match="none of the events is about a"):
        await listen(fl, "https://hooks.example.com", "job.failed", workflows=["x"])
    with pytest.raises(TriggerInvalid, match="none of the events is about a"):
        await listen(fl, "https://hooks.example.com", "workflow.failed", definitions=["x"])
    with pytest.raises(EventInvalid, match=r"one of workflow\.succeeded, "):
        await given.trigger(fl, event_name="workflow.started")


async def test_whether_anybody_listens_is_asked_of_an_index_of_those_alone(tx: Tx) -> None:
    """However many triggers there are for other things."""
    await tx.run("set local enable_seqscan to off")
    for _ in range(20):
        await given.trigger(tx)
    looks = await read_scans(tx, queue.sql.finish, {"ends": json_text([]), "actor": "x"}, "job_triggers")
    assert [(one["Index Name"], one["Actual Rows"]) for one in looks] == [("job_triggers_of_ends", 0)]


async def test_a_webhook_is_listed_and_removed_and_refuses_what_cannot_be(fl: Fairlead, hook: Server) -> None:
    await listen(fl, hook.url, "job.failed", "job.failed", "job.canceled", definitions=["work"])
    async with fl.transaction() as tx:
        other = await given.trigger(tx, event_name="job.failed")
        made = await webhooks.list_webhooks(tx, TESTER)
        assert [one.event_name for one in made] == ["job.canceled", "job.failed"]
        assert await webhooks.list_webhooks(tx, TESTER, tenant=OTHER) == []
        await webhooks.remove(tx, TESTER, made[0].id)
        assert await webhooks.list_webhooks(tx, TESTER) == made[1:]
        with pytest.raises(TriggerUnknown, match="not a webhook"):
            await webhooks.remove(tx, TESTER, other.id)
        with pytest.raises(TriggerInvalid, match="must not have a user"):
            await webhooks.add(tx, TESTER, TENANT, url="https://me:s3cret@x.example", events=["job.failed"])
        with pytest.raises(EventInvalid, match=r"one of job\.succeeded, "):
            await given.trigger(tx, event_name="job.created")


async def test_without_a_worker_that_makes_requests_it_is_said_how_to_have_one(tx: Tx) -> None:
    with pytest.raises(DefinitionUnknown, match="http_requests = true"):
        await webhooks.add(tx, TESTER, TENANT, url="https://hooks.example.com", events=["job.failed"])
