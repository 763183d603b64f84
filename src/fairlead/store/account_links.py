"""Links with which people set a password, and the mails that carry them. Only hashes of secrets are stored."""

from datetime import datetime
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.access import Role
from fairlead.model.account_link import LinkPurpose

sql = queries_beside(__file__)

# How many accounts of one address get a mail: as many as a sign-in checks.
MOST_OF_AN_ADDRESS = 20


class LinkedUser(msgspec.Struct, frozen=True, kw_only=True):
    """The user of a link."""

    id: UUID
    tenant_id: UUID | None
    # the slug
    tenant: str | None
    email: str
    role: Role
    has_password: bool


class UsedLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link that was used just now, and the change of its user that it was made after."""

    user_id: UUID
    user_updated_at: datetime


async def lock_user(tx: Tx, user_id: UUID, *, tenant_id: UUID | None) -> LinkedUser | None:
    """A user of a tenant or (None) of any, who is not disabled, locked until the transaction ends."""
    return await tx.first(LinkedUser, sql.lock_user, {"id": user_id, "tenant_id": tenant_id})


async def revoke(tx: Tx, user_id: UUID, purpose: LinkPurpose) -> bool:
    """End the user's live link; False if there is none."""
    return await tx.run(sql.revoke, {"user_id": user_id, "purpose": purpose}) > 0


async def add(
    tx: Tx, user_id: UUID, purpose: LinkPurpose, *, secret_hash: bytes, seconds: float, created_by: str
) -> datetime:
    """Add a link; its expiry. The user has no live link of this purpose."""
    values = {
        "user_id": user_id,
        "purpose": purpose,
        "secret_hash": secret_hash,
        "seconds": seconds,
        "created_by": created_by,
    }
    [(expires_at,)] = await tx.values(sql.add, values)
    return expires_at  # type: ignore[no-any-return]


async def find_accounts(tx: Tx, email: str) -> list[LinkedUser]:
    """The accounts with a password of an address."""
    return await tx.all(LinkedUser, sql.accounts, {"email": email, "most": MOST_OF_AN_ADDRESS})


async def find(tx: Tx, secret_hash: bytes, purpose: LinkPurpose) -> LinkedUser | None:
    """The user of a link that can be used."""
    return await tx.first(LinkedUser, sql.find, {"secret_hash": secret_hash, "purpose": purpose})


async def use(tx: Tx, secret_hash: bytes, purpose: LinkPurpose) -> UsedLink | None:
    """Use a link up; None if it cannot be used (any more)."""
    return await tx.first(UsedLink, sql.use, {"secret_hash": secret_hash, "purpose": purpose})


async def set_password(tx: Tx, link: UsedLink, *, password_hash: str) -> bool:
    """Set the password of a link's user; False if the user was changed since the link was made."""
    values = {"user_id": link.user_id, "user_updated_at": link.user_updated_at}
    return await tx.run(sql.set_password, {**values, "password_hash": password_hash}) > 0


async def has_signed_in(tx: Tx, user_id: UUID) -> bool:
    """Whether the user has (or had, not long ago) a session, an identity at a provider, or a token."""
    [(found,)] = await tx.values(sql.has_signed_in, {"user_id": user_id})
    return bool(found)


async def remove_user(tx: Tx, user_id: UUID) -> bool:
    """Remove an invited user who has never signed in."""
    return await tx.run(sql.remove_user, {"user_id": user_id}) > 0


async def note_mail(tx: Tx, job_id: UUID) -> None:
    """Remember that the payload of this job has a link."""
    await tx.run(sql.note_mail, {"job_id": job_id})


async def clear_mails(tx: Tx, *, limit: int) -> int:
    """Remove the links from the payloads of mails that were sent, or given up. Their number."""
    return await tx.run(sql.clear_mails, {"limit": limit})


async def forget(tx: Tx) -> int:
    """Remove the links that ended more than a day ago. Their number."""
    return await tx.run(sql.forget)
