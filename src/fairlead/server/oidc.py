"""Sign-in and sign-out with an identity provider: authorization code with PKCE.

The browser holds what proves that a sign-in began in it: a cookie with a random secret, from which the nonce and the PKCE
verifier are made. The database holds hashes only, so that any server process can finish the sign-in, once.
"""

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode, urlsplit
from uuid import UUID

import structlog
from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from fairlead.actions import oidc, tenants
from fairlead.actions import rate_limits as allowances
from fairlead.actions.rate_limits import RateBudget
from fairlead.actions.user_sessions import VerifiedUser
from fairlead.db.tx import TransactionIdentity
from fairlead.errors import Fault, NotFound, SettingInvalid, SignInRefused
from fairlead.handlers.commands import check_secret
from fairlead.library.app import Fairlead
from fairlead.model.access import GLOBAL_TENANT_ID
from fairlead.model.oidc.claims import Person, read_person, unknown_tenant
from fairlead.model.oidc.identity import Identity, allows_password
from fairlead.model.oidc.settings import OidcProvider
from fairlead.model.oidc.tokens import LEEWAY_SECONDS, LONGEST_AGE_SECONDS
from fairlead.model.second_factor import SignInProof
from fairlead.server.all_cells import ask_cells, missing_cells, unreachable_error
from fairlead.server.auth import Gatekeeper, session_secret
from fairlead.server.client_addresses import address_group, client_address
from fairlead.server.oidc_client import OidcClient
from fairlead.server.problems import CONSOLE
from fairlead.server.rate_limits import address_failures, too_many_requests
from fairlead.server.sessions import open_session

log = structlog.get_logger(__name__)

A = TypeVar("A", bound=Response)

COOKIE = "fairlead_sign_in"
HINT_COOKIE = "fairlead_id_token"
# Browsers keep cookies of 4096 bytes, with their names and attributes. Addresses may be twice as long.
LONGEST_HINT = 3500
# Sign-ins that begin from one address: each writes a row.
BEGUN_FROM_ADDRESS = RateBudget(60, 2.0)
LONGEST_CODE = 4096
# What a provider's error means, in our words: its own text is not shown.
ERRORS = {
    "access_denied": "you did not allow it, or may not use this application",
    "login_required": "you are not signed in there",
    "consent_required": "your consent is needed there",
    "interaction_required": "it needs an answer from you",
    "temporarily_unavailable": "it is not available right now",
    "server_error": "it had an error",
    "invalid_scope": "it does not know a scope of this client",
    "unauthorized_client": "it does not allow this client to sign people in",
    "invalid_request": "it does not accept the request of this client",
}
_CODE = re.compile(r"[a-z_]{1,40}")
_TOKEN = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)


class Finished(NamedTuple):
    """A sign-in that succeeded: the session's secret, the page to show next, and the ID token."""

    secret: str
    next_page: str
    id_token: str


