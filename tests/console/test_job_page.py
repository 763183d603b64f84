"""The page of one job, in a real browser."""

import asyncio
import json
import re
from asyncio.subprocess import PIPE
from typing import Any
from uuid import UUID, uuid4

import pytest
from playwright.async_api import Page, expect

from fairlead.actions import definitions
from fairlead.model.access import Role
from fairlead.model.job import Source
from fairlead.model.trigger import FiringOutcome
from fairlead.store import firings, jobs
from fairlead.store.firings import NewFiring
from tests import given
from tests.acting import act
from tests.console.visiting import Console, accessible, accessible_in_each_look
from tests.server.test_worker_api import claimed, enqueued, tell

pytestmark = pytest.mark.thorough

SECRET = "hunter2-is-the-token"  # noqa: S105
LETTER = {
    "key": "letter",
    "arg_schema": {
        "type": "object",
        "required": ["to"],
        "additionalProperties": False,
        "properties": {
            "to": {"type": "string", "maxLength": 20},
            "copies": {"type": "integer", "minimum": 1},
            "token": {"type": "string", "x-secret": True},
            "parts": {"type": "array", "items": {"type": "object"}},
        },
    },
}
PAYLOAD = {"to": "Ada", "copies": 2, "token": SECRET, "parts": [{"a": {"b": [1, None, "c"]}}]}


async def letter(console: Console, status: str = "failed", **fields: Any) -> UUID:
    async with console.transaction() as tx:
        await definitions.patch(tx, given.TESTER, "letter", LETTER)
        return await given.ended_job(tx, status, definition="letter", payload=PAYLOAD, **fields)


async def broken(console: Console) -> UUID:
    """A job whose process was killed, after it had complained."""
    job_id = await letter(console, "dead_letter")
    error = {"type": "Killed", "message": "out of memory", "traceback": "at line 3"}
    await given.set_job(console, job_id, error=error)
    output = {"stderr_tail": f"\x1b[31mgone with {SECRET}\x1b[0m\n", "stdout_tail": "one\ntwo\n"}
    await given.set_attempt(console, job_id, signal=9, pid=77, error_text="Killed: out of memory", **output)
    return job_id


async def live(page: Page) -> None:
    await expect(page.locator("[data-live-state=live]")).to_be_visible()


async def _run_with_echo(command: str) -> str | None:
    """What a shell hands to curl as the body; None if it stops before."""
    shown = 'curl() { for last; do :; done; printf %s "$last"; }'
    shell = await asyncio.create_subprocess_exec("sh", "-c", f"{shown}\n{command}", stdout=PIPE, stderr=PIPE)
    out, _ = await shell.communicate()
    return out.decode() if shell.returncode == 0 else None


async def test_what_went_wrong_comes_first_and_keys_retry_and_cancel(console: Console) -> None:
    job_id = await broken(console)
    page = await console.visit(Role.OPERATOR, f"/jobs/{job_id}")

    await expect(page.locator("h1")).to_contain_text("letter")
    await expect(page.locator("h1 .status")).to_have_text("dead letter")
    error = page.locator(".card.error")
    await expect(error.locator("h2")).to_have_text("Killed")
    await expect(error).to_contain_text("out of memory")
    await expect(error).to_contain_text("SIGKILL")
    await expect(error.locator("pre").first).to_have_text("gone with [redacted]")
    await expect(page.locator(".timeline li")).to_contain_text("took 20 ms, after waiting 3 ms")
    await expect(page.locator(".why")).to_contain_text("Dead letter, ")
    await accessible_in_each_look(page)
    await live(page)
    await page.keyboard.press("r")
    await expect(page.locator("h1 .status")).to_have_text("queued")
    await expect(page.locator(".why")).to_contain_text("No worker is running")
    await expect(page.locator("#trail")).to_contain_text("job retried by user:")
    await page.keyboard.press("c")
    await expect(page.locator("h1 .status")).to_have_text("canceled")


async def test_nobody_sees_a_secret(console: Console) -> None:
    job_id = await broken(console)
    page = await console.visit(Role.TENANT_ADMIN, f"/jobs/{job_id}")

    await expect(page.locator("#payload")).to_contain_text("token: [redacted]")
    await expect(page.locator("[data-lines]")).to_contain_text("gone with [redacted]")
    command = await page.locator("text=Copy as curl").get_attribute("data-copy")
    assert command is not None
    assert command.startswith(
        "# Secrets are not copied: fill them in, escaped as in JSON.\nSECRET_token=''\ncurl -X POST "
    )
    assert f"{console.url}/api/v1/jobs -H 'Authorization: Bearer <token>'" in command
    assert '"definition_key":"letter"' in command
    assert "[redacted]" not in command
    assert await _run_with_echo(command) is None, "the shell stops: the secret is not filled in"
    filled = await _run_with_echo(command.replace("SECRET_token=''", "SECRET_token='a $ecret'"))
    assert filled is not None
    assert json.loads(filled)["payload"]["token"] == "a $ecret"  # noqa: S105
    for path in (
        f"/jobs/{job_id}",
        f"/jobs/{job_id}/edit",
        f"/enqueue?copy={job_id}",
        f"/jobs/{job_id}/log.txt",
    ):
        answer = await page.request.get(f"/console{path}")
        assert answer.status == 200
        assert SECRET not in await answer.text()


