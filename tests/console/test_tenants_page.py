"""The pages about tenants, in a real browser."""

import re

import pytest
from playwright.async_api import expect

from fairlead.model.access import Role
from tests import given
from tests.console.visiting import WIDE, Console, accessible, accessible_in_each_look, submit

pytestmark = pytest.mark.thorough


async def fill(console: Console) -> None:
    """Two tenants: one with a backlog and failures, one that runs."""
    async with console.transaction() as tx:
        await given.set_tenant(tx, given.OTHER, weight=3, max_running=4)
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
    await accessible_in_each_look(page, dark=WIDE)

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
    await submit(page, "#add-form >> text=Add", {"#add-weight": "5"})
    await expect(page.locator("#add-slug")).to_have_attribute("aria-invalid", "true")
    await expect(page.locator("#add-slug-said")).to_contain_text("lowercase letters, digits and hyphens")
    await accessible_in_each_look(page, dark=WIDE)
    await expect(page.locator("#add-timezone")).to_have_value("Nowhere/Town")

    await submit(page, "#add-form >> text=Add", {"#add-slug": "initech", "#add-timezone": "Europe/Berlin"})
    await expect(page).to_have_url(re.compile("/tenants/initech"))
    await expect(page.locator(".toast")).to_contain_text("Tenant initech created.")
    await expect(page.locator("#settings-timezone")).to_have_value("Europe/Berlin")


async def test_a_tenant_is_changed_paused_with_a_note_and_resumed(console: Console) -> None:
    await fill(console)
    page = await console.visit(Role.SUPER_ADMIN, "/tenants/acme")

    await submit(page, "text=Save", {"#settings-max_running": "0"})
    await expect(page.locator("#settings-max_running-said")).to_contain_text("must be 1 or more")
    await accessible_in_each_look(page, dark=WIDE)
    await submit(page, "text=Save", {"#settings-max_running": "7", "#settings-name": "Acme & Söhne"})
    await expect(page.locator(".toast")).to_contain_text("Saved.")
    await expect(page.locator("#levels")).to_contain_text("of 7")

    await submit(page, "#pause-form button", {"#pause-form input": "unpaid invoice"})
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
    await submit(page, "text=Save quotas", {"[name='quotas.queued_jobs']": "-1"})
    await expect(page.locator("#quotas .field-fault")).to_contain_text("must be an integer")
    await submit(page, "text=Save quotas", {"[name='quotas.queued_jobs']": "3"})

    await expect(page.locator(".toast")).to_contain_text("Saved.")
    await expect(queued).to_have_text(["Queued jobs", "3", "3"])
    await expect(queued.nth(1)).to_have_class(re.compile("bad"))


async def test_run_time_is_compared_with_the_fair_share(console: Console) -> None:
    page = await console.visit(Role.SUPER_ADMIN, "/tenants")
    await expect(page.locator("#fairness")).to_contain_text("No job ran in the last 24 hours.")
    async with console.transaction() as tx:
        await given.add_usage(tx, given.TENANT, run_ms=90_000)
        await given.add_usage(tx, given.OTHER, run_ms=10_000)
        await given.set_tenant(tx, given.OTHER, weight=3)

    await page.reload()

    acme = page.locator("#fairness tbody tr", has_text="acme")
    await expect(acme.locator("td")).to_have_text(["acme", "1", "1 min 30 s", "90 %", "25 %", "3.6 ×"])
    await expect(page.locator("#fairness .legend")).to_have_text("acme umbrella")
    await expect(page.locator("#fairness canvas")).to_be_visible()
    await accessible(page)
    # the chart is drawn again with fewer tenants
    await expect(page.locator("[data-live-state=live]")).to_be_visible()
    await given.forget_usage(console, given.OTHER)
    await console.world.call("POST", "/jobs", json={"definition_key": "greet", "payload": {"name": "Ada"}})
    await expect(page.locator("#fairness .legend")).to_have_text("acme")
    await given.forget_usage(console, given.TENANT)


# The allow-list of a tenant, in a real browser


