"""People whom identity providers identify, their sessions, and sign-ins under way. Secrets are stored only as hashes."""

from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.access import Role
from fairlead.model.oidc.identity import Identity

sql = queries_beside(__file__)


class KnownUser(msgspec.Struct, frozen=True, kw_only=True):
    """The user whom a provider's person is here."""

    user_id: UUID
    email: str
    role: Role
    is_disabled: bool


class EndedSession(msgspec.Struct, frozen=True, kw_only=True):
    """The user of a session that was ended, and the user's tenant."""

    user_id: UUID
    tenant_id: UUID | None


async def begin(
    tx: Tx, *, state_hash: bytes, browser_hash: bytes, provider: str, next_page: str, seconds: float
) -> None:
    """Remember a sign-in that begins."""
    values = {"state_hash": state_hash, "browser_hash": browser_hash, "provider": provider}
    await tx.run(sql.begin, {**values, "next_page": next_page, "seconds": seconds})


async def take(tx: Tx, *, state_hash: bytes, browser_hash: bytes, provider: str) -> str | None:
    """Use up a sign-in that began in this browser: the page to show next; None if there is none, or not any more."""
    values = {"state_hash": state_hash, "browser_hash": browser_hash, "provider": provider}
    for (next_page,) in await tx.values(sql.take, values):
        return None if next_page is None else str(next_page)
    return None


async def find(tx: Tx, *, issuer: str, subject: str, tenant_id: UUID | None) -> KnownUser | None:
    """The user whom a person is in a tenant (None: a super admin), locked."""
    values = {"issuer": issuer, "subject": subject, "tenant_id": tenant_id}
    return await tx.first(KnownUser, sql.find, values)


async def find_user_with_address(tx: Tx, email: str, *, tenant_id: UUID | None) -> KnownUser | None:
    """The user of a tenant who has an address."""
    return await tx.first(KnownUser, sql.find_user_with_address, {"email": email, "tenant_id": tenant_id})


async def add(
    tx: Tx, user_id: UUID, *, tenant_id: UUID | None, issuer: str, subject: str, provider: str
) -> bool:
    """Make a user the person of a provider; False if the person or the user has an identity here already."""
    values = {"user_id": user_id, "tenant_id": tenant_id, "issuer": issuer, "subject": subject}
    return bool(await tx.run(sql.add, {**values, "provider": provider}))


async def mark(tx: Tx, user_id: UUID, *, issuer: str, provider: str) -> None:
    """Record a sign-in."""
    await tx.run(sql.mark, {"user_id": user_id, "issuer": issuer, "provider": provider})


async def change_user(tx: Tx, user_id: UUID, *, role: Role, email: str) -> bool:
    """Give the user the role and address that the provider says; False if another user has the address."""
    return bool(await tx.run(sql.change_user, {"user_id": user_id, "role": role, "email": email}))


async def add_session(
    tx: Tx,
    *,
    secret_hash: bytes,
    tenant_id: UUID | None,
    user_id: UUID,
    issuer: str,
    provider: str,
    sid: str | None,
) -> None:
    """Record with which provider a session began."""
    values = {"secret_hash": secret_hash, "tenant_id": tenant_id, "user_id": user_id}
    await tx.run(sql.add_session, {**values, "issuer": issuer, "provider": provider, "sid": sid})


async def find_session_provider(tx: Tx, secret_hash: bytes) -> str | None:
    """The name of the provider with which a session began."""
    for (provider,) in await tx.values(sql.provider_of_session, {"secret_hash": secret_hash}):
        return str(provider)
    return None


async def list_of_user(tx: Tx, user_id: UUID) -> list[Identity]:
    """The identities with which a user signs in, the last used first."""
    return await tx.all(Identity, sql.list_of_user, {"user_id": user_id})


async def lock_of_user(tx: Tx, user_id: UUID) -> list[Identity]:
    """The same, locked until the transaction ends; no sign-in with one of them is under way."""
    return await tx.all(Identity, sql.lock_of_user, {"user_id": user_id})


async def has_password(tx: Tx, user_id: UUID) -> bool:
    return any(found for (found,) in await tx.values(sql.has_password, {"user_id": user_id}))


async def end_sessions_of_identity(tx: Tx, user_id: UUID, *, issuer: str) -> list[bytes]:
    """End the sessions that began with a user's identity. The hashes of their secrets."""
    values = {"user_id": user_id, "issuer": issuer}
    return [bytes(found) for (found,) in await tx.values(sql.end_sessions_of_identity, values)]


async def leave(tx: Tx, user_id: UUID) -> None:
    """Note that a user has no way to sign in: the user's tokens are refused until there is one."""
    await tx.run(sql.leave, {"user_id": user_id})


async def remove(tx: Tx, identity_id: UUID) -> None:
    await tx.run(sql.remove, {"id": identity_id})


async def end_elsewhere(tx: Tx, *, issuer: str, subject: str, tenant_id: UUID | None) -> list[EndedSession]:
    """End the sessions that a person has in other tenants."""
    values = {"issuer": issuer, "subject": subject, "tenant_id": tenant_id}
    return await tx.all(EndedSession, sql.end_elsewhere, values)


async def leave_elsewhere(tx: Tx, *, issuer: str, subject: str, tenant_id: UUID | None) -> bool:
    """Note that a person is no longer the users whom they were in other tenants; False if this was known."""
    values = {"issuer": issuer, "subject": subject, "tenant_id": tenant_id}
    return bool(await tx.run(sql.leave_elsewhere, values))


async def end_sessions(tx: Tx, *, issuer: str, subject: str | None, sid: str | None) -> list[EndedSession]:
    """End the sessions of a provider's session or person."""
    return await tx.all(EndedSession, sql.end_sessions, {"issuer": issuer, "subject": subject, "sid": sid})


async def note_logout(tx: Tx, token_hash: bytes, *, seconds: float) -> bool:
    """Remember a logout token; False if it was received before."""
    return bool(await tx.run(sql.note_logout, {"token_hash": token_hash, "seconds": seconds}))


async def forget_expired(tx: Tx) -> None:
    """Remove sign-ins that were not finished, and logout tokens that have expired."""
    await tx.run(sql.forget_sign_ins)
    await tx.run(sql.forget_logouts)
