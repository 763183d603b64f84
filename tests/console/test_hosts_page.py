"""The hosts, in a real browser."""

import re
from uuid import UUID

import pytest
from playwright.async_api import Page, expect

from fairlead.actions import hosts
from fairlead.model.access import Role
from tests import given
from tests.acting import act
from tests.console.visiting import Console, accessible_in_each_look, close_secret, submit
from tests.server.test_agents_api import agent, server_job, session

pytestmark = pytest.mark.thorough


def own(console: Console) -> UUID:
    return console.world.hosts[given.TENANT]


async def command(page: Page) -> str:
    await page.click("text=Enrol agent")
    return (await page.locator("#enrol .paste pre").text_content()) or ""


async def test_the_dialog_turns_to_connected_when_the_agent_has_come(console: Console) -> None:
    host = own(console)
    await session(console.world)  # of an agent that was there before: not the one that is waited for
    page = await console.visit(path=f"/hosts/{host}")

    text = await command(page)
    found = re.fullmatch(rf"fairlead agent --server {console.url} --enrol (fl_\S+)", text)
    assert found is not None, text
    async with page.expect_response(re.compile("enrolment.since=")):
        pass
    await expect(page.locator("#enrol-state")).to_contain_text("Waiting for the agent… The code expires in")
    await accessible_in_each_look(page)
    enrolled = await console.world.call("POST", "/agent/enrol", who=None, json={"code": found[1]})
    bearer = {"Authorization": f"Bearer {enrolled.json()['token']}"}
    await console.world.call(
        "POST", f"/agent/hosts/{host}/session", who=None, headers=bearer, json={"version": "7.1"}
    )

    await expect(page.locator("#enrol-state.connected")).to_contain_text("Connected. Agent 7.1")
    await close_secret(page, "#enrol [data-close]")
    await expect(page.locator("#host-head .status.online")).to_be_visible()
    assert found[1] not in page.url + await page.content()

    await page.goto(f"/console/hosts/{host}/enrolment?since={2**33}&until=2")
    await expect(page.locator("#enrol-state.late")).to_contain_text("The code expired before")
    await expect(page.locator("[hx-trigger]")).to_have_count(0)


async def test_cards_show_what_a_host_runs_and_holds_and_change_by_themselves(console: Console) -> None:
    page = await console.visit(path="/hosts")
    card = page.locator(".host")
    await expect(card).to_contain_text("not enrolled")
    await expect(card).to_contain_text("0 of 1 running")

    _, job = await server_job(console.world)
    mine = await session(console.world)
    await agent(console.world, "GET", "/jobs", params={"session": mine, "wait": 30})

    await expect(card.locator(".status.online")).to_be_visible()
    await expect(card).to_contain_text("1 of 1 running")
    await expect(card.locator(f"a[href$='/jobs/{job['id']}']")).to_contain_text("SERVER_START")
    await expect(card.locator(".facts")).to_contain_text("lobby")
    await accessible_in_each_look(page)


async def test_a_host_is_paused_with_a_note_drained_revoked_and_removed(console: Console) -> None:
    page = await console.visit(path=f"/hosts/{own(console)}")
    head = page.locator("#host-head")

    await page.click("[data-open='#pause']")
    await submit(page, "#pause [type=submit]", {"#pause-note": "New disk at noon"})
    await expect(head.locator(".status.paused")).to_be_visible()
    await expect(page.locator("#host-facts")).to_contain_text("New disk at noon (user:tenant_admin.acme")
    await accessible_in_each_look(page)
    await page.click("text=Resume")
    await expect(head.locator(".status.paused")).to_have_count(0)
    await page.click("button:has-text('Drain')")
    await expect(head).to_contain_text("draining")
    await page.click("text=Stop draining")
    await expect(head.locator(".status.warn")).to_have_count(0)

    await page.click("text=Revoke agents")
    await expect(page.locator("#confirm")).to_contain_text("disconnected within five seconds")
    await page.click("#confirm [data-yes]")
    await expect(page.locator(".toast").last).to_contain_text("1 token revoked")
    answer = await console.world.call(
        "POST", f"/agent/hosts/{own(console)}/session", who="agent", json={"version": "1"}
    )
    assert answer.status_code == 401
    await page.click("button:has-text('Remove')")
    await page.click("#confirm [data-yes]")
    await expect(page.locator("text=No hosts yet")).to_be_visible()
    await expect(page.locator(".toast")).to_contain_text("Host host removed.")


async def test_a_host_is_added_with_faults_at_their_fields_and_changed(console: Console) -> None:
    page = await console.visit(path="/hosts")
    await page.click("text=Add host")
    await submit(page, "#new-host [type=submit]", {"#new-host-name": "host"})
    await expect(page.locator("#new-host-name-said")).to_have_text("taken")
    await expect(page.locator("#new-host-name")).to_have_attribute("aria-invalid", "true")
    await page.fill("#new-host-name", "game-1")
    await page.fill("#new-host-labels", "no value")
    await page.click("#new-host [type=submit]")
    await expect(page.locator("#new-host-labels-said")).to_contain_text("name=value")
    await submit(page, "#new-host [type=submit]", {"#new-host-labels": "region=eu\nrack = 7"})
    await expect(page.locator("h1")).to_have_text("game-1")
    await expect(page.locator(".toast")).to_contain_text("Host game-1 added")

    await submit(page, "#settings [type=submit]", {"#settings-max_running": "0"})
    await expect(page.locator("#settings-max_running-said")).to_contain_text("must be 1 to")
    await submit(page, "#settings [type=submit]", {"#settings-max_running": "8"})
    await expect(page.locator("#host-facts")).to_contain_text("0 of 8 running")
    await expect(page.locator("#settings-labels")).to_have_value("rack=7\nregion=eu")


async def test_resources_are_added_and_moved_and_labels_that_are_no_text_stay_what_they_are(
    console: Console,
) -> None:
    host = own(console)
    async with console.transaction() as tx:
        other = await hosts.add(
            tx, given.TESTER, tenant_id=console.world.tenants[given.TENANT], name="second"
        )
        await hosts.change(tx, given.TESTER, host, {"labels": {"cores": 8, "tags": ["a"], "zone": "b"}})
    page = await console.visit(path=f"/hosts/{host}")

    await submit(page, "#settings [type=submit]", {"#settings-labels": 'cores=8\ntags=["a"]\nzone=9'})
    await expect(page.locator(".toast")).to_contain_text("Host saved.")
    kept = await act(console, hosts.get, given.TESTER, host)
    assert kept.labels == {"cores": 8, "tags": ["a"], "zone": "9"}

    await page.click("text=Add resource")
    await page.click("#new-resource [type=submit]")
    await expect(page.locator("#new-resource-kind-said")).to_contain_text("must be text")
    await page.fill("#new-resource-kind", "server")
    await page.fill("#new-resource-name", "lobby")
    await page.click("#new-resource [type=submit]")
    await expect(page.locator("td.key")).to_have_text("lobby")
    await page.click("text=Move resource")
    await page.select_option("#move-to", label="second")
    await page.click("#move [type=submit]")

    await expect(page.locator(".toast").last).to_contain_text("lobby moved to second.")
    await page.goto(f"/console/hosts/{other.id}")
    await expect(page.locator("td.key")).to_have_text("lobby")


async def test_a_super_admin_chooses_a_tenant_to_add_a_host(console: Console) -> None:
    page = await console.visit(Role.SUPER_ADMIN, path="/hosts")
    await expect(page.locator(".host")).to_have_count(2)
    await expect(page.locator("text=Add host")).to_be_disabled()
