"""What all pages have in common: the banner, toasts, times, keys and forms."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.async_api import Page, expect

from fairlead.actions import definitions, error_groups, system
from fairlead.model.access import Role
from fairlead.server.auth import COOKIE
from fairlead.server.console import assets
from tests import given
from tests.acting import act
from tests.console.visiting import (
    NARROW,
    TOAST_END,
    WIDE,
    Console,
    accessible,
    accessible_in_each_look,
    fits_each_window,
)
from tests.server.world import PASSWORD

pytestmark = pytest.mark.thorough

LONG = "a" * 60 + "-" + "b" * 60


@asynccontextmanager
async def reader(
    console: Console, path: str, role: Role = Role.TENANT_ADMIN, **traits: Any
) -> AsyncIterator[Page]:
    """A page of a browser with other traits, such as a locale and a time zone."""
    secret = (await console.world.signed_in(role)).partition("=")[2]
    page = await console.browsing.open(**traits)
    try:
        await page.context.add_cookies([{"name": COOKIE, "value": secret, "url": console.url}])
        await page.goto(f"/console{path}")
        yield page
    finally:
        await page.context.close()


# Pauses and errors


async def test_a_pause_shows_and_ends_by_itself(console: Console) -> None:
    pages = [await console.visit(Role.VIEWER, "/jobs"), await console.visit(Role.OPERATOR, "/enqueue")]
    for page in pages:
        await expect(page.locator("[data-live-state=live]")).to_be_visible()

    await act(console, system.change_gate, given.TESTER, online=False, note="Upgrade")
    for page in pages:
        await expect(page.locator("#pause-notice")).to_contain_text("Paused: no new jobs start. “Upgrade”")
    await accessible(pages[0])
    await act(console, system.change_gate, given.TESTER, online=True, note=None)

    for page in pages:
        await expect(page.locator("#pause-notice .banner")).to_have_count(0)


@pytest.mark.parametrize("gone", ["abort", "502"])
async def test_an_action_without_a_server_says_what_to_do(console: Console, gone: str) -> None:
    job_id = await given.ended_job(console, "failed")
    page = await console.visit()

    async def fail(route: Any) -> None:
        await (route.abort() if gone == "abort" else route.fulfill(status=502, body="Bad gateway"))

    await page.route("**/retry", fail)
    await page.click(f"#job-{job_id} .acts button")
    await expect(page.locator(".toast.error")).to_contain_text("The server cannot be reached")
    console._troubles.clear()  # htmx reports the failed request, too
    await page.unroute("**/retry")

    await page.route("**/bulk-jobs/**", fail)
    await page.click("text=All matching")
    await page.click("[data-matching=retry]")
    await expect(page.locator(".toast.error")).to_have_count(2)


async def test_toasts_go_away_by_themselves_but_errors_stay(console: Console) -> None:
    async with reader(console, "/jobs") as page:
        await page.clock.install()  # also in place of what keeps the toasts of other tests
        await page.reload()
        await page.clock.pause_at(datetime.now(UTC) + timedelta(hours=1))
        await page.evaluate("""() => {
            for (const one of [{}, { undo: "/" }, { kind: "error" }]) fairlead.toast({ text: "Done.", ...one });
        }""")

        for seconds, left in ((5, 3), (1, 2), (3, 2), (1, 1), (60, 1)):
            await page.clock.run_for(seconds * 1000)
            await expect(page.locator(".toast")).to_have_count(left)
        await expect(page.locator(".toast.error")).to_have_count(1)


def test_what_keeps_the_toasts_of_tests_still_does() -> None:
    assert f"setTimeout({TOAST_END}," in assets.static_folder().joinpath("console.js").read_text()


async def test_a_lost_database_is_said_without_its_address(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg  # noqa: PLC0415

    page = await console.visit(Role.SUPER_ADMIN, "/usage")

    def gone(*_: object, **__: object) -> Any:
        raise psycopg.OperationalError("connection to db.example failed")

    with monkeypatch.context() as patch:
        patch.setattr(console.world.fl.database, "transaction", gone)
        await page.goto("/console/usage")

    await expect(page.locator("main")).to_contain_text("The database cannot be reached.")
    await expect(page.locator("main")).not_to_contain_text(
        re.compile("127.0.0.1|db.example|fairlead_test|/tmp|DATABASE_URL")
    )


async def test_errors_have_no_escape_sequences(console: Console) -> None:
    async with console.transaction() as tx:
        job_id = await given.failed_job(tx, "\x1b[31mfatal:\x1b[0m no such table")
        await error_groups.fold_failures(tx)
    page = await console.visit(path="/errors")

    await expect(page.locator(".error-pattern")).to_have_text("fatal: no such table")
    await page.goto(f"/console/jobs/{job_id}")
    assert "\x1b" not in await page.content()
    assert "[31m" not in await page.content()


# Layout


async def test_a_card_alone_is_centred(console: Console) -> None:
    page = await console.stranger("/sign-in")
    for path in ("/sign-in", "/nowhere"):
        await page.goto(f"/console{path}")
        for width in (NARROW, WIDE):
            await page.set_viewport_size({"width": width, "height": 900})
            box = await page.locator(".card").bounding_box()
            assert box is not None
            assert abs(box["x"] + box["width"] / 2 - width / 2) < 2
        await accessible_in_each_look(page)


async def test_long_names_wrap(console: Console) -> None:
    async with console.transaction() as tx:
        await definitions.create(tx, given.TESTER, {"key": LONG})
        job_id = await given.ended_job(tx, "failed", definition=LONG, correlation_id=LONG)
        await given.set_tenant(tx, name=LONG)
    page = await console.visit()
    for path in (
        "/jobs",
        f"/jobs/{job_id}",
        "/definitions",
        f"/definitions/{LONG}",
        "/usage",
        "/errors",
    ):
        await page.goto(f"/console{path}")
        await fits_each_window(page)


# Times


async def test_times_and_numbers_are_in_the_readers_zone_and_language(console: Console) -> None:
    async with console.transaction() as tx:
        job_id = await given.ended_job(tx, "failed")
        await given.set_job(tx, job_id, queued_at="2026-03-01T20:00:00Z")
        await given.set_counts(tx, failed=1234567)
    async with reader(console, f"/jobs/{job_id}", locale="de-DE", timezone_id="Asia/Tokyo") as page:
        time = page.locator("#job time[tabindex][datetime^='2026-03-01T20']")
        await page.set_viewport_size({"width": NARROW, "height": 300})  # so that the focus scrolls
        await time.focus()
        await expect(page.locator("#tip")).to_have_text(
            re.compile(r"2\. März 2026.*05:00:00.*2026-03-01 20:00:00 UTC", re.DOTALL)
        )
        await accessible(page)
        await page.keyboard.press("Escape")
        await expect(page.locator("#tip")).to_be_hidden()
        await page.set_viewport_size({"width": WIDE, "height": 900})
        await page.click("[data-times-toggle]")
        await expect(time).to_have_text(re.compile(r"2\. März.*05:00:00"))
        await page.goto("/console/jobs")
        await expect(page.locator(".level.failed strong")).to_have_text("1.234.567")
    await given.set_counts(console, failed=1)


async def test_a_tap_shows_the_exact_time(console: Console) -> None:
    await given.queued_job(console)
    async with reader(console, "/jobs", has_touch=True, viewport={"width": NARROW, "height": 800}) as page:
        await page.locator("tbody time").first.tap()

        await expect(page.locator("#tip")).to_contain_text("UTC")


async def test_the_accounts_zone_and_clock_come_before_the_browsers(console: Console) -> None:
    async with console.transaction() as tx:
        job_id = await given.ended_job(tx, "failed")
        await given.set_job(tx, job_id, queued_at="2026-03-01T20:00:00Z")
    page = await console.visit(path="/account")
    await page.fill("[name=timezone]", "Europe/Berlin")
    await page.select_option("[name=hour_cycle]", "h12")
    await page.click("#own-times >> text=Save")
    await expect(page.locator("html[data-timezone='Europe/Berlin']")).to_be_attached()
    await page.goto(f"/console/jobs/{job_id}")

    await page.locator("#job time[tabindex][datetime^='2026-03-01T20']").focus()

    await expect(page.locator("#tip")).to_contain_text("09:00:00 PM")


# Copying


async def test_text_is_copied_without_a_clipboard(console: Console) -> None:
    job_id = await given.queued_job(console)
    async with reader(console, "/audit") as page:
        await page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
        await page.goto(f"/console/jobs/{job_id}")

        await page.click("[aria-label='Copy ID']")
        await expect(page.locator(".toast")).to_contain_text("Copied.")
        await page.focus("[data-find]")
        await page.keyboard.press("Control+V")

        await expect(page.locator("[data-find]")).to_have_value(str(job_id))


# Keys


async def test_keys_move_the_real_focus(console: Console) -> None:
    async with console.transaction() as tx:
        for _ in range(3):
            await given.queued_job(tx)
    page = await console.visit()
    rows = await page.locator("tbody tr").evaluate_all("rows => rows.map(row => row.id)")
    focused = "document.activeElement.closest('tr')?.id"

    for key, row in (("j", 0), ("j", 1), ("j", 2), ("k", 1)):
        await page.keyboard.press(key)
        assert await page.evaluate(focused) == rows[row]
    await page.keyboard.press("Enter")

    await expect(page).to_have_url(re.compile(rows[1].removeprefix("job-")))


async def test_a_space_closes_the_help_and_leaves_the_keys_on(console: Console) -> None:
    page = await console.visit()

    await page.keyboard.press("?")
    await expect(page.locator("#keys >> text=Close")).to_be_focused()
    await page.keyboard.press("Space")

    await expect(page.locator("#keys")).to_be_hidden()
    await expect(page.locator("#keys [data-shortcuts]")).to_be_checked()


async def test_keys_can_be_switched_off(console: Console) -> None:
    page = await console.visit()
    await page.keyboard.press("?")
    await page.uncheck("[data-shortcuts]")
    await accessible(page)
    await page.click("#keys >> text=Close")
    await page.reload()

    await page.keyboard.press("/")
    assert await page.evaluate("document.activeElement === document.body")
    await page.click("[data-keys]")
    await expect(page.locator("[data-shortcuts]")).not_to_be_checked()
    await page.check("[data-shortcuts]")
    await page.click("#keys >> text=Close")
    await page.keyboard.press("/")
    await expect(page.locator("[data-search]")).to_be_focused()


async def test_escape_closes_the_menu_of_all_that_match(console: Console) -> None:
    page = await console.visit()
    await page.click("text=All matching")
    await page.focus("[data-matching=cancel]")

    await page.keyboard.press("Escape")

    await expect(page.locator("details.more[open]")).to_have_count(0)
    assert await page.evaluate("document.activeElement.matches('details.more summary')")


async def test_without_scripts_the_page_says_so(console: Console) -> None:
    async with reader(console, "/jobs", java_script_enabled=False) as page:
        await expect(page.locator("noscript .banner")).to_contain_text("needs JavaScript")


# Sessions that end


async def test_what_was_typed_is_back_after_a_new_sign_in(console: Console) -> None:
    fields = {"name": {"type": "string"}, "pin": {"type": "string", "x-secret": True}}
    await given.set_definition(console, "greet", arg_schema={"type": "object", "properties": fields})
    page = await console.visit(Role.OPERATOR, "/enqueue?definition=greet")
    await page.fill("[name='payload/name']", "Ada Lovelace")
    await page.fill("[name='payload/pin']", "hunter2")
    await page.fill("[name=priority]", "7")
    await page.fill("#scheduled", "2030-07-01T12:30")
    stored = await page.evaluate("JSON.stringify({...sessionStorage})")
    assert "Ada Lovelace" in stored
    assert "hunter2" not in stored
    await given.end_sessions(console)

    await page.click("[data-enqueue] button.primary")
    await expect(page).to_have_url(re.compile("sign-in"))
    await page.fill("[name=email]", f"operator.{given.TENANT}@fairlead.test")
    await page.fill("[name=password]", PASSWORD)
    await page.click("[type=submit]")

    await expect(page).to_have_url(f"{console.url}/console/enqueue?definition=greet")
    await expect(page.locator("[name='payload/name']")).to_have_value("Ada Lovelace")
    await expect(page.locator("[name=priority]")).to_have_value("7")
    await expect(page.locator("[name=scheduled_for]")).to_have_value(re.compile("^2030-0[67]"))
    await expect(page.locator("[name='payload/pin']")).to_have_value("")
    await expect(page.locator(".toast")).to_contain_text("What you typed before the sign-in is back")


async def test_another_user_does_not_get_what_was_typed(console: Console) -> None:
    page = await console.visit(Role.OPERATOR, "/enqueue?definition=greet")
    await page.fill("[name=priority]", "7")
    await console.world.signed_in(Role.TENANT_ADMIN)
    await given.end_sessions(console)

    await page.click("[data-enqueue] button.primary")
    await page.fill("[name=email]", f"tenant_admin.{given.TENANT}@fairlead.test")
    await page.fill("[name=password]", PASSWORD)
    await page.click("[type=submit]")

    await expect(page).to_have_url(f"{console.url}/console/enqueue?definition=greet")
    await expect(page.locator("[name=priority]")).not_to_have_value("7")


async def test_a_sign_in_leads_to_no_other_site(console: Console) -> None:
    answer = await console.world.client.post(
        f"{console.url}/console/enqueue", headers={"Referer": "https://evil.example/console/jobs"}
    )

    assert answer.status_code == 303
    assert "next" not in answer.headers["location"]
