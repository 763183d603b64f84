"""What an attacker, or a provider that is wrong, sends: each is refused, and nobody has signed in."""

import hmac
import json
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from joserfc import jwt
from joserfc.jwk import RSAKey

from fairlead.errors import ProviderFailed
from fairlead.handlers import oidc_exchange
from fairlead.model.oidc import discovery
from fairlead.model.oidc.settings import read_oidc_settings
from fairlead.server import oidc_client
from tests import given
from tests.handlers.loopback import Reply, serving
from tests.oidc_provider import LOGOUT_EVENT, Provider, ec_key, encode_part, provider_on, query_of, rsa_key
from tests.oidc_stage import HOME, START, Stage, reset_stage, settings_of, stage_on, use_providers
from tests.server.world import World
from tests.tables import each_case

NOW = time.time
Lie = Callable[[Provider], None]


def claims(**changes: Any) -> Lie:
    """A token with other claims; None: without them."""

    def lie(provider: Provider) -> None:
        provider.claims = lambda said: {**said, **changes}

    return lie


def times(**offsets: float) -> Lie:
    """Times relative to now."""

    def lie(provider: Provider) -> None:
        provider.claims = lambda said: {**said, **{name: int(NOW() + more) for name, more in offsets.items()}}

    return lie


def header(**changes: Any) -> Lie:
    def lie(provider: Provider) -> None:
        provider.header = changes

    return lie


def by_hand(sign: Callable[[bytes], bytes], **changes: Any) -> Lie:
    """A token that no library would make."""

    def lie(provider: Provider) -> None:
        def encode(head: Any, said: Any) -> str:
            head = {**head, **changes}
            text = ".".join(encode_part(json.dumps(part).encode()) for part in (head, said))
            return f"{text}.{encode_part(sign(text.encode()))}"

        provider.sign = encode

    return lie


def sign_with_public_key(text: bytes) -> bytes:
    """With the public key as the shared secret."""
    return hmac.digest(rsa_key("one").as_pem(private=False), text, "sha256")


def sign_with_private_key(text: bytes) -> bytes:
    private = rsa_key("one").private_key
    assert private is not None
    return private.sign(text, padding.PKCS1v15(), hashes.SHA256())


def without_signature(provider: Provider) -> None:
    sign = provider.sign
    provider.sign = lambda head, said: sign(head, said).rpartition(".")[0] + "."


def bent_signature(provider: Provider) -> None:
    sign = provider.sign

    def bend(head: Any, said: Any) -> str:
        text, _, signature = sign(head, said).rpartition(".")
        return f"{text}.{'B' if signature[0] == 'A' else 'A'}{signature[1:]}"

    provider.sign = bend


def signed_by_a_stranger(**more: Any) -> Lie:
    """With a key of the attacker's that the header brings along, or names as the provider's."""

    def lie(provider: Provider) -> None:
        provider.key = rsa_key("stranger")
        jwk = provider.key.as_dict(private=False)
        provider.header = {"kid": "one", **({"jwk": jwk} if more.get("jwk") is True else more)}

    return lie


def other_kind_of_key(provider: Provider) -> None:
    """The header names the provider's RSA key, and the signature is made with a key of another kind."""
    provider.key, provider.algorithm = ec_key("one"), "ES256"


def encryption_key(provider: Provider) -> None:
    """A published key that is not for signatures."""
    provider.key = RSAKey.import_key({**rsa_key("two").as_dict(private=True), "use": "enc"})
    published = RSAKey.import_key({**rsa_key("two").as_dict(private=False), "use": "enc"})
    provider.published = [provider.published[0], published]
    provider.sign = lambda head, said: jwt.encode({**head, "kid": "two"}, said, rsa_key("two"))


