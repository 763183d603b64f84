"""Sign-out at the provider, and sessions that the provider ends."""

import time
from typing import Any

import httpx2
import pytest
from joserfc import jwt

from fairlead.server import oidc_client
from tests import given
from tests.handlers.loopback import Reply
from tests.oidc_provider import LOGOUT_EVENT, query_of, rsa_key
from tests.oidc_stage import HOME, START, Browser, Stage
from tests.tables import each_case

SIGN_OUT = {"client_id": "fairlead", "post_logout_redirect_uri": f"{HOME}/console/sign-in"}


async def tell(stage: Stage, token: str, **headers: str) -> httpx2.Response:
    """A back-channel logout: the provider itself asks, without cookies."""
    return await stage.browser().client.post(f"{START}/logout", data={"logout_token": token}, headers=headers)


async def is_in(browser: Browser) -> bool:
    return (await browser.get(f"{HOME}/api/v1/me")).status_code == 200


async def signed_in(stage: Stage, **person: Any) -> Browser:
    stage.provider.person |= person
    browser = stage.browser()
    await browser.sign_in()
    assert await is_in(browser)
    return browser


async def test_signing_out_ends_the_session_and_offers_that_of_the_provider(stage: Stage) -> None:
    browser = await signed_in(stage)

    answer = await browser.client.post(f"{HOME}/console/sign-out")
    page = await browser.get(f"{HOME}{answer.headers['location']}")

    assert not await is_in(browser)
    assert "Sign out of Work, too" in page.text
    url = page.text.split('<a class="button primary" href="')[1].split('"')[0].replace("&amp;", "&")
    assert url.startswith(f"{stage.provider.issuer}/logout?")
    asked = query_of(url)
    assert jwt.decode(asked.pop("id_token_hint"), stage.provider.key).claims["sub"] == "ada-1"
    assert asked == SIGN_OUT
    # the ID token is gone from the browser
    again = await browser.get(f"{HOME}{answer.headers['location']}")
    assert "id_token_hint" not in again.text


async def test_the_id_token_is_in_a_cookie_for_the_page_after_sign_out_alone(stage: Stage) -> None:
    browser = await signed_in(stage)

    [cookie] = [one for one in browser.client.cookies.jar if one.name == "__Secure-fairlead_id_token"]

    assert (cookie.path, cookie.secure) == ("/console/sign-in/with/work/sign-out", True)
    assert cookie.has_nonstandard_attr("HttpOnly")
    secret = str(cookie.value).rpartition(".")[2]
    for table in ("oidc_sessions", "sessions"):
        assert secret not in await given.stored_text(stage, table)


async def test_without_a_usable_id_token_the_provider_is_asked_without_it(stage: Stage) -> None:
    browser = await signed_in(stage)
    stage.provider.person["groups"] = ["operators", *(f"group-{number:04}" for number in range(500))]
    await browser.sign_in()  # one that is too large for a cookie takes the place of the earlier one
    page = await browser.get(f"{START}/sign-out")
    assert "id_token_hint" not in page.text
    for value in ("x", "a.b.c.d", "a.b." + "c" * 5000, '"><script>', "a.b.c&client_id=evil"):
        page = await stage.browser().get(
            f"{START}/sign-out", headers={"Cookie": f"__Secure-fairlead_id_token={value}"}
        )
        assert ("id_token_hint" in page.text, "evil" in page.text) == (False, False)


@pytest.mark.parametrize("document", [{"end_session_endpoint": None}, {"issuer": "https://evil.example"}])
async def test_without_such_a_page_signing_out_still_works(stage: Stage, document: dict[str, Any]) -> None:
    stage.provider.document = document
    page = await stage.browser().get(f"{START}/sign-out")
    assert (page.status_code, "You are signed out" in page.text) == (200, True)
    assert "evil" not in page.text


async def test_the_provider_ends_one_session_by_sid(stage: Stage) -> None:
    here = await signed_in(stage, sid="here")
    there = await signed_in(stage, sid="there")

    answer = await tell(stage, stage.provider.logout_token(sid="here"))

    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    assert (await is_in(here), await is_in(there)) == (False, True)


