"""Sources over HTTP: listed, paused and resumed."""

from fairlead.actions import sources
from fairlead.model.event_source import SourceRules
from tests import given
from tests.server.world import World

ORDERS = SourceRules(event="order.placed", tenant=given.TENANT)
MIXED = SourceRules(event="visit.{subject}", tenant_from="header:tenant")


async def run_two(world: World) -> None:
    async with world.fl.transaction() as tx:
        await sources.report(tx, name="orders", driver="nats", rules=ORDERS)
        await sources.report(tx, name="visits", driver="kafka", rules=MIXED)


async def names(world: World, who: str, tenant: str | None = given.TENANT) -> list[str]:
    answer = await world.call("GET", "/sources", who=who, tenant=tenant)
    assert answer.status_code == 200, answer.text
    return [one["name"] for one in answer.json()["items"]]


async def test_a_tenants_admin_sees_the_sources_of_its_tenant(world: World) -> None:
    await run_two(world)
    assert await names(world, "super_admin") == ["orders", "visits"]
    chosen = await world.call("GET", "/sources", who="super_admin", headers={"X-Tenant": given.TENANT})
    assert [one["name"] for one in chosen.json()["items"]] == ["orders"]
    assert await names(world, "tenant_admin") == ["orders"]
    assert await names(world, "tenant_admin", given.OTHER) == []
    first = (await world.call("GET", "/sources?limit=1", who="super_admin")).json()
    assert first["next_cursor"] == "orders"
    then = (await world.call("GET", "/sources?cursor=orders", who="super_admin")).json()
    assert [one["name"] for one in then["items"]] == ["visits"]


async def test_a_super_admin_pauses_and_resumes_and_both_are_audited(world: World) -> None:
    await run_two(world)
    for _ in range(2):  # the second one changes nothing
        paused = await world.call("POST", "/sources/orders/pause", who="super_admin", json={})
    assert (paused.status_code, paused.json()["state"]) == (200, "paused")
    noted = await world.call(
        "POST", "/sources/orders/pause", who="super_admin", json={"note": "stock-taking"}
    )
    assert noted.json()["note"] == "stock-taking"
    for _ in range(2):
        resumed = await world.call("POST", "/sources/orders/resume", who="super_admin")
    assert (resumed.status_code, resumed.json()["state"]) == (200, "running")
    entries = await given.audit_entries(world, resource_type="source")
    assert [(entry.action, entry.resource_id, entry.details) for entry in entries] == [
        ("source_paused", "orders", {"driver": "nats"}),
        ("source_paused", "orders", {"driver": "nats", "note": "stock-taking"}),
        ("source_resumed", "orders", {"driver": "nats"}),
    ]


async def test_an_unknown_source_and_an_unreadable_note_are_refused(world: World) -> None:
    await run_two(world)
    assert await world.refusal("POST", "/sources/nothing/pause", who="super_admin") == (404, "source_unknown")
    long = await world.call("POST", "/sources/orders/pause", who="super_admin", json={"note": "x" * 1001})
    assert (long.status_code, long.json()["code"]) == (422, "invalid_input")