class OidcSignIns:
    """The identity providers of fairlead.toml; the applications of all cells share them."""

    def __init__(self, fl: Fairlead, providers: Mapping[str, OidcProvider]) -> None:
        self._fl = fl
        self._clients = {name: OidcClient(provider) for name, provider in providers.items()}
        refuse_plain_public_url(fl.settings.public_url, providers)

    def __bool__(self) -> bool:
        return bool(self._clients)

    @property
    def providers(self) -> list[OidcProvider]:
        return [client.provider for client in self._clients.values()]

    def find(self, name: str) -> OidcClient:
        """The client of a provider, by name."""
        if name not in self._clients:
            raise NotFound("There is no such page.")
        return self._clients[name]

    def find_label(self, name: str) -> str:
        """The label of a provider; its name if it is not configured any more."""
        return self._clients[name].provider.label if name in self._clients else name

    def label_identity(self, identity: Identity) -> str:
        """The label of the provider of an identity; its former name if it is not configured any more."""
        labels = {one.issuer: one.label for one in self.providers}
        return labels.get(identity.issuer, identity.provider)

    def may_use_password(self, user: VerifiedUser) -> bool:
        """Whether a user may sign in with a password."""
        return allows_password(self.providers, user.tenant)

    def check_secrets(self) -> None:
        """Raise SettingInvalid for a missing client secret when the server starts, before the first sign-in fails."""
        for provider in self.providers:
            if provider.client_secret is not None:
                check_secret(f"oidc.{provider.name}.client_secret", provider.client_secret)

    async def begin(self, request: Request, name: str, next_page: str) -> Response:
        """Redirect the browser to the provider."""
        client = self.find(name)
        await self._limit(request)
        discovery = await client.discover()
        state, browser = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        async with self._fl.database.transaction(TransactionIdentity(None, client_address(request))) as tx:
            await oidc.begin(tx, provider=name, state=state, browser=browser, next_page=next_page)
        asked = {
            "response_type": "code",
            "client_id": client.provider.client_id,
            "redirect_uri": callback_url(request, name),
            "scope": " ".join(client.provider.scopes),
            "state": state,
            "nonce": _derive(browser, "nonce"),
            "code_challenge": _challenge(_derive(browser, "verifier")),
            "code_challenge_method": "S256",
        }
        answer = RedirectResponse(add_query(discovery.authorization_endpoint, asked), status_code=303)
        answer.set_cookie(
            _cookie_name(request), browser, max_age=int(oidc.SIGN_IN_SECONDS), **_cookie_form(request)
        )
        return answer

    async def _limit(self, request: Request) -> None:
        key = f"oidc:begun:{address_group(client_address(request))}"
        share = await self._fl.database.single(
            lambda tx: allowances.take_units(tx, key=key, budget=BEGUN_FROM_ADDRESS)
        )
        if share.wait > 0:
            raise too_many_requests("Too many sign-ins were begun", share.wait)

    async def finish(self, request: Request, name: str) -> Finished:
        """Check the provider's answer and start a session. Failures are limited like invalid tokens.

        Not those without the cookie of a sign-in: nothing can be guessed with them, and a page of another site can make any
        browser send them, which would keep the people at its address out.
        """
        client = self.find(name)
        if not request.cookies.get(_cookie_name(request)):
            raise oidc.unknown_sign_in()
        gatekeeper: Gatekeeper = request.app.state.gatekeeper
        counted = address_failures(client_address(request))
        await gatekeeper.check_failures(counted)
        try:
            return await self._finish(request, client)
        except SignInRefused:
            await gatekeeper.failures.count(counted)
            raise

    async def _finish(self, request: Request, client: OidcClient) -> Finished:
        provider, fl = client.provider, self._fl
        given = _read_parameters(request)
        acting = TransactionIdentity(None, client_address(request))
        browser = request.cookies.get(_cookie_name(request), "")
        # in a transaction of its own: whatever comes next, this sign-in is used up
        async with fl.database.transaction(acting) as tx:
            next_page = await oidc.take(
                tx, provider=provider.name, state=given.get("state", ""), browser=browser
            )
        await _check_answer(client, given)
        person: Person | None = None
        try:
            text = await client.redeem(
                given["code"],
                verifier=_derive(browser, "verifier"),
                redirect_uri=callback_url(request, provider.name),
            )
            claims = await client.check_id_token(text, nonce=_derive(browser, "nonce"))
            person = read_person(provider, claims)
            secret = await self._start_session(request, provider, person)
        except SignInRefused as refusal:
            log.warning("oidc_sign_in_refused", provider=provider.name, why=refusal.message)
            async with fl.database.transaction(acting) as tx:
                await oidc.record_refusal(tx, provider, person, refusal.message)
            raise
        return Finished(secret, next_page, text)

    async def _start_session(self, request: Request, provider: OidcProvider, person: Person) -> str:
        fl, acting = self._fl, TransactionIdentity(None, client_address(request))
        member = fl if person.tenant is None or not fl.cells else await fl.cells.find(person.tenant)
        async with member.database.transaction(acting) as tx:
            tenant_id: UUID | None = None
            if person.tenant is not None:
                tenant_id = await tenants.find_id(tx, person.tenant)
                # an id is not a slug, and jobs of the platform's own tenant are for super admins
                if tenant_id in (None, GLOBAL_TENANT_ID) or person.tenant != await tenants.get_slug(
                    tx, tenant_id
                ):
                    raise unknown_tenant(provider)
            user = await oidc.find_user(tx, provider, person, tenant_id=tenant_id)
            begun = await open_session(
                request, tx, user, {"provider": provider.name}, proof=SignInProof.PROVIDER
            )
            if begun is None:
                raise SignInRefused("Your user was changed meanwhile. Sign in again.")
            await oidc.note_session(tx, provider, person, user, begun[1])
        await ask_cells(
            fl, acting, lambda tx, _: oidc.end_elsewhere(tx, provider, person, tenant_id=tenant_id)
        )
        return begun[1]

    async def end_by_provider(self, request: Request, name: str, token: str) -> int:
        """Back-channel logout: end the sessions that a logout token names. Their number."""
        client = self.find(name)
        gatekeeper: Gatekeeper = request.app.state.gatekeeper
        counted = address_failures(client_address(request))
        await gatekeeper.check_failures(counted)
        try:
            claims = await client.check_logout_token(token)
            return await self._end_sessions(client.provider, claims, client_address(request))
        except SignInRefused as refusal:
            log.warning("oidc_logout_refused", provider=name, why=refusal.message)
            await gatekeeper.failures.count(counted)
            raise

    async def _end_sessions(self, provider: OidcProvider, claims: Mapping[str, Any], ip: str | None) -> int:
        acting = TransactionIdentity(None, ip)
        async with self._fl.database.transaction(acting) as tx:
            # as long as the token could be sent again
            seconds = LONGEST_AGE_SECONDS + 3 * LEEWAY_SECONDS
            await oidc.note_logout(tx, provider, claims["jti"], seconds=seconds)
            answers = await ask_cells(
                self._fl,
                acting,
                lambda tx, _: oidc.end_sessions(
                    tx, provider, subject=claims.get("sub"), sid=claims.get("sid")
                ),
            )
            if missing := missing_cells(answers):  # the provider sends it again
                raise unreachable_error(missing)
        return sum(answer.value or 0 for answer in answers)

    async def find_session_provider(self, request: Request) -> str | None:
        """The provider with which the browser's session began, if it is still configured."""
        secret = session_secret(request)
        if not self._clients or secret is None:
            return None
        fl: Fairlead = request.app.state.fl
        found = await fl.database.single(lambda tx: oidc.find_session_provider(tx, secret))
        return found if found in self._clients else None

    async def sign_out_url(self, request: Request, name: str) -> str | None:
        """Where the browser signs out of the provider, too; None if the provider has no such page."""
        client = self.find(name)
        endpoint = (await client.discover()).end_session_endpoint
        if endpoint is None:
            return None
        asked = {
            "client_id": client.provider.client_id,
            "post_logout_redirect_uri": public_page_url(request, "/sign-in"),
        }
        hint = request.cookies.get(_hint_name(request), "")
        if len(hint) <= LONGEST_HINT and _TOKEN.fullmatch(hint):
            asked["id_token_hint"] = hint
        return add_query(endpoint, asked)


