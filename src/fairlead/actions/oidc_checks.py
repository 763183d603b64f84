"""The checks of `fairlead doctor` on identity providers: whether people could sign in with each now. No secret is shown."""

import asyncio
import os
import time
from collections.abc import Collection, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from joserfc.jwk import KeySet

from fairlead.handlers.commands import SecretMissing, read_secret
from fairlead.handlers.http_exchange import HttpAnswer
from fairlead.handlers.oidc_exchange import ProviderSilent, fetch_document
from fairlead.model.finding import Finding, Verdict
from fairlead.model.oidc.discovery import (
    Discovery,
    InvalidDiscovery,
    OtherIssuer,
    discovery_url,
    list_texts,
    read_discovery,
)
from fairlead.model.oidc.settings import OidcProvider
from fairlead.model.oidc.tokens import (
    ALGORITHMS,
    LEEWAY_SECONDS,
    LONGEST_AGE_SECONDS,
    InvalidKeys,
    import_keys,
)

# A provider's clock that differs by more should be set, long before tokens are refused.
SKEW_SECONDS = 5.0


async def examine_providers(providers: Collection[OidcProvider]) -> list[Finding]:
    """The findings about every provider, which are asked at the same time."""
    found = await asyncio.gather(*(_examine(one) for one in providers))
    return [finding for of_provider in found for finding in of_provider]


async def _examine(provider: OidcProvider) -> list[Finding]:
    findings = [_check_secret(provider)]
    url, asked = discovery_url(provider), time.time()
    try:
        answer, document = await fetch_document(url, "discovery document")
    except ProviderSilent as error:
        return [*findings, _judge_silence(provider, url, error)]
    findings += [
        _finding("oidc_discovery", provider, Verdict.OK, f"{url} answered"),
        _judge_clock(provider, answer, asked, time.time()),
    ]
    try:
        discovery = read_discovery(provider, document)
    except InvalidDiscovery as error:
        return [*findings, _judge_invalid(provider, error)]
    findings.append(_finding("oidc_issuer", provider, Verdict.OK, f"the issuer is {provider.issuer}"))
    return [*findings, *await _check_keys(provider, discovery, document)]


def _check_secret(provider: OidcProvider) -> Finding:
    if provider.client_secret is None:
        return _finding("oidc_secret", provider, Verdict.OK, "a public client, which has no secret")
    try:
        read_secret(provider.client_secret, os.environ)
    except SecretMissing as error:
        return _finding(
            "oidc_secret",
            provider,
            Verdict.FAIL,
            f"the client's secret is missing: {error}",
            f"Set it where `fairlead serve` runs, or correct client_secret in [oidc.{provider.name}]. This check reads the "
            "environment of doctor: run it with that of the server.",
        )
    return _finding("oidc_secret", provider, Verdict.OK, "the client's secret can be read")


def _judge_silence(provider: OidcProvider, url: str, error: ProviderSilent) -> Finding:
    detail = f" ({error.detail})" if error.detail else ""
    return _finding(
        "oidc_discovery",
        provider,
        Verdict.WARN,
        f"{error.why}{detail}: {url}",
        "Nobody can sign in with it now; sessions go on, and passwords work unless password_sign_in is false (those of "
        "super admins always do). Check that this machine reaches the address (DNS, firewall, certificate), and that "
        "issuer is that of the provider.",
    )


def _judge_invalid(provider: OidcProvider, error: InvalidDiscovery) -> Finding:
    if isinstance(error, OtherIssuer):
        return _finding(
            "oidc_issuer",
            provider,
            Verdict.FAIL,
            f"the settings say {provider.issuer}, and the discovery document {error.issuer}",
            f"Copy issuer from the document to [oidc.{provider.name}], exactly, with or without the slash at the end.",
        )
    return _finding(
        "oidc_issuer",
        provider,
        Verdict.FAIL,
        error.why,
        "Let the provider publish endpoints with https; a proxy in front of it must pass on scheme and host.",
    )


