"""Quotas over HTTP: set by super admins, seen by the tenant, named in refusals."""

from tests.server.world import World

JOB = {"definition_key": "anything", "payload": {}}


async def test_a_super_admin_sets_quotas_and_the_tenant_sees_them(world: World) -> None:
    changed = await world.call(
        "PATCH", "/admin/tenants/acme", who="super_admin", json={"quotas": {"queued_jobs": 1}}
    )
    assert changed.json()["quotas"] == {"queued_jobs": 1}
    assert await world.status("POST", "/jobs", who="operator", json=JOB) == 201

    own = await world.call("GET", "/quotas", who="viewer")
    admins = await world.call("GET", "/admin/tenants/acme/quotas", who="super_admin")

    assert own.json() == admins.json()
    assert own.json()["items"][0] == {"quota": "queued_jobs", "used": 1, "allowed": 1, "is_own": True}
    others = {one["quota"]: one["allowed"] for one in own.json()["items"][1:]}
    assert others["triggers"] == world.fl.settings.max_triggers_per_tenant


async def test_the_refusal_names_the_quota_and_its_use(world: World) -> None:
    await world.call(
        "PATCH", "/admin/tenants/acme", who="super_admin", json={"quotas": {"queued_jobs": 1, "tokens": 1}}
    )
    await world.call("POST", "/jobs", who="operator", json=JOB)

    for path, body in (("/jobs", JOB), ("/jobs/bulk", {"jobs": [JOB]})):
        refused = await world.call("POST", path, who="operator", json=body)
        assert (refused.status_code, refused.json()["code"]) == (429, "queue_full")
        assert refused.json()["errors"] == [{"path": "queued_jobs", "message": "1 of 1 used"}]
    token = {"name": "one more", "role": "viewer"}
    refused = await world.call("POST", "/tokens", who="tenant_admin", json=token)
    assert (refused.status_code, refused.json()["code"]) == (409, "quota_exceeded")
    assert refused.json()["errors"][0]["path"] == "tokens"