def forget_browser(request: Request, answer: A) -> A:
    """Delete the cookie of a sign-in that is over."""
    answer.delete_cookie(_cookie_name(request), **_cookie_form(request))
    return answer


def keep_hint(request: Request, answer: A, name: str, id_token: str) -> A:
    """Leave the ID token in the browser for the sign-out: with it, providers know who signs out, and need not ask.

    Only there: the browser sends it to the page after sign-out alone, no script can read it, and the database has no copy.
    """
    if len(id_token) > LONGEST_HINT:
        return forget_hint(request, answer, name)
    fl: Fairlead = request.app.state.fl
    seconds = int(fl.settings.session_hours * 3600)
    answer.set_cookie(_hint_name(request), id_token, max_age=seconds, **_hint_form(request, name))
    return answer


def forget_hint(request: Request, answer: A, name: str) -> A:
    """Delete the ID token in the browser."""
    answer.delete_cookie(_hint_name(request), **_hint_form(request, name))
    return answer


def callback_url(request: Request, name: str) -> str:
    """The redirect URI, which must be registered with the provider."""
    return public_page_url(request, f"/sign-in/with/{name}/callback")


def public_page_url(request: Request, path: str) -> str:
    """The full URL of a console page: below public_url, or without it where the browser reached the server."""
    fl: Fairlead = request.app.state.fl
    if fl.settings.public_url is not None:
        return f"{fl.settings.public_url.rstrip('/')}{CONSOLE}{path}"
    return f"{request.url.scheme}://{request.url.netloc}{request.scope.get('root_path', '')}{path}"


