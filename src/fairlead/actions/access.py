"""Create, list, change and revoke users and tokens; find the principal of a token."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

from fairlead.actions import quotas
from fairlead.actions.passwords import find_password_faults, hash_password
from fairlead.actions.token_limits import (
    DEFAULT_DAYS,
    find_expiry_faults,
    find_name_faults,
    read_addresses,
    read_scopes,
    refuse_faults,
    require_grantable,
    require_revocable,
)
from fairlead.db.tx import Tx
from fairlead.errors import Fault, InvalidInput, TokenUnknown, UserExists, UserUnknown
from fairlead.model.access import ACCESS_CHANGED, PEOPLE, Permission, Principal, Role, Token, User
from fairlead.model.address_list import build_lists
from fairlead.model.definition import KEY
from fairlead.model.page import Page
from fairlead.model.payload import find_storage_flaw
from fairlead.model.secrets.generated import generate_secret, hash_secret
from fairlead.store import access, audit, definitions

MOST_DEFINITIONS = 100
# The roles whose tokens may be limited to definitions: the others may do more than run and enqueue jobs.
BINDABLE = (Role.WORKER, Role.APPLICATION)
MAX_PAGE = 1000
_EMAIL = re.compile(r"[^@\s]{1,64}@[^@\s]{1,190}")


class Expiry(Enum):
    """The expiry of a token if none is given."""

    DEFAULT = "default"


class NewToken(NamedTuple):
    """A new token and its secret, which is shown only once."""

    token: Token
    secret: str


# Tokens


async def create_token(
    tx: Tx,
    principal: Principal,
    *,
    name: str,
    role: Role,
    tenant_id: UUID | None,
    host_id: UUID | None = None,
    expires_at: datetime | Expiry | None = Expiry.DEFAULT,
    only: Sequence[str] | None = None,
    scopes: Sequence[str] | None = None,
    addresses: Sequence[str] | None = None,
) -> NewToken:
    """Create a token of a role, for a tenant or (super admins and workers only) for all; `only` for these definitions.

    It expires after DEFAULT_DAYS by default; only super admins create tokens without an expiry (None). `scopes` are the
    permissions of the role that it has (None: all), `addresses` the networks that it may be used from.
    """
    principal.require(Permission.MANAGE_TOKENS, tenant_id)
    kept, scope_faults = read_scopes(role, scopes)
    networks, address_faults = read_addresses(principal, addresses)
    if not scope_faults:
        require_grantable(principal, role, kept)
    if isinstance(expires_at, Expiry):
        expires_at = datetime.now(UTC) + timedelta(days=DEFAULT_DAYS)
    faults = [
        *find_name_faults(name),
        *_role_faults(role, tenant_id, host_id),
        *scope_faults,
        *address_faults,
        *find_expiry_faults(principal, expires_at),
        *await _only_faults(tx, role, tenant_id, only),
    ]
    if host_id is not None and not await access.host_exists(tx, host_id, tenant_id=tenant_id):
        faults.append(Fault("host_id", "unknown"))
    refuse_faults(faults)
    if tenant_id is not None:
        await quotas.require_token(tx, tenant_id)
    secret = generate_secret(tenant_id)
    token = await access.add_token(
        tx,
        tenant_id=tenant_id,
        host_id=host_id,
        name=name,
        role=role,
        prefix=secret.prefix,
        secret_hash=secret.hash,
        created_by=principal.actor,
        expires_at=expires_at,
        user_id=principal.user_id,
        definitions=only,
        scopes=kept,
        addresses=networks,
    )
    limits = {"definitions": only, "scopes": kept, "addresses": networks}
    details: dict[str, object] = {"name": name, "role": role, "prefix": secret.prefix}
    details |= {limit: list(value) for limit, value in limits.items() if value}
    await _audit(tx, principal, "token_created", token, details)
    return NewToken(token, secret.text)


async def _only_faults(tx: Tx, role: Role, tenant_id: UUID | None, only: Sequence[str] | None) -> list[Fault]:
    if only is None:
        return []
    if role not in BINDABLE:
        return [Fault("definitions", f"cannot be given for the role {role}, only for worker and application")]
    if not 1 <= len(only) <= MOST_DEFINITIONS:
        return [Fault("definitions", f"must be 1 to {MOST_DEFINITIONS} keys, or left out")]
    found = await definitions.get_by_keys(tx, [key for key in only if KEY.fullmatch(key)])
    return [
        Fault("definitions", f"unknown: {key[:130]!r}")
        for key in only
        if key not in found or (tenant_id is not None and not found[key].is_for(tenant_id))
    ]


def _role_faults(role: Role, tenant_id: UUID | None, host_id: UUID | None) -> list[Fault]:
    faults = []
    if role is Role.SUPER_ADMIN and tenant_id is not None:
        faults.append(Fault("role", "must not be super_admin for a token of a tenant: leave the tenant out"))
    if role not in (Role.SUPER_ADMIN, Role.WORKER) and tenant_id is None:
        faults.append(Fault("tenant", f"is required for the role {role}"))
    if (role is Role.AGENT) != (host_id is not None):
        faults.append(Fault("host_id", "is required for the role agent, and for no other role"))
    return faults


async def list_tokens(
    tx: Tx, principal: Principal, *, after: UUID | None = None, limit: int = 100
) -> Page[Token]:
    """The tokens of the principal's tenant, or all."""
    principal.require(Permission.MANAGE_TOKENS, principal.tenant_id)
    return await access.list_tokens(
        tx, tenant_id=principal.tenant_id, after=after, limit=min(limit, MAX_PAGE)
    )