async def test_the_payload_folds_and_stays_folded(console: Console) -> None:
    job_id = await letter(console)
    page = await console.visit(path=f"/jobs/{job_id}")
    await live(page)
    parts = page.locator("#payload details").first
    await expect(parts.locator(".name").first).to_have_text("parts:")
    await parts.locator("summary").first.click()
    await expect(parts).not_to_have_attribute("open", "")

    async with page.expect_response(lambda answer: answer.url.endswith(str(job_id))):
        await console.world.call("POST", f"/jobs/{job_id}/retry")
    await expect(page.locator("h1 .status")).to_have_text("queued")

    await expect(parts).not_to_have_attribute("open", "")


async def test_a_running_job_is_followed_to_its_end(console: Console) -> None:
    job_id = await enqueued(console.world)
    item = await claimed(console.world)
    await tell(console.world, item, "logs", chunks=[{"seq": 1, "text": "first li"}])
    page = await console.visit(path=f"/jobs/{job_id}")
    lines = page.locator(".line")
    await expect(lines).to_have_text(["first li"])
    await live(page)

    await tell(console.world, item, "progress", percent=40, message="page 2 of 5")
    await tell(
        console.world,
        item,
        "logs",
        chunks=[
            {"seq": 2, "text": "ne\nand \x1b[32mgreen\x1b[0m\n"},
            {"seq": 3, "text": "trouble\n", "stream": "stderr"},
            {"seq": 4, "text": "… 12 characters were dropped: the output came too fast …\n", "stream": "log"},
        ],
    )
    await expect(lines).to_have_text(["first line", "and green", "trouble", re.compile("12 characters")])
    await expect(page.locator(".line.dropped")).to_have_count(1)
    await expect(page.locator(".progress")).to_contain_text("40.0 % page 2 of 5")
    await expect(page.locator(".why")).to_contain_text("It runs: attempt 1")
    await accessible(page)
    await tell(console.world, item, "complete", output={"pages": [1, 2]})

    await expect(page.locator("h1 .status")).to_have_text("succeeded")
    await expect(page.locator("#output")).to_contain_text("pages: 2 items")
    await expect(page.locator("[data-following]")).to_have_text("")
    await expect(page.locator(".progress")).to_have_count(0)


async def test_the_log_is_searched_filtered_wrapped_picked_and_downloaded(console: Console) -> None:
    job_id = await enqueued(console.world)
    for number in (1, 2):
        item = await claimed(console.world)
        said = [
            {"seq": 1, "text": f"out {number} needle\n"},
            {"seq": 2, "text": f"err {number} Needle\n", "stream": "stderr"},
        ]
        await tell(console.world, item, "logs", chunks=said)
        await tell(console.world, item, "release")
    await console.world.call("POST", f"/jobs/{job_id}/cancel")
    page = await console.visit(Role.VIEWER, f"/jobs/{job_id}")
    shown = page.locator(".line:visible")

    await expect(shown).to_have_count(4)
    await page.keyboard.press("/")
    await page.keyboard.type("needle")
    await expect(page.locator("[data-found]")).to_have_text("4 found")
    await page.keyboard.press("Enter")
    await expect(page.locator("[data-found]")).to_have_text("1 of 4")
    await page.uncheck("[data-stream=stdout]")
    await expect(shown).to_have_text(["err 1 Needle", "err 2 Needle"])
    await expect(page.locator("[data-found]")).to_have_text("2 found")
    await page.uncheck("[data-wrap]")
    await expect(shown.first).to_have_css("white-space", "pre")
    await page.select_option("[data-attempt]", "2")
    await expect(shown).to_have_text(["err 2 Needle"])
    async with page.expect_download() as waiting:
        await page.click("[data-download]")
    download = await waiting.value
    assert download.suggested_filename == f"{job_id}.2.log"
    assert (await download.path()).read_text() == "out 2 needle\nerr 2 Needle\n"


async def test_a_long_log_is_loaded_from_its_end(console: Console) -> None:
    async with console.transaction() as tx:
        job_id = await given.ended_job(tx, "succeeded")
        await given.write_log(tx, job_id, *(f"line {number}{'.' * 1000}\n" for number in range(1, 301)))
    page = await console.visit(path=f"/jobs/{job_id}")
    lines = page.locator(".line")

    await expect(lines.last).to_contain_text("line 300.")
    assert await lines.count() < 150
    await page.locator("[data-lines]").scroll_into_view_if_needed()
    await expect(lines.last).to_be_in_viewport()
    await page.click("[data-earlier]")
    await page.click("[data-earlier]")
    await expect(lines).to_have_count(300)
    await expect(lines.first).to_contain_text("line 1.")
    await expect(page.locator("[data-earlier]")).to_be_hidden()


