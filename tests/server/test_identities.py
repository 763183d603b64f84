"""The identities with which people sign in: listed, and unlinked with the sessions that they began."""

import asyncio
from typing import Any
from uuid import UUID

import httpx2
import pytest

from fairlead.actions import identities
from fairlead.errors import OnlySignIn
from fairlead.model.access import Role
from tests import given
from tests.acting import act
from tests.oidc_stage import HOME, TABLE, Browser, Stage, settings_of, use_providers
from tests.waiting import until_somebody_waits

API = f"{HOME}/api/v1"
SECOND = "https://second.example"


async def signed_in(stage: Stage) -> Browser:
    browser = stage.browser()
    await browser.sign_in()
    assert browser.is_signed_in
    return browser


async def list_own(browser: Browser) -> list[dict[str, Any]]:
    answer = await browser.get(f"{API}/account/identities")
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


async def unlink_own(browser: Browser, identity: dict[str, Any]) -> httpx2.Response:
    return await browser.client.delete(f"{API}/account/identities/{identity['id']}")


async def status(browser: Browser) -> int:
    return (await browser.get(f"{API}/me")).status_code


async def add_second(stage: Stage) -> None:
    """Another identity of every user, of a provider that has a table, too."""
    table = TABLE.replace("[oidc.work", "[oidc.second").format(
        issuer=SECOND, client="fairlead", tenant=given.TENANT
    )
    use_providers(stage.world, settings_of(stage.provider, more=table))
    await given.link_identity(stage, issuer=SECOND, subject="ada-2", provider="second")


