"""A canary in a payload is read by its handler, and by nobody else: not in answers, audit, logs, errors or outputs."""

from collections.abc import AsyncIterator
from typing import Annotated, Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from fairlead import Context, Fairlead, Fatal, Flow, JobStatus, Secret, Settings
from fairlead.actions import bulk_jobs, definitions, error_groups, jobs
from fairlead.actions.dispatch import dispatch
from fairlead.actions.error_groups import GroupFilter
from fairlead.actions.jobs import JobFilter
from fairlead.db.tx import Tx
from fairlead.errors import DefinitionInvalid, SettingInvalid
from fairlead.model.secrets.redact import MASK
from fairlead.settings import load
from fairlead.store import queue
from tests import given
from tests.acting import act
from tests.handlers import work
from tests.runs import begun
from tests.tables import each_case

CANARY = "canary-'7f3a'-secret"
PIN = 93_847_561
SHORT = "canary"
PAYLOAD = {"to": "ada", "token": CANARY, "pin": PIN}

# Everything that is kept of jobs and their attempts, but the payload itself.
KEPT = """
select coalesce(string_agg(kept, E'\\n'), '') from (
    select (to_jsonb(j) - 'payload' - 'dedupe_key')::text from fairlead.jobs j
    union all select to_jsonb(a)::text from fairlead.attempts a
    union all select to_jsonb(c)::text from fairlead.log_chunks c
    union all select to_jsonb(a)::text from fairlead.audit_entries a
    union all select to_jsonb(i)::text from fairlead.idempotency_keys i
) k(kept)
"""


def chatter(ctx: Context, token: str, pin: int) -> None:
    """Says what it must not, in every way it can."""
    said = f"using {token}"
    ctx.log.info(said, token=token, pin=pin, nested={"t": [token]})
    ctx.progress(50, f"half way with {token}")


@pytest.fixture
async def fl(settings: Settings) -> AsyncIterator[Fairlead]:
    opened = Fairlead(settings=settings, actor="tester")

    @opened.job(key="send")
    async def send(
        ctx: Context, to: str, token: Annotated[str, Secret()], pin: Annotated[int, Secret()] = 0
    ) -> Any:
        chatter(ctx, token, pin)
        return {"sent": to, "with": [token, pin], token: f"{token!r}"}

    @opened.job(key="break", max_attempts=1)
    async def broken(ctx: Context, to: str, token: Annotated[str, Secret()], pin: int = 0) -> None:
        chatter(ctx, token, pin)
        raise ValueError(f"cannot log in with {token!r}")

    @opened.job(key="thread", max_attempts=1)
    def in_thread(ctx: Context, to: str, token: Annotated[str, Secret()], pin: int = 0) -> None:
        chatter(ctx, token, pin)
        raise Fatal("x" * 1990 + token)

    @opened.job(key="plain", max_attempts=1)
    async def plain(ctx: Context, note: str, told: str) -> None:
        raise ValueError(f"{note} is wrong")

    opened.job(key="apart", isolate=True, max_attempts=1)(work.leaks)
    async with opened:
        yield opened
        await given.no_inconsistencies(opened.database)


async def kept(fl: Fairlead) -> str:
    [(text,)] = await act(fl, Tx.values, KEPT)
    return str(text)


async def attempts(fl: Fairlead, job_id: UUID) -> Any:
    return (await act(fl, jobs.show_job, fl.principal, job_id))[1]


@pytest.mark.parametrize(
    ("key", "status"),
    [
        ("send", JobStatus.SUCCEEDED),
        ("break", JobStatus.DEAD_LETTER),
        ("thread", JobStatus.FAILED),
        ("apart", JobStatus.DEAD_LETTER),
    ],
)
async def test_what_a_handler_says_is_written_without_the_secrets(
    fl: Fairlead, key: str, status: JobStatus
) -> None:
    with capture_logs() as logged:
        job = await fl.enqueue(key, tenant=given.TENANT, payload=PAYLOAD)
        await fl.tick()

    read = await fl.read(job.id)
    assert read.status is status
    assert read.payload == {"to": "ada", "token": MASK, "pin": MASK if key == "send" else PIN}
    assert SHORT not in await kept(fl)
    assert SHORT not in str(logged)
    assert any(line["event"] == f"using {MASK}" for line in logged)
    [attempt] = await attempts(fl, job.id)
    assert f"using {MASK}" in attempt.stdout_tail
    if key == "send":
        assert read.output == {"sent": "ada", "with": [MASK, MASK], MASK: f'"{MASK}"'}
        assert str(PIN) not in await kept(fl)
    else:
        assert MASK in read.error["message"]