async def mark_token_used(tx: Tx, token_id: UUID) -> None:
    """Record that a token was used just now."""
    await access.mark_tokens_used(tx, [token_id])


async def record_denial(tx: Tx, principal: Principal, details: Mapping[str, Any]) -> None:
    """Audit a request that the principal's role does not permit."""
    await audit.write(
        tx,
        actor=principal.actor,
        action="access_denied",
        resource_type="route",
        tenant_id=principal.tenant_id,
        details=dict(details),
    )


async def revoke_secret(tx: Tx, principal: Principal, secret: str) -> Token | None:
    """Revoke the token that has this secret, if it is valid."""
    known = await access.find_token(tx, hash_secret(secret))
    return None if known is None else await revoke_token(tx, principal, known.id)


async def revoke_token(tx: Tx, principal: Principal, token_id: UUID) -> Token:
    """Revoke a token; every process refuses it within five seconds."""
    principal.require(Permission.MANAGE_TOKENS, principal.tenant_id)
    token = await access.lock_token(tx, token_id, tenant_id=principal.tenant_id)
    if token is not None:
        require_revocable(principal, token.role, token.scopes)
        token = await access.revoke_token(tx, token_id, tenant_id=principal.tenant_id)
    if token is None:
        raise TokenUnknown(f"There is no token {token_id}.", [Fault("id", "unknown")])
    tx.notify(ACCESS_CHANGED)
    await _audit(tx, principal, "token_revoked", token, {"name": token.name})
    return token


async def revoke_tokens_of(tx: Tx, principal: Principal, user_id: UUID) -> int:
    """Revoke every token that a user created, also through other tokens. The number of tokens revoked."""
    principal.require(Permission.MANAGE_TOKENS, principal.tenant_id)
    user = await access.get_user(tx, user_id, tenant_id=principal.tenant_id)
    if user is None:
        raise UserUnknown(f"There is no user {user_id}.", [Fault("id", "unknown")])
    # no token may do more than its user
    require_revocable(principal, user.role)
    count = await access.revoke_tokens_of(tx, user_id, tenant_id=principal.tenant_id)
    tx.notify(ACCESS_CHANGED)
    await _audit(tx, principal, "tokens_revoked", user, {"tokens": count})
    return count


# Users


async def add_user(
    tx: Tx, principal: Principal, *, email: str, password: str | None, role: Role, tenant_id: UUID | None
) -> User:
    """Add a user; without a password, one who is invited to set it."""
    principal.require(Permission.MANAGE_USERS, tenant_id)
    require_grantable(principal, role)
    password_faults = [] if password is None else find_password_faults(password)
    faults = [*_email_faults(email), *password_faults, *_user_role_faults(role, tenant_id)]
    if faults:
        raise InvalidInput(f"Cannot add the user: {faults[0].path} {faults[0].message}.", faults)
    user = await access.add_user(
        tx,
        tenant_id=tenant_id,
        email=email,
        password_hash=None if password is None else await hash_password(password),
        role=role,
        created_by=principal.actor,
    )
    if user is None:
        raise UserExists(
            "There is a user with this address already. Change that user, or use another address.",
            [Fault("email", "taken")],
        )
    await _audit(tx, principal, "user_created", user, {"email": email, "role": role})
    return user


async def list_users(
    tx: Tx, principal: Principal, *, after: UUID | None = None, limit: int = 100
) -> Page[User]:
    """The users of the principal's tenant, or all."""
    principal.require(Permission.MANAGE_USERS, principal.tenant_id)
    return await access.list_users(tx, tenant_id=principal.tenant_id, after=after, limit=min(limit, MAX_PAGE))


