"""Enqueueing by hand, in a real browser."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from playwright.async_api import expect

from fairlead.actions import definitions, hosts
from fairlead.model.access import Role
from fairlead.model.job import OPTIONS
from tests import given
from tests.acting import act
from tests.console.test_job_page import LETTER, PAYLOAD, letter
from tests.console.visiting import Console, accessible, accessible_in_each_look, submit

pytestmark = pytest.mark.thorough


async def made(console: Console) -> list[dict[str, Any]]:
    """The jobs that are there, oldest first."""
    async with console.transaction() as tx:
        rows = await tx.values(
            """select t.slug, j.payload, j.priority, j.scheduled_for, j.dedupe_key, j.host_id
            from fairlead.jobs j join fairlead.tenants t on t.id = j.tenant_id order by j.id"""
        )
    names = ("tenant", "payload", "priority", "scheduled_for", "dedupe_key", "host_id")
    return [dict(zip(names, row, strict=True)) for row in rows]


async def define(console: Console) -> None:
    await act(console, definitions.patch, given.TESTER, "letter", LETTER)


async def test_a_job_is_enqueued_after_its_faults_are_mended(console: Console) -> None:
    await define(console)
    page = await console.visit(path="/enqueue")
    await page.select_option("#definition", "letter")
    await expect(page.locator("[name='payload/to']")).to_be_visible()

    await page.fill("[name='payload/copies']", "0")
    await page.fill("[name='json/parts']", "[1")
    await page.click("button:has-text('Enqueue')")
    await expect(page.locator("[id='payload/parts-fault']")).to_contain_text("This is not JSON")
    await submit(page, "button:has-text('Enqueue')", {"[name='json/parts']": "", "#priority": "soon"})
    await expect(page.locator("#priority-fault")).to_have_text("must be an integer")
    await page.fill("#priority", "7")
    await page.fill("#dedupe_key", "letter-1")
    await page.fill("#scheduled", "2030-07-01T12:30")
    await page.select_option("#host_id", label="host")
    await page.click("button:has-text('Enqueue')")
    await expect(page.locator("[id='payload/to-fault']")).to_have_text("This is required.")
    await expect(page.locator("[id='payload/copies-fault']")).to_contain_text("less than")
    await accessible_in_each_look(page)
    await expect(page.locator("#scheduled")).to_have_value(re.compile("^2030-07-01T12:30"))
    await page.fill("[name='payload/copies']", "3")
    await page.fill("[name='payload/to']", "Ada")
    await page.keyboard.press("Enter")

    await expect(page).to_have_url(re.compile("/console/jobs/[0-9a-f-]{36}$"))
    await expect(page.locator(".toast")).to_contain_text("Job enqueued.")
    await expect(page.locator(".why")).to_contain_text("It is not due yet")
    zone = await page.evaluate("new Date('2030-07-01T12:30').toISOString()")
    assert await made(console) == [
        {
            "tenant": given.TENANT,
            "payload": {"to": "Ada", "copies": 3},
            "priority": 7,
            "scheduled_for": datetime.fromisoformat(zone).astimezone(UTC),
            "dedupe_key": "letter-1",
            "host_id": console.world.hosts[given.TENANT],
        }
    ]


async def test_tags_times_and_a_debounced_key_are_texts_of_the_form(console: Console) -> None:
    page = await console.visit(path="/enqueue?definition=anything")
    await page.fill("#tags", "red, size 7")
    await page.fill("#timeout", "90")
    await page.fill("#expires_in", "2h")
    await page.fill("#debounce", "page-7")
    await page.click("button:has-text('Enqueue')")
    await expect(page.locator("#debounce-fault")).to_contain_text("must be an object with key")
    await submit(page, "button:has-text('Enqueue')", {"#debounce": "page-7:30m:2h"})

    await expect(page).to_have_url(re.compile("/console/jobs/[0-9a-f-]{36}$"))
    await expect(page.locator("dd .tag:text-is('size 7')")).to_be_visible()
    job = await given.read_job(console, UUID(page.url.rpartition("/")[2]))
    assert (job.tags, job.timeout_seconds) == (("red", "size 7"), 90)
    assert job.expires_at == job.scheduled_for + timedelta(hours=2)


async def test_every_option_of_a_job_has_a_field(console: Console) -> None:
    page = await console.visit(path="/enqueue?definition=anything")

    names = await page.eval_on_selector_all("form.enqueue [name]", "all => all.map(one => one.name)")

    assert set(OPTIONS) - set(names) == set()


async def test_a_job_is_enqueued_for_a_resource_after_a_delay(console: Console) -> None:
    tenant_id, host_id = console.world.tenants[given.TENANT], console.world.hosts[given.TENANT]
    async with console.transaction() as tx:
        resource = await hosts.add_resource(
            tx, given.TESTER, tenant_id=tenant_id, host_id=host_id, kind="disk", name="d1"
        )
    page = await console.visit(path="/enqueue?definition=anything")

    await page.fill("#payload-text", "{}")
    await page.select_option("#resource_id", label="d1")
    await submit(page, "button:has-text('Enqueue')", {"#delay": "soon"})
    await expect(page.locator("#delay-fault")).to_contain_text("such as 90s")
    await submit(page, "button:has-text('Enqueue')", {"#delay": "2h"})

    await expect(page.locator(".why")).to_contain_text("It is not due yet")
    await expect(page.locator("dd", has_text=str(resource.id))).to_be_visible()
    assert [one["host_id"] for one in await made(console)] == [host_id]


async def test_the_payload_is_written_as_json_too(console: Console) -> None:
    await define(console)
    page = await console.visit(Role.OPERATOR, "/enqueue?definition=letter")
    text = page.locator("#payload-text")

    await submit(page, "button:has-text('JSON')", {"[name='payload/to']": "Ada"})
    await expect(text).to_have_value('{\n  "to": "Ada"\n}')
    await accessible(page)
    await text.fill('{"to": "Grace", "more": 1}')
    await page.click("button:has-text('Form')")
    await expect(page.locator(".fault").first).to_contain_text("fields that the schema does not define")
    await text.fill("{")
    await page.click("button:has-text('Enqueue')")
    await expect(page.locator(".fault").first).to_contain_text("The payload is not JSON")
    await text.fill('{"to": "Grace", "copies": "x"}')
    await page.click("button:has-text('Enqueue')")
    await expect(text).to_have_attribute("aria-invalid", "true")
    await expect(page.locator(".fault code")).to_have_text("/copies")
    await text.fill('{"to": "Grace", "copies": 4}')
    await page.click("button:has-text('Form')")
    await expect(page.locator("[name='payload/copies']")).to_have_value("4")
    await page.click("button:has-text('Enqueue')")

    await expect(page.locator(".toast")).to_contain_text("Job enqueued.")
    assert [one["payload"] for one in await made(console)] == [{"to": "Grace", "copies": 4}]


async def test_a_copy_has_all_but_the_secrets(console: Console) -> None:
    job_id = await letter(console)
    page = await console.visit(path=f"/jobs/{job_id}")
    await page.click("text=Duplicate")

    await expect(page.locator("[name='payload/to']")).to_have_value("Ada")
    await expect(page.locator("[name='payload/token']")).to_have_value("")
    await submit(page, "button:has-text('Enqueue')", {"[name='payload/token']": "[redacted]"})
    await expect(page.locator("[id='payload/token-fault']")).to_contain_text("Enter it again")
    await submit(page, "button:has-text('Enqueue')", {"[name='payload/token']": "another one"})

    await expect(page.locator(".toast")).to_contain_text("Job enqueued.")
    assert [one["payload"] for one in await made(console)][1:] == [{**PAYLOAD, "token": "another one"}]


async def test_a_super_admin_says_for_whom(console: Console) -> None:
    page = await console.visit(Role.SUPER_ADMIN, "/enqueue")
    await accessible(page)

    await submit(page, "button >> text=Continue", {".empty [name=tenant]": given.OTHER})
    await page.select_option("#definition", "greet")
    await page.fill("[name='payload/name']", "Ada")
    await page.keyboard.press("Enter")

    await expect(page).to_have_url(re.compile(rf"/jobs/[0-9a-f-]{{36}}\?tenant={given.OTHER}$"))
    assert [one["tenant"] for one in await made(console)] == [given.OTHER]