async def _check_keys(
    provider: OidcProvider, discovery: Discovery, document: Mapping[str, Any]
) -> list[Finding]:
    try:
        _, published = await fetch_document(discovery.jwks_uri, "key set")
        keys = import_keys(published)
    except (ProviderSilent, InvalidKeys) as error:
        why = "it is not a key set" if isinstance(error, InvalidKeys) else str(error)
        return [
            _finding(
                "oidc_keys",
                provider,
                Verdict.WARN,
                f"the keys cannot be read: {why}: {discovery.jwks_uri}",
                "Tokens cannot be checked, so that nobody can sign in with it now. Check that this machine reaches "
                "the address.",
            )
        ]
    if not len(keys.keys):
        return [
            _finding(
                "oidc_keys",
                provider,
                Verdict.FAIL,
                f"no key can verify a signature: {discovery.jwks_uri}",
                f"Let the provider publish a public key for one of {', '.join(ALGORITHMS)}; RSA with 2048 bits or more.",
            )
        ]
    number = len(keys.keys)
    fine = _finding(
        "oidc_keys", provider, Verdict.OK, f"{number} key{'' if number == 1 else 's'} can be used"
    )
    return [fine, _judge_algorithms(provider, keys, document)]


def _judge_algorithms(provider: OidcProvider, keys: KeySet, document: Mapping[str, Any]) -> Finding:
    listed = list_texts(document, "id_token_signing_alg_values_supported")
    with_key = [
        name
        for name, kind in ALGORITHMS.items()
        if any(isinstance(key, kind) and key.get("alg") in (None, name) for key in keys)
    ]
    usable = [name for name in with_key if listed is None or name in listed]
    if not usable:
        return _finding(
            "oidc_algorithms",
            provider,
            Verdict.FAIL,
            f"it signs ID tokens with {', '.join(listed or ['nothing'])}, and its keys are for {', '.join(with_key)}",
            f"Let it sign this client's ID tokens with one of {', '.join(ALGORITHMS)}, such as RS256. Signatures with "
            "the client's secret (HS256) are refused.",
        )
    methods = list_texts(document, "code_challenge_methods_supported")
    if methods is not None and "S256" not in methods:
        return _finding(
            "oidc_algorithms",
            provider,
            Verdict.WARN,
            "it does not list S256 among code_challenge_methods_supported",
            "Fairlead always uses PKCE with S256: allow it for this client.",
        )
    return _finding(
        "oidc_algorithms", provider, Verdict.OK, f"ID tokens may be signed with {', '.join(usable)}"
    )


def _judge_clock(provider: OidcProvider, answer: HttpAnswer, asked: float, answered: float) -> Finding:
    """Compare the header Date with the time of this machine while the request was under way."""
    told = _read_clock(answer)
    if told is None:
        return _finding("oidc_clock", provider, Verdict.OK, "not compared: it sends no valid header Date")
    # the header has whole seconds
    ahead, behind = told - answered, asked - (told + 1)
    skew = max(ahead, behind, 0.0)
    which = "behind" if behind > ahead else "ahead"
    detail = "its clock agrees with this machine's" if not skew else f"its clock is {skew:.0f} s {which}"
    if skew <= SKEW_SECONDS:
        return _finding("oidc_clock", provider, Verdict.OK, detail, value=skew)
    refused = ahead > LEEWAY_SECONDS or behind > LONGEST_AGE_SECONDS + LEEWAY_SECONDS
    return _finding(
        "oidc_clock",
        provider,
        Verdict.FAIL if refused else Verdict.WARN,
        detail,
        ("Its tokens are refused. " if refused else "")
        + f"Run NTP on both machines: tokens from more than {LEEWAY_SECONDS} s in the future are refused.",
        value=skew,
    )


def _read_clock(answer: HttpAnswer) -> float | None:
    """The provider's time when it answered; a cache on the way says with Age how old the answer is."""
    try:
        told = parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    age = answer.headers.get("age", "")
    return told + (int(age) if age.isdecimal() and len(age) < 10 else 0)


def _finding(
    check: str,
    provider: OidcProvider,
    verdict: Verdict,
    detail: str,
    advice: str = "",
    *,
    value: float | None = None,
) -> Finding:
    return Finding(check, verdict, f"{provider.name}: {detail}", advice, value)