async def test_a_loop_of_ones_own_writes_no_secrets(fl: Fairlead) -> None:
    for _ in range(2):
        await fl.enqueue("send", tenant=given.TENANT, payload=PAYLOAD)
    good, bad = await fl.claim(2)
    assert good.payload["token"] == CANARY

    await good.progress(10, f"with {CANARY}")
    await good.succeed({"token": CANARY})
    await bad.fail(ValueError(f"{CANARY} is refused"))

    assert SHORT not in await kept(fl)


async def test_a_list_shows_no_secrets_nor_does_an_answer_to_cancel_and_retry(fl: Fairlead) -> None:
    key = f'send::acme::{{"pin":12121212,"to":"ada","token":"{CANARY}"}}'
    job = await fl.enqueue(
        "send",
        tenant=given.TENANT,
        payload={**PAYLOAD, "pin": 12121212},
        dedupe_key=key,
        correlation_id=f"for {CANARY}",
    )

    page = await act(fl, jobs.list_jobs, fl.principal, JobFilter(dedupe_key=key))
    shown = [*page.items, await fl.read(job.id), await fl.cancel(job.id), await fl.retry(job.id)]

    assert len(shown) == 4
    for one in shown:
        assert SHORT not in str(one)
        assert one.dedupe_key == f'send::acme::{{"pin":"{MASK}","to":"ada","token":"{MASK}"}}'


async def test_a_retry_keeps_the_secrets_of_a_payload_that_is_sent_back_as_it_was_shown(fl: Fairlead) -> None:
    job = await fl.enqueue("send", tenant=given.TENANT, payload=PAYLOAD)
    await fl.cancel(job.id)

    await fl.retry(job.id, payload=(await fl.read(job.id)).payload)

    [lease] = await fl.claim(1)
    assert lease.payload == PAYLOAD
    await lease.release()


SECRET_INPUT = {
    "type": "object",
    "properties": {"password": {"type": "string", "x-secret": True}, "list": {"type": "array"}},
}


@pytest.mark.parametrize("each", [None, "{{input.list}}"])
async def test_a_secret_of_a_runs_input_is_one_wherever_a_template_puts_it(
    fl: Fairlead, each: str | None
) -> None:
    """Though the definition of the job marks nothing."""
    flow = Flow("w", input_schema=SECRET_INPUT)
    payload = {"note": "{{input.password}}", "told": "it is {{input.password}}."}
    flow.step("a", "plain", payload, for_each=each)
    run = await begun(fl, flow, input={"password": CANARY, "list": [1]})
    await fl.tick()

    async with fl.transaction() as tx:
        page = await jobs.list_jobs(tx, fl.principal, JobFilter(workflow_run_id=run.id))
        [shown] = page.items
        await error_groups.fold_failures(tx)
        told = await error_groups.list_groups(tx, fl.principal, GroupFilter())
    assert shown.payload == {"note": MASK, "told": MASK}
    assert CANARY not in repr((shown, await attempts(fl, shown.id), told, await run.read()))
    assert CANARY not in await kept(fl)


async def test_a_secret_of_an_event_is_one_wherever_a_template_puts_it(fl: Fairlead) -> None:
    async with fl.transaction() as tx:
        await given.trigger(
            tx, definition_key="send", payload_template={"to": "ada", "token": "{{event.password}}"}
        )
        await given.trigger(tx, payload_template={"note": ["{{event.password}}"], "other": "{{event.other}}"})
        await given.event(tx, data={"password": CANARY, "other": "seen"})
        await dispatch(tx, given.catalog(), limit=9)

    async with fl.transaction() as tx:
        page = await jobs.list_jobs(tx, fl.principal, JobFilter(definition_key="anything"))
        claim = await queue.claim(tx, worker="w", wanted=9, lease_seconds=30)
    [shown] = page.items
    assert shown.payload == {"note": [MASK], "other": "seen"}
    assert {job.definition_key: job.secret_paths for job in claim.jobs} == {
        "send": ("/pin", "/token", "/token"),
        "anything": ("/note/0",),
    }


async def test_nothing_is_shown_of_payloads_whose_definition_hides_everything(fl: Fairlead) -> None:
    await given.set_definition(fl, "send", secret_paths=["/**"])
    job = await fl.enqueue("send", tenant=given.TENANT, payload=PAYLOAD)
    assert (await fl.read(job.id)).payload == MASK

    put = await act(fl, definitions.patch, fl.principal, "send", {})

    assert put.secret_paths == ("/pin", "/token")
    assert (await fl.read(job.id)).payload == {"to": "ada", "token": MASK, "pin": MASK}


