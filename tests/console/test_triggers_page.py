"""The triggers: their list, the editor with its preview, and the page of one, in a real browser."""

import re
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest
from playwright.async_api import Page, expect

from fairlead.actions import definitions, triggers
from fairlead.actions.dispatch import dispatch
from fairlead.actions.triggers import build_document
from fairlead.db.tx import Tx
from fairlead.model.access import Role
from fairlead.server.console.pages.trigger_editor import _describe_result
from fairlead.store import triggers as stored
from tests import given
from tests.console.visiting import NARROW, Console, accessible, accessible_in_each_look, submit

pytestmark = pytest.mark.thorough

ADA = {"user": {"name": "Ada"}, "total": 7}


async def invalid(page: Page, field: str, words: str) -> None:
    """A field says what is wrong with it, also to those who do not see it."""
    await expect(page.locator(f"#f-{field}")).to_have_attribute("aria-invalid", "true")
    await expect(page.locator(f"#fault-{field}")).to_contain_text(words)


async def test_a_warning_is_worded_as_what_it_is(tx: Tx) -> None:
    late = {"label": "Late", "trigger_type": "schedule", "every_seconds": 60, "catch_up": "all"}
    misfit = {
        "label": "Misfit",
        "trigger_type": "event",
        "event_name": "x",
        "payload_template": {"nobody": 1},
    }
    told = [
        _describe_result(
            "Created.", await triggers.create(tx, given.TESTER, given.TENANT, {**said, "definition_key": key})
        )
        for said, key in ((late, "anything"), (misfit, "greet"))
    ]

    assert told[0] == "Created. But catch_up creates one job for all missed runs, unless overlap is allow."
    assert told[1].startswith("Created. But its payload may not be valid for greet: ")


async def test_the_list_says_when_and_what_became_of_it(console: Console) -> None:
    async with console.transaction() as tx:
        made = await given.trigger(tx, label="On news", payload_template={"who": "{{event.user.name}}"})
        # hours away: what is due at once would not be due "in" some time
        hour = (await stored.read_clock(tx) + timedelta(hours=12)).astimezone(ZoneInfo("Europe/Paris")).hour
        nightly = await given.trigger(
            tx, label="Nightly", cron_expr=f"0 {hour} * * *", timezone="Europe/Paris", is_enabled=False
        )
        for data in ({}, ADA, ADA):
            await given.event(tx, data=data)
        await dispatch(tx, given.catalog(), limit=10)
    page = await console.visit(path="/triggers")

    row = page.locator(f"#trigger-{nightly.id}")
    await expect(row.locator(".fires > span")).to_have_text(f"every day at {hour:02}:00")
    await expect(row).to_contain_text("Europe/Paris")
    await expect(row).to_contain_text("Never fired")
    marks = page.locator(f"#trigger-{made.id} .mark")
    await expect(marks).to_have_text(["failed", "enqueued", "deduplicated"])
    await accessible_in_each_look(page)

    await row.locator("text=Enable").click()
    await expect(row.locator(".status")).to_have_text("enabled")
    await expect(row).to_contain_text(re.compile(r"in \d+ h"))
    await page.click(".toast >> text=Undo")
    await expect(row.locator(".status")).to_have_text("disabled")
    await page.select_option("[name=enabled]", "yes")
    await expect(page.locator("tbody tr")).to_have_count(1)


async def test_a_schedule_is_previewed_while_it_is_typed_and_then_made(console: Console) -> None:
    page = await console.visit(path="/triggers")
    await page.click(".empty a >> text=On a schedule")

    await page.fill("#f-cron_expr", "0 3 1 */3")
    await invalid(page, "cron_expr", "five fields")
    await page.fill("#f-cron_expr", "0 3 1 */3 *")
    await page.fill("#f-timezone", "Europe/Berlin")
    runs = page.locator("#preview .runs tbody tr")
    await expect(runs).to_have_count(5)
    # a year and more, four times a year: clocks change on the way
    await expect(page.locator("#preview .note").first).to_contain_text("clocks changed")
    await expect(runs.first).to_contain_text("03:00")
    await expect(page.locator("#preview")).to_contain_text("Definition to enqueue is required")
    await expect(page.locator("#f-cron_expr[aria-invalid]")).to_have_count(0)

    await page.select_option("#f-definition_key", "greet")
    await expect(page.locator("#preview .check.bad")).to_contain_text('"name" is a required property')
    await page.fill("#f-payload_template", '{"name": "{{tenant.slug}}"}')
    await expect(page.locator("#preview .check.good")).to_have_text("Valid for greet.")
    await expect(page.locator("#preview .json")).to_contain_text('"name": "acme"')
    await accessible_in_each_look(page)

    await page.click("text=Create trigger")
    await invalid(page, "label", "is required")
    await expect(page.locator("#f-label")).to_be_focused()
    await submit(page, "text=Create trigger", {"#f-label": "Quarterly"})
    await expect(page.locator("h1")).to_contain_text("Quarterly")
    await expect(page.locator(".toast")).to_contain_text("Trigger created.")
    await page.click("text=Fire now")
    await expect(page.locator(".toast").last).to_contain_text("Trigger fired. Job")
    firing = page.locator("[id^=firing-]")
    await expect(firing).to_contain_text("Manual")
    await expect(firing.locator("a.mono")).to_have_attribute("href", re.compile("/console/jobs/"))