async def find_user(tx: Tx, principal: Principal, name: str) -> User:
    """A user by address or id."""
    principal.require(Permission.MANAGE_USERS, principal.tenant_id)
    found = (
        [] if find_storage_flaw(name) else await access.find_users(tx, name, tenant_id=principal.tenant_id)
    )
    if not found:
        raise UserUnknown(f"There is no user {name[:200]!r}.", [Fault("user", "unknown")])
    if len(found) > 1:
        ids = ", ".join(f"{one.id} ({one.tenant or 'super admin'})" for one in found[:5])
        raise InvalidInput(
            f"{len(found)} users have this address: give the id of one, such as {ids}.",
            [Fault("user", "several users have this address")],
        )
    return found[0]


async def change_user(
    tx: Tx,
    principal: Principal,
    user_id: UUID,
    *,
    role: Role | None = None,
    password: str | None = None,
    disabled: bool | None = None,
) -> User:
    """Change a user's role or password, or disable the user. Every change ends the user's sessions."""
    principal.require(Permission.MANAGE_USERS, principal.tenant_id)
    found = await access.get_user(tx, user_id, tenant_id=principal.tenant_id)
    if found is None:
        raise UserUnknown(f"There is no user {user_id}.", [Fault("id", "unknown")])
    if role is None and password is None and disabled is None:
        return found
    # a scoped token must not set the password of a user who may do more
    require_grantable(principal, found.role)
    faults = [] if password is None else find_password_faults(password)
    if role is not None:
        require_grantable(principal, role)
        faults += _user_role_faults(role, found.tenant_id)
    if faults:
        raise InvalidInput(f"Cannot change the user: {faults[0].path} {faults[0].message}.", faults)
    user = await access.change_user(
        tx,
        user_id,
        tenant_id=principal.tenant_id,
        role=role,
        password_hash=None if password is None else await hash_password(password),
        disabled=disabled,
    )
    if user is None:
        raise UserUnknown(f"There is no user {user_id}.", [Fault("id", "unknown")])
    await access.end_sessions_of(tx, user_id)
    tx.notify(ACCESS_CHANGED)
    changes = {"role": role, "password": password is not None or None, "disabled": disabled}
    await _audit(
        tx,
        principal,
        "user_changed",
        user,
        {name: value for name, value in changes.items() if value is not None},
    )
    return user


async def sign_out_user(tx: Tx, principal: Principal, user_id: UUID) -> int:
    """End all sessions of a user. Their number. The user may sign in again, and tokens stay valid."""
    principal.require(Permission.MANAGE_USERS, principal.tenant_id)
    user = await access.get_user(tx, user_id, tenant_id=principal.tenant_id)
    if user is None:
        raise UserUnknown(f"There is no user {user_id}.", [Fault("id", "unknown")])
    ended = await access.end_sessions_of(tx, user_id)
    tx.notify(ACCESS_CHANGED)
    await _audit(tx, principal, "sessions_ended", user, {"sessions": ended, "everywhere": True})
    return ended


# The principal of a token


async def find_token_principal(tx: Tx, secret: str) -> tuple[Principal, UUID] | None:
    """The principal of a token's secret, and the token's id."""
    known = await access.find_token(tx, hash_secret(secret))
    if known is None:
        return None
    principal = Principal(
        f"token:{known.name}",
        known.role,
        known.tenant_id,
        known.host_id,
        id=known.id,
        user_id=known.user_id,
        definitions=known.definitions,
        scopes=_known_permissions(known.scopes),
        is_personal=known.is_personal,
        address_lists=build_lists(known.addresses, known.tenant_addresses),
        tenant_weight=known.tenant_weight,
    )
    return principal, known.id


def _known_permissions(scopes: Sequence[str] | None) -> frozenset[Permission] | None:
    """The scopes as permissions; a permission that this version does not know is not granted."""
    return None if scopes is None else frozenset(Permission(one) for one in scopes if one in set(Permission))


def _email_faults(email: str) -> list[Fault]:
    return (
        []
        if _EMAIL.fullmatch(email) and email.isprintable() and not find_storage_flaw(email)
        else [Fault("email", "must be an e-mail address such as ada@example.com")]
    )


def _user_role_faults(role: Role, tenant_id: UUID | None) -> list[Fault]:
    if role not in PEOPLE:
        return [Fault("role", "is for tokens, not for people")]
    if (role is Role.SUPER_ADMIN) != (tenant_id is None):
        return [Fault("tenant", "is required for every role but super_admin, which has none")]
    return []


async def _audit(
    tx: Tx, principal: Principal, action: str, about: Token | User, details: dict[str, object]
) -> None:
    await audit.write(
        tx,
        actor=principal.actor,
        action=action,
        resource_type="token" if isinstance(about, Token) else "user",
        resource_id=about.id,
        tenant_id=about.tenant_id,
        details=details,
    )
