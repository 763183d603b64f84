"""Rates and limits by key over the API."""

from tests.server.world import World

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