async def test_an_event_trigger_is_tried_with_past_events_and_samples(console: Console) -> None:
    async with console.transaction() as tx:
        old = await given.event(tx, data=ADA)
        await given.event(tx, data={"user": {"name": "Bob"}, "total": 0})
        await given.event(tx, data={"total": "of another tenant"}, tenant=given.OTHER)
        ends = await given.trigger(tx, event_name="job.failed")
    page = await console.visit(path=f"/triggers/new?event={given.EVENT}")
    await expect(page.locator("#event-names option[value='job.dead_letter']")).to_have_count(1)

    choice = page.locator("#event-choice")
    await expect(choice.locator("option")).to_have_count(3)
    await page.fill("#f-filter", '{"total": {"gt": ')
    await invalid(page, "filter", "is not JSON")
    await page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    await accessible_in_each_look(page)
    await page.fill("#f-filter", '{"total": {"more": 0}}')
    await invalid(page, "filter", "/total/more")
    await page.fill("#f-filter", '{"total": {"gt": 0}}')
    await page.select_option("#f-definition_key", "greet")
    await page.fill("#f-payload_template", '{"name": "{{event.user.name}}"}')
    await expect(page.locator("#preview")).to_contain_text("does not match the filter")
    await choice.select_option(str(old))
    await expect(page.locator("#preview")).to_contain_text("The event matches, and would enqueue a job.")
    await expect(page.locator("#preview .json").first).to_contain_text('"name": "Ada"')
    await choice.select_option("sample")
    await page.fill("#f-sample", '{"total": 1, "user": {"name": 3}}')
    await expect(page.locator("#preview .check.bad")).to_contain_text("/name")

    await submit(page, "text=Create trigger", {"#f-label": "Greet who is new"})
    await expect(page.locator("h1")).to_contain_text("Greet who is new")
    await page.wait_for_load_state()  # until then, everything is disabled
    await expect(page.locator("text=Fire now")).to_be_disabled()
    await expect(page.locator("text=Not fired yet")).to_be_visible()
    await expect(page.locator(f"text=Send {given.EVENT}")).to_be_visible()

    page = await console.visit(path=f"/triggers/{ends.id}")
    await expect(page.locator("text=Fairlead emits these events")).to_be_visible()
    await expect(page.locator("text=Emit job.failed")).to_have_count(0)


async def test_an_edit_changes_what_was_changed_and_asks_for_secrets_beside_it(console: Console) -> None:
    schema = {"properties": {"key": {"type": "string", "x-secret": True}, "n": {"type": "integer"}}}
    async with console.transaction() as tx:
        await definitions.patch(tx, given.TESTER, "anything", {"arg_schema": schema})
        made = await given.trigger(
            tx, every_seconds=5400, payload_template={"key": "hunter2hunter2", "n": 1}, overlap="allow"
        )
    page = await console.visit(path=f"/triggers/{made.id}/edit")

    assert "hunter2" not in await page.content()
    await expect(page.locator("#f-every")).to_have_value("90")
    await expect(page.locator("#preview")).to_contain_text("Every 90 minutes")
    await page.fill("#f-label", "Renamed")
    template = await page.input_value("#f-payload_template")
    template = template.replace("[redacted]", "hunter3hunter3")
    await page.fill("#f-payload_template", template.replace("1", "true"))
    await expect(page.locator("#preview .check.bad")).to_contain_text("/n")
    await submit(page, "#editor [type=submit]", {"#f-payload_template": template.replace("1", "2")})
    await expect(page.locator("h1")).to_contain_text("Renamed")

    assert "hunter" not in await page.content()
    async with console.transaction() as tx:
        now = await stored.get(tx, made.id)
        [entry] = await given.audit_entries(tx, "trigger_changed")
    assert now is not None
    assert build_document(now) == build_document(made) | {
        "label": "Renamed",
        "payload_template": {"key": "hunter3hunter3", "n": 2},
    }
    assert now.next_fire_at == made.next_fire_at
    assert entry.details["fields"] == ["label", "payload_template"]


