"""What the claims of an ID token grant: a role, and a tenant. Pure rules over checked tokens."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from fairlead.errors import SignInRefused
from fairlead.model.access import GLOBAL_TENANT, PEOPLE, Role
from fairlead.model.oidc.settings import OidcProvider
from fairlead.model.payload import find_storage_flaw

LONGEST_ADDRESS = 254
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """A person as a provider describes them."""

    subject: str
    email: str
    email_verified: bool
    role: Role
    # the tenant's slug; None for a super admin
    tenant: str | None
    # the provider's own session, if it names one
    sid: str | None


def read_person(provider: OidcProvider, claims: Mapping[str, Any]) -> Person:
    """The person whom checked claims describe; SignInRefused if they grant nothing here."""
    role = _read_role(provider, claims)
    email, sid = _read_email(provider, claims), claims.get("sid")
    return Person(
        subject=str(claims["sub"]),
        email=email,
        # it is about the claim `email`, whichever claim the settings name
        email_verified=claims.get("email_verified") is True and claims.get("email") == email,
        role=role,
        tenant=None if role is Role.SUPER_ADMIN else _read_tenant(provider, claims),
        sid=sid if isinstance(sid, str) and 0 < len(sid) <= 255 and not find_storage_flaw(sid) else None,
    )


def find_claim(claims: Mapping[str, Any], path: str) -> Any:
    """The value of a claim. A name with dots (also a URL) is tried as it is before it is read as a path."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for part in path.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return None
        found = found[part]
    return found


def _read_texts(provider: OidcProvider, claims: Mapping[str, Any], path: str) -> list[str]:
    """The values of a claim that is a text or a list of texts."""
    found = find_claim(claims, path)
    if found is None:
        raise SignInRefused(
            f"{provider.label} sent no claim {path}, so that your access is unknown. "
            "Ask your administrator to add it to the ID token."
        )
    values = [found] if isinstance(found, str) else found
    if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
        raise SignInRefused(
            f"{provider.label} sent a claim {path} that is neither text nor a list of texts. Ask your administrator."
        )
    return values


def _read_role(provider: OidcProvider, claims: Mapping[str, Any]) -> Role:
    """The highest role that a value of the claim grants."""
    values = set(_read_texts(provider, claims, provider.role_claim))
    granted = {role for value, role in provider.roles.items() if value in values}
    for role in reversed(PEOPLE):
        if role in granted:
            return role
    raise SignInRefused(
        f"Your account at {provider.label} has no role here. Ask your administrator to add you to a group that has one."
    )


def _read_tenant(provider: OidcProvider, claims: Mapping[str, Any]) -> str:
    if provider.tenant is not None:
        return provider.tenant
    path = provider.tenant_claim or ""
    values = list(dict.fromkeys(_read_texts(provider, claims, path)))
    if provider.tenants is not None:
        values = list(dict.fromkeys(provider.tenants[one] for one in values if one in provider.tenants))
    if len(values) > 1:
        raise SignInRefused(
            f"{provider.label} names several tenants for you, and a user belongs to one. Ask your administrator."
        )
    if not values or values[0] in ("", GLOBAL_TENANT) or find_storage_flaw(values[0]):
        raise unknown_tenant(provider)
    return values[0]


def unknown_tenant(provider: OidcProvider) -> SignInRefused:
    """The error for a person whose tenant does not exist."""
    return SignInRefused(
        f"{provider.label} names no tenant that exists here. Ask your administrator to check your organization."
    )


def _read_email(provider: OidcProvider, claims: Mapping[str, Any]) -> str:
    found = find_claim(claims, provider.email_claim)
    if (
        not isinstance(found, str)
        or len(found) > LONGEST_ADDRESS
        or not _EMAIL.fullmatch(found)
        or not found.isprintable()
        or find_storage_flaw(found)
    ):
        raise SignInRefused(
            f"{provider.label} sent no e-mail address for you (claim {provider.email_claim}). Ask your administrator."
        )
    if claims.get("email_verified", True) is not True:
        raise SignInRefused(
            f"{provider.label} has not verified your e-mail address. Verify it there, then sign in again."
        )
    return found
