"""Users over HTTP: added, listed, changed; passwords never come back."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from fairlead.actions import access, user_sessions
from fairlead.model.access import Role
from tests import given
from tests.server.world import PASSWORD, World, world_on
from tests.tables import each_case
from tests.waiting import SECONDS, until_somebody_waits

ADA = {"email": "Ada@acme.test", "password": PASSWORD, "role": "operator"}


async def signs_in(world: World, password: str = PASSWORD, email: str = ADA["email"]) -> int:
    answer = await world.call("POST", "/login", who=None, json={"email": email, "password": password})
    world.client.cookies.clear()
    return answer.status_code


async def test_a_user_that_was_added_can_sign_in(world: World) -> None:
    made = await world.call("POST", "/users", who="tenant_admin", json=ADA)

    assert made.status_code == 201
    assert (made.json()["email"], made.json()["role"]) == (ADA["email"], "operator")
    assert await signs_in(world, email="ada@ACME.test") == 200


async def test_an_address_is_taken_in_its_tenant_and_no_other_tenant_is_told(world: World) -> None:
    foreign = ADA | {"password": "of somebody else there"}
    added = await world.call("POST", "/users", who="tenant_admin", json=ADA)
    again = await world.call("POST", "/users", who="tenant_admin", json=ADA)
    other = await world.call("POST", "/users", who="tenant_admin", tenant=given.OTHER, json=foreign)

    assert (again.status_code, again.json()["code"]) == (409, "user_exists")
    assert (other.status_code, other.json()["tenant"]) == (201, given.OTHER)
    for user, password in ((added, PASSWORD), (other, foreign["password"])):
        body = {"email": ADA["email"], "password": password}
        signed_in = await world.call("POST", "/login", who=None, json=body)
        world.client.cookies.clear()
        assert signed_in.json()["tenant"] == user.json()["tenant"]
    assert await signs_in(world, "the password of neither") == 401


@each_case("letter", ["\x1b", "\x07", "\x9b", "\u202e", "\u200b"])
async def test_an_address_has_no_control_characters(shared_world: World, letter: str) -> None:
    body = ADA | {"email": f"a{letter}b@acme.test"}
    refused = await shared_world.call("POST", "/users", who="tenant_admin", json=body)

    assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, "email")


async def test_a_change_of_password_ends_sessions(world: World) -> None:
    made = (await world.call("POST", "/users", who="tenant_admin", json=ADA)).json()
    await world.call("POST", "/login", who=None, json={"email": ADA["email"], "password": PASSWORD})
    assert await world.status("GET", "/me", who=None) == 200

    changed = await world.call(
        "PATCH", f"/users/{made['id']}", who="tenant_admin", json={"password": "quite another one"}
    )

    assert changed.status_code == 200
    assert await world.status("GET", "/me", who=None) == 401
    assert (await signs_in(world), await signs_in(world, "quite another one")) == (401, 200)


@pytest.mark.parametrize("change", [{"password": "another password"}, {"disabled": True}])
async def test_who_was_changed_while_their_password_was_checked_is_not_let_in(
    world: World, change: dict[str, Any]
) -> None:
    made = await world.call("POST", "/users", who="tenant_admin", json=ADA)

    async def slowly() -> Any:
        async with world.fl.database.transaction() as tx:
            user = await user_sessions.verify_user(tx, email=ADA["email"], password=PASSWORD)
            assert user is not None
            checked.set()
            await changing.wait()
            return await user_sessions.start_session(tx, user, seconds=60)

    checked, changing = asyncio.Event(), asyncio.Event()
    signing_in = asyncio.create_task(slowly())
    await checked.wait()
    async with world.fl.database.transaction() as tx:
        await access.change_user(tx, given.TESTER, UUID(made.json()["id"]), **change)
        changing.set()
        await until_somebody_waits(tx)

    assert await signing_in is None


async def test_a_password_that_is_no_text_is_a_wrong_one(world: World) -> None:
    await world.call("POST", "/users", who="tenant_admin", json=ADA)

    answer = await world.call(
        "POST", "/login", who=None, content=b'{"email": "ada@acme.test", "password": "\\ud800"}',
        headers={"Content-Type": "application/json"},
    )  # fmt: skip

    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")


@pytest.mark.parametrize("path", ["/users", "/tokens", "/admin/users"])
async def test_the_largest_page_says_that_there_are_more(
    world: World, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for role in (Role.VIEWER, Role.OPERATOR, Role.TENANT_ADMIN):
        await world.signed_in(role)
    monkeypatch.setattr(access, "MAX_PAGE", 2)

    page = (await world.call("GET", path, who="super_admin", params={"limit": 2})).json()

    assert len(page["items"]) == 2
    assert page["next_cursor"] is not None


async def test_a_disabled_user_is_let_in_no_longer(world: World) -> None:
    made = (await world.call("POST", "/users", who="tenant_admin", json=ADA)).json()
    for disabled, status in ((True, 401), (False, 200)):
        await world.call("PATCH", f"/users/{made['id']}", who="tenant_admin", json={"disabled": disabled})
        assert await signs_in(world) == status


async def test_a_super_admin_adds_users_anywhere(world: World) -> None:
    of_tenant = await world.call("POST", "/admin/users", who="super_admin", json=ADA | {"tenant": "acme"})
    of_none = {"email": "root@fairlead.test", "password": PASSWORD, "role": "super_admin"}
    admin = await world.call("POST", "/admin/users", who="super_admin", json=of_none)
    nowhere = await world.call("POST", "/admin/users", who="super_admin", json=ADA | {"email": "b@c"})
    unknown = await world.call("POST", "/admin/users", who="super_admin", json=ADA | {"tenant": "nope"})

    assert (of_tenant.status_code, admin.status_code) == (201, 201)
    assert (nowhere.status_code, unknown.status_code) == (422, 404)
    listed = await world.call("GET", "/admin/users", who="super_admin")
    assert [one["email"] for one in listed.json()["items"]] == [ADA["email"], "root@fairlead.test"]


@each_case(
    ("more", "status"),
    [
        ({"role": "super_admin"}, 403),
        ({"role": "agent"}, 422),
        ({"role": "worker"}, 403),
        ({"password": "short"}, 422),
        ({"email": "nobody"}, 422),
        ({"tenant": "umbrella"}, 422),
    ],
)
async def test_a_user_that_cannot_be_is_refused(
    shared_world: World, more: dict[str, Any], status: int
) -> None:
    assert await shared_world.status("POST", "/users", who="tenant_admin", json=ADA | more) == status


async def test_passwords_are_nowhere_to_be_read(world: World) -> None:
    canary = "canary-password-1"
    body = ADA | {"password": canary}
    made = await world.call("POST", "/users", who="tenant_admin", json=body, headers={"Idempotency-Key": "c"})
    listed = await world.call("GET", "/users", who="tenant_admin")
    long = await world.call("POST", "/login", who=None, json={"email": "a@b", "password": canary * 100})
    wrong = await world.call("POST", "/users", who="tenant_admin", json=body | {"password": [canary]})

    assert (long.status_code, wrong.status_code) == (422, 422)
    assert not [one for one in (made, listed, long, wrong) if canary in one.text]
    async with world.fl.database.transaction() as tx:
        for table in ("users", "idempotency_keys", "audit_log"):
            rows = await tx.values(f"select row_to_json(t)::text from fairlead.{table} t")
            assert not [row for (row,) in rows if canary in row]


async def test_passwords_that_an_admin_sets_do_not_take_all_connections(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashing, go_on = asyncio.Event(), asyncio.Event()

    async def hash_slowly(_password: str) -> str:
        hashing.set()
        await go_on.wait()
        return "hashed"

    monkeypatch.setattr(access, "hash_password", hash_slowly)
    async with world_on(database_url, pool_size=4) as world:
        go_on.set()
        added = await world.call("POST", "/users", who="tenant_admin", json=ADA)
        go_on.clear()
        hashing.clear()
        new = [ADA | {"email": f"{number}@acme.test"} for number in range(8)]
        flood = [
            asyncio.create_task(world.call("POST", "/users", who="tenant_admin", json=one)) for one in new
        ]
        path, change = f"/users/{added.json()['id']}", {"password": PASSWORD}
        flood += [
            asyncio.create_task(world.call("PATCH", path, who="tenant_admin", json=change)) for _ in range(8)
        ]
        try:
            async with asyncio.timeout(SECONDS):
                await hashing.wait()
                others = await world.call("GET", "/jobs", tenant=given.OTHER)
        finally:
            go_on.set()
            answers = await asyncio.gather(*flood)

    assert others.status_code == 200
    assert {answer.status_code for answer in answers} == {200, 201}
