"""Tokens that users make for themselves. Only a user who has signed in makes them: a stolen token cannot renew itself.

The transactions must see all rows, since super admins belong to no tenant. Every statement names the user's own id.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from msgspec.structs import replace

from fairlead.actions import quotas
from fairlead.actions.access import NewToken
from fairlead.actions.account import require_user
from fairlead.actions.token_limits import (
    DEFAULT_DAYS,
    LONGEST_DAYS,
    find_name_faults,
    read_addresses,
    read_scopes,
    refuse_faults,
    require_grantable,
)
from fairlead.db.tx import Tx
from fairlead.errors import Fault, TokenUnknown, TooManyTokens
from fairlead.model.access import ACCESS_CHANGED, NOT_PERSONAL, PEOPLE, Principal, Role, Token
from fairlead.model.secrets.generated import generate_secret
from fairlead.store import access, audit

MOST_PERSONAL = 20
MOST_LISTED = 100


async def create(
    tx: Tx,
    principal: Principal,
    *,
    name: str,
    longest_days: int,
    role: Role | None = None,
    expires_at: datetime | None = None,
    scopes: Sequence[str] | None = None,
    addresses: Sequence[str] | None = None,
) -> NewToken:
    """Create a token for the user who has signed in: with the user's role or a lesser one, and always with an expiry."""
    user_id = require_user(principal)
    own = await _read_own(tx, principal, user_id)
    role = role or own.role
    now = datetime.now(UTC)
    expires_at = expires_at or now + timedelta(days=min(longest_days, DEFAULT_DAYS))
    kept, scope_faults = read_scopes(role, scopes)
    networks, address_faults = read_addresses(principal, addresses)
    refuse_faults(
        [
            *find_name_faults(name),
            *_find_role_faults(own, role),
            *scope_faults,
            *_find_unfit_scopes(kept),
            *_find_expiry_faults(expires_at, longest_days=min(longest_days, LONGEST_DAYS)),
            *address_faults,
        ]
    )
    require_grantable(own, role, kept)
    if await access.count_personal_tokens(tx, user_id) >= MOST_PERSONAL:
        raise TooManyTokens(
            f"You have {MOST_PERSONAL} personal tokens, which is the limit. Revoke one that you no longer need."
        )
    if own.tenant_id is not None:
        await quotas.require_token(tx, own.tenant_id)
    secret = generate_secret(own.tenant_id)
    token = await access.add_token(
        tx,
        tenant_id=own.tenant_id,
        host_id=None,
        name=name,
        role=role,
        prefix=secret.prefix,
        secret_hash=secret.hash,
        created_by=principal.actor,
        expires_at=expires_at,
        user_id=user_id,
        scopes=kept,
        addresses=networks,
        is_personal=True,
    )
    details = {"name": name, "role": role, "prefix": secret.prefix, "personal": True}
    await _audit(tx, principal, "token_created", token, details | ({"scopes": kept} if kept else {}))
    return NewToken(token, secret.text)


async def list_own(tx: Tx, principal: Principal) -> list[Token]:
    """The user's personal tokens, the newest first; those that ended more than a month ago are left out."""
    return await access.list_personal_tokens(tx, require_user(principal), limit=MOST_LISTED)


async def revoke(tx: Tx, principal: Principal, token_id: UUID) -> Token:
    """Revoke one of the user's personal tokens; every process refuses it within five seconds."""
    token = await access.revoke_personal_token(tx, require_user(principal), token_id)
    if token is None:
        raise TokenUnknown(f"You have no personal token {token_id}.", [Fault("id", "unknown")])
    tx.notify(ACCESS_CHANGED)
    await _audit(tx, principal, "token_revoked", token, {"name": token.name, "personal": True})
    return token


async def _read_own(tx: Tx, principal: Principal, user_id: UUID) -> Principal:
    """The user's principal as it is now, whichever tenant was chosen. Locks the user, so that tokens are counted one by one."""
    await access.lock_user(tx, user_id)
    user = await access.get_user(tx, user_id, tenant_id=None)
    if user is None or user.disabled_at is not None:
        raise TokenUnknown("There is no such user any more.")
    return replace(principal, role=user.role, tenant_id=user.tenant_id)


def _find_role_faults(own: Principal, role: Role) -> list[Fault]:
    if role not in PEOPLE:
        return [Fault("role", "must be a role of people: viewer, operator, tenant_admin or super_admin")]
    if (role is Role.SUPER_ADMIN) != (own.role is Role.SUPER_ADMIN):
        # a token of a lesser role belongs to a tenant
        return [Fault("role", f"must be {own.role} or a lesser role of the same tenant")]
    return []


def _find_unfit_scopes(scopes: Sequence[str] | None) -> list[Fault]:
    unfit = [one for one in scopes or () if one in NOT_PERSONAL]
    return [Fault("scopes", f"{one} is for no personal token") for one in unfit]


def _find_expiry_faults(expires_at: datetime, *, longest_days: int) -> list[Fault]:
    if expires_at.tzinfo is None or expires_at > datetime.now(UTC) + timedelta(days=longest_days, minutes=1):
        return [Fault("expires_at", f"must be a time with its zone, at most {longest_days} days from now")]
    return []


async def _audit(tx: Tx, principal: Principal, action: str, token: Token, details: dict[str, object]) -> None:
    await audit.write(
        tx,
        actor=principal.actor,
        action=action,
        resource_type="token",
        resource_id=token.id,
        tenant_id=token.tenant_id,
        details=details,
    )