async def test_a_failure_is_told_with_its_reason_and_the_trigger_is_deleted(console: Console) -> None:
    async with console.transaction() as tx:
        made = await given.trigger(tx, payload_template={"who": "{{event.user.name}}"})
        good = await given.event(tx, data=ADA)
        await dispatch(tx, given.catalog(), limit=10)
        bad = await given.event(tx)
        await dispatch(tx, given.catalog(), limit=10)
    page = await console.visit(path=f"/triggers/{made.id}")

    await expect(page.locator(".check.bad")).to_contain_text("event.user.name is missing")
    await expect(page.locator("[id^=firing-]")).to_have_count(2)
    await expect(page.locator(f"a[href$='/events/{good}']")).to_be_visible()
    await accessible_in_each_look(page)
    await page.click(".tabs >> text=failed")
    await expect(page.locator("[id^=firing-]")).to_have_count(1)
    await expect(page.locator(f"a[href$='/events/{bad}']")).to_be_visible()

    await page.click("text=Delete")
    await page.click("#confirm [value=no]")
    await page.click("text=Delete")
    await page.click("#confirm [data-yes]")
    await expect(page.locator("text=No triggers yet")).to_be_visible()
    await expect(page.locator(".toast")).to_contain_text("Trigger Rule deleted.")


async def test_what_fires_meanwhile_waits_behind_a_button(console: Console) -> None:
    async with console.transaction() as tx:
        made = await given.trigger(tx, dedupe_window_seconds=0)
        await given.event(tx)
        await dispatch(tx, given.catalog(), limit=10)
    page = await console.visit(path=f"/triggers/{made.id}")
    await expect(page.locator("[data-live-state=live]")).to_be_visible()

    async with console.transaction() as tx:
        await given.event(tx)
        await dispatch(tx, given.catalog(), limit=10)

    await expect(page.locator(".new")).to_have_text("1 new")
    await expect(page.locator("[id^=firing-]")).to_have_count(1)
    await page.click(".new")
    await expect(page.locator("[id^=firing-]")).to_have_count(2)


async def test_a_super_admin_says_of_which_tenant_a_trigger_is(console: Console) -> None:
    for tenant in (given.TENANT, given.OTHER):
        await given.trigger(console, tenant=tenant)
    page = await console.visit(Role.SUPER_ADMIN, "/triggers")
    await expect(page.locator("tbody tr")).to_have_count(2)
    await page.click("text=New trigger")
    await submit(page, "button >> text=Continue", {"[name=tenant][required]": given.OTHER})
    await expect(page.locator("h1")).to_have_text("New trigger")
    await expect(page).to_have_url(re.compile(f"tenant={given.OTHER}"))


async def test_the_strip_tells_what_runs_at_a_time(console: Console) -> None:
    async with console.transaction() as tx:
        now = await stored.read_clock(tx)
        later = now + timedelta(hours=7)
        nightly = await given.trigger(
            tx, label="nightly", cron_expr=f"{later.minute} {later.hour} * * *", timezone="UTC"
        )
        await given.trigger(tx, label="often", cron_expr="*/5 * * * *")
    page = await console.visit(path="/triggers")
    rows = page.locator("#upcoming tbody tr")
    await expect(rows).to_have_count(2)
    await expect(rows.first).to_contain_text("often")
    await expect(rows.nth(1)).to_contain_text("nightly")
    await expect(page.locator("#strip .line")).to_have_count(2)

    # the only firing of this trigger, by its place on the strip and then by keys
    await page.locator("#strip svg[data-label=nightly] rect.next").hover()
    told = page.locator("[data-strip-told]")
    await expect(told).to_contain_text("nightly will run")
    await page.locator("[data-strip]").focus()
    await page.keyboard.press("ArrowLeft")
    await expect(told).to_contain_text("often will run")
    await accessible(page)
    await page.set_viewport_size({"width": NARROW, "height": 900})
    await accessible(page)

    await page.goto(f"/console/triggers/{nightly.id}")
    await expect(page.locator("#strip rect.next")).to_have_count(1)
    await accessible(page)

    # in the zone and with the hours of the account
    await given.set_user(console, timezone="Asia/Tokyo", hour_cycle="h12")
    await page.goto("/console/triggers")
    await expect(page.locator("#upcoming [data-zone]")).to_have_text("Asia/Tokyo")
    await expect(rows.nth(1).locator("time").first).to_have_text(f"{later + timedelta(hours=9):%a %I:%M %p}")


