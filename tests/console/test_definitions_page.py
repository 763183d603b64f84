"""The pages about definitions, in a real browser."""

import re

import pytest
from playwright.async_api import expect

from fairlead.actions import definitions, error_groups
from fairlead.model.access import Role
from tests import given
from tests.acting import act
from tests.console.visiting import Console, accessible, accessible_in_each_look, submit

pytestmark = pytest.mark.thorough


async def test_everybody_reads_definitions_and_only_super_admins_change_them(console: Console) -> None:
    page = await console.visit(Role.VIEWER, "/definitions")
    await expect(page.locator("tbody tr")).to_have_count(3)
    await expect(page.locator("tbody tr", has_text="retired")).to_contain_text("inactive")

    await page.click("text=greet")
    await expect(page.locator("#facts")).to_contain_text("10 s, × 2 each time, up to 1 h")
    await expect(page.locator("pre")).to_contain_text('"maxLength": 200')
    await expect(page.locator("#gate")).to_contain_text("Only a super admin can change this.")
    assert "No matching definitions" in (await console.read(Role.VIEWER, "/definitions?q=nothing")).text


async def test_a_definition_is_changed_and_faults_stand_at_their_fields(console: Console) -> None:
    page = await console.visit(Role.SUPER_ADMIN, "/definitions/greet?tenant=acme")
    await page.fill("#change-arg_schema", '{"type": "object",}')
    await page.fill("#change-timeout_seconds", "")
    await page.click("#change >> text=Save")
    await expect(page.locator("#change-arg_schema-said")).to_contain_text("is not JSON")
    await expect(page.locator("#change-timeout_seconds-said")).to_have_text("must be a whole number")
    await accessible_in_each_look(page)

    await page.fill("#change-arg_schema", '{"type": "wrong"}')
    await page.fill("#change-timeout_seconds", "60")
    await page.click("#change >> text=Save")
    await expect(page.locator("#change-arg_schema-said")).to_contain_text("is not valid under")
    await expect(page.locator("#change-arg_schema")).to_have_attribute("aria-invalid", "true")
    await page.fill("#change-arg_schema", '{"type": "object", "properties": {"pin": {"x-secret": true}}}')
    await page.locator("[id='change-backoff.factor']").fill("0.5")
    await page.click("#change >> text=Save")
    await expect(page.locator("[id='change-backoff.factor-said']")).to_have_text("must be a number, 1 to 100")

    await page.locator("[id='change-backoff.factor']").fill("1.5")
    await page.fill("#change-max_running", "9")
    await page.uncheck("[name=is_active]")
    await page.click("#change >> text=Save")
    await expect(page.locator(".toast")).to_contain_text("Saved as version 2.")
    await expect(page.locator("#facts")).to_contain_text("1 min")
    await expect(page.locator("#facts")).to_contain_text("9, per tenant none")
    await expect(page.locator("#facts")).to_contain_text("inactive")
    await expect(page.locator("#facts")).to_contain_text("/pin")
    await page.click("summary")
    await expect(page.locator("section[aria-label=Schema] pre")).to_contain_text("x-secret")

    # somebody else is faster
    await act(console, definitions.patch, given.TESTER, "greet", {"max_attempts": 8})
    await submit(page, "#change >> text=Save", {"#change-max_attempts": "4"})
    await expect(page.locator("#change .fault")).to_contain_text(
        "This definition has changed since you opened it"
    )
    await page.reload()
    await expect(page.locator("#change-max_attempts")).to_have_value("8")


async def test_a_definition_is_added_paused_and_resumed(console: Console) -> None:
    page = await console.visit(Role.SUPER_ADMIN, "/definitions")
    await accessible_in_each_look(page)
    await page.click("text=Add definition")
    await submit(page, "#add-form >> text=Add", {"#add-key": "greet"})
    await expect(page.locator("#add-key-said")).to_have_text("taken")
    await submit(page, "#add-form >> text=Add", {"#add-key": "mail.send"})
    await expect(page).to_have_url(re.compile("/definitions/mail.send"))

    await submit(page, "#pause-form button", {"#pause-form input": "provider is down"})
    await page.click("#confirm [data-yes]")
    await expect(page.locator("#gate")).to_contain_text("“provider is down”")
    await expect(page.locator("#facts")).to_contain_text("paused")
    await page.click(".toast >> text=Undo")
    await expect(page.locator("#gate .status")).to_have_text("On")
    await page.click("main .head >> text=Jobs")
    await expect(page).to_have_url(re.compile(r"/jobs\?definition=mail.send"))


async def test_a_definition_shows_how_it_does(console: Console) -> None:
    async with console.transaction() as tx:
        for _ in range(3):
            await given.ended_job(tx, "succeeded")
        await given.failed_job(tx, "no answer in 30 s")
        await error_groups.fold_failures(tx)
        await given.add_worker(tx, "web-1:7:abc", seen=given.HOUR, definitions=("greet",), concurrency=10)
    page = await console.visit(Role.VIEWER, "/definitions/greet")

    await expect(page.locator(".metrics dd")).to_have_text(["4", "1", "25.0 %", "3 ms", "20 ms"])
    await expect(page.locator("section[aria-label=Workers]")).to_contain_text("1 live worker serves it.")
    await expect(page.locator("section[aria-label=Workers]")).not_to_contain_text("web-1")
    await expect(page.locator(".errors .error-pattern")).to_have_text("no answer in <n> s")
    await page.click("#metrics .tabs >> text=7d")
    await expect(page).to_have_url(re.compile("span=7d"))
    await expect(page.locator(".metrics dd").first).to_have_text("4")
    owner = await console.visit(Role.SUPER_ADMIN, "/definitions/greet")
    await expect(owner.locator("section[aria-label=Workers] td.name")).to_have_text("web-1:7:abc")
    await expect(owner.locator(".metrics dd").first).to_have_text("4")


async def test_versions_are_compared_line_by_line(console: Console) -> None:
    page = await console.visit(Role.SUPER_ADMIN, "/definitions/greet")
    await submit(page, "#change >> text=Save", {"#change-timeout_seconds": "77"})
    await expect(page.locator(".toast")).to_contain_text("Saved as version")

    await expect(page.locator(".diff ins")).to_have_text('+   "timeout_seconds": 77')
    await expect(page.locator(".diff del")).to_have_text(re.compile(r'-   "timeout_seconds": \d+'))
    await accessible(page)


async def test_slots_and_labels_are_set(console: Console) -> None:
    page = await console.visit(Role.SUPER_ADMIN, "/definitions/greet")
    await submit(page, "#change >> text=Save", {"#change-slots": "4", "#change-requires": "gpu"})
    await expect(page.locator("#change-requires-said")).to_contain_text("name=value")

    await submit(page, "#change >> text=Save", {"#change-requires": "gpu=true\nregion=eu"})
    await expect(page.locator(".toast")).to_contain_text("Saved as version")
    await expect(page.locator("#facts")).to_contain_text("4 of its worker's slots")
    await expect(page.locator("#facts code").first).to_have_text("gpu=true")
    await expect(page.locator("#change-requires")).to_have_value("gpu=true\nregion=eu")
    await accessible(page)
