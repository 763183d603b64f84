"""Resets of passwords by mail, as an attacker would try them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest
from msgspec.structs import replace

from fairlead import Fairlead, Settings
from fairlead.actions import password_resets
from fairlead.model.access import GLOBAL_TENANT, Role
from fairlead.runtime.duties import _clear_account_mails, _forget_expired
from fairlead.server import account_links
from fairlead.server.problems import PREFIX
from fairlead.store import jobs
from tests import given
from tests.acting import act
from tests.handlers.mail_servers import mail_server
from tests.second_factors import protected
from tests.server.cells import FAR, cells_on
from tests.server.mailing import (
    ADA,
    NEW,
    PUBLIC_URL,
    Mailing,
    link,
    mailing_on,
    write_email_settings,
)
from tests.server.world import BASE

OLD = "the old one of operator"


@pytest.fixture
async def mailing(
    database_url: str, tmp_path: Path, world_databases: object, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Mailing]:
    # budgets that come back in an hour: a slow machine must not give one more
    slow = replace(account_links.RESETS_FROM_ADDRESS, seconds=3600.0)
    monkeypatch.setattr(account_links, "RESETS_FROM_ADDRESS", slow)
    async with mailing_on(database_url, tmp_path) as made:
        yield made


async def test_a_forgotten_password_is_replaced_and_all_sessions_end(mailing: Mailing) -> None:
    await mailing.add()
    body = {"email": ADA, "password": OLD}
    await mailing.world.call("POST", "/login", who=None, json=body)
    session = dict(mailing.world.client.cookies)
    mailing.world.client.cookies.clear()

    asked = await mailing.ask()
    [mail] = await mailing.deliver()
    page, token = link(mail)
    text = mail.get_body(("plain",))
    assert text is not None
    confirmed = await mailing.confirm(token)

    assert (asked.status_code, asked.content) == (202, b"")
    assert (page, mail["To"]) == ("reset-password", ADA)
    assert f"of {ADA} of the tenant {given.TENANT} at {PUBLIC_URL}" in text.get_content()
    assert "It was not you?" in text.get_content()
    assert confirmed.status_code == 204
    assert "set-cookie" not in confirmed.headers  # a sign-in may need a second factor
    assert (await mailing.sign_in(OLD), await mailing.sign_in(NEW)) == (401, 200)
    mailing.world.client.cookies.update(session)
    assert await mailing.world.status("GET", "/me", who=None) == 401
    tenant_id = mailing.world.tenants[given.TENANT]
    entries = await given.audit_entries(mailing.world, actions=["password_reset_requested", "password_reset"])
    assert [(entry.actor, entry.tenant_id, entry.details) for entry in entries] == [
        ("anonymous", tenant_id, {}),
        (f"user:{ADA}", tenant_id, {}),
    ]


async def test_the_answer_says_nothing_about_an_account(mailing: Mailing) -> None:
    """Known, unknown, disabled, without a password, unreadable: one answer, and the account is looked up only after it."""
    await mailing.add()
    disabled = await mailing.add("gone@example.com")
    await mailing.world.call("PATCH", f"/users/{disabled['id']}", who="tenant_admin", json={"disabled": True})
    await mailing.invite("invited@example.com")
    await mailing.deliver()

    addresses = [ADA, "nobody@example.com", "gone@example.com", "invited@example.com", "no address", ""]
    answers = [await mailing.ask(one) for one in addresses]

    assert {(one.status_code, one.content) for one in answers} == {(202, b"")}
    assert len({tuple(sorted(one.headers.items())) for one in answers}) == 1
    assert [mail["To"] for mail in await mailing.deliver()] == [ADA]


async def test_the_lookup_begins_after_the_answer(mailing: Mailing, monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes longer for a known address is not done before the response has been sent."""
    await mailing.add()
    order: list[str] = []
    find = password_resets.find_accounts

    async def watched(*args: Any) -> Any:
        order.append("looked up")
        return await find(*args)

    monkeypatch.setattr(password_resets, "find_accounts", watched)
    app = mailing.world.app

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        async def note(message: Any) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                order.append("answered")
            await send(message)

        await app(scope, receive, note)

    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=noting)) as client:
        await client.post(f"{BASE}{PREFIX}/password-resets", json={"email": ADA})

    assert order == ["answered", "looked up"]