def refuse_plain_public_url(public_url: str | None, providers: Mapping[str, OidcProvider]) -> None:
    """Raise SettingInvalid if codes of a provider elsewhere would travel unencrypted."""
    if public_url is None or not providers or urlsplit(public_url).scheme == "https":
        return
    if urlsplit(public_url).hostname not in ("127.0.0.1", "::1", "localhost"):
        why = "must begin with https:// if people sign in with an identity provider"
        raise SettingInvalid(f"The setting public_url {why}.", [Fault("public_url", why)])


def add_query(url: str, fields: Mapping[str, str]) -> str:
    """A URL with more parameters."""
    return f"{url}{'&' if urlsplit(url).query else '?'}{urlencode(fields)}"


def _read_parameters(request: Request) -> dict[str, str]:
    """The parameters of the provider's answer, each once."""
    given = request.query_params.multi_items()
    if len({name for name, _ in given}) != len(given):
        raise SignInRefused("The provider's answer is not valid: it repeats a parameter. Sign in again.")
    return dict(given)


async def _check_answer(client: OidcClient, given: Mapping[str, str]) -> None:
    provider = client.provider
    discovery = await client.discover()
    if ("iss" in given or discovery.names_issuer) and given.get("iss") != provider.issuer:
        raise SignInRefused(
            "The answer comes from another provider than the one that was asked. Sign in again."
        )
    if "error" in given:
        code = given["error"] if _CODE.fullmatch(given["error"]) else "unknown"
        log.warning("oidc_error", provider=provider.name, error=code)
        why = ERRORS.get(code, "it answered with an error")
        raise SignInRefused(f"{provider.label} did not sign you in: {why}.")
    if not 0 < len(given.get("code", "")) <= LONGEST_CODE:
        raise SignInRefused("The provider's answer is not valid: it has no code. Sign in again.")


def _derive(browser: str, purpose: str) -> str:
    """A secret of this sign-in, made from that of the browser."""
    return _encode(hmac.digest(browser.encode(), f"fairlead {purpose}".encode(), hashlib.sha256))


def _challenge(verifier: str) -> str:
    return _encode(hashlib.sha256(verifier.encode()).digest())


def _encode(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _cookie_name(request: Request) -> str:
    return f"__Host-{COOKIE}" if request.url.scheme == "https" else COOKIE


def _cookie_form(request: Request) -> dict[str, Any]:
    # lax: the provider's page sends the browser back with a link
    return {"path": "/", "secure": request.url.scheme == "https", "httponly": True, "samesite": "lax"}


def _hint_name(request: Request) -> str:
    return f"__Secure-{HINT_COOKIE}" if request.url.scheme == "https" else HINT_COOKIE


def _hint_form(request: Request, name: str) -> dict[str, Any]:
    """For the page after sign-out alone, as the browser sees its address."""
    path = urlsplit(public_page_url(request, f"/sign-in/with/{name}/sign-out")).path
    return {**_cookie_form(request), "path": path}
