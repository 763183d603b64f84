"""Tokens over HTTP: made, shown once, listed, taken away."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from fairlead.actions import access
from fairlead.db.tx import Tx
from fairlead.model.access import Role
from fairlead.server.problems import PREFIX
from fairlead.store import live
from tests import given
from tests.server.world import BASE, World
from tests.tables import each_case


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


async def test_a_token_that_is_revoked_while_it_is_read_is_refused_from_then_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"name": "ci", "role": "operator"}
    token = (await world.call("POST", "/tokens", who="tenant_admin", json=body)).json()
    find = access.find_token_principal

    async def find_and_revoke(tx: Tx, secret: str) -> Any:
        found = await find(tx, secret)
        if secret == token["secret"]:
            assert (await world.call("DELETE", f"/tokens/{token['id']}", who="tenant_admin")).is_success
        return found

    monkeypatch.setattr(access, "find_token_principal", find_and_revoke)
    assert await with_secret(world, token["secret"]) == 200
    monkeypatch.undo()

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


@each_case(
    ("who", "role", "status"),
    [
        ("tenant_admin", "super_admin", 403),
        ("tenant_admin", "tenant_admin", 201),
        ("tenant_admin", "worker", 403),
        ("operator", "viewer", 403),
        ("super_admin", "super_admin", 201),
        ("super_admin", "viewer", 422),  # of which tenant?
    ],
)
async def test_nobody_hands_out_more_than_they_have(
    shared_world: World, who: str, role: str, status: int
) -> None:
    assert await shared_world.status("POST", "/tokens", who=who, json={"name": "x", "role": role}) == status


async def test_an_agents_token_needs_a_host_of_its_tenant(world: World) -> None:
    def body(tenant: str) -> dict[str, Any]:
        return {"name": "a", "role": "agent", "host_id": str(world.hosts[tenant])}

    foreign = await world.call("POST", "/tokens", who="tenant_admin", json=body(given.OTHER))
    own = await world.call("POST", "/tokens", who="tenant_admin", json=body(given.TENANT))

    assert (foreign.status_code, own.status_code) == (422, 201)


async def test_application_is_a_role_of_tokens_of_one_tenant_and_not_of_people(world: World) -> None:
    person = {"email": "app@acme.example", "password": "correct horse battery", "role": "application"}
    user = await world.call("POST", "/users", who="tenant_admin", json=person)
    token = await world.call(
        "POST", "/tokens", who="tenant_admin", json={"name": "app", "role": "application"}
    )
    of_all = await world.call(
        "POST", "/tokens", who="super_admin", json={"name": "app", "role": "application"}
    )

    assert user.status_code == 422
    assert user.json()["errors"] == [{"path": "role", "message": "is for tokens, not for people"}]
    assert token.json()["tenant_id"] == str(world.tenants[given.TENANT])
    assert of_all.json()["errors"] == [{"path": "tenant", "message": "is required for the role application"}]


@each_case(
    "more",
    [{"expires_at": "2026-01-01T00:00:00"}, {"name": ""}, {"name": "\x00"}, {"role": "king"}, {"extra": 1}],
)
async def test_a_token_that_cannot_be_is_refused(shared_world: World, more: dict[str, Any]) -> None:
    refused = await shared_world.call(
        "POST", "/tokens", who="tenant_admin", json={"name": "x", "role": "viewer", **more}
    )

    assert refused.status_code == 422
    assert refused.json()["errors"]


# Makers


async def made_by(world: World, cookie: str, **more: Any) -> Any:
    """A token that somebody made who is signed in."""
    made = await world.call("POST", "/tokens", who=None, json=more, headers={"Cookie": cookie})
    assert made.status_code == 201, made.text
    return made.json()


async def change(world: World, user_id: str, **changes: Any) -> None:
    assert await world.status("PATCH", f"/users/{user_id}", who="tenant_admin", json=changes) == 200


async def test_a_token_stops_working_while_its_maker_is_disabled(world: World) -> None:
    cookie = await world.signed_in(Role.TENANT_ADMIN)
    own = await made_by(world, cookie, name="own", role="tenant_admin")
    grandchild = await world.call(
        "POST",
        "/tokens",
        who=None,
        json={"name": "made by the token", "role": "viewer"},
        headers={"Authorization": f"Bearer {own['secret']}"},
    )
    secrets = [own["secret"], grandchild.json()["secret"]]
    assert [await with_secret(world, one) for one in secrets] == [200, 200]

    await change(world, own["user_id"], disabled=True)
    assert [await with_secret(world, one) for one in secrets] == [401, 401]

    await change(world, own["user_id"], disabled=False)
    assert [await with_secret(world, one) for one in secrets] == [200, 200]


async def states(world: World, *names: str) -> list[str]:
    """What the list says of tokens, to a tenant's admin and to a super admin alike."""
    listed = []
    for who in ("tenant_admin", "super_admin"):
        items = (await world.call("GET", "/tokens", who=who, params={"limit": 100})).json()["items"]
        listed.append([one["state"] for name in names for one in items if one["name"] == name])
    assert listed[0] == listed[1]
    return listed[0]


