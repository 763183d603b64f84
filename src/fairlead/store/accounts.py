"""The account of a user who has signed in: preferences, password and sessions."""

from uuid import UUID

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.account import Account, Preferences, Session

sql = queries_beside(__file__)


async def get_preferences(tx: Tx, user_id: UUID) -> Preferences | None:
    return await tx.first(Preferences, sql.preferences, {"user_id": user_id})


async def set_preferences(tx: Tx, user_id: UUID, preferences: Preferences) -> None:
    values = {"timezone": preferences.timezone, "hour_cycle": preferences.hour_cycle}
    await tx.run(sql.set_preferences, {"user_id": user_id, **values})


async def get_account(tx: Tx, user_id: UUID) -> Account | None:
    return await tx.first(Account, sql.account, {"user_id": user_id})


async def get_password_hash(tx: Tx, user_id: UUID) -> str | None:
    """The hash of the user's password; None if the user has none."""
    for (found,) in await tx.values(sql.password_hash, {"user_id": user_id}):
        return None if found is None else str(found)
    return None


async def set_password(tx: Tx, user_id: UUID, *, old_hash: str, new_hash: str) -> bool:
    """Replace the password; False if it was changed meanwhile."""
    values = {"user_id": user_id, "old_hash": old_hash, "new_hash": new_hash}
    return bool(await tx.run(sql.set_password, values))


async def list_sessions(tx: Tx, user_id: UUID, *, current: bytes, limit: int) -> list[Session]:
    """The valid sessions: the current one first, then the last used."""
    return await tx.all(Session, sql.sessions, {"user_id": user_id, "current": current, "limit": limit})


async def end_session(tx: Tx, user_id: UUID, session_id: UUID) -> bool:
    """End one session of the user; False if there is none with this id."""
    return bool(await tx.run(sql.end_session, {"user_id": user_id, "id": session_id}))


async def end_other_sessions(tx: Tx, user_id: UUID, *, current: bytes) -> int:
    """End all sessions but the current one. Their number."""
    return await tx.run(sql.end_other_sessions, {"user_id": user_id, "current": current})