LIES: dict[str, Lie] = {
    "wrong audience": claims(aud="another-client"),
    "no audience": claims(aud=None),
    "an audience that only contains our name": claims(aud="fairlead-admin"),
    "audiences of a wrong type": claims(aud={"fairlead": True}),
    "several audiences without azp": claims(aud=["fairlead", "another"]),
    "azp of another client": claims(aud=["fairlead", "another"], azp="another"),
    "azp of another client with one audience": claims(azp="another"),
    "wrong nonce": claims(nonce="guess"),
    "no nonce": claims(nonce=None),
    "nonce of a wrong type": claims(nonce=["x"]),
    "wrong issuer": claims(iss="https://evil.example"),
    "no issuer": claims(iss=None),
    "issuer with a slash more": lambda p: claims(iss=f"{p.issuer}/")(p),
    "expired": times(iat=-400, exp=-61),
    "no exp": claims(exp=None),
    "exp as text": claims(exp="9999999999"),
    "exp as true": claims(exp=True),
    "exp infinite": claims(exp=float("inf")),
    "exp with too many digits": claims(exp=10**400),
    "not yet valid": times(nbf=120),
    "nbf as text": claims(nbf="soon"),
    "issued long ago": times(iat=-3600),
    "issued in the future": times(iat=3600),
    "no iat": claims(iat=None),
    "no sub": claims(sub=None),
    "empty sub": claims(sub=""),
    "sub of a wrong type": claims(sub=["ada-1"]),
    "sub with NUL": claims(sub="ada\x00"),
    "endless sub": claims(sub="a" * 256),
    "no signature": without_signature,
    "bent signature": bent_signature,
    "alg none": by_hand(lambda _: b"", alg="none"),
    "alg None": by_hand(lambda _: b"", alg="None"),
    "no alg": by_hand(sign_with_private_key, alg=None),
    "HS256 with the public key": by_hand(sign_with_public_key, alg="HS256"),
    "another's key under a known kid": signed_by_a_stranger(),
    "key in the header (jwk)": signed_by_a_stranger(jwk=True),
    "key by address (jku)": signed_by_a_stranger(jku="https://evil.example/jwks"),
    "certificate by address (x5u)": signed_by_a_stranger(x5u="https://evil.example/cert"),
    "unknown kid": header(kid="nobody"),
    "kid as a path": header(kid="../../../../dev/null"),
    "key of another kind": other_kind_of_key,
    "encryption key": encryption_key,
    "critical header": by_hand(sign_with_private_key, crit=["x"], x=1),
    "logout token as ID token": claims(events={LOGOUT_EVENT: {}}),
    "access token as ID token": header(typ="at+jwt"),
    "logout token by type": header(typ="logout+jwt"),
    "no role by claim": lambda p: p.person.update(groups=["staff"]),
    "no groups": lambda p: p.person.update(groups=None),
    "groups of a wrong type": lambda p: p.person.update(groups={"admins": True}),
    "groups of wrong types": lambda p: p.person.update(groups=["admins", 7]),
    "a group that only contains a name": lambda p: p.person.update(groups="not-admins, admins"),
    "no address": lambda p: p.person.update(email=None),
    "an address that is none": lambda p: p.person.update(email="<script>alert(1)</script>"),
    "an address of a wrong type": lambda p: p.person.update(email=["ada@example.com"]),
    "an address that is not verified": lambda p: p.person.update(email_verified=False),
    "an address that is verified in words": lambda p: p.person.update(email_verified="true"),
}


@each_case("name", LIES)
async def test_a_bad_token_is_refused(
    shared_world: World, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async with reset_stage(shared_world, monkeypatch) as stage:
        LIES[name](stage.provider)
        browser = stage.browser()

        answer = await browser.sign_in()

        await stage.refused(answer, browser, 'role="alert"')
        assert "<script>alert" not in answer.text
        assert await stage.values("select 1 from fairlead.users") == []


async def test_without_a_lie_the_same_way_leads_in(stage: Stage) -> None:
    browser = stage.browser()
    await browser.sign_in()
    assert browser.is_signed_in


# The answer through the browser


async def test_a_callback_is_valid_once(stage: Stage) -> None:
    browser = stage.browser()
    back = await browser.agree(await browser.begin())
    cookies = dict(browser.client.cookies)
    await browser.get(back)
    assert browser.is_signed_in
    await stage.run("update fairlead.sessions set revoked_at = now()")

    again = stage.browser(cookies=cookies)

    await stage.refused(await again.get(back), again, "Begin it again")


async def test_a_code_is_valid_once_also_with_another_state(stage: Stage) -> None:
    victim, attacker = stage.browser(), stage.browser()
    code = query_of(await victim.agree(await victim.begin()))["code"]
    state = query_of(await attacker.begin())["state"]

    answer = await attacker.get(
        f"{START}/callback", params={"code": code, "state": state, "iss": stage.provider.issuer}
    )

    await stage.refused(answer, attacker, "did not accept this sign-in")  # its PKCE verifier is another


async def test_the_answer_to_another_browser_is_refused_and_stays_valid_there(stage: Stage) -> None:
    attacker, victim = stage.browser(), stage.browser()
    back = await attacker.agree(await attacker.begin())

    await stage.refused(await victim.get(back), victim, "did not begin in this browser")
    await victim.begin()  # a sign-in of its own under way does not help
    await stage.refused(await victim.get(back), victim, "did not begin in this browser")

    await attacker.get(back)
    assert attacker.is_signed_in


@each_case("state", [None, "", "guess", "\x00", "a" * 10_000])
async def test_a_missing_or_invented_state_is_refused(stage: Stage, state: str | None) -> None:
    browser = stage.browser()
    await browser.begin()
    params = {"code": "x", "iss": stage.provider.issuer} | ({} if state is None else {"state": state})

    answer = await browser.get(f"{START}/callback", params=params)

    await stage.refused(answer, browser, status=422 if state == "\x00" else 403)
    assert "/token" not in stage.provider.asked


async def test_an_expired_sign_in_is_refused(stage: Stage) -> None:
    browser = stage.browser()
    back = await browser.agree(await browser.begin())
    await stage.run("update fairlead.oidc_sign_ins set expires_at = now() - interval '1 second'")

    await stage.refused(await browser.get(back), browser, "10 minutes")


@pytest.mark.parametrize("answer", [{"iss": "https://evil.example"}, {"iss": None}])
async def test_an_answer_that_names_another_issuer_is_refused(stage: Stage, answer: dict[str, Any]) -> None:
    stage.provider.answer = answer
    browser = stage.browser()

    await stage.refused(await browser.sign_in(), browser, "another provider")
    assert "/token" not in stage.provider.asked


async def test_a_repeated_parameter_is_refused(stage: Stage) -> None:
    browser = stage.browser()
    back = await browser.agree(await browser.begin())

    await stage.refused(await browser.get(f"{back}&code=other"), browser, "repeats")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("access_denied", "did not allow it"),
        ("<script>alert(1)</script>", "answered with an error"),
        ("server_error", "had an error"),
    ],
)
async def test_an_error_of_the_provider_is_a_clear_page(stage: Stage, error: str, says: str) -> None:
    stage.provider.answer = {"code": None, "error": error, "error_description": "<b>call 555</b>"}
    browser = stage.browser()

    answer = await browser.sign_in()

    await stage.refused(answer, browser, says, "Sign in with Work")
    assert "<script>alert" not in answer.text
    assert "555" not in answer.text


