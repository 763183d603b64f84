"""Users change their own password; tokens have none."""

from fairlead.model.access import Role
from tests import given
from tests.server.world import PASSWORD, World, world_on

EMAIL = f"viewer.{given.TENANT}@fairlead.test"
NEW = "another horse, another battery"
PATH = "/account/password"


def _change(old: str = PASSWORD, new: str = NEW) -> dict[str, str]:
    return {"old_password": old, "new_password": new}


async def test_a_new_password_ends_the_other_sessions_and_is_audited(world: World) -> None:
    here, elsewhere = await world.signed_in(Role.VIEWER), await world.signed_in(Role.VIEWER)

    answer = await world.call("POST", PATH, who=None, headers={"Cookie": here}, json=_change())

    assert (answer.status_code, answer.json()) == (200, {"sessions_ended": 1})
    assert await world.status("GET", "/me", who=None, headers={"Cookie": here}) == 200
    assert await world.status("GET", "/me", who=None, headers={"Cookie": elsewhere}) == 401
    for password, status in ((PASSWORD, 401), (NEW, 200)):
        login = await world.call("POST", "/login", who=None, json={"email": EMAIL, "password": password})
        assert login.status_code == status
    entries = await world.call("GET", "/audit", who="viewer", params={"action": "password_changed"})
    [entry] = entries.json()["items"]
    assert (entry["actor"], entry["details"]) == (f"user:{EMAIL}", {"sessions_ended": 1})


async def test_the_old_password_is_needed_and_the_new_one_is_checked(world: World) -> None:
    cookie = {"Cookie": await world.signed_in(Role.VIEWER)}

    wrong = await world.call("POST", PATH, who=None, headers=cookie, json=_change(old="not this one"))
    short = await world.call("POST", PATH, who=None, headers=cookie, json=_change(new="short"))

    assert (wrong.status_code, wrong.json()["code"]) == (422, "password_wrong")
    assert wrong.json()["errors"][0]["path"] == "old_password"
    assert (short.status_code, short.json()["errors"][0]["path"]) == (422, "new_password")
    entries = await world.call("GET", "/audit", who="viewer", params={"action": "password_change_failed"})
    assert len(entries.json()["items"]) == 1


async def test_wrong_passwords_are_limited_like_sign_ins(database_url: str, slow_budgets: None) -> None:
    async with world_on(database_url) as world:
        cookie = {"Cookie": await world.signed_in(Role.VIEWER)}
        answers = [
            await world.status("POST", PATH, who=None, headers=cookie, json=_change(old="wrong"))
            for _ in range(12)
        ]
        right = await world.call("POST", PATH, who=None, headers=cookie, json=_change())

    assert answers[:10] == [422] * 10
    assert answers[-1] == 429
    assert (right.status_code, right.json()["code"]) == (429, "too_many_requests")


async def test_a_super_admin_changes_it_in_whatever_tenant(world: World) -> None:
    headers = {"Cookie": await world.signed_in(Role.SUPER_ADMIN), "X-Tenant": given.OTHER}

    assert await world.status("POST", PATH, who=None, headers=headers, json=_change()) == 200
    [entry] = await given.audit_entries(world, "password_changed")
    assert entry.tenant_id is None


async def test_a_token_has_no_account(world: World) -> None:
    cookie = {"Cookie": await world.signed_in(Role.TENANT_ADMIN)}
    made = await world.call("POST", "/tokens", who=None, headers=cookie, json={"name": "x", "role": "viewer"})
    of_a_user = {"Authorization": f"Bearer {made.json()['secret']}"}

    for headers in ({}, of_a_user):
        answer = await world.call("POST", PATH, who="tenant_admin", headers=headers, json=_change())
        assert (answer.status_code, answer.json()["code"]) == (422, "user_required")


async def test_an_account_without_a_password_never_matches_one_and_says_so(world: World) -> None:
    here = {"Cookie": await world.signed_in(Role.VIEWER)}
    await given.take_password(world, EMAIL)

    changed = await world.call("POST", PATH, who=None, headers=here, json=_change())

    assert (changed.status_code, changed.json()["code"]) == (422, "password_not_set")
    for guess in (PASSWORD, "", "None", "null"):
        login = await world.call("POST", "/login", who=None, json={"email": EMAIL, "password": guess})
        assert (login.status_code, login.json()["code"]) == (401, "unauthenticated")