async def test_a_job_is_retried_with_another_payload(console: Console) -> None:
    job_id = await letter(console)
    page = await console.visit(Role.OPERATOR, f"/jobs/{job_id}")
    await page.click("text=Edit and retry")

    await expect(page.get_by_label("copies")).to_have_value("2")
    await page.fill("[name='payload/to']", "somebody with a very long name")
    await page.fill("[name='payload/copies']", "none")
    await page.keyboard.press("Enter")
    await expect(page.locator("[id='payload/token-fault']")).to_contain_text("Enter the secret again")
    await page.fill("[name='payload/token']", "another-token")
    await page.keyboard.press("Enter")
    to = page.locator("[name='payload/to']")
    await expect(to).to_have_attribute("aria-invalid", "true")
    await expect(to).to_be_focused()
    await expect(page.locator("[id='payload/to-fault']")).to_contain_text("longer than 20 characters")
    await expect(page.locator("[id='payload/copies-fault']")).to_contain_text('not of type "integer"')
    await accessible(page)
    await to.fill("Grace")
    await page.fill("[name='payload/copies']", "3")
    await page.click("#content button.primary >> text=Retry")

    await expect(page.locator(".toast")).to_contain_text("Job queued again with the new payload.")
    await expect(page.locator("#payload")).to_contain_text("to: Grace")
    payload = await act(console, jobs.get_payload, job_id)
    assert payload == {**PAYLOAD, "to": "Grace", "copies": 3, "token": "another-token"}
    await page.goto(f"/console/jobs/{job_id}/edit")
    await expect(page.locator("h1")).to_have_text("Edit this job")


async def test_a_job_leads_to_what_it_belongs_to(console: Console) -> None:
    async with console.transaction() as tx:
        trigger, event = await given.trigger(tx), await given.event(tx)
        parent = await given.queued_job(tx, source=Source.EVENT, source_ref=str(event))
        host = console.world.hosts[given.TENANT]
        child = await given.queued_job(tx, parent_id=parent, host_id=host, source_ref=str(trigger.id))
        firing = NewFiring(
            trigger_id=trigger.id,
            tenant_id=trigger.tenant_id,
            slot="x",
            event_id=event,
            job_id=parent,
            outcome=FiringOutcome.ENQUEUED,
        )
        await firings.add(tx, [firing])
    page = await console.visit(path=f"/jobs/{child}")

    facts = page.locator(".facts")
    await expect(facts.locator("text=trigger")).to_have_attribute(
        "href", re.compile(f"/triggers/{trigger.id}$")
    )
    await expect(facts.locator(f"a[href$='/hosts/{host}']")).to_have_text("host")
    await facts.locator(f"a[href$='/jobs/{parent}']").click()
    await expect(facts.locator("text=event")).to_have_attribute("href", re.compile(f"/events/{event}$"))
    await expect(facts.locator("text=trigger")).to_have_attribute(
        "href", re.compile(f"/triggers/{trigger.id}$")
    )
    await expect(page.locator(f"#children a[href$='{child}']")).to_be_visible()


async def test_what_is_no_job_is_not_found(console: Console) -> None:
    job_id = await letter(console)
    for path in ("/jobs/nonsense", f"/jobs/{uuid4()}", f"/jobs/{job_id}/log?attempt=99999999999"):
        assert (await console.read(Role.VIEWER, path)).status_code == 404


async def test_a_super_admin_follows_a_job_of_any_tenant(console: Console) -> None:
    job_id = await enqueued(console.world)
    item = await claimed(console.world)
    page = await console.visit(Role.SUPER_ADMIN, f"/jobs/{job_id}?tenant={given.TENANT}")
    await expect(page.locator("[data-following]")).to_contain_text("Following")
    await tell(console.world, item, "logs", chunks=[{"seq": 1, "text": "hello\n"}])

    await expect(page.locator(".line")).to_have_text("hello")
    await expect(page.locator("text=Duplicate")).to_have_attribute(
        "href", re.compile(f"tenant={given.TENANT}")
    )
    await tell(console.world, item, "complete")
    await page.goto(f"/console/jobs/{job_id}")
    await expect(page.locator(".line")).to_have_text("hello")


async def test_attempts_before_a_retry_are_not_counted_against_the_limit(console: Console) -> None:
    async with console.transaction() as tx:
        job_id = await given.ended_job(tx, "dead_letter", max_attempts=1)
        # a retry begins a new count of failures; the numbers of attempts go on
        await given.set_job(tx, job_id, attempt_count=2)
    page = await console.visit(path=f"/jobs/{job_id}")

    await expect(page.locator("#job")).to_contain_text("2 attempts; since the last retry 1 failed (limit 1)")
