"""What the server asks an identity provider: its discovery document, its keys, and the tokens for a code."""

import asyncio
import base64
import contextlib
import os
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote_plus, urlencode

import structlog
from joserfc.jwk import KeySet

from fairlead.errors import ProviderFailed, SignInRefused
from fairlead.handlers.commands import SecretMissing, read_secret
from fairlead.handlers.http_exchange import HttpAnswer
from fairlead.handlers.oidc_exchange import ProviderSilent, ask_provider, decode_document, fetch_document
from fairlead.model.oidc.discovery import (
    Discovery,
    InvalidDiscovery,
    OtherIssuer,
    discovery_url,
    read_discovery,
)
from fairlead.model.oidc.settings import OidcProvider
from fairlead.model.oidc.tokens import (
    InvalidKeys,
    KeyUnknown,
    check_id_token,
    check_logout_token,
    import_keys,
)

log = structlog.get_logger(__name__)

# How long documents of a provider are used, and how often they are asked for again at most.
KEEP_SECONDS = 3600.0
RENEW_SECONDS = 30.0
# After a failure the provider is not asked for this long.
PAUSE_SECONDS = 2.0


class OidcClient:
    """A provider as this process knows it; its documents are cached."""

    def __init__(self, provider: OidcProvider, clock: Callable[[], float] = time.monotonic) -> None:
        self.provider = provider
        self._clock = clock
        self._lock = asyncio.Lock()
        self._discovery: tuple[float, Discovery] | None = None
        self._keys: tuple[float, KeySet] | None = None
        self._failure: tuple[float, str] | None = None
        self._key_failure: tuple[float, str] | None = None

    async def discover(self) -> Discovery:
        """The provider's endpoints; ProviderFailed if its document is missing or not valid."""
        if (known := self._find_discovery()) is not None:
            return known
        async with self._lock:
            if self._failure is not None and self._clock() < self._failure[0]:
                raise ProviderFailed(self._failure[1])
            try:
                return await self._discover()
            except ProviderFailed as error:
                # those who wait for the lock do not each wait for the provider
                self._failure = (self._clock() + PAUSE_SECONDS, error.message)
                raise

    def _find_discovery(self) -> Discovery | None:
        kept = self._discovery
        return kept[1] if kept is not None and self._clock() - kept[0] < KEEP_SECONDS else None

    async def _discover(self) -> Discovery:
        if (known := self._find_discovery()) is not None:
            return known
        document = await self._get(discovery_url(self.provider), "discovery document")
        found = self._read_discovery(document)
        self._discovery = (self._clock(), found)
        return found

    def _read_discovery(self, document: Mapping[str, Any]) -> Discovery:
        try:
            return read_discovery(self.provider, document)
        except OtherIssuer as error:
            raise self._fail(error.why, issuer=error.issuer) from None
        except InvalidDiscovery as error:
            raise self._fail(error.why) from None

    async def check_id_token(self, text: str, *, nonce: str) -> dict[str, Any]:
        """The claims of an ID token. Keys are fetched again if the token names a new one."""
        return await self._with_keys(
            lambda keys: check_id_token(self.provider, text, keys, nonce=nonce, now=time.time())
        )

    async def check_logout_token(self, text: str) -> dict[str, Any]:
        """The claims of a logout token."""
        return await self._with_keys(
            lambda keys: check_logout_token(self.provider, text, keys, now=time.time())
        )

    async def _with_keys(self, check: Callable[[KeySet], dict[str, Any]]) -> dict[str, Any]:
        with contextlib.suppress(KeyUnknown):  # then with newer keys
            return check(await self._get_keys(KEEP_SECONDS))
        try:
            return check(await self._get_keys(RENEW_SECONDS))
        except KeyUnknown:
            raise SignInRefused(
                "The provider sent a token that cannot be accepted: it is signed with an unknown key. "
                f"Sign in again in {RENEW_SECONDS:.0f} seconds."
            ) from None

    async def _get_keys(self, oldest: float) -> KeySet:
        """The provider's keys, not older than `oldest` seconds.

        Anyone can send a logout token that names an unknown key: while the provider does not answer, neither sign-ins with
        known keys nor other requests wait for it again and again.
        """
        if (known := self._find_keys(oldest)) is not None:
            return known
        async with self._lock:
            if (known := self._find_keys(oldest)) is not None:
                return known
            if self._key_failure is not None and self._clock() < self._key_failure[0]:
                raise ProviderFailed(self._key_failure[1])
            try:
                keys = await self._fetch_keys()
            except ProviderFailed as error:
                self._key_failure = (self._clock() + PAUSE_SECONDS, error.message)
                raise
            self._keys = (self._clock(), keys)
            return keys

    def _find_keys(self, oldest: float) -> KeySet | None:
        return self._keys[1] if self._keys is not None and self._clock() - self._keys[0] < oldest else None

    async def _fetch_keys(self) -> KeySet:
        document = await self._get((await self._discover()).jwks_uri, "key set")
        try:
            return import_keys(document)
        except InvalidKeys:
            raise self._fail("its key set is not valid") from None

    async def redeem(self, code: str, *, verifier: str, redirect_uri: str) -> str:
        """The ID token for a code; SignInRefused if the provider does not accept the code."""
        discovery = await self.discover()
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
        secret = self._read_client_secret()
        if secret is None or discovery.posts_secret:
            fields["client_id"] = self.provider.client_id
        if secret is not None and discovery.posts_secret:
            fields["client_secret"] = secret
        elif secret is not None:
            headers["authorization"] = _basic(self.provider.client_id, secret)
        answer = await self._post(
            discovery.token_endpoint, "token", headers=headers, content=urlencode(fields).encode()
        )
        return self._read_id_token(answer)

    def _read_id_token(self, answer: HttpAnswer) -> str:
        document = decode_document(answer)
        if answer.status in (400, 401, 403):
            error = str(document.get("error", ""))[:60] if document else ""
            log.warning("oidc_code_refused", provider=self.provider.name, status=answer.status, error=error)
            raise SignInRefused(
                f"{self.provider.label} did not accept this sign-in. Begin it again; if that does not help, "
                "ask your administrator to check the client's id and secret."
            )
        found = document.get("id_token") if document and answer.status == 200 else None
        if not isinstance(found, str):
            raise self._fail("it sent no ID token", status=answer.status)
        return found

    def _read_client_secret(self) -> str | None:
        if self.provider.client_secret is None:
            return None
        try:
            return read_secret(self.provider.client_secret, os.environ)
        except SecretMissing as error:
            raise self._fail("its client secret is missing on this server", detail=str(error)) from None

    async def _get(self, url: str, what: str) -> Mapping[str, Any]:
        try:
            _, document = await fetch_document(url, what)
        except ProviderSilent as error:
            raise self._fail(error.why, asked=what, detail=error.detail) from None
        return document

    async def _post(self, url: str, what: str, *, headers: dict[str, str], content: bytes) -> HttpAnswer:
        try:
            return await ask_provider("POST", url, what, headers=headers, content=content)
        except ProviderSilent as error:
            raise self._fail(error.why, asked=what, detail=error.detail) from None

    def _fail(self, why: str, **facts: object) -> ProviderFailed:
        log.warning("oidc_provider_failed", provider=self.provider.name, problem=why, **facts)
        return ProviderFailed(
            f"Sign-in with {self.provider.label} does not work right now: {why}. Try again later, or ask your administrator."
        )


def _basic(client_id: str, secret: str) -> str:
    """RFC 6749, 2.3.1: both parts are form-encoded first."""
    pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"
