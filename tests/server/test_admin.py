"""Definitions and tenants, administered over HTTP."""

from typing import Any

import pytest

from tests import given
from tests.server.world import World
from tests.tables import each_case

# as in the document that the system was asked for in
SYNC = {
    "key": "sync-dropbox",
    "description": "Sync provider updates for tenant",
    "arg_schema": {
        "type": "object",
        "properties": {
            "provider_id": {"type": "string", "format": "uuid"},
            "path_prefix": {"type": "string"},
        },
        "required": ["provider_id"],
        "additionalProperties": False,
    },
    "timeout_seconds": 3600,
    "max_attempts": 3,
}
DEFINITIONS = "/admin/jobs/definitions"


# Definitions


async def test_a_definition_is_created_as_it_was_sent(world: World) -> None:
    made = await world.call("POST", DEFINITIONS, who="super_admin", json=SYNC)

    assert made.status_code == 201
    assert made.json().items() >= SYNC.items()
    assert made.json()["version"] == 1
    *_, entry = await given.audit_entries(world, "definition_created")
    assert (entry.actor, entry.tenant_id, entry.ip) == ("token:all.super_admin", None, "127.0.0.1")
    assert entry.details["key"] == "sync-dropbox"


async def test_a_key_that_is_taken_is_a_clash_and_changes_nothing(world: World) -> None:
    refused = await world.call(
        "POST", DEFINITIONS, who="super_admin", json={"key": "greet", "description": "another"}
    )

    assert (refused.status_code, refused.json()["code"]) == (409, "definition_exists")
    listed = await world.call("GET", DEFINITIONS, who="super_admin")
    assert {one["key"]: one["description"] for one in listed.json()["items"]}["greet"] == ""


@pytest.mark.parametrize("by", ["id", "key"])
async def test_a_change_of_a_definition_leaves_the_rest(world: World, by: str) -> None:
    made = (await world.call("POST", DEFINITIONS, who="super_admin", json=SYNC)).json()

    changes = {"timeout_seconds": 60, "max_running": 4, "backoff": {"base_seconds": 1}}
    changed = await world.call("PATCH", f"{DEFINITIONS}/{made[by]}", who="super_admin", json=changes)

    assert changed.status_code == 200
    expected = made | {"timeout_seconds": 60, "max_running": 4, "version": 2}
    got = changed.json()
    assert got["backoff"] == made["backoff"] | {"base_seconds": 1}
    assert {k: v for k, v in got.items() if k not in ("updated_at", "backoff")} == {
        k: v for k, v in expected.items() if k not in ("updated_at", "backoff")
    }
    unlimited = await world.call(
        "PATCH", f"{DEFINITIONS}/{made[by]}", who="super_admin", json={"max_running": None}
    )
    assert unlimited.json()["max_running"] is None


@each_case(
    ("body", "where"),
    [
        ({"key": "x", "timeout": 5}, "timeout"),
        ({"key": "1x"}, "key"),
        ({"key": "x", "backoff": {"factor": 0}}, "backoff.factor"),
    ],
)
async def test_a_definition_that_cannot_be_is_refused_by_name(
    shared_world: World, body: dict[str, Any], where: str
) -> None:
    refused = await shared_world.call("POST", DEFINITIONS, who="super_admin", json=body)

    assert refused.status_code == 422
    assert where in [fault["path"] for fault in refused.json()["errors"]]


async def test_lists_are_paged_by_cursor(world: World) -> None:
    seen: list[str] = []
    cursor: str | None = None
    while True:
        query = {"limit": "2"} | ({} if cursor is None else {"cursor": cursor})
        page = (await world.call("GET", "/definitions", who="viewer", params=query)).json()
        seen += [one["key"] for one in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == ["anything", "greet", "retired"]


# Tenants


async def test_a_slug_is_of_one_tenant(world: World) -> None:
    body = {"slug": "wayne", "name": "Wayne Ltd", "timezone": "Europe/Paris", "weight": 3}
    made = await world.call("POST", "/admin/tenants", who="super_admin", json=body)

    assert made.status_code == 201
    assert {name: made.json()[name] for name in body} == body
    taken = await world.refusal("POST", "/admin/tenants", who="super_admin", json=body)
    assert taken == (409, "tenant_exists")


async def test_a_change_of_a_tenant_leaves_the_rest_and_is_audited(world: World) -> None:
    acme = str(world.tenants[given.TENANT])
    changed = await world.call(
        "PATCH", f"/admin/tenants/{acme}", who="super_admin", json={"weight": 7, "max_running": 2}
    )
    again = await world.call("PATCH", "/admin/tenants/acme", who="super_admin", json={"max_running": None})

    assert (changed.json()["weight"], changed.json()["max_running"]) == (7, 2)
    assert (again.json()["weight"], again.json()["max_running"], again.json()["name"]) == (7, None, "acme")
    entries = await given.audit_entries(world, "tenant_changed")
    assert [entry.details for entry in entries] == [
        {"slug": "acme", "weight": 7, "max_running": 2},
        {"slug": "acme", "max_running": None},
    ]


async def test_a_change_that_changes_nothing_leaves_no_trace(world: World) -> None:
    await world.call("PATCH", "/admin/tenants/acme", who="super_admin", json={"weight": 1, "paused": False})

    assert await given.audit_entries(world, actions=["tenant_changed", "tenant_resumed"]) == []


async def test_a_tenant_is_paused_and_resumed(world: World) -> None:
    for paused in (True, False):
        changed = await world.call("PATCH", "/admin/tenants/acme", who="super_admin", json={"paused": paused})
        assert (changed.json()["paused_at"] is not None) is paused


@each_case(
    ("body", "where"),
    [
        ({"weight": 0}, "weight"),
        ({"weight": None}, "weight"),
        ({"max_running": 2**31}, "max_running"),
        ({"timezone": "Mars/Olympus"}, "timezone"),
        ({"name": ""}, "name"),
        ({"slug": "other"}, "slug"),
    ],
)
async def test_a_tenant_that_cannot_be_is_refused(
    shared_world: World, body: dict[str, Any], where: str
) -> None:
    refused = await shared_world.call("PATCH", "/admin/tenants/acme", who="super_admin", json=body)

    assert refused.status_code == 422
    assert where in [fault["path"] for fault in refused.json()["errors"]]


async def test_tenants_are_listed_by_slug(world: World) -> None:
    listed = (await world.call("GET", "/admin/tenants", who="super_admin", params={"limit": "2"})).json()

    assert [one["slug"] for one in listed["items"]] == ["acme", "global"]
    assert listed["next_cursor"] == "global"
