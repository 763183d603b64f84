"""Invitations by mail, through a real SMTP server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead.model.access import Role
from tests import given
from tests.oidc_provider import Provider
from tests.oidc_stage import TABLE, settings_of, use_providers
from tests.server.mailing import ADA, NEW, PUBLIC_URL, Mailing, link, mailing_on
from tests.server.world import PASSWORD, World, world_on
from tests.tables import each_case


@pytest.fixture
async def mailing(database_url: str, tmp_path: Path, world_databases: object) -> AsyncIterator[Mailing]:
    async with mailing_on(database_url, tmp_path) as made:
        yield made


async def test_an_invited_person_chooses_a_password_and_is_signed_in(mailing: Mailing) -> None:
    world = mailing.world
    cookie = {"Cookie": await world.signed_in(Role.TENANT_ADMIN)}
    made = await mailing.invite(who=None, headers=cookie)
    assert made["invitation_expires_at"] is not None
    assert await mailing.sign_in(NEW) == 401

    [mail] = await mailing.deliver()
    page, token = link(mail)
    body = mail.get_body(("plain",))
    assert body is not None
    said = body.get_content()
    assert (mail["To"], mail["Subject"]) == (ADA, "Invitation to Fairlead at jobs.example.com")
    assert page == "invitation"
    assert f"tenant_admin.{given.TENANT}@fairlead.test invites you" in said
    assert f"{PUBLIC_URL}, as operator of the tenant {given.TENANT}" in said
    assert "works once, until" in said
    assert "did not expect this" in said

    answer = await world.call(
        "POST", "/invitations/accept", who=None, json={"token": token, "new_password": NEW}
    )
    me = await world.call("GET", "/me", who=None)
    world.client.cookies.clear()

    assert answer.status_code == 200
    assert (me.json()["actor"], me.json()["role"], me.json()["tenant"]) == (
        f"user:{ADA}",
        "operator",
        given.TENANT,
    )
    assert await mailing.sign_in(NEW) == 200
    invited, accepted = await given.audit_entries(world, actions=["user_invited", "invitation_accepted"])
    assert (invited.actor, invited.details) == (
        f"user:tenant_admin.{given.TENANT}@fairlead.test",
        {"email": ADA, "role": "operator"},
    )
    assert (accepted.actor, accepted.tenant_id) == (f"user:{ADA}", world.tenants[given.TENANT])
    listed = (await world.call("GET", "/users", who="tenant_admin")).json()["items"]
    assert [one["invitation_expires_at"] for one in listed if one["email"] == ADA] == [None]


async def test_sending_again_ends_the_earlier_link(mailing: Mailing) -> None:
    user = await mailing.invite()
    old = await mailing.link()

    again = await mailing.world.call("POST", f"/users/{user['id']}/invite", who="tenant_admin")
    new = await mailing.link()

    assert again.status_code == 200
    assert (await mailing.accept(old)).status_code == 422
    assert (await mailing.accept(new)).status_code == 200
    after = await mailing.world.call("POST", f"/users/{user['id']}/invite", who="tenant_admin")
    assert (after.status_code, after.json()["code"]) == (409, "invitation_accepted")


async def test_an_expired_link_is_refused_and_can_be_sent_again(mailing: Mailing) -> None:
    user = await mailing.invite()
    token = await mailing.link()
    await given.age(mailing.world, "links", days=3)

    assert (await mailing.accept(token)).json()["code"] == "account_link_invalid"
    await mailing.world.call("POST", f"/users/{user['id']}/invite", who="tenant_admin")
    assert (await mailing.accept(await mailing.link())).status_code == 200


async def test_a_user_who_is_disabled_is_not_invited_and_the_link_has_ended_for_good(
    mailing: Mailing,
) -> None:
    user = await mailing.invite()
    token, path = await mailing.link(), f"/users/{user['id']}"
    await mailing.world.call("PATCH", path, who="tenant_admin", json={"disabled": True})
    again = await mailing.world.call("POST", f"{path}/invite", who="tenant_admin")
    await mailing.world.call("PATCH", path, who="tenant_admin", json={"disabled": False})

    assert (again.status_code, again.json()["code"]) == (404, "user_unknown")
    assert (await mailing.accept(token)).json()["code"] == "account_link_invalid"


async def test_a_withdrawn_invitation_leaves_nothing(mailing: Mailing) -> None:
    user = await mailing.invite()
    token = await mailing.link()

    assert await mailing.world.status("DELETE", f"/users/{user['id']}/invite", who="tenant_admin") == 204
    assert (await mailing.accept(token)).status_code == 422
    listed = (await mailing.world.call("GET", "/users", who="tenant_admin")).json()["items"]
    assert ADA not in [one["email"] for one in listed]
    assert len(await given.audit_entries(mailing.world, "invitation_withdrawn")) == 1
    await mailing.invite()  # the address is free again
    assert (await mailing.accept(await mailing.link())).status_code == 200


async def test_an_account_in_use_cannot_be_withdrawn(mailing: Mailing) -> None:
    user = await mailing.add()
    for method in ("DELETE", "POST"):
        answer = await mailing.world.call(method, f"/users/{user['id']}/invite", who="tenant_admin")
        assert (answer.status_code, answer.json()["code"]) == (409, "invitation_accepted")
    assert await mailing.sign_in("the old one of operator") == 200


async def test_an_invitation_is_no_reset_and_neither_the_other(mailing: Mailing) -> None:
    await mailing.invite()
    invitation = await mailing.link()
    await mailing.add("bob@example.com")
    await mailing.ask("bob@example.com")
    reset = await mailing.link()

    assert (await mailing.confirm(invitation)).json()["code"] == "account_link_invalid"
    assert (await mailing.accept(reset)).json()["code"] == "account_link_invalid"
    assert (await mailing.accept(invitation)).status_code == 200
    assert (await mailing.confirm(reset)).status_code == 204


async def test_a_link_of_one_tenant_says_nothing_to_another(mailing: Mailing) -> None:
    await mailing.invite()
    token = await mailing.link()
    other = await mailing.invite("bob@example.com", tenant=given.OTHER)
    theirs = await mailing.link()
    # the random part of one, the tenant of the other
    forged = token[:46] + theirs[46:]

    assert other["tenant"] == given.OTHER
    assert (await mailing.accept(forged)).status_code == 422
    assert (await mailing.accept(token)).json()["tenant"] == given.TENANT
    assert (await mailing.accept(theirs)).json()["tenant"] == given.OTHER


async def test_a_super_admin_is_invited(mailing: Mailing) -> None:
    body = {"email": ADA, "role": "super_admin", "invite": True}
    assert await mailing.world.status("POST", "/admin/users", who="super_admin", json=body) == 201
    assert (await mailing.accept(await mailing.link())).json()["role"] == "super_admin"


async def test_a_password_or_an_invitation(mailing: Mailing) -> None:
    for more in ({}, {"invite": True, "password": PASSWORD}):
        body = {"email": ADA, "role": "viewer", **more}
        answer = await mailing.world.call("POST", "/users", who="tenant_admin", json=body)
        assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "password")


@each_case(
    "email",
    [
        "ada@example.com\r\nBcc: eve@example.com",
        "ada@example.com,eve@example.com",
        "=?utf-8?q?x=0D=0ABcc:_eve=40example.com?=@example.com",
        "<ada@example.com>",
        "ädä@example.com",
        "ada@example.com\u2028",
        '"ada"@example.com',
        "ada",
    ],
)
async def test_an_address_that_says_more_gets_no_mail(mailing: Mailing, email: str) -> None:
    body = {"email": email, "role": "viewer", "invite": True}
    answer = await mailing.world.call("POST", "/users", who="tenant_admin", json=body)

    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "email")
    assert await mailing.deliver() == []


async def test_a_tokens_name_is_not_in_the_mail(mailing: Mailing) -> None:
    created = await mailing.world.call(
        "POST", "/tokens", who="tenant_admin", json={"name": "https://evil.example", "role": "tenant_admin"}
    )
    bearer = {"Authorization": f"Bearer {created.json()['secret']}"}
    await mailing.invite(who=None, headers=bearer)
    [mail] = await mailing.deliver()
    assert b"evil" not in bytes(mail)
    assert b"An admin invites you" in bytes(mail)


async def test_a_mailbox_is_not_flooded(mailing: Mailing) -> None:
    user = await mailing.invite()
    answers = [
        await mailing.world.call("POST", f"/users/{user['id']}/invite", who="tenant_admin") for _ in range(6)
    ]
    elsewhere = {"email": ADA.upper(), "role": "viewer", "invite": True}
    other = await mailing.world.call("POST", "/users", who="tenant_admin", tenant=given.OTHER, json=elsewhere)

    assert [one.status_code for one in answers] == [200] * 4 + [429] * 2
    assert int(answers[-1].headers["Retry-After"]) > 60
    assert other.status_code == 429
    assert len(await mailing.deliver()) == 5


async def test_without_mail_an_invitation_says_what_to_do(world: World, database_url: str) -> None:
    body = {"email": ADA, "role": "viewer", "invite": True}
    unset = await world.call("POST", "/users", who="tenant_admin", json=body)
    async with world_on(database_url, public_url=PUBLIC_URL) as other:
        no_mail = await other.call("POST", "/users", who="tenant_admin", json=body)
        asked = await other.call("POST", "/password-resets", who=None, json={"email": ADA})

    assert (unset.status_code, unset.json()["code"]) == (422, "public_url_missing")
    assert "public_url" in unset.json()["detail"]
    assert (no_mail.status_code, no_mail.json()["code"]) == (422, "email_not_configured")
    assert "[email]" in no_mail.json()["detail"]
    assert asked.json()["code"] == "email_not_configured"
    listed = (await world.call("GET", "/users", who="tenant_admin")).json()["items"]
    assert ADA not in [one["email"] for one in listed]


async def test_a_function_of_ones_own_gets_no_links(mailing: Mailing) -> None:
    """A definition of that key whose schema marks nothing would show the links to readers."""
    await given.set_definition(mailing.world, "EMAIL_SEND", arg_schema={}, secret_paths=[])
    body = {"email": ADA, "role": "viewer", "invite": True}
    answer = await mailing.world.call("POST", "/users", who="tenant_admin", json=body)

    assert (answer.status_code, answer.json()["code"]) == (422, "email_not_configured")


async def test_a_role_that_needs_a_second_factor_sets_it_up_first(
    database_url: str, tmp_path: Path, world_databases: object
) -> None:
    async with mailing_on(database_url, tmp_path, require_second_factor=("operator",)) as mailing:
        await mailing.invite()
        body = {"token": await mailing.link(), "new_password": NEW}
        await mailing.world.call("POST", "/invitations/accept", who=None, json=body)
        denied = await mailing.world.call("GET", "/jobs", who=None)

    assert (denied.status_code, denied.json()["code"]) == (403, "second_factor_setup_required")


async def test_a_user_who_signed_in_with_a_provider_is_not_removed(mailing: Mailing) -> None:
    user = await mailing.invite()
    await given.link_identity(mailing.world, user["id"])

    gone = await mailing.world.call("DELETE", f"/users/{user['id']}/invite", who="tenant_admin")

    assert (gone.status_code, gone.json()["code"]) == (409, "invitation_accepted")


async def test_an_invitation_signs_in_nobody_whose_tenant_has_no_passwords(mailing: Mailing) -> None:
    await mailing.invite()
    token = await mailing.link()
    table = TABLE.replace('label = "Work"', 'label = "Work"\npassword_sign_in = false')
    use_providers(mailing.world, settings_of(Provider("https://id.example.com"), table=table))

    refused = await mailing.accept(token)

    assert (refused.status_code, refused.json()["code"]) == (403, "sign_in_refused")
    assert await given.audit_entries(mailing.world, actions=["user_signed_in", "invitation_accepted"]) == []
