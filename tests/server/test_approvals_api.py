"""Approvals over HTTP: a tenant's own only, answered once, by a role that may, without secrets."""

from typing import Any

from tests import given
from tests.given import OTHER, TENANT
from tests.server.world import World

FORM = {
    "type": "object",
    "properties": {"amount": {"type": "integer"}, "pin": {"type": "string", "x-secret": True}},
    "required": ["amount"],
}


async def ask(world: World, **fields: Any) -> str:
    return str(await given.open_approval(world, form=FORM, **fields))


async def test_an_approval_is_listed_shown_and_answered_once(world: World) -> None:
    approval = await ask(world)
    other = await ask(world, tenant=OTHER)
    listed = (await world.call("GET", "/approvals", who="viewer")).json()
    assert [one["id"] for one in listed["items"]] == [approval]
    shown = (await world.call("GET", f"/approvals/{approval}", who="viewer")).json()
    assert (shown["status"], shown["form"], shown["tenant"]) == ("open", FORM, TENANT)

    wrong = await world.call("POST", f"/approvals/{approval}/approve", json={"values": {"amount": "x"}})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "approval_invalid")
    assert wrong.json()["errors"][0]["path"] == "/amount"
    body = {"values": {"amount": 2, "pin": "pin-4711-secret"}, "comment": "Fine"}
    answer = await world.call("POST", f"/approvals/{approval}/approve", json=body)
    assert answer.status_code == 200, answer.text
    assert "pin-4711-secret" not in answer.text
    assert (answer.json()["status"], answer.json()["values"]["amount"]) == ("approved", 2)
    assert await world.refusal("POST", f"/approvals/{approval}/reject") == (409, "approval_closed")

    audited = await world.call("GET", "/audit", who="tenant_admin", params={"action": "APPROVAL_APPROVED"})
    assert len(audited.json()["items"]) == 1
    assert "pin-4711-secret" not in audited.text
    steps = await world.call("GET", f"/jobs/{shown['job_id']}/steps")
    assert "pin-4711-secret" not in steps.text
    assert (await world.call("GET", "/approvals")).json()["items"] == []
    rest = (await world.call("GET", "/approvals", params={"status": "any", "job_id": shown["job_id"]})).json()
    assert [one["id"] for one in rest["items"]] == [approval]
    assert await world.status("GET", f"/approvals/{other}") == 404


async def test_bad_filters_are_refused(world: World) -> None:
    for query in ({"status": "closed"}, {"cursor": "x"}, {"limit": 0}, {"job_id": "x"}):
        assert await world.status("GET", "/approvals", params=query) == 422, query
    approval = await ask(world)
    for body in ({"values": [1]}, {"comment": "x" * 5000}, {"comment": "\x00"}, {"other": 1}):
        answer = await world.call("POST", f"/approvals/{approval}/reject", json=body)
        assert answer.status_code == 422, (body, answer.text)