async def test_the_provider_ends_all_sessions_of_a_person_by_sub(stage: Stage) -> None:
    browsers = [await signed_in(stage, sid=str(number)) for number in range(2)]
    other = await signed_in(stage, sub="bob", email="bob@example.com", sid="3")

    answer = await tell(stage, stage.provider.logout_token(sub="ada-1", sid=None))

    assert answer.status_code == 200
    assert [await is_in(one) for one in (*browsers, other)] == [False, False, True]
    *_, entry = await given.audit_entries(stage, "user_signed_out", actor="oidc:work")
    assert entry.details == {"provider": "work", "by": "provider"}


async def test_a_person_and_a_session_that_do_not_belong_together_end_nothing(stage: Stage) -> None:
    browser = await signed_in(stage)
    assert (await tell(stage, stage.provider.logout_token(sub="bob"))).status_code == 200
    assert await is_in(browser)


async def test_a_logout_token_is_accepted_once(stage: Stage) -> None:
    await signed_in(stage)
    token = stage.provider.logout_token(sid=None)
    assert (await tell(stage, token)).status_code == 200
    again = await signed_in(stage)

    answer = await tell(stage, token)

    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert await is_in(again)


LIES: dict[str, dict[str, Any]] = {
    "no events": {"events": None},
    "other events": {"events": {"http://schemas.openid.net/event/other": {}}},
    "events of a wrong type": {"events": [LOGOUT_EVENT]},
    "an event of a wrong type": {"events": {LOGOUT_EVENT: True}},
    "a nonce": {"nonce": "x"},
    "neither sub nor sid": {"sub": None, "sid": None},
    "sub of a wrong type": {"sub": ["ada-1"]},
    "an empty sid": {"sid": ""},
    "no jti": {"jti": None},
    "another audience": {"aud": "another"},
    "another issuer": {"iss": "https://evil.example"},
    "issued long ago": {"iat": 1_600_000_000},
    "issued in the future": {"iat": time.time() + 7200},
    "expired": {"exp": 1_600_000_000},
    "no iat": {"iat": None},
}


@each_case("name", LIES)
async def test_a_bad_logout_token_ends_nothing(stage: Stage, name: str) -> None:
    browser = await signed_in(stage)
    answer = await tell(stage, stage.provider.logout_token(**LIES[name]))
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert await is_in(browser)


async def test_a_forged_logout_token_and_an_id_token_end_nothing(stage: Stage) -> None:
    browser = await signed_in(stage)
    id_token = stage.provider.id_token("nonce")
    unsigned = stage.provider.logout_token().rpartition(".")[0] + "."
    stage.provider.header = {"kid": "one"}
    stage.provider.key = rsa_key("stranger")
    forged = stage.provider.logout_token()

    for token in (id_token, unsigned, forged, "", "x", "a.b.c", "\x00"):
        assert (await tell(stage, token)).status_code in (400, 422)
    empty = await stage.browser().client.post(f"{START}/logout")

    assert empty.status_code == 400
    assert await is_in(browser)


async def test_large_logouts_are_refused(stage: Stage) -> None:
    answer = await tell(stage, "x" * 70_000)
    assert answer.status_code == 413


async def test_forged_tokens_do_not_hold_up_sign_ins_while_the_provider_hides_its_keys(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc_client, "RENEW_SECONDS", 0.0)
    monkeypatch.setattr(oidc_client, "PAUSE_SECONDS", 600.0)
    await signed_in(stage)
    real, stage.provider.key = stage.provider.key, rsa_key("forged")
    stage.provider.replies["/jwks"] = Reply(500)
    stage.provider.asked.clear()

    answers = [(await tell(stage, stage.provider.logout_token())).status_code for _ in range(5)]

    assert answers == [502] * 5
    assert stage.provider.asked == ["/jwks"]
    stage.provider.key = real
    assert await is_in(await signed_in(stage))
