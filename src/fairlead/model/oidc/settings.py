"""The [oidc.NAME] tables in fairlead.toml: one for each identity provider."""

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from fairlead.errors import Fault, SettingInvalid
from fairlead.model.access import GLOBAL_TENANT, PEOPLE, Role
from fairlead.model.command import fields as words
from fairlead.model.command.spec import SecretSource
from fairlead.model.template.path import Flaw

NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
LOOPBACK = ("127.0.0.1", "::1", "localhost")
_CLAIM = re.compile(r"[!-~]{1,200}")
_SLUG = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_SCOPE = re.compile(r"[!#-\[\]-~]{1,200}")
_OPENID = "openid"


class OidcProvider(msgspec.Struct, frozen=True, kw_only=True):
    """An identity provider, and what its claims grant."""

    name: str
    issuer: str
    client_id: str
    # None: a public client, which proves itself with PKCE alone
    client_secret: SecretSource | None = None
    label: str
    scopes: tuple[str, ...] = (_OPENID, "email", "profile")
    email_claim: str = "email"
    # the claim whose values grant roles, and the role of each value
    role_claim: str
    roles: Mapping[str, Role]
    # one of: a fixed tenant, or a claim with the tenant's slug or with a value of `tenants`
    tenant: str | None = None
    tenant_claim: str | None = None
    tenants: Mapping[str, str] | None = None
    link_by_email: bool = False
    password_sign_in: bool = True

    def __post_init__(self) -> None:
        """Refuse settings that do not say which tenant a person belongs to."""
        if self.tenant is not None and self.tenant_claim is not None:
            raise Flaw("must have tenant or tenant_claim, not both")
        if self.tenants is not None and self.tenant_claim is None:
            raise Flaw("must have tenant_claim with tenants: the claim whose values they are")
        has_tenant = self.tenant is not None or self.tenant_claim is not None
        if not has_tenant and set(self.roles.values()) != {Role.SUPER_ADMIN}:
            raise Flaw("must have tenant or tenant_claim: every role but super_admin belongs to a tenant")


def read_oidc_settings(document: Mapping[str, Any]) -> dict[str, OidcProvider]:
    """The providers by name; empty without [oidc.NAME]."""
    found: dict[str, OidcProvider] = {}
    for name, table in _require_table("oidc", document.get("oidc", {})).items():
        where = f"oidc.{name}"
        if not NAME.fullmatch(name):
            raise _invalid(where, "must have a name of a-z, 0-9 and -, such as oidc.work")
        found[name] = _read_provider(name, where, _require_table(where, table))
    for one in found.values():
        twins = [other.name for other in found.values() if other.issuer == one.issuer]
        if len(twins) > 1:  # an identity belongs to an issuer: two tables would disagree about its role
            raise _invalid(f"oidc.{twins[1]}.issuer", f"is the same as that of oidc.{twins[0]}")
    return found


def _read_provider(name: str, where: str, said: Mapping[str, Any]) -> OidcProvider:
    for field in sorted(said.keys() - READERS.keys()):
        raise _invalid(f"{where}.{field}", f"is unknown; use one of {', '.join(sorted(READERS))}")
    for field in REQUIRED:
        if field not in said:
            raise _invalid(f"{where}.{field}", "is missing")
    values: dict[str, Any] = {"name": name, "label": name}
    for field in READERS.keys() & said.keys():
        try:
            values[field] = READERS[field](said[field])
        except Flaw as flaw:
            raise _invalid(f"{where}.{field}", flaw.message) from None
    try:
        return OidcProvider(**values)
    except Flaw as flaw:
        raise _invalid(where, flaw.message) from None


def is_safe_url(url: object) -> bool:
    """Whether codes, secrets and tokens may be sent to a URL: https, or http on this machine."""
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if not host or parts.fragment or "@" in parts.netloc:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK)


def _read_issuer(said: Any) -> str:
    if not is_safe_url(said) or urlsplit(said).query:
        raise Flaw("must be a URL that begins with https://, as the provider's discovery document has it")
    return str(said)


def _read_client_id(said: Any) -> str:
    if not isinstance(said, str) or not 1 <= len(said) <= 300 or not said.isascii() or not said.isprintable():
        raise Flaw("must be text of printable ASCII, as the provider shows it")
    return said


def _read_label(said: Any) -> str:
    if not isinstance(said, str) or not 1 <= len(said) <= 60 or not said.isprintable() or not said.strip():
        raise Flaw("must be a line of text of at most 60 characters")
    return said


def _read_scopes(said: Any) -> tuple[str, ...]:
    if not isinstance(said, list) or not all(isinstance(one, str) and _SCOPE.fullmatch(one) for one in said):
        raise Flaw('must be a list of scopes, such as ["openid", "email"]')
    if _OPENID not in said:
        raise Flaw("must have the scope openid")
    return tuple(dict.fromkeys(said))


def _read_claim_path(said: Any) -> str:
    if not isinstance(said, str) or not _CLAIM.fullmatch(said):
        raise Flaw(
            "must be the name of a claim, or the path of one inside others, such as realm_access.roles"
        )
    return said


def _read_roles(said: Any) -> Mapping[str, Role]:
    people = [str(role) for role in PEOPLE]
    if not isinstance(said, Mapping) or not said:
        raise Flaw("must be a table with a role for each value of the claim")
    for value, role in said.items():
        if not value or role not in people:
            raise Flaw(f"must give each value one of the roles {', '.join(people)}")
    return {value: Role(role) for value, role in said.items()}


def _read_slug(said: Any) -> str:
    if not isinstance(said, str) or not _SLUG.fullmatch(said) or said == GLOBAL_TENANT:
        raise Flaw("must be the slug of a tenant")
    return said


def _read_tenants(said: Any) -> Mapping[str, str]:
    if not isinstance(said, Mapping) or not said:
        raise Flaw("must be a table with the slug of a tenant for each value of the claim")
    return {value: _read_slug(slug) for value, slug in said.items()}


def _read_boolean(said: Any) -> bool:
    if not isinstance(said, bool):
        raise Flaw("must be true or false")
    return said


def _require_table(where: str, said: Any) -> Mapping[str, Any]:
    if not isinstance(said, Mapping):
        raise _invalid(where, "must be a table")
    return said


def _invalid(where: str, why: str) -> SettingInvalid:
    return SettingInvalid(f"fairlead.toml is not valid: {where} {why}.", [Fault(where, why)])


READERS: Mapping[str, Callable[[Any], Any]] = {
    "issuer": _read_issuer,
    "client_id": _read_client_id,
    "client_secret": words.read_secret_source,
    "label": _read_label,
    "scopes": _read_scopes,
    "email_claim": _read_claim_path,
    "role_claim": _read_claim_path,
    "roles": _read_roles,
    "tenant": _read_slug,
    "tenant_claim": _read_claim_path,
    "tenants": _read_tenants,
    "link_by_email": _read_boolean,
    "password_sign_in": _read_boolean,
}
REQUIRED = ("issuer", "client_id", "role_claim", "roles")