async def test_an_admin_sets_the_list_and_is_warned_before_being_locked_out(console: Console) -> None:
    page = await console.visit(path="/addresses")
    await accessible_in_each_look(page, shot="addresses")
    await expect(page.locator("#allow-list")).to_contain_text("Your address: 127.0.0.1")

    await submit(page, "#allow-list [type=submit]", {"[name=addresses]": "10.1.2.3/8"})
    await expect(page.locator("#allow-list-addresses-said")).to_contain_text("write 10.0.0.0/8")
    await submit(page, "#allow-list [type=submit]", {"[name=addresses]": "10.0.0.0/8"})
    await expect(page.get_by_role("alert")).to_contain_text("You would lock yourself out")
    await accessible_in_each_look(page, shot="addresses-warned")
    assert (await console.world.call("GET", "/addresses", who="tenant_admin")).json() == {"addresses": []}

    await submit(page, "#allow-list [type=submit]", {"[name=addresses]": "10.0.0.0/8\n127.0.0.0/8"})
    await expect(page.locator("#toasts")).to_contain_text("The allow-list is set")
    await expect(page.locator("[name=addresses]")).to_have_value("10.0.0.0/8\n127.0.0.0/8")

    await submit(page, "#allow-list [type=submit]", {"[name=addresses]": "10.0.0.0/8"})
    await page.check("[name=force]")
    await page.click("#allow-list [type=submit]")
    await expect(page.locator("body")).to_contain_text("not in the allow-list")


async def test_a_super_admin_sets_it_for_a_tenant_and_is_not_bound(console: Console) -> None:
    page = await console.visit(Role.SUPER_ADMIN, f"/tenants/{given.OTHER}")
    await page.click("main >> text=Allow-list")
    await submit(page, "#allow-list [type=submit]", {"[name=addresses]": "192.0.2.0/24"})
    await expect(page.locator("#toasts")).to_contain_text("The allow-list is set")
    await page.goto(f"/console/tenants/{given.OTHER}")
    await expect(page.locator("main")).to_contain_text("192.0.2.0/24")
    await page.goto("/console/addresses")
    await expect(page.locator("main")).to_contain_text("the allow-list")


# The box in which a super admin chooses a tenant


async def test_the_box_offers_the_tenants_and_the_page_stays_when_the_tenant_changes(
    console: Console,
) -> None:
    job_id = await given.queued_job(console)
    page = await console.visit(Role.SUPER_ADMIN)
    await page.focus("[data-tenants]")
    await expect(page.locator(f"#tenant-list option[value={given.TENANT}]")).to_have_count(1)
    await expect(page.locator(f"#tenant-list option[value={given.OTHER}]")).to_have_count(1)

    for before, after in {
        "/usage?by=day": "/usage?by=day&tenant={}",
        "/jobs?status=failed&cursor=x": "/jobs?status=failed&tenant={}",
        "/system": "/jobs?tenant={}",
        f"/jobs/{job_id}": "/jobs?tenant={}",
    }.items():
        await page.goto(f"/console{before}")
        await page.fill("[data-tenants]", given.OTHER)
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(f"{console.url}/console{after.format(given.OTHER)}")


async def test_an_unknown_tenant_is_answered_with_near_names(console: Console) -> None:
    page = await console.visit(Role.SUPER_ADMIN, f"/usage?tenant={given.TENANT[:-1]}x")

    await expect(page.locator("h1")).to_have_text("No such tenant")
    await expect(page.locator("nav#nav")).to_be_attached()
    await expect(page.locator("main")).not_to_contain_text("fairlead tenants add")
    await accessible_in_each_look(page)
    await page.click(f"main >> text={given.TENANT}")
    await expect(page).to_have_url(re.compile(rf"/console/usage\?tenant={given.TENANT}$"))


async def test_a_member_learns_no_names_of_other_tenants(console: Console) -> None:
    answer = await console.read(Role.TENANT_ADMIN, f"/jobs?tenant={given.OTHER}x")

    assert answer.status_code == 404
    assert "Not found" in answer.text
    assert "Did you mean" not in answer.text


async def test_the_beginning_of_a_slug_is_enough_if_one_tenant_has_it_and_a_link_leads_back(
    console: Console,
) -> None:
    page = await console.visit(Role.SUPER_ADMIN, "/usage")

    await page.fill("[data-tenants]", given.OTHER[:3])
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(rf"/usage\?tenant={given.OTHER}$"))

    await console.world.fl.add_tenant(f"{given.OTHER}-2", name="Another")
    await page.goto("/console/usage")
    await page.fill("[data-tenants]", given.OTHER[:3])
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("No such tenant")
    await page.fill("[data-tenants]", given.OTHER)
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(rf"/usage\?tenant={given.OTHER}$"))

    # and a link leads back to all tenants
    await page.goto(f"/console/jobs?status=failed&tenant={given.TENANT}")
    await accessible(page, whole=True)
    await page.click("nav >> text=All tenants")
    await expect(page).to_have_url(f"{console.url}/console/jobs?status=failed")
    await expect(page.locator("[data-tenants]")).to_have_value("")
    await expect(page.locator("nav >> text=All tenants")).to_have_count(0)