async def test_the_list_says_why_a_token_is_refused(world: World) -> None:
    own = await made_by(world, await world.signed_in(Role.TENANT_ADMIN), name="own", role="tenant_admin")
    root = {"Cookie": await world.signed_in(Role.SUPER_ADMIN, None), "X-Tenant": given.TENANT}
    body = {"name": "roots", "role": "viewer"}
    made = await world.call("POST", "/tokens", who=None, json=body, headers=root)
    assert (made.status_code, made.json()["state"]) == (201, "valid")
    every = (f"{given.TENANT}.viewer", f"{given.TENANT}.expired", f"{given.TENANT}.revoked", "own", "roots")
    assert await states(world, *every) == ["valid", "expired", "revoked", "valid", "valid"]

    await change(world, own["user_id"], role="operator")
    assert await states(world, "own") == ["maker_lacks_role"]
    await change(world, own["user_id"], disabled=True)
    assert await states(world, "own", "roots") == ["maker_disabled", "valid"]

    shown = await world.client.get(
        f"{BASE}/console/tokens", headers={"Cookie": await world.signed_in(Role.SUPER_ADMIN, None)}
    )
    assert "because the user who created it is disabled" in shown.text


async def test_a_token_may_do_no_more_than_its_maker_may_now(world: World) -> None:
    cookie = await world.signed_in(Role.TENANT_ADMIN)
    tokens = [await made_by(world, cookie, name=role, role=role) for role in ("tenant_admin", "viewer")]
    assert [await with_secret(world, one["secret"]) for one in tokens] == [200, 200]  # and remembered

    await change(world, tokens[0]["user_id"], role="operator")

    assert [await with_secret(world, one["secret"]) for one in tokens] == [401, 200]


async def test_an_open_socket_is_found_to_have_lost_its_maker(world: World) -> None:
    token = await made_by(world, await world.signed_in(Role.TENANT_ADMIN), name="x", role="viewer")
    async with world.fl.database.transaction() as tx:
        assert await live.filter_valid_tokens(tx, [UUID(token["id"])])
    await change(world, token["user_id"], disabled=True)

    async with world.fl.database.transaction() as tx:
        assert not await live.filter_valid_tokens(tx, [UUID(token["id"])])


async def test_every_token_of_a_user_is_revoked_at_once(world: World) -> None:
    cookie = await world.signed_in(Role.TENANT_ADMIN)
    tokens = [await made_by(world, cookie, name=name, role="viewer") for name in "ab"]
    assert [await with_secret(world, one["secret"]) for one in tokens] == [200, 200]  # and remembered
    whose = tokens[0]["user_id"]

    revoked = await world.call("POST", f"/users/{whose}/revoke-tokens", who="tenant_admin")

    assert revoked.json() == {"user_id": whose, "revoked": 2}
    assert [await with_secret(world, one["secret"]) for one in tokens] == [401, 401]
    assert await with_secret(world, world.secrets[given.TENANT, "viewer"]) == 200


@each_case(
    ("who", "expires_at", "days"),
    [
        ("tenant_admin", {}, 90),
        ("super_admin", {}, 90),
        ("super_admin", {"expires_at": None}, None),
        ("super_admin", {"expires_at": "2900-01-01T00:00:00Z"}, 1000),
    ],
)
async def test_a_token_ends_by_itself(
    shared_world: World, who: str, expires_at: dict[str, Any], days: int | None
) -> None:
    role = "super_admin" if who == "super_admin" else "viewer"
    made = await shared_world.call("POST", "/tokens", who=who, json={"name": "x", "role": role, **expires_at})

    ends = made.json()["expires_at"]
    if days is None:
        assert ends is None
    else:
        left = datetime.fromisoformat(ends) - datetime.now(UTC)
        assert timedelta(days=days - 1) < left
        assert days == 1000 or left < timedelta(days=days + 1)


