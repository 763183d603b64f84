"""Tokens with scopes, personal tokens and rotated tokens: none of them leads to more than its creator has."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from fairlead.model.access import GRANTS, NOT_PERSONAL, Permission, Role
from fairlead.server.live_sockets import REVOKED
from tests import given
from tests.second_factors import protected
from tests.server import matrix
from tests.server.test_live import refusal, served, watching
from tests.server.world import BASE, World, world_on
from tests.tables import each_case


async def _make(world: World, status: int = 201, headers: dict[str, str] | None = None, **body: Any) -> Any:
    """Create a token, as the tenant's admin unless other headers are given."""
    made = await world.call(
        "POST",
        "/tokens",
        who=None if headers else "tenant_admin",
        headers=headers,
        json={"name": "x", "role": "operator", **body},
    )
    assert made.status_code == status, made.text
    return made.json()


def _bearer(token: Any) -> dict[str, str]:
    return {"Authorization": f"Bearer {token['secret']}"}


async def _status(world: World, token: Any, method: str, path: str, **more: Any) -> int:
    return await world.status(method, path, who=None, headers=_bearer(token), **more)


# Scopes


async def test_a_scoped_token_has_only_its_scopes(world: World) -> None:
    token = await _make(world, scopes=["jobs.read", "jobs.enqueue", "jobs.read"])

    assert token["scopes"] == ["jobs.enqueue", "jobs.read"]
    me = await world.call("GET", "/me", who=None, headers=_bearer(token))
    assert me.json()["permissions"] == ["jobs.enqueue", "jobs.read"]
    assert await _status(world, token, "GET", "/jobs") == 200
    assert await _status(world, token, "GET", "/audit") == 403
    denied = await world.call("POST", f"/jobs/{uuid4()}/cancel", who=None, headers=_bearer(token), json={})
    assert denied.status_code == 403
    assert "scopes are jobs.enqueue, jobs.read" in denied.json()["detail"]


async def test_a_scoped_token_revokes_only_what_may_do_no_more_than_itself(world: World) -> None:
    cookie = {"Cookie": await world.signed_in(Role.TENANT_ADMIN)}
    strong = await _make(world, headers=cookie, role="tenant_admin")
    reader, other_reader = [await _make(world, role="viewer", scopes=["jobs.read"]) for _ in range(2)]
    revoker = await _make(world, role="tenant_admin", scopes=["tokens.manage", "jobs.read"])
    own_user = f"/users/{strong['user_id']}/revoke-tokens"

    assert await _status(world, revoker, "DELETE", f"/tokens/{strong['id']}") == 403
    assert await _status(world, revoker, "POST", own_user) == 403
    assert await _status(world, strong, "GET", "/jobs") == 200, "it is as valid as before"
    assert await _status(world, revoker, "DELETE", f"/tokens/{reader['id']}") == 200
    assert await _status(world, reader, "GET", "/jobs") == 401
    assert await _status(world, revoker, "DELETE", f"/tokens/{revoker['id']}") == 200, "itself"
    assert await _status(world, revoker, "DELETE", f"/tokens/{other_reader['id']}") == 401


async def test_an_admin_revokes_a_token_that_only_the_platform_grants(world: World) -> None:
    worker = world.token_ids[given.TENANT, "worker"]

    assert await world.status("DELETE", f"/tokens/{worker}", who="tenant_admin") == 200


@each_case("permission", lambda: sorted({rule.permission for rule in matrix.api_rules() if rule.permission}))
async def test_each_route_refuses_a_token_that_lacks_only_its_permission(
    shared_world: World, permission: Permission
) -> None:
    without = await _scoped(shared_world, sorted(GRANTS[Role.SUPER_ADMIN] - {permission}))
    alone = await _scoped(shared_world, [permission])
    for rule in [rule for rule in matrix.api_rules() if rule.permission is permission]:
        path = BASE + rule.path.format(**{name: str(uuid4()) for name in rule.params})
        query = matrix.QUERIES.get(str(rule), {})
        answers = [
            await shared_world.call(rule.method, path, who=None, headers=_bearer(token), params=query)
            for token in (without, alone)
        ]
        assert answers[0].status_code == 403, rule
        assert permission in answers[0].json()["detail"], rule
        assert answers[1].status_code != 401, rule
        if answers[1].status_code == 403:  # a permission of the object, not of the route
            assert "lacks the permission " + permission not in answers[1].json()["detail"], rule


