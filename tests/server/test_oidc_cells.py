"""Sign-in with an identity provider at a server of several cells: people of each, and those who move between tenants."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests import given
from tests.oidc_provider import SECRET, provider_on
from tests.oidc_stage import HOME, START, TABLE, Browser, Stage, settings_of
from tests.server.cells import CELL, FAR, cells_on

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.postgres_only("these cells are databases of one server"),
]

API = f"{HOME}/api/v1"
BY_CLAIM = TABLE.replace('tenant = "{tenant}"', 'tenant_claim = "org"')


@pytest.fixture
async def stage(database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Stage]:
    monkeypatch.setenv("TEST_OIDC_SECRET", SECRET)
    monkeypatch.setenv("FAIRLEAD_CONFIG", str(tmp_path / "fairlead.toml"))
    async with provider_on() as provider:
        (tmp_path / "fairlead.toml").write_text(settings_of(provider, table=BY_CLAIM))
        async with cells_on(database_url) as world:
            yield Stage(world, provider)


async def signed_in(stage: Stage, org: str, **person: object) -> Browser:
    stage.provider.person |= {"org": org, **person}
    browser = stage.browser()
    answer = await browser.sign_in()
    assert (answer.status_code, browser.is_signed_in) == (303, True), answer.text
    return browser


async def status(browser: Browser, path: str = "/me") -> int:
    return (await browser.get(f"{API}{path}")).status_code


async def test_people_sign_in_to_the_cell_of_their_tenant(stage: Stage) -> None:
    far = await signed_in(stage, FAR)
    near = await signed_in(stage, given.TENANT, sub="bob", email="bob@example.com", sid="session-2")
    root = await signed_in(
        stage, "", sub="root", email="root@example.com", groups=["platform"], sid="session-3"
    )

    assert ((await far.me())["tenant"], (await near.me())["tenant"]) == (FAR, given.TENANT)
    member = await stage.world.fl.cells.member(CELL)
    [user] = await given.users(member)
    assert user.email == "ada@example.com"
    assert (await root.me())["role"] == "super_admin"
    assert (await far.get(f"{HOME}/console/account")).status_code == 200
    [identity] = (await far.get(f"{API}/account/identities")).json()["items"]
    assert (identity["subject"], identity["is_only_way"]) == ("ada-1", True)

    # an admin of the far tenant, and a super admin, find the user in its cell
    path = f"/users/{user.id}/identities"
    listed = await stage.world.call("GET", path, who="tenant_admin", tenant=FAR)
    assert [one["id"] for one in listed.json()["items"]] == [identity["id"]]
    assert (await root.get(f"{API}{path}", headers={"X-Tenant": FAR})).status_code == 200
    assert (await near.get(f"{API}{path}")).status_code == 403

    # the provider ends a session of a cell that it does not know of
    token = stage.provider.logout_token(sub="ada-1", sid="session-1")
    told = await stage.browser().client.post(f"{START}/logout", data={"logout_token": token})
    assert told.status_code == 200
    assert (await status(far), await status(near), await status(root)) == (401, 200, 200)


async def test_a_sign_out_in_another_cell_goes_on_to_the_provider(stage: Stage) -> None:
    browser = await signed_in(stage, FAR)

    answer = await browser.client.post(f"{HOME}/console/sign-out")
    page = await browser.get(f"{HOME}{answer.headers['location']}")

    assert await status(browser) == 401
    assert f"{stage.provider.issuer}/logout?" in page.text
    assert "id_token_hint" in page.text


async def test_a_person_who_moves_to_a_tenant_of_another_cell_keeps_nothing_in_the_former(
    stage: Stage,
) -> None:
    far = await signed_in(stage, FAR)
    made = await far.client.post(f"{API}/account/tokens", json={"name": "mine"})
    token = {"Authorization": f"Bearer {made.json()['secret']}"}
    near = await signed_in(stage, given.TENANT)

    assert (await status(far), await status(near)) == (401, 200)
    assert (await stage.browser().get(f"{API}/me", headers=token)).status_code == 401
    again = await signed_in(stage, FAR)
    assert (await status(near), await status(again)) == (401, 200)


async def test_a_tenant_that_no_cell_has_is_refused(stage: Stage) -> None:
    for org in ("nowhere", str(stage.world.tenants[FAR]), "", "global"):
        stage.provider.person["org"] = org
        browser = stage.browser()
        answer = await browser.sign_in()
        assert (answer.status_code, browser.is_signed_in) == (403, False), (org, answer.text)
        assert "names no tenant that exists here" in answer.text, org
