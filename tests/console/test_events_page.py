"""The events: listed, shown with what they set off, told and told again, in a real browser."""

import re

import pytest
from playwright.async_api import expect

from fairlead.actions.dispatch import dispatch
from fairlead.model.access import Role
from tests import given
from tests.acting import act
from tests.console.visiting import Console, accessible_in_each_look, submit

pytestmark = pytest.mark.thorough


async def test_the_list_says_how_many_jobs_each_made(console: Console) -> None:
    async with console.transaction() as tx:
        for label in ("One", "Two"):
            await given.trigger(tx, label=label)
        await given.trigger(tx, event_name="needs.name", payload_template={"a": "{{event.a}}"})
        told = await given.event(tx, correlation_id="abc")
        alone = await given.event(tx, name="nobody.cares")
        bad = await given.event(tx, name="needs.name")
        await dispatch(tx, given.catalog(), limit=10)
        waits = await given.event(tx, data={"cloudevent": {"source": "/shop", "subject": "order 7"}})
    page = await console.visit(path="/events")

    await expect(page.locator("tbody tr").first).to_have_id(f"event-{waits}")
    for event_id, state, made in (
        (waits, "waiting", ""),
        (bad, "1 failed", "0"),
        (alone, "no match", "0"),
        (told, "dispatched", "2"),
    ):
        row = page.locator(f"#event-{event_id}")
        await expect(row.locator(".status")).to_have_text(state)
        await expect(row.locator("td.num")).to_have_text(made)
    await expect(page.locator(f"#event-{waits}")).to_contain_text("/shop · order 7")
    await accessible_in_each_look(page)
    await page.fill("[name=correlation_id]", "abc")
    await page.keyboard.press("Enter")
    await expect(page.locator("tbody tr")).to_have_count(1)


async def test_an_event_is_emitted_seen_and_replayed(console: Console) -> None:
    async with console.transaction() as tx:
        rule = await given.trigger(tx, label="Rule one")
        await given.trigger(tx, label="Rule two", filter={"never": 1})
    page = await console.visit(path="/events")
    await page.click("text=Send event")

    await submit(page, "button >> text=Send event", {"#f-name": "not a name", "#f-data": '{"a": 1,}'})
    await expect(page.locator("#fault-data")).to_contain_text("is not JSON")
    await accessible_in_each_look(page)
    await submit(page, "button >> text=Send event", {"#f-data": '{"a": 1}'})
    await expect(page.locator("#f-name")).to_have_attribute("aria-invalid", "true")
    await expect(page.locator("#fault-data")).to_have_count(0)
    await page.fill("#f-name", given.EVENT)
    await page.fill("#f-occurred_at", "2026-02-16T10:30:00")
    await page.click("button >> text=Send event")
    await expect(page.locator("h1")).to_have_text(given.EVENT)
    await expect(page.locator("text=Waiting for a scheduler")).to_be_visible()
    await expect(page.locator(".json")).to_contain_text('"a": 1')
    await expect(page.locator("time").first).to_have_attribute("datetime", "2026-02-16T10:30:00+00:00")

    await act(console, dispatch, given.catalog(), limit=10)
    firing = page.locator("[id^=firing-]")
    await expect(firing).to_contain_text("Rule one")
    await expect(firing.locator("a.mono")).to_have_attribute("href", re.compile("/console/jobs/"))
    await expect(page.locator("text=Waiting for a scheduler")).to_have_count(0)
    await accessible_in_each_look(page)

    await page.select_option("[name=trigger_id]", str(rule.id))
    await page.click("text=Replay")
    await page.click("#confirm [data-yes]")
    await expect(page.locator(".toast")).to_contain_text("Event replayed")
    await expect(page.locator(".facts")).to_contain_text("only Rule one")
    async with console.transaction() as tx:
        await dispatch(tx, given.catalog(), limit=10)
        assert await given.count(tx, "jobs") == 2
    await expect(page.locator("[id^=firing-] .status")).to_have_text("enqueued")


async def test_a_super_admin_says_of_which_tenant_an_event_is(console: Console) -> None:
    await given.event(console, tenant=given.OTHER)
    page = await console.visit(Role.SUPER_ADMIN, "/events")
    await expect(page.locator("tbody tr", has_text=given.OTHER)).to_have_count(1)
    await page.click("text=Send event")
    await submit(page, "button >> text=Continue", {"[name=tenant][required]": given.TENANT})
    await expect(page.locator("h1")).to_have_text("Send event")