async def _scoped(world: World, scopes: list[Permission]) -> Any:
    made = await world.call(
        "POST", "/tokens", who="super_admin", json={"name": "s", "role": "super_admin", "scopes": scopes}
    )
    assert made.status_code == 201, made.text
    return made.json()


@each_case(
    ("body", "path"),
    [
        ({"scopes": []}, "scopes"),
        ({"scopes": ["jobs.everything"]}, "scopes"),
        ({"scopes": ["tokens.manage"]}, "scopes"),  # no permission of an operator
        ({"role": "worker", "scopes": ["jobs.read"]}, "scopes"),
        ({"addresses": ["10.0.0.1/8"]}, "addresses"),
        ({"addresses": ["fe80::1%eth0"]}, "addresses"),
        ({"addresses": ["10.0.0.0/8"] * 101}, "addresses"),
        ({"addresses": ["everywhere"]}, "addresses"),
    ],
)
async def test_invalid_limits_are_refused(shared_world: World, body: dict[str, Any], path: str) -> None:
    refused = await _make(shared_world, status=422, **body)

    assert refused["errors"][0]["path"] == path


async def test_a_chain_of_tokens_never_widens(world: World) -> None:
    scopes = ["tokens.manage", "users.manage", "jobs.read"]
    first = await _make(world, role="tenant_admin", scopes=scopes, addresses=["127.0.0.0/8"])
    by_first = _bearer(first)

    for body in (
        {"role": "tenant_admin"},
        {"role": "operator"},
        {"role": "viewer"},
        {"role": "application"},
        {"role": "agent", "host_id": str(world.hosts[given.TENANT])},
        {"role": "tenant_admin", "scopes": [*scopes, "jobs.write"]},
        {"role": "operator", "scopes": ["jobs.enqueue"]},
    ):
        await _make(world, status=403, headers=by_first, **body)
    await _make(
        world, status=422, headers=by_first, role="viewer", scopes=["jobs.read"], addresses=["0.0.0.0/0"]
    )
    second = await _make(world, headers=by_first, role="viewer", scopes=["jobs.read"])
    assert (second["scopes"], second["addresses"]) == (["jobs.read"], ["127.0.0.0/8"])
    narrower = await _make(
        world, headers=by_first, role="viewer", scopes=["jobs.read"], addresses=["127.0.0.1"]
    )
    assert narrower["addresses"] == ["127.0.0.1/32"]


async def test_a_scoped_token_takes_over_no_user(world: World) -> None:
    await world.signed_in(Role.TENANT_ADMIN)
    listed = await world.call("GET", "/users", who="tenant_admin")
    [user] = listed.json()["items"]
    token = await _make(world, role="tenant_admin", scopes=["users.manage"])

    new = {"email": "b@x.test", "password": "a long enough password", "role": "tenant_admin"}
    assert await _status(world, token, "POST", "/users", json=new) == 403
    assert await _status(world, token, "POST", "/users", json={**new, "role": "viewer"}) == 403
    change = {"password": "a long enough password"}
    assert await _status(world, token, "PATCH", f"/users/{user['id']}", json=change) == 403


async def test_a_scoped_token_does_not_remove_the_second_factor_of_who_may_do_more(world: World) -> None:
    ada = await protected(world, Role.TENANT_ADMIN)
    [user] = (await world.call("GET", "/users", who="tenant_admin")).json()["items"]
    token = await _make(world, role="tenant_admin", scopes=["users.manage"])

    assert await _status(world, token, "DELETE", f"/users/{user['id']}/second-factor") == 403
    assert (await ada.call("GET")).json()["is_active"]


async def test_the_socket_wants_the_scope(world: World, patient_feeds: None) -> None:
    without, fit = await _make(world, scopes=["jobs.enqueue"]), await _make(world, scopes=["jobs.read"])

    async with served(world) as address:
        assert await refusal(address, _bearer(without)) == (403, "forbidden")
        async with watching(address, _bearer(fit)) as viewer:
            await world.call("DELETE", f"/tokens/{fit['id']}", who="tenant_admin")
            assert await viewer.closed() == REVOKED
    assert await _status(world, without, "POST", "/live/ticket") == 403


# Rotation