async def test_an_answer_without_a_code_is_refused(stage: Stage) -> None:
    stage.provider.answer = {"code": None}
    browser = stage.browser()
    await stage.refused(await browser.sign_in(), browser, "no code")


@each_case(
    "next_page",
    [
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "https://evil.example",
        "https:evil.example",
        "%2F%2Fevil.example",
        "/%5Cevil.example",
        "javascript:alert(1)",
        "/\t/evil.example",
        "/\n/evil.example",
        " //evil.example",
    ],
)
async def test_nobody_is_sent_to_another_site(stage: Stage, next_page: str) -> None:
    browser = stage.browser()
    answer = await browser.get(START, params={"next": next_page})

    there = (await browser.get(await browser.agree(answer.headers["location"]))).headers["location"]

    assert there.startswith("/console/")
    assert not set(there) & set("\\\t\r\n ")


async def test_a_failed_sign_in_leaves_an_earlier_session_and_forgets_the_browser_secret(
    stage: Stage,
) -> None:
    browser = stage.browser()
    await browser.begin()
    answer = await browser.get(f"{START}/callback", params={"code": "x", "state": "y"})
    assert answer.status_code == 403
    assert "__Host-fairlead_sign_in" not in browser.client.cookies


@pytest.mark.usefixtures("slow_budgets")
async def test_failed_answers_are_limited(
    database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with stage_on(database_url, monkeypatch, tmp_path) as stage:
        answer = {"code": "x", "state": "y"}
        # any page can make a browser send these: they must not keep its neighbours out
        without = [
            (await stage.browser().get(f"{START}/callback", params=answer)).status_code for _ in range(14)
        ]
        cookie = {"Cookie": "__Host-fairlead_sign_in=x"}
        codes = [
            (await stage.browser().get(f"{START}/callback", params=answer, headers=cookie)).status_code
            for _ in range(14)
        ]
    assert set(without) == {403}
    assert codes[0] == 403
    assert codes[-1] == 429


def test_a_provider_elsewhere_does_not_send_us_to_this_machine() -> None:
    text = settings_of(Provider("https://id.example.com"))
    client = oidc_client.OidcClient(read_oidc_settings(tomllib.loads(text))["work"])
    fine = {
        name: f"https://id.example.com/{name}"
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri", "end_session_endpoint")
    }
    document = {"issuer": "https://id.example.com", **fine}
    client._read_discovery(document)
    for name in fine:
        with pytest.raises(ProviderFailed, match=name):
            client._read_discovery({**document, name: "http://127.0.0.1:8080/"})


# The provider's documents


@each_case(
    "document",
    [
        {"issuer": "https://evil.example"},
        {"issuer": None},
        {"token_endpoint": "http://evil.example/token"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": None},
        {"jwks_uri": "http://evil.example/jwks"},
        {"jwks_uri": "file:///etc/passwd"},
        {"end_session_endpoint": "http://evil.example"},
        {"token_endpoint": "https://user:password@evil.example/token"},
    ],
)
async def test_a_bad_discovery_document_is_refused(
    shared_world: World, monkeypatch: pytest.MonkeyPatch, document: dict[str, Any]
) -> None:
    async with reset_stage(shared_world, monkeypatch) as stage:
        stage.provider.document = document
        browser = stage.browser()
        answer = await browser.get(START)
        await stage.refused(answer, browser, "does not work right now", status=502)


@pytest.mark.thorough
@each_case("path", ["/.well-known/openid-configuration", "/jwks", "/token"])
@each_case(
    "reply",
    [
        Reply(body=b'{"x": "' + b"a" * 300_000 + b'"}'),
        Reply(body=b"not json"),
        Reply(body=[1]),
        Reply(body=b"[" * 100_000),
        Reply(500, {"error": "server_error"}),
        Reply(307, headers=(("location", "{elsewhere}"),)),
        None,
    ],
    ids=["huge", "no JSON", "a list", "deep", "an error", "a redirect", "cut"],
)
async def test_a_bad_answer_of_the_provider_is_a_clear_page(
    shared_world: World, monkeypatch: pytest.MonkeyPatch, path: str, reply: Reply | None
) -> None:
    async with (
        reset_stage(shared_world, monkeypatch) as stage,
        serving(lambda _: Reply(body={"id_token": "x"})) as elsewhere,
    ):
        if reply is not None:
            reply = reply._replace(
                headers=tuple((k, v.format(elsewhere=elsewhere.url)) for k, v in reply.headers)
            )
        stage.provider.replies[path] = reply
        browser = stage.browser()
        answer = await browser.get(START)
        if answer.status_code == 303:
            answer = await browser.get(await browser.agree(answer.headers["location"]))
        await stage.refused(answer, browser, "does not work right now", status=502)
        assert elsewhere.asked == []


async def test_a_slow_provider_is_not_waited_for_for_long(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc_exchange, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(discovery, "WELL_KNOWN", "/slow")
    stage.provider.replies["/slow"] = Reply(body=b"", headers=(("content-length", "100"),))
    browser = stage.browser()
    await stage.refused(await browser.get(START), browser, "does not work right now", status=502)


async def test_a_provider_that_is_away_is_said(stage: Stage) -> None:
    stage.provider.document = {"token_endpoint": "http://127.0.0.1:1/token"}
    browser = stage.browser()
    await stage.refused(await browser.sign_in(), browser, "cannot be reached", status=502)


async def test_the_secret_is_neither_shown_nor_stored(
    stage: Stage, capfd: pytest.CaptureFixture[str]
) -> None:
    stage.provider.secret = "another"  # noqa: S105
    browser = stage.browser()
    answer = await browser.sign_in()
    await stage.refused(answer, browser, "did not accept")
    said = "".join(capfd.readouterr()) + answer.text
    assert "s3cret" not in said


# Whose identity


async def test_the_same_subject_at_another_provider_is_another_person(stage: Stage) -> None:
    await stage.browser().sign_in()
    await stage.run("update fairlead.sessions set revoked_at = now()")
    async with provider_on("localhost") as other:
        use_providers(stage.world, settings_of(other))
        browser = stage.browser()
        # the same sub, and the address of the other's person
        await stage.refused(await browser.sign_in(), browser, "e-mail address")
        other.person["email"] = "someone@else.example"
        await browser.sign_in()
        assert (await browser.me())["actor"] == "user:someone@else.example"
    assert len(await stage.values("select 1 from fairlead.users")) == 2


async def test_the_address_of_a_user_with_a_password_is_not_taken_over(stage: Stage) -> None:
    await stage.run(
        "insert into fairlead.users (tenant_id, email, role, password_hash) select id, 'ada@example.com', 'tenant_admin', 'x' "
        "from fairlead.tenants where slug = %s",
        [given.TENANT],
    )
    browser = stage.browser()

    await stage.refused(await browser.sign_in(), browser, "Another user here has your e-mail address")

    assert await stage.values("select role from fairlead.users") == [("tenant_admin",)]
    assert await stage.values("select 1 from fairlead.identities") == []


async def test_a_known_person_cannot_take_the_address_of_another(stage: Stage) -> None:
    await stage.browser().sign_in()
    await stage.run("update fairlead.sessions set revoked_at = now()")
    await stage.run(
        "insert into fairlead.users (tenant_id, email, role) select id, 'boss@example.com', 'tenant_admin' "
        "from fairlead.tenants where slug = %s",
        [given.TENANT],
    )
    stage.provider.person["email"] = "boss@example.com"
    browser = stage.browser()

    await stage.refused(await browser.sign_in(), browser, "e-mail address")


@pytest.mark.parametrize(
    "path",
    [
        "/console/sign-in/with/nobody",
        "/console/sign-in/with/nobody/callback",
        "/console/sign-in/with/nobody/sign-out",
    ],
)
async def test_an_unknown_provider_is_not_found(stage: Stage, path: str) -> None:
    assert (await stage.browser().get(f"{HOME}{path}")).status_code == 404
