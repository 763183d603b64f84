"""Tokens over HTTP: made, shown once, listed, taken away."""

from typing import Any

import pytest

from fairlead.server.app import PREFIX
from tests import given
from tests.server.world import BASE, World


async def with_secret(world: World, secret: str, path: str = "/me") -> int:
    """How the API answers to somebody with this token."""
    headers = {"Authorization": f"Bearer {secret}"}
    return (await world.client.get(BASE + PREFIX + path, headers=headers)).status_code


async def test_a_token_works_from_when_it_is_made_until_it_is_revoked(world: World) -> None:
    made = await world.call("POST", "/tokens", who="tenant_admin", json={"name": "ci", "role": "operator"})
    assert made.status_code == 201
    token = made.json()
    assert (token["role"], token["tenant_id"]) == ("operator", str(world.tenants[given.TENANT]))
    assert await with_secret(world, token["secret"]) == 200

    revoked = await world.call("DELETE", f"/tokens/{token['id']}", who="tenant_admin")

    assert revoked.json()["revoked_at"] is not None
    assert await with_secret(world, token["secret"]) == 401


async def test_the_secret_is_shown_once_and_kept_nowhere(world: World) -> None:
    headers = {"Idempotency-Key": "k"}
    body = {"name": "ci", "role": "viewer"}
    secret = (await world.call("POST", "/tokens", who="tenant_admin", json=body, headers=headers)).json()[
        "secret"
    ]

    again = await world.call("POST", "/tokens", who="tenant_admin", json=body, headers=headers)
    listed = await world.call("GET", "/tokens", who="tenant_admin")

    assert (again.status_code, again.json()["secret"]) == (201, None)
    assert secret not in listed.text
    assert [one["prefix"] for one in listed.json()["items"] if one["name"] == "ci"] == [secret[:11]]
    async with world.fl.database.transaction() as tx:
        for table in ("tokens", "idempotency_keys", "audit_log"):
            rows = await tx.values(f"select row_to_json(t)::text from fairlead.{table} t")
            assert rows
            assert not [row for (row,) in rows if secret in row]


@pytest.mark.parametrize(
    ("who", "role", "status"),
    [
        ("tenant_admin", "super_admin", 403),
        ("tenant_admin", "tenant_admin", 201),
        ("tenant_admin", "worker", 201),
        ("operator", "viewer", 403),
        ("super_admin", "super_admin", 201),
        ("super_admin", "viewer", 422),  # of which tenant?
    ],
)
async def test_nobody_hands_out_more_than_they_have(world: World, who: str, role: str, status: int) -> None:
    made = await world.call("POST", "/tokens", who=who, json={"name": "x", "role": role})

    assert made.status_code == status


async def test_a_super_admin_makes_a_token_for_a_tenant(world: World) -> None:
    made = await world.call(
        "POST",
        "/tokens",
        who="super_admin",
        json={"name": "x", "role": "viewer"},
        headers={"X-Tenant": given.OTHER},
    )

    assert made.json()["tenant_id"] == str(world.tenants[given.OTHER])


async def test_a_tenants_tokens_are_its_own(world: World) -> None:
    foreign = world.token_ids[given.OTHER, "viewer"]
    missing = await world.call("DELETE", "/tokens/0198a7a4-0000-7000-8000-000000000000", who="tenant_admin")
    refused = await world.call("DELETE", f"/tokens/{foreign}", who="tenant_admin")

    assert (refused.status_code, refused.json()["code"]) == (404, "token_unknown")
    assert missing.status_code == 404
    assert await with_secret(world, world.secrets[given.OTHER, "viewer"]) == 200
    listed = await world.call("GET", "/tokens", who="tenant_admin")
    assert {one["tenant_id"] for one in listed.json()["items"]} == {str(world.tenants[given.TENANT])}
    everybodys = await world.call("GET", "/tokens", who="super_admin")
    assert len(everybodys.json()["items"]) == len(world.token_ids)


async def test_an_agents_token_needs_a_host_of_its_tenant(world: World) -> None:
    def body(tenant: str) -> dict[str, Any]:
        return {"name": "a", "role": "agent", "host_id": str(world.hosts[tenant])}

    foreign = await world.call("POST", "/tokens", who="tenant_admin", json=body(given.OTHER))
    own = await world.call("POST", "/tokens", who="tenant_admin", json=body(given.TENANT))

    assert (foreign.status_code, own.status_code) == (422, 201)


@pytest.mark.parametrize(
    "more",
    [{"expires_at": "2026-01-01T00:00:00"}, {"name": ""}, {"name": "\x00"}, {"role": "king"}, {"extra": 1}],
)
async def test_a_token_that_cannot_be_is_refused(world: World, more: dict[str, Any]) -> None:
    refused = await world.call(
        "POST", "/tokens", who="tenant_admin", json={"name": "x", "role": "viewer", **more}
    )

    assert refused.status_code == 422
    assert refused.json()["errors"]
