"""Fairlead's built-in functions, if they are configured."""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, assert_never

from fairlead.errors import Fault, SettingInvalid
from fairlead.handlers import email, http
from fairlead.handlers.commands import SecretMissing, read_secret
from fairlead.handlers.email_api import GraphProvider, ResendProvider
from fairlead.model.command.spec import SecretSource
from fairlead.model.messages.email_settings import (
    EmailSettings,
    MicrosoftGraph,
    Resend,
    Smtp,
    read_email_settings,
)
from fairlead.model.messages.http_call import HttpTarget
from fairlead.model.messages.network import Allowed
from fairlead.model.secrets.signing import SigningSecrets, read_signing_secrets
from fairlead.model.template.path import Flaw
from fairlead.settings import Settings

# A function and its job options.
Builtin = tuple[Callable[..., Any], Mapping[str, Any]]


def load_builtins(settings: Settings, document: Mapping[str, Any]) -> Iterator[Builtin]:
    """The built-in functions that the settings and a parsed fairlead.toml enable; raises SettingInvalid if one cannot run."""
    if settings.http_requests:
        yield _build_http_requests(settings, read_signing_secrets(document)).request, http.OPTIONS
    if found := read_email_settings(document):
        providers = {tenant: _build_provider(tenant, one) for tenant, one in found.items()}
        yield email.Emails(providers).send, email.OPTIONS


def _build_provider(tenant: str | None, settings: EmailSettings) -> email.Provider:
    where = "email" if tenant is None else f"email.tenants.{tenant}"
    match settings:
        case Smtp(password=source):
            if source is not None:
                _check_secret(f"{where}.password", source)
            return _build_smtp(settings)
        case Resend(api_key=source):
            _check_secret(f"{where}.api_key", source)
            return ResendProvider(settings)
        case MicrosoftGraph(client_secret=source):
            _check_secret(f"{where}.client_secret", source)
            return GraphProvider(settings)
    assert_never(settings)


def _build_smtp(settings: Smtp) -> email.Provider:
    try:
        from fairlead.handlers.email_smtp import SmtpProvider  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise SettingInvalid(
            'Email over SMTP needs an extra package: pip install "fairlead[email]".',
            [Fault("email.provider", "needs fairlead[email]")],
        ) from error
    return SmtpProvider(settings)


def _build_http_requests(settings: Settings, secrets: SigningSecrets) -> http.HttpRequests:
    for (tenant, name), secret in secrets.items():
        where = "http" if tenant is None else f"http.tenants.{tenant}"
        _check_secret(f"{where}.secrets.{name}", secret.source)

    def secret_named(tenant: str, name: str, target: HttpTarget) -> str | None:
        secret = secrets.get((tenant, name)) or secrets.get((None, name))
        if secret is None:
            return None
        if why := secret.why_not(tenant, target):
            raise http.RequestRefused(f"The signing secret {name!r} {why}.")
        return read_secret(secret.source, os.environ)

    return http.HttpRequests(_parse_allowed(settings), secret_named=secret_named)


def _check_secret(where: str, source: SecretSource) -> None:
    """Raise SettingInvalid for a missing secret when the worker starts, before the first job fails."""
    try:
        read_secret(source, os.environ)
    except SecretMissing as error:
        raise SettingInvalid(f"{where} cannot be used here: {error}.", [Fault(where, str(error))]) from None


def _parse_allowed(settings: Settings) -> Allowed:
    try:
        return Allowed.of(settings.http_allow)
    except Flaw as flaw:
        raise SettingInvalid(
            f"Setting http_allow: each {flaw.message}.", [Fault("http_allow", flaw.message)]
        ) from None