async def test_times_of_triggers_in_other_zones_are_shown_in_both(console: Console) -> None:
    async with console.transaction() as tx:
        now = await stored.read_clock(tx)
        # where clocks never change: an hour that comes twice would fire once
        there = (now + timedelta(hours=7)).astimezone(ZoneInfo("Africa/Lagos"))
        cron = f"{there.minute} {there.hour} * * *"
        await given.trigger(tx, label="abroad", cron_expr=cron, timezone="Africa/Lagos")
        await given.trigger(tx, label="here", cron_expr="0 3 * * *", timezone="Asia/Tokyo")
    page = await console.visit(path="/triggers")
    await given.set_user(console, timezone="Asia/Tokyo", hour_cycle="h23")
    await page.reload()

    here = there.astimezone(ZoneInfo("Asia/Tokyo"))
    own = f"{there:%H:%M} Africa/Lagos" if here.date() == there.date() else f"{there:%a %H:%M} Africa/Lagos"
    rows = page.locator("#upcoming tbody tr")
    await expect(rows.filter(has_text="abroad").locator("td").first).to_have_text(f"{here:%a %H:%M} · {own}")
    await expect(rows.filter(has_text="here").locator("td").first).to_have_text(re.compile(r"^\w+ 03:00 $"))
    await page.locator("#strip svg[data-label=abroad] rect.next").hover()
    await expect(page.locator("[data-strip-told]")).to_contain_text(
        f"abroad will run at {here:%H:%M} ({own})"
    )


async def test_a_range_is_previewed_and_backfilled_and_the_page_shows_how_far_it_is(console: Console) -> None:
    made = await given.trigger(console, label="Nightly", cron_expr="0 2 * * *")
    page = await console.visit(path=f"/triggers/{made.id}")
    await accessible_in_each_look(page)
    await page.click("text=Backfill")
    await expect(page.locator("h1")).to_have_text("Backfill")
    await submit(page, "text=Preview", {"#f-from": "2026-03-01T00:00:00", "#f-to": "2026-03-04T00:00:00"})
    await expect(page.locator("#backfill h2")).to_have_text("3 scheduled times")
    await expect(page.locator("#backfill tbody tr")).to_have_count(3)
    await accessible(page)

    await page.click("text=Enqueue 3 jobs")
    await page.click("#confirm [data-yes]")
    await expect(page.locator(".toast")).to_contain_text("3 jobs enqueued.")
    await expect(page.locator("#backfill tbody a.mono")).to_have_count(3)
    await expect(page.locator("#backfill")).to_contain_text("3 of them have a job: 3 queued.")
    await expect(page.locator("text=Enqueue 3 jobs")).to_have_count(0)
    await accessible(page)

    await submit(page, "text=Preview", {"#f-to": "2999-01-01T00:00:00"})
    await expect(page.locator(".fault")).to_contain_text("must not be in the future")
    page = await console.visit(Role.OPERATOR, f"/triggers/{made.id}")
    await expect(page.locator("main >> text=Backfill")).to_have_count(0)


async def test_the_editor_takes_an_end_and_jitter_and_the_page_says_when_it_is_over(console: Console) -> None:
    made = await given.trigger(console, label="Nightly", cron_expr="0 2 * * *")
    page = await console.visit(path=f"/triggers/{made.id}/edit")
    await page.fill("#f-end_at", "2999-12-31T00:00:00")
    await page.fill("#f-jitter_seconds", "600")
    await expect(page.locator("#preview")).to_contain_text("up to 10 minutes later, until 2999-12-31")
    await expect(page.locator("#preview")).to_contain_text("In yours, with jitter")
    await page.fill("#f-jitter_seconds", "90000")
    await invalid(page, "jitter_seconds", "between 0 and 86400")
    await submit(page, "#editor [type=submit]", {"#f-jitter_seconds": "600"})
    await expect(page.locator("h1 .status")).to_have_text("enabled")
    await expect(page.locator("main")).to_contain_text("Up to 10")
    # and the strip's script, which writes its own zone, leaves the times of the runs alone
    await expect(page.locator("[data-zone]").first).to_have_text(re.compile("."))
    await expect(page.locator(".runs td time").first).to_contain_text("02:00")

    async with console.transaction() as tx:
        now = await stored.get(tx, made.id)
        assert now is not None
        assert now.jitter_seconds == 600
        await triggers.change(tx, given.TESTER, made.id, {"end_at": "2026-01-01T00:00:00Z"})
    await page.reload()
    await expect(page.locator("h1 .status")).to_have_text("over")
    await expect(page.locator("main")).to_contain_text("Over: no further runs")
    await page.goto("/console/triggers")
    await expect(page.locator(f"#trigger-{made.id}")).to_contain_text("over")
    await accessible(page)