# Configured patterns


@pytest.fixture
async def patterned(settings: Settings) -> AsyncIterator[Fairlead]:
    with_pattern = Settings(database_url=settings.database_url, redact_patterns=(r"(?i)canary-[^ \"]*",))
    opened = Fairlead(settings=with_pattern, actor="tester")

    @opened.job(key="say", max_attempts=1)
    async def say(ctx: Context, text: str) -> str:
        ctx.log.info(text)
        if "fail" in text:
            raise ValueError(text)
        return text

    async with opened:
        yield opened


async def test_what_matches_a_pattern_is_masked_in_what_is_written_and_shown(patterned: Fairlead) -> None:
    with capture_logs() as logged:
        good = await patterned.enqueue("say", tenant=given.TENANT, payload={"text": "a CANARY-1 b"})
        bad = await patterned.enqueue("say", tenant=given.TENANT, payload={"text": "fail canary-2 b"})
        await patterned.tick()

    assert (await patterned.read(good.id)).output == f"a {MASK} b"
    assert (await patterned.read(good.id)).payload == {"text": f"a {MASK} b"}
    assert (await patterned.read(bad.id)).last_error == f"ValueError: fail {MASK} b"
    assert "canary" not in (await kept(patterned)).lower()
    assert "canary" not in str(logged).lower()


async def test_a_retry_keeps_what_a_pattern_masked(patterned: Fairlead) -> None:
    job = await patterned.enqueue("say", tenant=given.TENANT, payload={"text": "a canary-1 b"})
    await patterned.cancel(job.id)

    await patterned.retry(job.id, payload=(await patterned.read(job.id)).payload)

    [lease] = await patterned.claim(1)
    assert lease.payload == {"text": "a canary-1 b"}
    await lease.release()


async def test_what_matches_a_pattern_is_not_found_by_its_beginning(patterned: Fairlead) -> None:
    """Who can ask for beginnings finds the rest letter by letter."""
    await patterned.enqueue("say", tenant=given.TENANT, payload={"text": "a"}, correlation_id="canary-1")

    async with patterned.transaction() as tx:
        found = [
            len((await jobs.list_jobs(tx, patterned.principal, JobFilter(q=q))).items)
            for q in ("canary", "canary-", "canary-1")
        ]
        would = await bulk_jobs.cancel(tx, patterned.principal, JobFilter(q="canary-"), dry_run=True)

    assert (found, would.count) == ([0, 0, 1], 0)


async def test_what_matches_a_pattern_is_masked_in_the_audit_log(patterned: Fairlead) -> None:
    await patterned.pause(tenant=given.TENANT, note="because of canary-3")

    assert "canary" not in await kept(patterned)


def test_patterns_come_from_the_environment_as_a_list_or_as_one() -> None:
    def read(value: str) -> tuple[str, ...]:
        return load(environ={"FAIRLEAD_REDACT_PATTERNS": value}).redact_patterns

    assert read(r"\d{4,6}") == (r"\d{4,6}",)
    assert read(r'["\\d{4,6}", "sk-[a-z]+"]') == (r"\d{4,6}", "sk-[a-z]+")


@each_case("pattern", ["(", "a*", '["ok", 1]', "[not json"])
def test_a_pattern_that_cannot_be_is_refused_by_the_name_of_its_setting(pattern: str) -> None:
    with pytest.raises(SettingInvalid, match="redact_patterns"):
        load(environ={"FAIRLEAD_REDACT_PATTERNS": pattern})


async def test_code_that_would_show_a_secret_field_is_refused(settings: Settings) -> None:
    """Also if it has the field no longer: earlier jobs have it."""
    marked = {"type": "object", "properties": {"token": {"type": "string", "x-secret": True}}}
    async with Fairlead(settings=settings) as admin:
        await act(admin, definitions.patch, given.TESTER, "pay", {"arg_schema": marked})
    plain = Fairlead(settings=settings)

    @plain.job
    async def pay(ctx: Context, token: str) -> None: ...

    with pytest.raises(DefinitionInvalid, match=r"marks /token as secret.*Secret\(\)"):
        await plain.open()

    async with Fairlead(settings=settings) as admin:
        kept = await act(admin, definitions.find, given.TESTER, "pay")
        assert kept is not None
        assert (kept.version, kept.arg_schema) == (1, marked)
        await act(admin, definitions.patch, given.TESTER, "pay", {"arg_schema": {}})
    async with plain:  # an administrator has removed the mark
        pass