async def test_a_rotated_token_is_the_same_with_another_secret(world: World) -> None:
    old = await _make(world, scopes=["jobs.read"], addresses=["127.0.0.0/8"])

    before = datetime.now(UTC)
    made = await world.call(
        "POST", f"/tokens/{old['id']}/rotate", who="tenant_admin", json={"overlap_seconds": 600}
    )

    new = made.json()
    assert made.status_code == 201
    same = ("name", "role", "scopes", "addresses", "definitions", "tenant_id")
    assert [new[name] for name in same] == [old[name] for name in same]
    assert new["secret"] != old["secret"]
    assert [await _status(world, one, "GET", "/jobs") for one in (old, new)] == [200, 200]
    listed = (await world.call("GET", "/tokens", who="tenant_admin")).json()["items"]
    [kept] = [one for one in listed if one["id"] == old["id"]]
    assert kept["replaced_by"] == new["id"]
    assert before <= datetime.fromisoformat(kept["expires_at"]) - timedelta(minutes=10) <= datetime.now(UTC)
    again = await world.call("POST", f"/tokens/{old['id']}/rotate", who="tenant_admin", json={})
    assert (again.status_code, again.json()["code"]) == (409, "token_ended")
    entries = await world.call("GET", "/audit", who="viewer", params={"action": "token_rotated"})
    [entry] = entries.json()["items"]
    assert entry["details"]["new_id"] == new["id"]
    assert new["secret"] not in entries.text


async def test_without_overlap_the_old_secret_ends_at_once(world: World) -> None:
    old = await _make(world)
    assert await _status(world, old, "GET", "/jobs") == 200

    new = await world.call(
        "POST", f"/tokens/{old['id']}/rotate", who="tenant_admin", json={"overlap_seconds": 0}
    )

    assert await _status(world, old, "GET", "/jobs") == 401
    assert await _status(world, new.json(), "GET", "/jobs") == 200


async def test_of_two_rotations_at_once_one_wins(world: World) -> None:
    old = await _make(world, scopes=["jobs.read"])

    answers = await asyncio.gather(
        *(world.call("POST", f"/tokens/{old['id']}/rotate", who="tenant_admin", json={}) for _ in range(8))
    )

    won = [one.json() for one in answers if one.status_code == 201]
    lost = {(one.status_code, one.json()["code"]) for one in answers if one.status_code != 201}
    assert (len(won), lost) == (1, {(409, "token_ended")})
    listed = (await world.call("GET", "/tokens", who="tenant_admin")).json()["items"]
    assert {one["id"] for one in listed if one["name"] == old["name"]} == {old["id"], won[0]["id"]}


async def test_nobody_rotates_what_may_do_more(world: World) -> None:
    manager = await _make(world, role="tenant_admin", scopes=["tokens.manage", "jobs.read"])
    wide, narrow = await _make(world, role="tenant_admin"), await _make(world, scopes=["jobs.read"])
    bound = await _make(
        world, role="tenant_admin", scopes=["tokens.manage", "jobs.read"], addresses=["127.0.0.1"]
    )
    worker = world.token_ids[given.TENANT, "worker"]
    other = world.token_ids[given.OTHER, "viewer"]
    unbound = await _make(world, scopes=["jobs.read"])

    assert await _status(world, manager, "POST", f"/tokens/{wide['id']}/rotate", json={}) == 403
    assert await _status(world, manager, "POST", f"/tokens/{narrow['id']}/rotate", json={}) == 201
    assert await world.status("POST", f"/tokens/{worker}/rotate", who="tenant_admin", json={}) == 403
    assert await world.status("POST", f"/tokens/{other}/rotate", who="tenant_admin", json={}) == 404
    made = await world.call(
        "POST", f"/tokens/{unbound['id']}/rotate", who=None, headers=_bearer(bound), json={}
    )
    assert made.json()["addresses"] == ["127.0.0.1/32"]
    await world.call("DELETE", f"/tokens/{wide['id']}", who="tenant_admin")
    gone = await world.call("POST", f"/tokens/{wide['id']}/rotate", who="tenant_admin", json={})
    assert (gone.status_code, gone.json()["code"]) == (409, "token_ended")


# Personal tokens


async def _personal(world: World, cookie: str, status: int = 201, **body: Any) -> Any:
    made = await world.call(
        "POST", "/account/tokens", who=None, headers={"Cookie": cookie}, json={"name": "mine", **body}
    )
    assert made.status_code == status, made.text
    return made.json()


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR, Role.TENANT_ADMIN, Role.SUPER_ADMIN])
async def test_every_user_makes_tokens_for_oneself(world: World, role: Role) -> None:
    cookie = await world.signed_in(role)

    token = await _personal(world, cookie)

    assert (token["role"], token["is_personal"]) == (role, True)
    days = datetime.fromisoformat(token["expires_at"]) - datetime.now(UTC)
    assert timedelta(days=89) < days <= timedelta(days=90)
    me = await world.call("GET", "/me", who=None, headers=_bearer(token))
    assert set(me.json()["permissions"]) == GRANTS[role] - NOT_PERSONAL
    listed = await world.call("GET", "/account/tokens", who=None, headers={"Cookie": cookie})
    assert [one["id"] for one in listed.json()["items"]] == [token["id"]]
    assert token["secret"] not in listed.text
    gone = await world.call("DELETE", f"/account/tokens/{token['id']}", who=None, headers={"Cookie": cookie})
    assert gone.status_code == 200
    assert await _status(world, token, "GET", "/me") == 401


