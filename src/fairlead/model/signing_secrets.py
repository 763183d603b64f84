"""The secrets that `http.request` may sign with, as [http] in fairlead.toml names them: for all, and for single tenants."""

from collections.abc import Mapping
from typing import Any

from fairlead.errors import Fault, SettingInvalid
from fairlead.model import command_words as words
from fairlead.model.command import SecretSource
from fairlead.model.path import Flaw

# by tenant (None for all) and name
SigningSecrets = Mapping[tuple[str | None, str], SecretSource]


def signing_secrets_of(document: Mapping[str, Any]) -> SigningSecrets:
    """Where each secret is to be read, or a refusal that names what cannot be read so."""
    http = _table("http", document.get("http", {}), {"secrets", "tenants"})
    found = dict(_secrets(None, "http", http))
    for tenant, said in _table("http.tenants", http.get("tenants", {})).items():
        where = f"http.tenants.{tenant}"
        found |= _secrets(tenant, where, _table(where, said, {"secrets"}))
    return found


def _secrets(
    tenant: str | None, where: str, said: Mapping[str, Any]
) -> dict[tuple[str | None, str], SecretSource]:
    found = {}
    for name, source in _table(f"{where}.secrets", said.get("secrets", {})).items():
        try:
            found[tenant, name] = words.secret(source)
        except Flaw as flaw:
            raise _invalid(f"{where}.secrets.{name}", flaw.message) from None
    return found


def _table(where: str, said: Any, known: set[str] | None = None) -> Mapping[str, Any]:
    if not isinstance(said, Mapping):
        raise _invalid(where, "must be a table")
    for name in sorted(said.keys() - (said.keys() if known is None else known)):
        raise _invalid(f"{where}.{name}", f"is unknown; known are {', '.join(sorted(known or ()))}")
    return said


def _invalid(where: str, why: str) -> SettingInvalid:
    return SettingInvalid(f"fairlead.toml is not valid: {where} {why}.", [Fault(where, why)])
