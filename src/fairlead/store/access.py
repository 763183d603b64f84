"""Users, sessions and tokens. Secrets are stored only as hashes."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.access import Role, Token, User
from fairlead.model.page import Page
from fairlead.model.second_factor import SignInProof
from fairlead.store import bounded_page

sql = queries_beside(__file__)

# How many users of one address a sign-in checks: each password hash takes time.
MOST_OF_AN_ADDRESS = 20


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a user that a sign-in needs."""

    id: UUID
    tenant_id: UUID | None
    email: str
    role: Role
    # None: no password matches
    password_hash: str | None
    # the slug of the tenant
    tenant: str | None


class SessionUser(msgspec.Struct, frozen=True, kw_only=True):
    """The user behind a session."""

    id: UUID
    tenant_id: UUID | None
    email: str
    role: Role
    # not in the last minute: time to write that it is used
    is_seen_long_ago: bool
    # whether the user signed in with a password, and has no second factor
    lacks_second_factor: bool
    # the allow-list of the tenant
    tenant_addresses: tuple[str, ...] | None
    tenant_weight: int


class TokenIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The token behind a secret."""

    id: UUID
    tenant_id: UUID | None
    host_id: UUID | None
    user_id: UUID | None
    name: str
    role: Role
    definitions: tuple[str, ...] | None
    scopes: tuple[str, ...] | None
    is_personal: bool
    # the allow-lists of the token and of its tenant
    addresses: tuple[str, ...] | None
    tenant_addresses: tuple[str, ...] | None
    tenant_weight: int


# Users


async def add_user(
    tx: Tx, *, tenant_id: UUID | None, email: str, password_hash: str | None, role: Role, created_by: str
) -> User | None:
    """A new user; None if the tenant (None: the system) has a user with this address, whatever its case."""
    values = {
        "tenant_id": tenant_id,
        "email": email,
        "password_hash": password_hash,
        "role": role,
        "created_by": created_by,
    }
    return await tx.first(User, sql.add_user, values)


async def list_users(tx: Tx, *, tenant_id: UUID | None, after: UUID | None, limit: int) -> Page[User]:
    """Users in the order they were made, of a tenant or (None) of all."""
    values = {"tenant_id": tenant_id, "after": after}
    return await bounded_page.fetch_page(tx, User, sql.users, values, limit=limit, weighed=("email",))


async def get_user(tx: Tx, user_id: UUID, *, tenant_id: UUID | None) -> User | None:
    return await tx.first(User, sql.user, {"id": user_id, "tenant_id": tenant_id})


async def find_users(tx: Tx, name: str, *, tenant_id: UUID | None) -> list[User]:
    """Users by address, of which each tenant may have one, or by id."""
    return await tx.all(User, sql.find_users, {"name": name, "tenant_id": tenant_id})


async def change_user(
    tx: Tx,
    user_id: UUID,
    *,
    tenant_id: UUID | None,
    role: Role | None,
    password_hash: str | None,
    disabled: bool | None,
) -> User | None:
    """Change the given fields (None: unchanged)."""
    values = {
        "id": user_id,
        "tenant_id": tenant_id,
        "role": role,
        "password_hash": password_hash,
        "disabled": disabled,
    }
    return await tx.first(User, sql.change_user, values)


async def find_credentials(tx: Tx, email: str) -> list[Credentials]:
    """The users who may sign in with an address, the oldest first."""
    return await tx.all(Credentials, sql.credentials, {"email": email, "most": MOST_OF_AN_ADDRESS})


async def get_credentials(tx: Tx, user_id: UUID) -> Credentials | None:
    """A user who may sign in, by id."""
    return await tx.first(Credentials, sql.credentials_of, {"id": user_id})


# Sessions


async def start_session(
    tx: Tx,
    user: Credentials,
    *,
    secret_hash: bytes,
    seconds: float,
    idle_seconds: float | None = None,
    user_agent: str | None = None,
    proof: SignInProof,
) -> bool:
    """Start a session for a verified user; False if the user has changed since, or if the proof does not suffice."""
    values = {
        "secret_hash": secret_hash,
        "seconds": seconds,
        "idle_seconds": idle_seconds,
        "user_agent": user_agent,
        "proof": proof,
        "id": user.id,
        "role": user.role,
        "password_hash": user.password_hash,
    }
    return bool(await tx.run(sql.start_session, values))


async def find_session_user(tx: Tx, secret_hash: bytes) -> SessionUser | None:
    """The user of a session; None if the session has ended."""
    return await tx.first(SessionUser, sql.session, {"secret_hash": secret_hash})


async def mark_session_seen(tx: Tx, secret_hash: bytes, *, idle_seconds: float | None) -> None:
    """Record that a session is used now; it ends `idle_seconds` later (None: at its expiry) unless it is used again."""
    await tx.run(sql.session_seen, {"secret_hash": secret_hash, "idle_seconds": idle_seconds})


async def session_existed(tx: Tx, secret_hash: bytes) -> bool:
    """Whether this session exists, or has ended and is not yet removed."""
    return bool(await tx.values(sql.session_was_there, {"secret_hash": secret_hash}))


async def end_session(tx: Tx, secret_hash: bytes) -> bool:
    return await tx.run(sql.end_session, {"secret_hash": secret_hash}) > 0


async def end_sessions_of(tx: Tx, user_id: UUID) -> int:
    return await tx.run(sql.end_sessions_of, {"user_id": user_id})


async def forget_sessions(tx: Tx) -> int:
    """Remove the sessions that ended more than a day ago. Their number."""
    return await tx.run(sql.forget_sessions)


# Tokens


async def add_token(
    tx: Tx,
    *,
    tenant_id: UUID | None,
    host_id: UUID | None,
    name: str,
    role: Role,
    prefix: str,
    secret_hash: bytes,
    created_by: str,
    expires_at: datetime | None,
    user_id: UUID | None = None,
    definitions: Sequence[str] | None = None,
    scopes: Sequence[str] | None = None,
    addresses: Sequence[str] | None = None,
    is_personal: bool = False,
) -> Token:
    values = {
        "scopes": None if scopes is None else list(scopes),
        "addresses": None if addresses is None else list(addresses),
        "is_personal": is_personal,
        "tenant_id": tenant_id,
        "host_id": host_id,
        "user_id": user_id,
        "definitions": None if definitions is None else list(definitions),
        "name": name,
        "role": role,
        "prefix": prefix,
        "secret_hash": secret_hash,
        "created_by": created_by,
        "expires_at": expires_at,
    }
    [made] = await tx.all(Token, sql.add_token, values)
    return made


async def host_exists(tx: Tx, host_id: UUID, *, tenant_id: UUID | None) -> bool:
    """Whether the tenant has this host."""
    return bool(await tx.values(sql.host_is_there, {"id": host_id, "tenant_id": tenant_id}))


async def list_tokens(tx: Tx, *, tenant_id: UUID | None, after: UUID | None, limit: int) -> Page[Token]:
    """Tokens in the order they were made, of a tenant or (None) of all."""
    values = {"tenant_id": tenant_id, "after": after}
    return await bounded_page.fetch_page(
        tx, Token, sql.tokens, values, limit=limit, weighed=("definitions", "scopes", "addresses", "name")
    )


async def revoke_token(tx: Tx, token_id: UUID, *, tenant_id: UUID | None) -> Token | None:
    return await tx.first(Token, sql.revoke_token, {"id": token_id, "tenant_id": tenant_id})


async def revoke_tokens_of(tx: Tx, user_id: UUID, *, tenant_id: UUID | None) -> int:
    """Revoke the tokens that a user created. Their number."""
    return await tx.run(sql.revoke_tokens_of, {"user_id": user_id, "tenant_id": tenant_id})


async def end_token(tx: Tx, token_id: UUID, *, seconds: float) -> bool:
    """End a token in `seconds` at the latest; False if it is not valid any more."""
    return bool(await tx.values(sql.end_token, {"id": token_id, "seconds": seconds}))


async def find_token(tx: Tx, secret_hash: bytes) -> TokenIdentity | None:
    """The token that has this secret, if it is valid."""
    return await tx.first(TokenIdentity, sql.token, {"secret_hash": secret_hash})


async def mark_tokens_used(tx: Tx, ids: list[UUID]) -> None:
    await tx.run(sql.token_used, {"ids": ids})


async def read_tenant_addresses(tx: Tx, tenant_id: UUID | None) -> Sequence[str] | None:
    """The allow-list of a tenant, if it has one."""
    found = [] if tenant_id is None else await tx.values(sql.tenant_addresses, {"tenant_id": tenant_id})
    return found[0][0] if found else None


# Rotation and personal tokens


async def lock_token(tx: Tx, token_id: UUID, *, tenant_id: UUID | None) -> Token | None:
    """A token, which no other transaction changes until the end of this one."""
    return await tx.first(Token, sql.lock_token, {"id": token_id, "tenant_id": tenant_id})


async def replace_token(tx: Tx, token_id: UUID, *, replaced_by: UUID, seconds: float) -> None:
    """Note which token took the place of this one, which ends in `seconds` at the latest."""
    await tx.run(sql.replace_token, {"id": token_id, "replaced_by": replaced_by, "seconds": seconds})


async def lock_user(tx: Tx, user_id: UUID) -> bool:
    """Lock a user; False if the user is disabled or does not exist."""
    return bool(await tx.values(sql.lock_user, {"user_id": user_id}))


async def list_personal_tokens(tx: Tx, user_id: UUID, *, limit: int) -> list[Token]:
    return await tx.all(Token, sql.personal_tokens, {"user_id": user_id, "limit": limit})


async def count_personal_tokens(tx: Tx, user_id: UUID) -> int:
    """How many personal tokens of the user are valid."""
    [(count,)] = await tx.values(sql.count_personal_tokens, {"user_id": user_id})
    return int(count)


async def revoke_personal_token(tx: Tx, user_id: UUID, token_id: UUID) -> Token | None:
    return await tx.first(Token, sql.revoke_personal_token, {"user_id": user_id, "id": token_id})
