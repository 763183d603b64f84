"""The pages about tenants, in a real browser."""

import re

from playwright.async_api import expect

from fairlead.model.access import Role
from tests import given
from tests.console.visiting import WIDE, Console, accessible, accessible_in_each_look


async def fill(console: Console) -> None:
    """Two tenants: one with a backlog and failures, one that runs."""
    async with console.transaction() as tx:
        await tx.run("update fairlead.tenants set weight = 3, max_running = 4 where slug = %s", [given.OTHER])
        for _ in range(3):
            await given.queued_job(tx)
        await given.ended_job(tx, "succeeded")
        await given.ended_job(tx, "dead_letter")
        await given.running_job(tx, tenant=given.OTHER)


async def test_tenants_stand_side_by_side_and_sort_by_a_click(console: Console) -> None:
    await fill(console)
    page = await console.visit(Role.SUPER_ADMIN, "/tenants")

    acme, other = page.locator("#tenant-acme td"), page.locator("#tenant-umbrella td")
    await expect(acme.nth(1)).to_have_text("3")
    await expect(acme.nth(5)).to_contain_text("0 % / 25 %")
    await expect(acme.nth(6)).to_contain_text("50 %")
    await expect(other.nth(3)).to_contain_text("1 / 4")
    await expect(other.nth(5)).to_contain_text("100 % / 75 %")

    await page.click("th >> text=Running / limit")
    await expect(page).to_have_url(re.compile("sort=running"))
    await expect(page.locator("#table tbody tr").first).to_have_id("tenant-umbrella")
    await expect(page.locator("th[aria-sort=descending]")).to_contain_text("Running")
    # what moves meanwhile is counted, and moves no row
    await expect(page.locator("[data-live-state=live]")).to_be_visible()
    async with console.transaction() as tx:
        for _ in range(2):
            await given.running_job(tx)
    await expect(acme.nth(3)).to_contain_text("2 / no limit")
    await expect(page.locator("#table tbody tr").first).to_have_id("tenant-umbrella")
    await page.click("th >> text=Running / limit")
    await expect(page).to_have_url(re.compile("sort=-running"))
    await expect(page.locator("#table tbody tr").last).to_have_id("tenant-acme")

    await page.click("#tenant-acme td:nth-child(2) a")
    await expect(page).to_have_url(re.compile(r"/jobs\?tenant=acme&status=queued"))
    await expect(page.locator("#table tbody tr")).to_have_count(3)


async def test_a_tenant_is_added_and_faults_stand_at_their_fields(console: Console) -> None:
    page = await console.visit(Role.SUPER_ADMIN, "/tenants?q=nobody")
    await expect(page.locator("text=No matching tenants")).to_be_visible()

    await page.click("text=Add tenant")
    await page.fill("#add-slug", "Not A Slug")
    await page.fill("#add-timezone", "Nowhere/Town")
    await page.fill("#add-weight", "")
    await page.click("#add-form >> text=Add")
    await expect(page.locator("#add-weight-said")).to_have_text("must be a whole number")
    await page.fill("#add-weight", "5")
    await page.click("#add-form >> text=Add")
    await expect(page.locator("#add-slug")).to_have_attribute("aria-invalid", "true")
    await expect(page.locator("#add-slug-said")).to_contain_text("lowercase letters, digits and hyphens")
    await expect(page.locator("#add-timezone")).to_have_value("Nowhere/Town")

    await page.fill("#add-slug", "initech")
    await page.fill("#add-timezone", "Europe/Berlin")
    await page.click("#add-form >> text=Add")
    await expect(page).to_have_url(re.compile("/tenants/initech"))
    await expect(page.locator(".toast")).to_contain_text("Tenant initech created.")
    await expect(page.locator("#settings-timezone")).to_have_value("Europe/Berlin")