async def test_a_personal_token_makes_no_token_and_no_user(world: World) -> None:
    token = await _personal(world, await world.signed_in(Role.TENANT_ADMIN))

    for method, path, body in (
        ("POST", "/account/tokens", {"name": "again"}),
        ("GET", "/account/tokens", None),
        ("GET", "/account/sessions", None),
        ("GET", "/account/identities", None),
    ):
        assert await _status(world, token, method, path, json=body) == 422  # it has no account
    new = {"email": "b@x.test", "password": "a long enough password", "role": "viewer"}
    assert await _status(world, token, "POST", "/tokens", json={"name": "x", "role": "viewer"}) == 403
    assert await _status(world, token, "POST", "/users", json=new) == 403
    assert await _status(world, token, "POST", f"/tokens/{token['id']}/rotate", json={}) == 403
    assert await _status(world, token, "PUT", "/addresses", json={"addresses": []}) == 403
    # the agent's token would outlive it
    assert (
        await _status(world, token, "POST", f"/hosts/{world.hosts[given.TENANT]}/enrolment", json={}) == 403
    )
    # not even an admin gets the secret of another's
    assert await world.status("POST", f"/tokens/{token['id']}/rotate", who="tenant_admin", json={}) == 403


async def test_a_personal_token_is_never_more_than_its_user(world: World) -> None:
    cookie = await world.signed_in(Role.OPERATOR)

    for body in (
        {"role": "tenant_admin"},
        {"role": "super_admin"},
        {"role": "application"},
        {"role": "worker"},
        {"scopes": ["tokens.manage"]},
        {"expires_at": (datetime.now(UTC) + timedelta(days=91)).isoformat()},
    ):
        made = await world.call(
            "POST", "/account/tokens", who=None, headers={"Cookie": cookie}, json={"name": "mine", **body}
        )
        assert made.status_code in (403, 422), body
    fit = await _personal(world, cookie, role="viewer", scopes=["jobs.read"])
    assert await _status(world, fit, "GET", "/jobs") == 200
    assert await _status(world, fit, "GET", "/audit") == 403


async def test_it_falls_with_its_user(world: World) -> None:
    token = await _personal(world, await world.signed_in(Role.OPERATOR))
    assert await _status(world, token, "GET", "/jobs") == 200
    path = f"/users/{token['user_id']}"

    for change, status in (
        ({"role": "viewer"}, 401),
        ({"role": "operator"}, 200),
        ({"disabled": True}, 401),
        ({"disabled": False}, 200),
    ):
        assert await world.status("PATCH", path, who="tenant_admin", json=change) == 200
        assert await _status(world, token, "GET", "/jobs") == status, change


async def test_users_have_a_limited_number_and_only_their_own(world: World) -> None:
    cookie, other = await world.signed_in(Role.VIEWER), await world.signed_in(Role.OPERATOR)
    made = [await _personal(world, cookie) for _ in range(20)]

    assert (await _personal(world, cookie, status=409))["code"] == "too_many_tokens"
    taken = await world.call(
        "DELETE", f"/account/tokens/{made[0]['id']}", who=None, headers={"Cookie": other}
    )
    assert (taken.status_code, taken.json()["code"]) == (404, "token_unknown")
    await world.call("DELETE", f"/account/tokens/{made[0]['id']}", who=None, headers={"Cookie": cookie})
    await _personal(world, cookie)


async def test_the_setting_says_how_long(database_url: str) -> None:
    async with world_on(database_url, personal_token_days=7) as world:
        cookie = await world.signed_in(Role.VIEWER)
        token = await _personal(world, cookie)
        assert datetime.fromisoformat(token["expires_at"]) <= datetime.now(UTC) + timedelta(days=7)
        late = (datetime.now(UTC) + timedelta(days=8)).isoformat()
        assert (await _personal(world, cookie, status=422, expires_at=late))["errors"][0][
            "path"
        ] == "expires_at"
