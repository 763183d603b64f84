"""Signing secrets of `http.request`, from [http] in fairlead.toml, and the tenants and URLs that may use each."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import msgspec

from fairlead.errors import Fault, SettingInvalid
from fairlead.model.access import GLOBAL_TENANT
from fairlead.model.command import fields as words
from fairlead.model.command.spec import SecretSource
from fairlead.model.messages.http_call import HttpTarget, parse_target
from fairlead.model.template.path import Flaw

_FIELDS = {"source", "tenants", "urls"}


class SigningSecret(msgspec.Struct, frozen=True):
    """The source of a secret, and the tenants and URL prefixes that it is bound to."""

    source: SecretSource
    tenants: tuple[str, ...] = ()
    urls: tuple[HttpTarget, ...] = ()

    def why_not(self, tenant: str, target: HttpTarget) -> str | None:
        """Why a tenant may not sign a request to this target with it; None if it may.

        A receiver trusts the signature of the secret's owner. With a shared secret, one tenant could forge the
        requests of another.
        """
        if not self.tenants and not self.urls and tenant != GLOBAL_TENANT:
            return (
                "is bound to no tenant and no url. Bind it in fairlead.toml, as "
                '{ source = "env:…", tenants = ["…"] } or { source = "env:…", urls = ["https://…"] }, or move it to '
                "[http.tenants.….secrets]"
            )
        if self.tenants and tenant not in self.tenants:
            return f"is bound to other tenants than {tenant}"
        if self.urls and not any(_is_below(target, url) for url in self.urls):
            return "is bound to other urls"
        return None


# by tenant (None: all tenants) and name
SigningSecrets = Mapping[tuple[str | None, str], SigningSecret]


def read_signing_secrets(document: Mapping[str, Any]) -> SigningSecrets:
    """Read the signing secrets; SettingInvalid names the invalid field."""
    http = _require_table("http", document.get("http", {}), {"secrets", "tenants"})
    found = dict(_read_secrets(None, "http", http))
    for tenant, said in _require_table("http.tenants", http.get("tenants", {})).items():
        where = f"http.tenants.{tenant}"
        found |= _read_secrets(tenant, where, _require_table(where, said, {"secrets"}))
    return found


def _read_secrets(
    tenant: str | None, where: str, said: Mapping[str, Any]
) -> dict[tuple[str | None, str], SigningSecret]:
    found = {}
    for name, one in _require_table(f"{where}.secrets", said.get("secrets", {})).items():
        try:
            found[tenant, name] = _read_secret(tenant, f"{where}.secrets.{name}", one)
        except Flaw as flaw:
            raise _invalid(f"{where}.secrets.{name}", flaw.message) from None
    return found


def _read_secret(tenant: str | None, where: str, said: Any) -> SigningSecret:
    if not isinstance(said, Mapping):
        return SigningSecret(words.read_secret_source(said), () if tenant is None else (tenant,))
    table = _require_table(where, said, _FIELDS)
    if tenant is not None and "tenants" in table:
        raise Flaw("is bound to its tenant already: leave tenants out")
    return SigningSecret(
        words.read_secret_source(table.get("source")),
        tuple(_read_texts("tenants", table.get("tenants", []))) if tenant is None else (tenant,),
        tuple(_read_url(one) for one in _read_texts("urls", table.get("urls", []))),
    )


def _read_texts(name: str, said: Any) -> Sequence[str]:
    if not isinstance(said, list) or not all(isinstance(one, str) and one for one in said):
        raise Flaw(f"must have a list of texts as {name}")
    return said


def _read_url(said: str) -> HttpTarget:
    try:
        return parse_target(said)
    except Flaw as flaw:
        raise Flaw(f"has a url that {flaw.message}") from None


def _is_below(target: HttpTarget, url: HttpTarget) -> bool:
    """Whether a target is this URL or below it."""
    path = target.path.partition("?")[0]
    if target.origin != url.origin or ".." in unquote(path).split("/"):
        return False
    return target.path == url.path or target.path.startswith((url.path.rstrip("/") + "/", url.path + "?"))


def _require_table(where: str, said: Any, known: set[str] | None = None) -> Mapping[str, Any]:
    if not isinstance(said, Mapping):
        raise _invalid(where, "must be a table")
    for name in sorted(said.keys() - (said.keys() if known is None else known)):
        raise _invalid(f"{where}.{name}", f"is unknown; use one of {', '.join(sorted(known or ()))}")
    return said


def _invalid(where: str, why: str) -> SettingInvalid:
    return SettingInvalid(f"fairlead.toml is not valid: {where} {why}.", [Fault(where, why)])
