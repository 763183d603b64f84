"""What users change about their own account: password, preferences and sessions. They need no permission for it.

Super admins belong to no tenant: the transactions must see all rows. Every statement names the user's own id.
"""

from uuid import UUID

from msgspec.structs import replace

from fairlead.actions.passwords import check_password, find_password_faults, hash_password
from fairlead.db.tx import Tx
from fairlead.errors import Fault, InvalidInput, PasswordNotSet, PasswordWrong, SessionUnknown, UserRequired
from fairlead.model.access import ACCESS_CHANGED, Principal
from fairlead.model.account import Account, Preferences, Session
from fairlead.model.schedule.zone import load_zone
from fairlead.model.secrets.generated import hash_secret
from fairlead.model.user_agent import describe_user_agent
from fairlead.store import accounts, audit

MOST_SESSIONS = 100


def find_user_id(principal: Principal) -> UUID | None:
    """The id of the user who has signed in; None for a token, also if a user created it."""
    return principal.user_id if principal.id == principal.user_id else None


async def get_preferences(tx: Tx, principal: Principal) -> Preferences:
    """How the console shows times to this visitor."""
    user_id = find_user_id(principal)
    found = None if user_id is None else await accounts.get_preferences(tx, user_id)
    return found or Preferences()


async def get(tx: Tx, principal: Principal) -> Account:
    """The account of the user who has signed in."""
    found = await accounts.get_account(tx, require_user(principal))
    if found is None:
        raise _user_required()
    return found


async def set_preferences(tx: Tx, principal: Principal, preferences: Preferences) -> None:
    """Choose how the console shows times."""
    if preferences.timezone is not None:
        load_zone(preferences.timezone)
    await accounts.set_preferences(tx, require_user(principal), preferences)


async def change_password(tx: Tx, principal: Principal, *, old: str, new: str, session: str | None) -> int:
    """Replace the password, and end all sessions but this one. The number of ended sessions.

    Slow on purpose; the caller limits failed attempts like those of a sign-in.
    """
    user_id = require_user(principal)
    if faults := find_password_faults(new, "new_password"):
        raise InvalidInput(f"Cannot change the password: {faults[0].path} {faults[0].message}.", faults)
    stored = await accounts.get_password_hash(tx, user_id)
    if stored is None:
        raise _password_not_set()
    if not await check_password(stored, old):
        raise _password_wrong()
    if not await accounts.set_password(tx, user_id, old_hash=stored, new_hash=await hash_password(new)):
        raise _password_wrong()
    ended = await _end_others(tx, user_id, session)
    await _audit(tx, principal, user_id, "password_changed", {"sessions_ended": ended})
    return ended


async def record_wrong_password(tx: Tx, principal: Principal) -> None:
    """Audit a failed attempt to change the password."""
    await _audit(tx, principal, require_user(principal), "password_change_failed", {})


async def list_sessions(tx: Tx, principal: Principal, session: str | None) -> list[Session]:
    """The browsers in which the user has signed in, this one first."""
    user_id = require_user(principal)
    found = await accounts.list_sessions(tx, user_id, current=hash_secret(session or ""), limit=MOST_SESSIONS)
    return [replace(one, browser=describe_user_agent(one.user_agent)) for one in found]


async def end_session(tx: Tx, principal: Principal, session_id: UUID) -> None:
    """Sign out one browser of the user."""
    user_id = require_user(principal)
    if not await accounts.end_session(tx, user_id, session_id):
        raise SessionUnknown(
            f"You have no session {session_id}, or it has ended. List yours with GET /account/sessions.",
            [Fault("session_id", "unknown")],
        )
    tx.notify(ACCESS_CHANGED)
    await _audit(tx, principal, user_id, "sessions_ended", {"sessions": 1})


async def sign_out_everywhere(tx: Tx, principal: Principal) -> int:
    """End all sessions of the user, also this one. Their number."""
    user_id = require_user(principal)
    ended = await _end_others(tx, user_id, None)
    await _audit(tx, principal, user_id, "sessions_ended", {"sessions": ended, "everywhere": True})
    return ended


async def end_other_sessions(tx: Tx, principal: Principal, session: str | None) -> int:
    """Sign out all other browsers. Their number."""
    user_id = require_user(principal)
    ended = await _end_others(tx, user_id, session)
    await _audit(tx, principal, user_id, "sessions_ended", {"sessions": ended})
    return ended


async def _end_others(tx: Tx, user_id: UUID, session: str | None) -> int:
    ended = await accounts.end_other_sessions(tx, user_id, current=hash_secret(session or ""))
    tx.notify(ACCESS_CHANGED)
    return ended


def require_user(principal: Principal) -> UUID:
    """The id of the user who has signed in, or UserRequired."""
    user_id = find_user_id(principal)
    if user_id is None:
        raise _user_required()
    return user_id


def _user_required() -> UserRequired:
    return UserRequired(
        "A token has no account. Sign in as a user, or change a user with: fairlead users change EMAIL --password"
    )


def _password_not_set() -> PasswordNotSet:
    return PasswordNotSet(
        "This account has no password to change: you sign in another way. Ask an admin of your tenant to set one.",
        [Fault("old_password", "the account has none")],
    )


def _password_wrong() -> PasswordWrong:
    return PasswordWrong("The old password is wrong.", [Fault("old_password", "is wrong")])


async def _audit(
    tx: Tx, principal: Principal, user_id: UUID, action: str, details: dict[str, object]
) -> None:
    account = await accounts.get_account(tx, user_id)
    await audit.write(
        tx,
        actor=principal.actor,
        action=action,
        resource_type="user",
        resource_id=user_id,
        tenant_id=None if account is None else account.tenant_id,
        details=details,
    )