def code_of(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


async def test_people_see_their_identities_and_not_those_of_others(stage: Stage) -> None:
    browser = await signed_in(stage)
    stage.provider.person |= {"sub": "bob", "email": "bob@example.com"}
    await signed_in(stage)

    [identity] = await list_own(browser)

    assert (identity["provider"], identity["issuer"]) == ("work", stage.provider.issuer)
    assert (identity["subject"], identity["is_only_way"]) == ("ada-1", True)


async def test_the_only_way_to_sign_in_stays(stage: Stage) -> None:
    browser = await signed_in(stage)
    [identity] = await list_own(browser)

    assert code_of(await unlink_own(browser, identity)) == (409, "only_sign_in")
    # a password that the settings do not accept is no way
    await given.give_password(stage, "ada@example.com")
    table = TABLE.replace('label = "Work"', 'label = "Work"\npassword_sign_in = false')
    use_providers(stage.world, settings_of(stage.provider, table=table))
    assert code_of(await unlink_own(browser, identity)) == (409, "only_sign_in")
    # nor is an identity of a provider without a table
    await add_second(stage)
    use_providers(stage.world, settings_of(stage.provider, table=table))
    assert code_of(await unlink_own(browser, identity)) == (409, "only_sign_in")

    assert await status(browser) == 200


async def test_unlinking_ends_the_sessions_of_the_identity_and_no_others(stage: Stage) -> None:
    here, there = await signed_in(stage), await signed_in(stage)
    await given.give_password(stage, "ada@example.com")
    await add_second(stage)
    by_password = {"Cookie": await stage.world.signed_in(Role.OPERATOR)}
    await stage.run(
        "update fairlead.sessions set user_id = (select id from fairlead.users where email = 'ada@example.com')"
    )
    identity = next(one for one in await list_own(here) if one["provider"] == "work")

    answer = await unlink_own(here, identity)

    assert (answer.status_code, answer.json()) == (200, {"sessions_ended": 2})
    assert not here.is_signed_in  # the cookie is deleted
    assert (await status(here), await status(there)) == (401, 401)
    assert await stage.world.status("GET", "/me", who=None, headers=by_password) == 200
    *_, entry = await given.audit_entries(stage, "user_unlinked")
    assert (entry.actor, entry.details) == (
        "user:ada@example.com",
        {
            "provider": "work",
            "issuer": stage.provider.issuer,
            "subject": "ada-1",
            "sessions_ended": 2,
            "was_only_way": False,
        },
    )
    # the person is not the user any more
    browser = stage.browser()
    refused = await browser.sign_in()
    assert (refused.status_code, browser.is_signed_in) == (403, False)
    assert "link_by_email" in refused.text


async def test_nobody_unlinks_the_identity_of_another(stage: Stage) -> None:
    ada = await signed_in(stage)
    [identity] = await list_own(ada)
    stage.provider.person |= {"sub": "eve", "email": "eve@example.com"}
    eve = await signed_in(stage)

    assert code_of(await unlink_own(eve, identity)) == (404, "identity_unknown")
    user = await given.user_id(stage, "ada@example.com")
    path = f"/users/{user}/identities"
    assert (await eve.get(f"{API}{path}")).status_code == 403  # an operator
    for method, where in (("GET", path), ("DELETE", f"{path}/{identity['id']}?even_if_only=true")):
        other = await stage.world.call(method, where, who="tenant_admin", tenant=given.OTHER)
        assert code_of(other) == (404, "user_unknown")
    eve_id = await given.user_id(stage, "eve@example.com")
    swapped = await stage.world.call(
        "DELETE", f"/users/{eve_id}/identities/{identity['id']}", who="tenant_admin"
    )
    assert code_of(swapped) == (404, "identity_unknown")
    assert await status(ada) == 200


async def test_an_admin_unlinks_the_only_way_only_on_purpose_and_tokens_stop(stage: Stage) -> None:
    ada = await signed_in(stage)
    made = await ada.client.post(f"{API}/account/tokens", json={"name": "mine"})
    token = {"Authorization": f"Bearer {made.json()['secret']}"}
    user = await given.user_id(stage, "ada@example.com")
    listed = await stage.world.call("GET", f"/users/{user}/identities", who="tenant_admin")
    [identity] = listed.json()["items"]
    path = f"/users/{user}/identities/{identity['id']}"

    assert code_of(await stage.world.call("DELETE", path, who="tenant_admin")) == (409, "only_sign_in")
    assert await status(ada) == 200
    answer = await stage.world.call("DELETE", f"{path}?even_if_only=true", who="tenant_admin")

    assert (answer.status_code, answer.json()) == (200, {"sessions_ended": 1})
    assert await status(ada) == 401

    async def use_token() -> int:
        return (await stage.browser().get(f"{API}/me", headers=token)).status_code

    assert await use_token() == 401
    # the same person, linked again by the address
    table = TABLE.replace('label = "Work"', 'label = "Work"\nlink_by_email = true')
    use_providers(stage.world, settings_of(stage.provider, table=table))
    again = await signed_in(stage)
    assert (await status(again), await use_token()) == (200, 200)


async def test_admins_do_not_lock_themselves_out(stage: Stage) -> None:
    stage.provider.person["groups"] = ["admins"]
    admin = await signed_in(stage)
    [identity] = await list_own(admin)
    user = await given.user_id(stage, "ada@example.com")

    answer = await admin.client.delete(f"{API}/users/{user}/identities/{identity['id']}?even_if_only=true")

    assert code_of(answer) == (409, "only_sign_in")
    assert await status(admin) == 200


async def test_of_two_identities_that_are_unlinked_at_once_one_stays(stage: Stage) -> None:
    browser = await signed_in(stage)
    await add_second(stage)
    one, two = [UUID(identity["id"]) for identity in await list_own(browser)]
    user = await given.user_id(stage, "ada@example.com")
    database, providers = stage.world.fl.database, stage.world.app.state.oidc.providers

    async def unlink_second() -> None:
        await act(database, identities.unlink, given.TESTER, user, two, providers)

    async with database.transaction() as tx:
        await identities.unlink(tx, given.TESTER, user, one, providers)
        second = asyncio.create_task(unlink_second())
        await until_somebody_waits(tx)

    with pytest.raises(OnlySignIn):
        await second
    [identity] = await list_own(browser)
    assert identity["id"] == str(two)


async def test_a_super_admin_has_identities_too(stage: Stage) -> None:
    stage.provider.person["groups"] = ["platform"]
    root = await signed_in(stage)
    await given.give_password(stage, "ada@example.com")

    [identity] = await list_own(root)

    assert not identity["is_only_way"]  # a password of a super admin always works
    assert (await unlink_own(root, identity)).status_code == 200