async def test_each_account_of_an_address_gets_its_own_mail(mailing: Mailing) -> None:
    await mailing.add()
    await mailing.add(role="viewer", tenant=given.OTHER)

    await mailing.ask(ADA.upper())
    mails = await mailing.deliver()

    assert len(mails) == 2
    first, second = (link(one)[1] for one in mails)
    assert (await mailing.confirm(first)).status_code == 204
    assert [await mailing.sign_in(one) for one in (NEW, OLD, "the old one of viewer")] == [200, 401, 200]
    assert (await mailing.confirm(second, "yet another password")).status_code == 204


async def test_a_mailbox_is_not_flooded(mailing: Mailing) -> None:
    await mailing.add()
    # from many networks
    answers = [
        await mailing.ask(ADA if n % 2 else ADA.upper(), headers={"X-Forwarded-For": f"192.0.{n}.1"})
        for n in range(8)
    ]

    assert {(one.status_code, one.content) for one in answers} == {(202, b"")}
    assert len(await mailing.deliver()) == 3


async def test_one_address_does_not_ask_for_everyone(mailing: Mailing) -> None:
    answers = [(await mailing.ask(f"user{n}@example.com")).status_code for n in range(22)]
    assert answers == [202] * 20 + [429] * 2


async def test_a_link_works_once_and_of_two_at_once_one_wins(mailing: Mailing) -> None:
    await mailing.add()
    await mailing.ask()
    token = await mailing.link()

    answers = await asyncio.gather(*(mailing.confirm(token, f"good password number {n}") for n in range(4)))
    again = await mailing.confirm(token)

    won = [n for n, one in enumerate(answers) if one.status_code == 204]
    assert len(won) == 1, [one.text for one in answers]
    assert (again.status_code, again.json()["code"]) == (422, "account_link_invalid")
    assert await mailing.sign_in(f"good password number {won[0]}") == 200


async def test_a_newer_an_older_and_an_expired_link(mailing: Mailing) -> None:
    await mailing.add()
    await mailing.ask()
    old = await mailing.link()
    await mailing.ask()
    new = await mailing.link()

    assert (await mailing.confirm(old)).json()["code"] == "account_link_invalid"
    await given.age(mailing.world, "links", seconds=3600)
    assert (await mailing.confirm(new)).json()["code"] == "account_link_invalid"
    assert await mailing.sign_in(OLD) == 200


@pytest.mark.thorough
@pytest.mark.parametrize(
    "change", [{"disabled": True}, {"role": "viewer"}, {"password": "of the admin, chosen"}]
)
async def test_a_change_by_an_admin_ends_the_link(mailing: Mailing, change: dict[str, Any]) -> None:
    user = await mailing.add()
    await mailing.ask()
    token = await mailing.link()

    await mailing.world.call("PATCH", f"/users/{user['id']}", who="tenant_admin", json=change)

    assert (await mailing.confirm(token)).json()["code"] == "account_link_invalid"
    assert await mailing.sign_in(NEW) == 401


async def test_a_change_of_the_own_password_ends_the_link(mailing: Mailing) -> None:
    await mailing.add()
    await mailing.ask()
    token = await mailing.link()
    await mailing.world.call("POST", "/login", who=None, json={"email": ADA, "password": OLD})
    body = {"old_password": OLD, "new_password": "chosen by oneself"}
    assert await mailing.world.status("POST", "/account/password", who=None, json=body) == 200
    mailing.world.client.cookies.clear()

    assert (await mailing.confirm(token)).json()["code"] == "account_link_invalid"


async def test_a_weak_password_does_not_use_up_the_link(mailing: Mailing) -> None:
    await mailing.add()
    await mailing.ask()
    token = await mailing.link()

    weak = await mailing.confirm(token, "short")

    assert (weak.status_code, weak.json()["errors"][0]["path"]) == (422, "new_password")
    assert (await mailing.confirm(token)).status_code == 204