async def test_a_tenant_is_changed_paused_with_a_note_and_resumed(console: Console) -> None:
    await fill(console)
    page = await console.visit(Role.SUPER_ADMIN, "/tenants/acme")

    await page.fill("#settings-max_running", "0")
    await page.click("text=Save")
    await expect(page.locator("#settings-max_running-said")).to_contain_text("must be 1 or more")
    await page.fill("#settings-max_running", "7")
    await page.fill("#settings-name", "Acme & Söhne")
    await page.click("text=Save")
    await expect(page.locator(".toast")).to_contain_text("Saved.")
    await expect(page.locator("#levels")).to_contain_text("of 7")

    await page.fill("#pause-form input", "unpaid invoice")
    await page.click("#pause-form button")
    await expect(page.locator("#confirm")).to_contain_text("Pause tenant acme?")
    await page.click("#confirm [data-yes]")
    await expect(page.locator("#gate")).to_contain_text("“unpaid invoice”")
    await expect(page.locator("#gate .status")).to_have_text("Paused")
    await page.click("#gate >> text=Resume")
    await expect(page.locator("#gate .status")).to_have_text("On")
    await expect(page.locator("#pause-form")).to_be_visible()


async def test_quotas_are_shown_with_their_use_and_changed(console: Console) -> None:
    await fill(console)
    page = await console.visit(Role.SUPER_ADMIN, "/tenants/acme")
    queued = page.locator("#quotas-used tr", has_text="Queued jobs").locator("td")
    await expect(queued).to_have_text(["Queued jobs", "3", "1,000,000"])

    await page.click("text=Change quotas")
    await page.fill("[name='quotas.queued_jobs']", "-1")
    await page.click("text=Save quotas")
    await expect(page.locator("#quotas .field-fault")).to_contain_text("must be an integer")
    await page.fill("[name='quotas.queued_jobs']", "3")
    await page.click("text=Save quotas")

    await expect(page.locator(".toast")).to_contain_text("Saved.")
    await expect(queued).to_have_text(["Queued jobs", "3", "3"])
    await expect(queued.nth(1)).to_have_class(re.compile("bad"))


async def test_only_a_super_admin_sees_tenants(console: Console) -> None:
    for path in ("/tenants", "/tenants/acme", "/tenants/umbrella", "/workers", "/system"):
        assert (await console.read(Role.TENANT_ADMIN, path)).status_code == 403
        assert await console.title(Role.TENANT_ADMIN, path) == "Not for your role"
    assert await console.title(Role.SUPER_ADMIN, "/tenants/nobody") == "Not found"


async def test_everybody_can_use_them(console: Console) -> None:
    await fill(console)
    page = await console.visit(Role.SUPER_ADMIN, "/tenants")
    await accessible_in_each_look(page, dark=WIDE)
    await page.click("text=Add tenant")
    await page.click("#add-form >> text=Add")
    await expect(page.locator("#add-slug-said.field-fault")).to_be_visible()
    await accessible_in_each_look(page, dark=WIDE)
    await page.goto("/console/tenants/acme")
    await accessible_in_each_look(page, dark=WIDE)


RAN = """
    insert into fairlead.usage_hourly select t.id, d.id, date_trunc('hour', now()), 1, 1, 0, 0, 0, 0, %s, 0, 0
    from fairlead.tenants t, fairlead.job_definitions d where t.slug = %s and d.key = 'greet'
"""


async def test_run_time_is_compared_with_the_fair_share(console: Console) -> None:
    page = await console.visit(Role.SUPER_ADMIN, "/tenants")
    await expect(page.locator("#fairness")).to_contain_text("No job ran in the last 24 hours.")
    await console.make(RAN, [90_000, given.TENANT])
    await console.make(RAN, [10_000, given.OTHER])
    await console.make("update fairlead.tenants set weight = 3 where slug = %s", [given.OTHER])

    await page.reload()

    acme = page.locator("#fairness tbody tr", has_text="acme")
    await expect(acme.locator("td")).to_have_text(["acme", "1", "1 min 30 s", "90 %", "25 %", "3.6 ×"])
    await expect(page.locator("#fairness .legend")).to_have_text("acme umbrella")
    await expect(page.locator("#fairness canvas")).to_be_visible()
    await accessible(page)
    # the chart is drawn again with fewer tenants: the other one's hour was a day ago
    await expect(page.locator("[data-live-state=live]")).to_be_visible()
    await console.make(
        "update fairlead.usage_hourly set hour = hour - interval '2 days' where run_ms = 10000"
    )
    await console.world.call("POST", "/jobs", json={"definition_key": "greet", "payload": {"name": "Ada"}})
    await expect(page.locator("#fairness .legend")).to_have_text("acme")
    await console.make("delete from fairlead.usage_hourly")
