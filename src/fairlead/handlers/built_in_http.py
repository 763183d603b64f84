"""The built-in function `http.request`, as the settings configure it."""

import os
from collections.abc import Mapping
from typing import Any

from fairlead.errors import Fault, SettingInvalid
from fairlead.handlers import http
from fairlead.handlers.commands import check_secret, read_secret
from fairlead.model.messages.http_call import HttpTarget
from fairlead.model.messages.network import Allowed
from fairlead.model.secrets.signing import read_signing_secrets
from fairlead.model.template.path import Flaw
from fairlead.settings import Settings


def build_http_requests(settings: Settings, document: Mapping[str, Any]) -> http.HttpRequests:
    """The requests of jobs, with the signing secrets of a parsed fairlead.toml."""
    secrets = read_signing_secrets(document)
    for (tenant, name), secret in secrets.items():
        where = "http" if tenant is None else f"http.tenants.{tenant}"
        check_secret(f"{where}.secrets.{name}", secret.source)

    def secret_named(tenant: str, name: str, target: HttpTarget) -> str | None:
        secret = secrets.get((tenant, name)) or secrets.get((None, name))
        if secret is None:
            return None
        if why := secret.why_not(tenant, target):
            raise http.RequestRefused(f"The signing secret {name!r} {why}.")
        return read_secret(secret.source, os.environ)

    return http.HttpRequests(_parse_allowed(settings), secret_named=secret_named)


def _parse_allowed(settings: Settings) -> Allowed:
    try:
        return Allowed.of(settings.http_allow)
    except Flaw as flaw:
        raise SettingInvalid(
            f"Setting http_allow: each {flaw.message}.", [Fault("http_allow", flaw.message)]
        ) from None
