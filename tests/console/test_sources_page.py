"""The page of sources, in a real browser."""

from playwright.async_api import expect

from fairlead.model.access import Role
from tests.console.visiting import Console, accessible_in_each_look

SOURCES = """
    insert into fairlead.sources (
        name, driver, tenant_id, event, messages, duplicates, refused, last_refusal, last_message_at, failing_since,
        last_error, seen_at)
    select s.name, 'nats', t.id, s.event, 1234, 5, s.refused, s.refusal, clock_timestamp(),
        case when s.why is not null then clock_timestamp() end, s.why, clock_timestamp() - s.ago
    from (values
        ('orders', 'acme', 'order.placed', 2, 'payload_not_json', null, interval '0'),
        ('parcels', 'acme', 'parcel.sent', 0, null, 'NATS cannot be used now: no servers available.', interval '0'),
        ('visits', null, 'visit.{subject}', 0, null, null, interval '1 hour')
    ) s(name, tenant, event, refused, refusal, why, ago) left join fairlead.tenants t on t.slug = s.tenant
"""


async def test_sources_are_shown_paused_and_resumed(console: Console) -> None:
    page = await console.visit(Role.SUPER_ADMIN, "/sources")
    await expect(page.locator("text=No sources")).to_be_visible()
    await console.make(SOURCES)

    await page.reload()

    await expect(page.locator(".banner").nth(0)).to_contain_text(
        "NATS cannot be used now: no servers available."
    )
    await expect(page.locator(".banner").nth(1)).to_contain_text("fairlead sources run visits")
    orders = page.locator("#source-orders")
    await expect(orders).to_contain_text("order.placed")
    await expect(orders).to_contain_text("1,234")
    await expect(orders).to_contain_text("payload_not_json")
    await expect(orders.locator(".status.good")).to_have_text("running")
    await expect(page.locator("#source-visits")).to_contain_text("By message")
    await orders.get_by_role("button", name="Pause orders").click()
    await expect(page.locator(".toast")).to_contain_text("its messages wait in the broker")
    await expect(orders.locator(".status.paused")).to_have_text("paused")
    await orders.get_by_role("button", name="Resume orders").click()
    await expect(orders.locator(".status.good")).to_have_text("running")
    await page.goto("/console/audit")
    await expect(page.locator("main")).to_contain_text("orders")


async def test_tenant_admins_see_the_sources_of_their_tenant_and_pause_none(console: Console) -> None:
    await console.make(SOURCES)
    listed = (await console.read(Role.TENANT_ADMIN, "/sources")).text
    rows = listed[listed.index("<tbody") : listed.index("</tbody>")]
    assert rows.count("<tr") == 2
    assert "<button" not in rows
    address = f"{console.url}/console/sources/orders/pause"
    assert (await console.world.call("POST", address, who="tenant_admin")).status_code == 403
    assert "Sources" in listed[: listed.index("<main")]
    assert "Sources" not in (await console.read(Role.VIEWER, "/jobs")).text
    assert (await console.read(Role.VIEWER, "/sources")).status_code == 403


async def test_everybody_can_use_it(console: Console) -> None:
    await console.make(SOURCES)
    await accessible_in_each_look(await console.visit(Role.SUPER_ADMIN, "/sources"))
