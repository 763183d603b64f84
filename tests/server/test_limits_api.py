"""Limits over the API: what is left of each, what it holds back, and changes of the system's rate."""

from typing import Any

from tests import given
from tests.acting import act
from tests.server.world import World
from tests.store.test_limit_upkeep import hold

SLOW = {"limit": 1, "per_seconds": 3600}
FULL = {**SLOW, "burst": 1, "cost": None}


async def close(world: World) -> None:
    """A rate of the system and a limit by key, both at their limits."""
    by_key = {"by_key": {"pointer": "/name", "max_running": 1}}
    changed = await world.call(
        "PATCH", "/admin/jobs/definitions/greet", who="super_admin", json=by_key, tenant=None
    )
    assert changed.status_code == 200, changed.text
    await act(world.fl.database, hold, "Ada", jobs=3)
    await world.call("PUT", "/admin/system/rate", who="super_admin", tenant=None, json={"rate": SLOW})
    async with world.fl.database.transaction() as tx:
        await given.queued_job(tx, definition="anything")
        await given.queued_job(tx, definition="anything")
        await hold(tx)


async def list_limits(world: World, who: str, **more: Any) -> list[dict[str, Any]]:
    found = await world.call("GET", "/limits", who=who, **more)
    assert found.status_code == 200, found.text
    items: list[dict[str, Any]] = found.json()["items"]
    return items


async def test_the_systems_rate_is_set_shown_and_removed(world: World) -> None:
    async def call(method: str, **more: Any) -> Any:
        return await world.call(method, "/admin/system/rate", who="super_admin", tenant=None, **more)

    assert (await call("GET")).json() == {"rate": None}
    assert (await call("PUT", json={"rate": SLOW})).json() == {"rate": FULL}
    assert (await call("GET")).json() == {"rate": FULL}
    for wrong in ({"rate": {"limit": 0}}, {"rate": {"limit": 1, "burst": 0}}, {"rate": "100/min"}, {}):
        refused = await call("PUT", json=wrong)
        assert refused.status_code in (400, 422), (wrong, refused.text)
        assert refused.json()["code"] == "invalid_input"
    assert (await call("GET")).json() == {"rate": FULL}
    assert (await call("PUT", json={"rate": None})).json() == {"rate": None}


async def test_limits_tell_what_they_hold_back_also_of_one_definition_and_in_pages(world: World) -> None:
    await close(world)
    system, key = await list_limits(world, "super_admin", tenant=None)
    assert (system["scope"], system["rate"], system["tokens"], system["held"]) == ("system", FULL, 0, 1)
    assert system["opens_at"] is not None
    assert (key["scope"], key["definition_key"], key["held"], key["has_more"]) == ("key", "greet", 2, False)
    [part] = key["parts"]
    assert (part["tenant"], part["value"], part["held"], part["running"]) == (given.TENANT, "Ada", 2, 1)
    assert "place" not in system

    # a tenant sees its own part
    system, key = await list_limits(world, "viewer")
    assert (system["tokens"], system["held"], len(key["parts"])) == (None, 1, 1)
    system, key = await list_limits(world, "super_admin", tenant=None, headers={"X-Tenant": given.OTHER})
    assert (system["held"], key["held"], key["parts"]) == (0, 0, [])

    [only] = await list_limits(world, "viewer", params={"definition_key": "greet"})
    assert only["scope"] == "key"
    unknown = await world.call("GET", "/limits", who="viewer", params={"definition_key": "nothing"})
    assert (unknown.status_code, unknown.json()["code"]) == (422, "definition_unknown")
    first = (await world.call("GET", "/limits", who="viewer", params={"limit": 1})).json()
    second = await world.call(
        "GET", "/limits", who="viewer", params={"limit": 1, "cursor": first["next_cursor"]}
    )
    assert [one["scope"] for one in (*first["items"], *second.json()["items"])] == ["system", "key"]
    assert second.json()["next_cursor"] is None


# Of definitions and tenants

RATE = {"limit": 100, "per_seconds": 60, "burst": 5, "cost": None}


async def test_a_definition_has_rates_and_a_key(world: World) -> None:
    by_key = {"pointer": "/customer", "max_running": 1, "fifo": True, "rate": {"limit": 2}}
    made = await world.call(
        "POST",
        "/admin/jobs/definitions",
        who="super_admin",
        json={"key": "mail", "rate": {"limit": 100, "per_seconds": 60, "burst": 5}, "by_key": by_key},
    )
    assert made.status_code == 201, made.text
    assert made.json()["rate"] == RATE
    assert made.json()["by_key"]["rate"]["burst"] == 2
    changed = await world.call(
        "PATCH",
        "/admin/jobs/definitions/mail",
        who="super_admin",
        json={"rate": None, "rate_per_tenant": {"limit": 1}},
    )
    assert changed.json()["rate"] is None
    assert changed.json()["rate_per_tenant"]["limit"] == 1
    refused = await world.call(
        "PATCH", "/admin/jobs/definitions/mail", who="super_admin", json={"rate": {"limit": 0}}
    )
    assert refused.status_code in (400, 422), refused.text


async def test_a_tenant_has_a_rate(world: World) -> None:
    changed = await world.call(
        "PATCH",
        "/admin/tenants/acme",
        who="super_admin",
        json={"rate": {"limit": 100, "per_seconds": 60, "burst": 5}},
    )
    assert changed.status_code == 200, changed.text
    assert changed.json()["rate"] == RATE
    assert (await world.call("PATCH", "/admin/tenants/acme", who="super_admin", json={"rate": None})).json()[
        "rate"
    ] is None