async def test_guesses_are_limited(mailing: Mailing, slow_budgets: None) -> None:
    answers = [(await mailing.confirm(f"fl_guess{n}")).status_code for n in range(12)]
    assert answers[:10] == [422] * 10
    assert answers[-1] == 429


async def test_the_host_header_is_in_no_mail(mailing: Mailing) -> None:
    await mailing.add()
    evil = {"Host": "evil.example", "X-Forwarded-Host": "evil.example", "Forwarded": "host=evil.example"}
    await mailing.ask(headers=evil)
    await mailing.invite("bob@example.com", headers=evil)
    mails = await mailing.deliver()
    assert len(mails) == 2
    assert not any(b"evil" in bytes(mail) for mail in mails)


async def test_pages_of_other_sites_ask_for_nothing(mailing: Mailing) -> None:
    await mailing.add()
    other = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    for path, body in (
        ("/password-resets", {"email": ADA}),
        ("/password-resets/confirm", {"token": "fl_x", "new_password": NEW}),
        ("/invitations/accept", {"token": "fl_x", "new_password": NEW}),
    ):
        answer = await mailing.world.call("POST", path, who=None, json=body, headers=other)
        assert (answer.status_code, answer.json()["code"]) == (403, "cross_site")
    assert await mailing.deliver() == []


READS = (
    "/jobs",
    "/jobs?q=ada",
    "/jobs?q=fl_",
    "/jobs?definition_key=EMAIL_SEND",
    "/jobs/summary",
    "/audit",
    "/events",
    "/usage",
    "/users",
)
PAGES = (
    "/console/jobs",
    "/console/jobs.csv",
    "/console/audit",
    "/console/audit.csv",
    "/console/search?q=fl_",
)


@pytest.mark.thorough
async def test_nobody_of_a_tenant_finds_the_link_of_its_admin(mailing: Mailing) -> None:
    await mailing.add(role="tenant_admin")
    await mailing.ask()
    async with mailing.world.transaction() as tx:
        job_id = await given.newest_id(tx, "jobs")
        secret = (await jobs.get_payload(tx, UUID(job_id)))["secrets"]["code"]
    part = secret[:11]
    for sent in (False, True):
        if sent:
            assert await mailing.link() == secret
        for who in ("viewer", "operator", "tenant_admin", "application"):
            for path in READS:
                answer = await mailing.world.call("GET", path, who=who)
                # neither the link nor the mail
                assert part not in answer.text, (who, path)
                assert "Reset your password" not in answer.text, (who, path)
                if path.startswith("/jobs?"):
                    assert answer.json()["items"] == [], (who, path)
            foreign = await mailing.world.call("GET", "/jobs", who=who, headers={"X-Tenant": GLOBAL_TENANT})
            assert foreign.status_code == 404
        for role in (Role.VIEWER, Role.OPERATOR, Role.TENANT_ADMIN):
            cookie = {"Cookie": await mailing.world.signed_in(role)}
            for path in PAGES:
                page = await mailing.world.call(
                    "GET", f"http://fairlead.test{path}", who=None, headers=cookie
                )
                assert part not in page.text, (role, path)
                assert "Reset your password" not in page.text, (role, path)


