"""People sign in with an identity provider: the whole way over real sockets, with real signatures."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from joserfc.jwk import Key

from fairlead.actions.rate_limits import RateBudget
from fairlead.db.tx import Tx
from fairlead.model.access import Role
from fairlead.server import oidc, oidc_client
from fairlead.store import identities
from fairlead.store.identities import KnownUser
from tests import given
from tests.oidc_provider import ec_key, ed_key, query_of, rsa_key
from tests.oidc_stage import HOME, START, TABLE, Stage, another_process, settings_of, stage_on, use_providers
from tests.server.world import PASSWORD


async def test_a_person_signs_in_and_is_a_user_of_the_tenant(stage: Stage) -> None:
    browser = stage.browser()

    answer = await browser.sign_in(f"{START}?next=/jobs%3Fstatus%3Dfailed")

    assert (answer.status_code, answer.headers["location"]) == (303, "/console/jobs?status=failed")
    me = await browser.me()
    assert (me["actor"], me["role"], me["tenant"]) == ("user:ada@example.com", "operator", given.TENANT)
    [user] = await given.users(stage)
    assert (user.email, user.created_by) == ("ada@example.com", "oidc:work")
    created, signed_in = await given.audit_entries(stage, resource_id=str(user.id))
    assert (created.actor, created.action) == ("oidc:work", "user_created")
    assert (signed_in.actor, signed_in.action) == ("user:ada@example.com", "user_signed_in")
    assert signed_in.details == {"provider": "work"}


async def test_the_request_to_the_provider_has_pkce_state_and_nonce_and_the_database_no_secret(
    stage: Stage,
) -> None:
    browser = stage.browser()

    asked = query_of(await browser.begin())

    assert asked["redirect_uri"] == f"{HOME}/console/sign-in/with/work/callback"
    assert (asked["scope"], asked["code_challenge_method"]) == ("openid email profile", "S256")
    assert min(len(asked[name]) for name in ("state", "nonce", "code_challenge")) >= 43
    [cookie] = [one for one in browser.client.cookies.jar if one.name == "__Host-fairlead_sign_in"]
    assert cookie.secure
    assert (cookie.path, cookie.domain_specified) == ("/", False)
    stored = await given.stored_text(stage, "oidc_sign_ins")
    assert not any(secret in stored for secret in (asked["state"], asked["nonce"], str(cookie.value)))


async def test_the_second_sign_in_is_the_same_user_with_what_the_claims_say_now(stage: Stage) -> None:
    first, second = stage.browser(), stage.browser()
    await first.sign_in()
    stage.provider.person |= {"email": "Ada.Lovelace@example.com", "groups": "viewers"}

    await second.sign_in()

    assert (await second.me())["role"] == "viewer"
    assert (await first.get(f"{HOME}/api/v1/me")).status_code == 401  # a change of role ends sessions
    [user] = await given.users(stage)
    assert (user.email, user.role) == ("Ada.Lovelace@example.com", "viewer")
    assert await given.count(stage, "identities") == 1


async def test_the_highest_of_several_roles_counts_and_super_admins_have_no_tenant(stage: Stage) -> None:
    stage.provider.person["groups"] = ["viewers", "platform", "admins"]
    browser = stage.browser()

    await browser.sign_in()

    me = await browser.me()
    assert (me["role"], me["tenant"]) == ("super_admin", None)


async def test_a_person_who_changes_tenants_keeps_no_session_in_the_former(
    database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = TABLE.replace('tenant = "{tenant}"', 'tenant_claim = "org.name"') + (
        f'\n[oidc.work.tenants]\n"Acme Inc." = "{given.TENANT}"\n"Other" = "{given.OTHER}"\n'
    )
    async with stage_on(database_url, monkeypatch, tmp_path, document=table) as stage:
        first, second = stage.browser(), stage.browser()
        stage.provider.person["org"] = {"name": ["Acme Inc.", "Some club"]}
        await first.sign_in()
        assert (await first.me())["tenant"] == given.TENANT
        stage.provider.person["org"] = {"name": "Other"}
        await second.sign_in()

        assert (await second.me())["tenant"] == given.OTHER
        assert (await first.get(f"{HOME}/api/v1/me")).status_code == 401


async def test_a_super_admin_who_is_one_no_longer_keeps_neither_session_nor_tokens(
    database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with stage_on(database_url, monkeypatch, tmp_path) as stage:
        first, second = stage.browser(), stage.browser()
        stage.provider.person["groups"] = ["platform"]
        await first.sign_in()
        made = await first.client.post(f"{HOME}/api/v1/account/tokens", json={"name": "mine"})
        token = {"Authorization": f"Bearer {made.json()['secret']}"}

        async def status() -> int:
            return (await stage.browser().get(f"{HOME}/api/v1/me", headers=token)).status_code

        assert await status() == 200
        stage.provider.person["groups"] = ["viewers"]
        await second.sign_in()
        assert (await second.me())["role"] == "viewer"
        assert (await first.get(f"{HOME}/api/v1/me")).status_code == 401
        assert await status() == 401

        stage.provider.person["groups"] = ["platform"]
        await second.sign_in()
        assert await status() == 200


@pytest.mark.parametrize("kind", ["RS256", "PS256", "ES256", "Ed25519", "EdDSA"])
async def test_keys_are_rotated_without_a_restart(
    stage: Stage, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc_client, "RENEW_SECONDS", 0.0)
    await stage.browser().sign_in()
    makers: dict[str, Callable[[str], Key]] = {"ES": ec_key, "Ed": ed_key}
    stage.provider.key = makers.get(kind[:2], rsa_key)("two")
    stage.provider.algorithm = kind
    stage.provider.published.append(stage.provider.key)
    browser = stage.browser()

    await browser.sign_in()

    assert browser.is_signed_in
    assert stage.provider.asked.count("/jwks") == 2
    assert stage.provider.asked.count("/.well-known/openid-configuration") == 1


async def test_unknown_keys_do_not_make_us_ask_the_provider_again_and_again(stage: Stage) -> None:
    await stage.browser().sign_in()
    stage.provider.key = rsa_key("unknown")
    for _ in range(3):
        browser = stage.browser()
        answer = await browser.sign_in()
        assert "unknown key" in answer.text

    assert stage.provider.asked.count("/jwks") == 1  # the keys are younger than RENEW_SECONDS


async def test_a_sign_in_that_began_in_one_server_process_is_finished_by_another(stage: Stage) -> None:
    browser = stage.browser()
    back = await browser.agree(await browser.begin())
    async with another_process(stage) as another:
        elsewhere = another.browser(cookies=browser.client.cookies)
        await elsewhere.get(back)

    assert elsewhere.is_signed_in


async def test_first_sign_ins_of_a_person_at_once_make_one_user(stage: Stage) -> None:
    browsers = [stage.browser() for _ in range(6)]
    pages = [await one.agree(await one.begin()) for one in browsers]

    answers = await asyncio.gather(*(one.get(page) for one, page in zip(browsers, pages, strict=True)))

    assert [answer.status_code for answer in answers] == [303] * 6, [answer.text for answer in answers]
    assert await given.count(stage, "users") == 1


@pytest.mark.parametrize("posts", [True, False])
async def test_the_client_proves_itself_as_the_provider_wants_it(stage: Stage, posts: bool) -> None:  # noqa: FBT001
    stage.provider.posts_secret = posts
    browser = stage.browser()
    await browser.sign_in()
    assert browser.is_signed_in


async def test_a_public_client_has_pkce_alone(
    database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = TABLE.replace('client_secret = "env:TEST_OIDC_SECRET"\n', "")
    async with stage_on(database_url, monkeypatch, tmp_path, document=table) as stage:
        stage.provider.secret = None
        browser = stage.browser()
        await browser.sign_in()
        assert browser.is_signed_in


async def test_with_public_url_no_address_is_made_from_the_host_header(
    database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with stage_on(
        database_url, monkeypatch, tmp_path, public_url="https://jobs.example.com/fl/"
    ) as stage:
        answer = await stage.browser().get(START, headers={"Host": "evil.example"})

    asked = query_of(answer.headers["location"])
    assert asked["redirect_uri"] == "https://jobs.example.com/fl/console/sign-in/with/work/callback"


async def test_a_user_with_the_address_is_linked_only_if_settings_and_provider_vouch_for_it(
    database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = TABLE.replace('label = "Work"', 'label = "Work"\nlink_by_email = true')
    async with stage_on(database_url, monkeypatch, tmp_path, document=table) as stage:
        await given.add_user(stage, "ADA@example.com")
        browser = stage.browser()
        stage.provider.person["email_verified"] = None  # neither said nor denied
        await stage.refused(await browser.sign_in(), browser, "link_by_email")

        stage.provider.person["email_verified"] = True
        await browser.sign_in()

        assert (await browser.me())["role"] == "operator"
        [user] = await given.users(stage)
        assert (user.email, user.created_by) == ("ada@example.com", "tester")
        # another person at the same provider who has the address now is not that user
        stage.provider.person["sub"] = "mallory"
        other = stage.browser()
        assert (await other.sign_in()).status_code == 403
        assert not other.is_signed_in


async def test_a_look_alike_of_an_address_is_not_linked(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = 'label = "Work"\nlink_by_email = true'
    use_providers(stage.world, settings_of(stage.provider, table=TABLE.replace('label = "Work"', more)))
    await given.add_user(stage, "nik@example.com")
    find = identities.find_user_with_address

    async def find_look_alike(tx: Tx, email: str, *, tenant_id: UUID | None) -> KnownUser | None:
        """As `lower` finds it where the database has the locale en_US.UTF-8, for instance."""
        return await find(tx, email.lower(), tenant_id=tenant_id)

    monkeypatch.setattr(identities, "find_user_with_address", find_look_alike)
    stage.provider.person["email"] = "ni\N{KELVIN SIGN}@example.com"
    browser = stage.browser()

    await stage.refused(await browser.sign_in(), browser, "link_by_email")


async def test_what_vouches_for_one_address_does_not_link_another(stage: Stage) -> None:
    more = 'label = "Work"\nlink_by_email = true\nemail_claim = "preferred_username"'
    use_providers(stage.world, settings_of(stage.provider, table=TABLE.replace('label = "Work"', more)))
    await stage.world.signed_in(Role.OPERATOR)
    await given.end_sessions(stage)
    address = f"operator.{given.TENANT}@fairlead.test"
    stage.provider.person |= {"preferred_username": address, "email": "mallory@example.com"}
    browser = stage.browser()
    await stage.refused(await browser.sign_in(), browser, "link_by_email")

    stage.provider.person["email"] = address
    await browser.sign_in()

    assert (await browser.me())["actor"] == f"user:{address}"


async def test_sign_ins_that_begin_are_limited(
    database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(oidc, "BEGUN_FROM_ADDRESS", RateBudget(3, 600.0))
    async with stage_on(database_url, monkeypatch, tmp_path) as stage:
        codes = [(await stage.browser().get(START)).status_code for _ in range(4)]
        assert await given.count(stage, "oidc_sign_ins") == 3

    assert codes == [303, 303, 303, 429]


async def test_a_disabled_user_stays_out(stage: Stage) -> None:
    await stage.browser().sign_in()
    await given.set_user(stage, disabled_at=datetime.now(UTC))
    await given.end_sessions(stage)
    browser = stage.browser()

    await stage.refused(await browser.sign_in(), browser, "disabled")

    *_, entry = await given.audit_entries(stage, "login_failed")
    assert entry.details["provider"] == "work"


@pytest.mark.parametrize("where", ["this tenant", "every tenant"])
async def test_passwords_can_be_switched_off_but_not_for_super_admins(stage: Stage, where: str) -> None:
    for role in (Role.OPERATOR, Role.SUPER_ADMIN):
        await stage.world.signed_in(role)
    await stage.world.signed_in(Role.OPERATOR, given.OTHER)
    table = TABLE.replace('label = "Work"', 'label = "Work"\npassword_sign_in = false')
    if where == "every tenant":
        table = table.replace('tenant = "{tenant}"', 'tenant_claim = "org"')
    use_providers(stage.world, settings_of(stage.provider, table=table))

    answers = {}
    for who in (f"operator.{given.TENANT}", f"operator.{given.OTHER}", f"super_admin.{given.TENANT}"):
        body = {"email": f"{who}@fairlead.test", "password": PASSWORD}
        answers[who] = await stage.world.status("POST", "/login", who=None, json=body)

    assert list(answers.values()) == [401, 200 if where == "this tenant" else 401, 200]
