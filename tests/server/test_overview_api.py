"""`GET /overview` over HTTP: of the caller's tenant, of the one that a super admin names, or of all."""

from tests import given
from tests.server.world import World


async def test_a_tenant_gets_its_own_overview(world: World) -> None:
    async with world.fl.transaction() as tx:
        await given.queued_job(tx)
        await given.queued_job(tx, tenant=given.OTHER, definition="anything")

    found = (await world.call("GET", "/overview", who="viewer")).json()

    assert (found["tenant"], found["verdict"], found["summary"]) == (given.TENANT, "fail", "1 problem")
    [problem] = found["problems"]
    assert (problem["kind"], problem["count"], problem["tenant"]) == ("no_worker", 1, given.TENANT)
    assert found["counts"]["queued"] == 1
    assert (found["workers"], found["checks"]) == (None, [])


async def test_a_super_admin_gets_all_or_the_one_that_it_names(world: World) -> None:
    async with world.fl.transaction() as tx:
        await given.queued_job(tx)
        await given.queued_job(tx, tenant=given.OTHER)

    everywhere = (await world.call("GET", "/overview", who="super_admin")).json()
    one = (await world.call("GET", "/overview", who="super_admin", headers={"X-Tenant": given.OTHER})).json()

    assert (everywhere["tenant"], everywhere["counts"]["queued"]) == (None, 2)
    assert everywhere["workers"] == {"online": 0, "silent": 0, "running": 0, "capacity": 0}
    assert (one["tenant"], one["counts"]["queued"], one["checks"]) == (given.OTHER, 1, [])