async def test_not_even_a_super_admin_sees_the_link_and_it_does_not_stay(
    mailing: Mailing, capfd: pytest.CaptureFixture[str]
) -> None:
    await mailing.add()
    await mailing.ask()
    await mailing.invite("bob@example.com")
    world, chosen = mailing.world, {"X-Tenant": GLOBAL_TENANT}

    async def read() -> str:
        found = await world.call("GET", "/jobs", who="super_admin", headers=chosen)
        texts = [found.text]
        for job in found.json()["items"]:
            for path in ("", "/attempts", "/logs", "/why"):
                one = await world.call("GET", f"/jobs/{job['id']}{path}", who="super_admin", headers=chosen)
                assert one.status_code == 200, one.text
                texts.append(one.text)
        for path in ("/audit", "/events", "/usage"):
            one = await world.call("GET", path, who="super_admin", headers=chosen)
            texts.append(one.text)
        return "\n".join(texts)

    before = await read()
    await mailing.deliver()
    after = await read()

    assert len(mailing.secrets) == 2
    assert '"code":"[redacted]"' in before.replace(" ", "")
    out, err = capfd.readouterr()
    for secret in mailing.secrets:
        assert secret not in before + after + out + err
    async with world.transaction() as tx:
        await _clear_account_mails(tx, None)
        assert await given.count(tx, "jobs") == 2
        assert "fl_" not in await given.stored_text(tx, "jobs")
        assert await given.count(tx, "account_mails") == 0
    # a retry by hand sends no mail without its link
    [job, *_] = (await world.call("GET", "/jobs", who="super_admin", headers=chosen)).json()["items"]
    again = await world.call("POST", f"/jobs/{job['id']}/replay", who="super_admin", headers=chosen, json={})
    assert again.status_code < 500
    assert await mailing.deliver() == []


async def test_a_mail_that_waits_keeps_its_link(mailing: Mailing) -> None:
    await mailing.add()
    await mailing.ask()
    await act(mailing.world.fl.database, _clear_account_mails, None)
    assert (await mailing.confirm(await mailing.link())).status_code == 204


async def test_old_links_are_removed_and_open_invitations_stay(mailing: Mailing) -> None:
    await mailing.add()
    await mailing.ask()
    await mailing.invite("bob@example.com")
    await given.age(mailing.world, "links", seconds=80 * 3600 + 86_400)
    async with mailing.world.transaction() as tx:
        await _forget_expired(tx, None)
        assert await given.count(tx, "account_links") == 1  # the invitation


async def test_a_super_admin_resets_the_password(mailing: Mailing) -> None:
    body = {"email": ADA, "role": "super_admin", "password": OLD}
    await mailing.world.call("POST", "/admin/users", who="super_admin", json=body)
    await mailing.ask()
    assert (await mailing.confirm(await mailing.link())).status_code == 204
    assert (await mailing.sign_in(OLD), await mailing.sign_in(NEW)) == (401, 200)


@pytest.mark.thorough
@pytest.mark.postgres_only("these cells are databases of one server")
async def test_links_find_the_cell_of_their_tenant(
    database_url: str, tmp_path: Path, world_databases: object
) -> None:
    async with cells_on(database_url, public_url=PUBLIC_URL) as world, mail_server() as server:
        worker = Fairlead(settings=Settings(database_url=database_url), actor="tester")
        worker.allow_builtins(write_email_settings(tmp_path / "fairlead.toml", server.port))
        async with worker:
            await worker.tick()  # publishes the definition in every cell
            mailing = Mailing(world, worker, server)
            await mailing.invite(tenant=FAR)
            token = await mailing.link()
            # the cookie of a user of another cell leads nowhere
            headers = {"Cookie": await world.signed_in(Role.VIEWER)}
            body = {"token": token, "new_password": NEW}
            accepted = await world.call("POST", "/invitations/accept", who=None, json=body, headers=headers)
            world.client.cookies.clear()
            await mailing.add()
            await mailing.ask()
            far, near = sorted(await mailing.deliver(), key=lambda mail: b"tenant far" not in bytes(mail))
            changed = [
                await mailing.confirm(link(far)[1], "a new password, far away"),
                await mailing.confirm(link(near)[1], "a new password, near by"),
            ]
            signed_in = [
                await mailing.sign_in(one)
                for one in ("a new password, far away", "a new password, near by", NEW)
            ]

    assert (accepted.status_code, accepted.json()["tenant"]) == (200, FAR)
    assert [one.status_code for one in changed] == [204, 204]
    assert signed_in == [200, 200, 401]


async def test_a_reset_does_not_replace_the_second_factor(mailing: Mailing) -> None:
    ada = await protected(mailing.world)
    await mailing.ask(ada.email)
    token = await mailing.link()

    assert (await mailing.confirm(token)).status_code == 204
    without = await ada.login(NEW)
    assert (without.status_code, without.json()["code"]) == (401, "second_factor_required")
    assert (await ada.login(NEW, code=ada.code())).status_code == 200
