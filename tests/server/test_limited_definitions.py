"""Definitions that are for some tenants: to all others they are not there, whichever way they ask."""

from typing import Any

import pytest

from fairlead.actions import workflows
from fairlead.errors import DefinitionUnknown, WorkflowInvalid
from fairlead.model.access import Role
from tests import given
from tests.acting import act
from tests.server.world import BASE, World

KEY = "acme.payroll-export"
MISSING = "acme.no-such-thing"
SECRET = "the quarterly bonus"  # noqa: S105


async def limited(world: World, *tenants: str) -> None:
    """The definition, first for everybody and then for these."""
    body = {"key": KEY, "description": SECRET}
    made = await world.call("POST", "/admin/jobs/definitions", who="super_admin", json=body)
    assert (made.status_code, made.json()["only_tenants"]) == (201, None)
    for tenant in (given.TENANT, given.OTHER):  # so that this process knows it for both
        await world.fl.enqueue(KEY, tenant=tenant)
    await limit(world, *tenants)


async def limit(world: World, *tenants: str) -> Any:
    path = f"/admin/jobs/definitions/{KEY}"
    changed = await world.call("PATCH", path, who="super_admin", json={"only_tenants": list(tenants)})
    assert changed.status_code == 200, changed.text
    assert changed.json()["only_tenants"] == (
        sorted(str(world.tenants[one]) for one in tenants) if tenants else None
    )
    return changed.json()


async def publish(world: World, key: str, tenant: str) -> None:
    document = {"key": key, "steps": [{"name": "one", "definition": KEY}]}
    await act(world.fl.database, workflows.publish, given.TESTER, tenant, document)


async def answers(world: World, key: str, tenant: str) -> list[tuple[int, str | None]]:
    """What a tenant's people are told who use a definition, in every way over HTTP."""
    step = {"name": "one", "definition": key}
    asked = [
        ("/jobs", "operator", {"definition_key": key, "payload": {}}),
        ("/jobs/bulk", "operator", {"jobs": [{"definition_key": key, "payload": {}}]}),
        (
            "/jobs/triggers",
            "tenant_admin",
            {
                "label": "x",
                "trigger_type": "event",
                "event_name": "x",
                "definition_key": key,
                "payload_template": {},
            },
        ),
        ("/workflows", "tenant_admin", {"key": "w", "steps": [step]}),
    ]
    told = []
    for path, who, body in asked:
        answer = await world.call("POST", path, who=who, tenant=tenant, json=body)
        told.append((answer.status_code, answer.json().get("code")))
    return told


async def test_to_other_tenants_it_is_as_if_it_were_not_there(world: World) -> None:
    await limited(world, given.TENANT)

    assert await answers(world, KEY, given.OTHER) == await answers(world, MISSING, given.OTHER)
    assert [status for status, _ in await answers(world, KEY, given.TENANT)] == [201] * 4
    for tenant, there in ((given.TENANT, True), (given.OTHER, False)):
        for who in ("viewer", "tenant_admin"):
            listed = await world.call("GET", "/definitions", who=who, tenant=tenant)
            assert (SECRET in listed.text) is there
            assert str(world.tenants[given.TENANT]) not in listed.text  # whose else it is, is not told


async def test_the_console_offers_it_to_its_tenants_only(world: World) -> None:
    await limited(world, given.TENANT)
    for tenant, there in ((given.TENANT, True), (given.OTHER, False)):
        headers = {"Cookie": await world.signed_in(Role.TENANT_ADMIN, tenant)}
        for page in ("/definitions", "/enqueue", "/triggers/new"):
            shown = await world.client.get(f"{BASE}/console{page}", headers=headers)
            assert (page, shown.status_code, KEY in shown.text) == (page, 200, there)
        one = await world.client.get(f"{BASE}/console/definitions/{KEY}", headers=headers)
        assert one.status_code == (200 if there else 404)


async def test_programs_and_plain_sql_are_refused_too(world: World) -> None:
    await limited(world, given.TENANT)
    await world.fl.enqueue(KEY, tenant=given.TENANT)  # now this process knows the newest version

    with pytest.raises(DefinitionUnknown):
        await world.fl.enqueue(KEY, tenant=given.OTHER)
    with pytest.raises(WorkflowInvalid):
        await publish(world, "w", given.OTHER)
    async with world.fl.database.transaction() as tx:
        [(job,)] = await tx.values(f"select (fairlead.enqueue('{given.TENANT}', '{KEY}', '{{}}')).job_id")
        assert job is not None
    with pytest.raises(Exception, match="definition"):
        async with world.fl.database.transaction() as tx:
            await tx.values(f"select (fairlead.enqueue('{given.OTHER}', '{KEY}', '{{}}')).job_id")


async def test_a_worker_of_another_tenant_cannot_ask_for_it(world: World) -> None:
    await limited(world, given.TENANT)

    async def claim(tenant: str) -> str | None:
        body = {"definitions": [KEY], "limit": 1}
        answer = await world.call("POST", "/worker/jobs/claim", who="worker", tenant=tenant, json=body)
        return str(answer.json().get("code"))

    assert (await claim(given.TENANT), await claim(given.OTHER)) == ("None", "definition_unknown")


async def test_a_shared_workflow_does_not_reach_it_for_other_tenants(world: World) -> None:
    assert await world.status("POST", "/admin/jobs/definitions", who="super_admin", json={"key": KEY}) == 201
    await publish(world, "shared", "global")
    await limit(world, given.TENANT)

    states = {}
    for tenant in (given.TENANT, given.OTHER):
        run = await world.call(
            "POST", "/workflows/shared/runs", who="tenant_admin", tenant=tenant, json={"input": {}}
        )
        assert run.status_code == 201, run.text
        shown = await world.call("GET", f"/workflows/runs/{run.json()['id']}", who="viewer", tenant=tenant)
        states[tenant] = shown.json()["run"]["status"]
    assert states == {given.TENANT: "running", given.OTHER: "failed"}


async def test_an_empty_list_makes_it_everybodys_again(world: World) -> None:
    await limited(world, given.TENANT)
    await limit(world)

    assert [status for status, _ in await answers(world, KEY, given.OTHER)] == [201] * 4


async def test_a_tenant_that_is_not_there_is_refused(world: World) -> None:
    body = {"key": KEY, "only_tenants": ["nope"]}
    refused = await world.call("POST", "/admin/jobs/definitions", who="super_admin", json=body)

    assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, "only_tenants")
