"""Signing in and out over HTTP, and who one is."""

import pytest

from fairlead.model.access import GRANTS, Role
from fairlead.server.auth import COOKIE
from fairlead.server.problems import PREFIX
from tests import given
from tests.server.world import BASE, PASSWORD, World

EMAIL = f"operator.{given.TENANT}@fairlead.test"
WRONG = {"email": EMAIL, "password": "not the password"}
RIGHT = {"email": EMAIL, "password": PASSWORD}


async def test_signing_in_gives_a_cookie_that_scripts_cannot_read(world: World) -> None:
    await world.signed_in()

    answer = await world.call("POST", "/login", who=None, json=RIGHT)

    assert answer.status_code == 200
    assert answer.json()["actor"] == f"user:{EMAIL}"
    assert (answer.json()["role"], answer.json()["tenant"]) == ("operator", given.TENANT)
    parts = {part.strip().lower() for part in answer.headers["set-cookie"].split(";")}
    assert {"httponly", "samesite=lax", "path=/", "max-age=43200"} <= parts
    assert "secure" not in parts  # over plain http a browser would not send it back
    assert (await world.call("GET", "/me", who=None)).json()["actor"] == f"user:{EMAIL}"


async def test_signing_out_ends_the_session_itself(world: World) -> None:
    cookie = await world.signed_in()

    out = await world.call("POST", "/logout", who=None, headers={"Cookie": cookie})

    assert out.status_code == 204
    assert f'{COOKIE}=""' in out.headers["set-cookie"]
    assert await world.status("GET", "/me", who=None, headers={"Cookie": cookie}) == 401
    assert await world.status("POST", "/logout", who=None, headers={"Cookie": cookie}) == 204
    entries = await world.call("GET", "/audit", who="viewer", params={"action": "user_signed_out"})
    assert [one["actor"] for one in entries.json()["items"]] == [f"user:{EMAIL}"]


async def test_a_wrong_password_and_no_such_user_look_the_same(world: World) -> None:
    await world.signed_in()

    wrong = await world.call("POST", "/login", who=None, json=WRONG)
    nobody = await world.call("POST", "/login", who=None, json=WRONG | {"email": "nobody@x.test"})
    odd = await world.call("POST", "/login", who=None, json=WRONG | {"email": "\x00"})

    assert wrong.status_code == nobody.status_code == odd.status_code == 401
    assert wrong.json() == nobody.json() == odd.json()
    assert "set-cookie" not in wrong.headers


async def test_a_failure_is_audited_in_the_users_tenant_without_the_password(world: World) -> None:
    await world.signed_in()
    await world.call("POST", "/login", who=None, json=WRONG)

    entries = await world.call("GET", "/audit", who="viewer", params={"action": "login_failed"})

    [entry] = entries.json()["items"]
    assert (entry["details"], entry["ip"]) == ({"email": EMAIL}, "127.0.0.1")
    assert WRONG["password"] not in entries.text


@pytest.mark.usefixtures("slow_budgets")
async def test_those_who_guess_are_slowed_down_even_with_the_right_password(world: World) -> None:
    await world.signed_in()
    statuses = [await world.status("POST", "/login", who=None, json=WRONG) for _ in range(12)]

    late = await world.call("POST", "/login", who=None, json=RIGHT)

    assert statuses == [401] * 10 + [429] * 2
    assert late.status_code == 429
    assert 1 <= int(late.headers["retry-after"]) <= 600
    assert len(await given.audit_entries(world, "login_failed")) == 10  # those that were looked at


async def test_another_site_cannot_sign_anybody_in_or_out(world: World) -> None:
    cookie = await world.signed_in()
    for path, body in (("/login", RIGHT), ("/logout", None)):
        refused = await world.call(
            "POST", path, who=None, json=body, headers={"Sec-Fetch-Site": "cross-site", "Cookie": cookie}
        )
        assert (refused.status_code, refused.json()["code"]) == (403, "cross_site")
    assert await world.status("GET", "/me", who=None, headers={"Cookie": cookie}) == 200


async def test_me_says_who_asks(world: World) -> None:
    viewer = (await world.call("GET", "/me", who="viewer")).json()
    admin = (await world.call("GET", "/me", who="super_admin")).json()
    inside = (await world.call("GET", "/me", who="super_admin", headers={"X-Tenant": "acme"})).json()
    agent = (await world.call("GET", "/me", who="agent")).json()

    assert (viewer["role"], viewer["tenant"]) == ("viewer", "acme")
    assert viewer["permissions"] == sorted(GRANTS[Role.VIEWER])
    assert (admin["tenant"], admin["tenant_id"]) == (None, None)
    assert (inside["role"], inside["tenant"]) == ("super_admin", "acme")
    assert agent["host_id"] == str(world.hosts["acme"])
    assert (await world.client.get(f"{BASE}{PREFIX}/me")).status_code == 401