@each_case("ends", [None, "2900-01-01T00:00:00Z"])
async def test_only_a_super_admin_makes_a_token_without_an_end(shared_world: World, ends: str | None) -> None:
    body = {"name": "x", "role": "viewer", "expires_at": ends}
    refused = await shared_world.call("POST", "/tokens", who="tenant_admin", json=body)

    assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, "expires_at")


# Definitions


async def bound(world: World, role: str, *keys: str) -> dict[str, str]:
    """The headers of a token of a tenant that is for these definitions only."""
    made = await world.call(
        "POST",
        "/tokens",
        who="super_admin",
        headers={"X-Tenant": given.TENANT},
        json={"name": "bound", "role": role, "definitions": list(keys)},
    )
    assert made.status_code == 201, made.text
    assert made.json()["definitions"] == list(keys)
    return {"Authorization": f"Bearer {made.json()['secret']}"}


async def define(world: World, *keys: str) -> None:
    for key in keys:
        made = await world.call("POST", "/admin/jobs/definitions", who="super_admin", json={"key": key})
        assert made.status_code == 201


async def test_a_worker_runs_only_the_definitions_of_its_token(world: World) -> None:
    await define(world, "mine", "others")
    for key in ("others", "mine"):
        await world.call("POST", "/jobs", json={"definition_key": key, "payload": {}})
    headers = await bound(world, "worker", "mine")

    async def claim(who: dict[str, str], body: dict[str, Any]) -> Any:
        return await world.call("POST", "/worker/jobs/claim", who=None, headers=who, json=body)

    asked = await claim(headers, {"definitions": ["others"]})
    got = (await claim(headers, {"definitions": None, "limit": 10})).json()["items"]

    assert asked.json()["code"] == "definition_unknown"
    assert [one["definition_key"] for one in got] == ["mine"]
    whole = world.headers("worker")
    [foreign] = (await claim(whole, {"definitions": None, "limit": 10})).json()["items"]
    lease = {name: foreign[name] for name in ("attempt_no", "lease_token")}
    for step, more in (
        ("heartbeat", {}),
        ("complete", {"cost_cents": 0}),
        ("logs", {"chunks": [{"seq": 1, "stream": "stdout", "text": "x"}]}),
        ("release", {}),
    ):
        path = f"/worker/jobs/{foreign['job_id']}/{step}"
        refused = await world.call("POST", path, who=None, headers=headers, json=lease | more)
        assert (step, refused.json()["code"]) == (step, "lease_lost")
    mine = f"/worker/jobs/{got[0]['job_id']}/complete"
    body = {name: got[0][name] for name in ("attempt_no", "lease_token")}
    assert await world.status("POST", mine, who=None, headers=headers, json=body) == 200


async def test_an_application_enqueues_only_the_definitions_of_its_token(world: World) -> None:
    await define(world, "mine", "others")
    headers = await bound(world, "application", "mine")

    async def ask(path: str, body: Any) -> int:
        return await world.status("POST", path, who=None, headers=headers, json=body)

    jobs: dict[str, Any] = {key: {"definition_key": key, "payload": {}} for key in ("mine", "others")}
    assert [await ask("/jobs", jobs[key]) for key in ("mine", "others")] == [201, 403]
    assert [await ask("/jobs/bulk", {"jobs": [jobs["mine"], jobs[key]]}) for key in ("mine", "others")] == [
        201,
        403,
    ]


@each_case(
    ("role", "keys"), [("viewer", ["greet"]), ("worker", []), ("worker", ["nope"]), ("application", ["a b"])]
)
async def test_a_token_cannot_be_for_what_is_not_there(
    shared_world: World, role: str, keys: list[str]
) -> None:
    refused = await shared_world.call(
        "POST",
        "/tokens",
        who="super_admin",
        headers={"X-Tenant": given.TENANT},
        json={"name": "x", "role": role, "definitions": keys},
    )

    assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, "definitions")
