"""The identities of users at identity providers: list them, and unlink one.

Users do it for themselves without a permission. Tenants cannot read these tables: the transactions must see all rows, and
every function checks whose user it is.
"""

from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

from fairlead.actions.account import require_user
from fairlead.actions.token_limits import require_grantable
from fairlead.db.tx import Tx
from fairlead.errors import Fault, IdentityUnknown, OnlySignIn, UserUnknown
from fairlead.model.access import ACCESS_CHANGED, Permission, Principal, User
from fairlead.model.oidc.identity import Identity, allows_password, mark_only_way
from fairlead.model.oidc.settings import OidcProvider
from fairlead.model.secrets.generated import hash_secret
from fairlead.store import access, audit, identities

# The providers of fairlead.toml: they decide which other ways to sign in a user has.
Providers = Collection[OidcProvider]


class Unlinked(NamedTuple):
    """An identity that was unlinked, how many sessions this ended, and whether that of the request was one of them."""

    identity: Identity
    sessions_ended: int
    is_signed_out: bool


async def list_own(tx: Tx, principal: Principal, providers: Providers) -> list[Identity]:
    """The identities of the user who has signed in, the last used first."""
    return await _list(tx, await _get_own(tx, principal), providers)


async def list_of_user(tx: Tx, principal: Principal, user_id: UUID, providers: Providers) -> list[Identity]:
    """The identities of a user of the principal's tenant, the last used first."""
    return await _list(tx, await _get_user(tx, principal, user_id), providers)


async def unlink_own(
    tx: Tx, principal: Principal, identity_id: UUID, providers: Providers, *, session: str | None
) -> Unlinked:
    """Unlink an identity of the user who has signed in, and end its sessions. OnlySignIn if it is the only way to sign in."""
    user = await _get_own(tx, principal)
    found = await _find(tx, user, identity_id, providers)
    if found.is_only_way:
        raise OnlySignIn(
            "This is your only way to sign in. Ask an admin to set a password for you, or to unlink it.",
            [Fault("identity_id", "is the only way to sign in")],
        )
    return await _unlink(tx, principal, user, found, session)


async def unlink(
    tx: Tx,
    principal: Principal,
    user_id: UUID,
    identity_id: UUID,
    providers: Providers,
    *,
    even_if_only: bool = False,
    session: str | None = None,
) -> Unlinked:
    """Unlink an identity of a user, and end its sessions. OnlySignIn if the user could not sign in any more.

    `even_if_only` says that this is intended: the user's tokens are refused, too, until the user has a password or a person
    is linked again. Never for one's own user.
    """
    user = await _get_user(tx, principal, user_id)
    # a scoped token must not lock out a user who may do more
    require_grantable(principal, user.role)
    found = await _find(tx, user, identity_id, providers)
    if found.is_only_way and principal.user_id == user_id:
        raise OnlySignIn(
            "This is your own only way to sign in. Set a password first, or ask another admin to unlink it.",
            [Fault("identity_id", "is your own only way to sign in")],
        )
    if found.is_only_way and not even_if_only:
        raise OnlySignIn(
            f"This is the only way in which {user.email} can sign in. Set a password first, or unlink it all the same "
            "with even_if_only (--even-if-only).",
            [Fault("identity_id", "is the only way to sign in")],
        )
    return await _unlink(tx, principal, user, found, session)


async def _unlink(
    tx: Tx, principal: Principal, user: User, identity: Identity, session: str | None
) -> Unlinked:
    ended = await identities.end_sessions_of_identity(tx, user.id, issuer=identity.issuer)
    await identities.remove(tx, identity.id)
    if identity.is_only_way:  # no provider will tell us that the person has left
        await identities.leave(tx, user.id)
    tx.notify(ACCESS_CHANGED)
    await audit.write(
        tx,
        actor=principal.actor,
        action="user_unlinked",
        resource_type="user",
        resource_id=user.id,
        tenant_id=user.tenant_id,
        details={
            "provider": identity.provider,
            "issuer": identity.issuer,
            "subject": identity.subject,
            "sessions_ended": len(ended),
            "was_only_way": identity.is_only_way,
        },
    )
    return Unlinked(identity, len(ended), session is not None and hash_secret(session) in ended)


async def _list(tx: Tx, user: User, providers: Providers) -> list[Identity]:
    return await _mark(tx, user, await identities.list_of_user(tx, user.id), providers)


async def _find(tx: Tx, user: User, identity_id: UUID, providers: Providers) -> Identity:
    """One of the user's identities; all of them are locked."""
    for one in await _mark(tx, user, await identities.lock_of_user(tx, user.id), providers):
        if one.id == identity_id:
            return one
    raise IdentityUnknown(
        f"{user.email} has no identity {identity_id}, or it was unlinked.", [Fault("identity_id", "unknown")]
    )


async def _mark(tx: Tx, user: User, found: list[Identity], providers: Providers) -> list[Identity]:
    can_use_password = allows_password(providers, user.tenant) and await identities.has_password(tx, user.id)
    return mark_only_way(found, providers, can_use_password=can_use_password)


async def _get_own(tx: Tx, principal: Principal) -> User:
    return _require(await access.get_user(tx, require_user(principal), tenant_id=None), principal.user_id)


async def _get_user(tx: Tx, principal: Principal, user_id: UUID) -> User:
    principal.require(Permission.MANAGE_USERS, principal.tenant_id)
    return _require(await access.get_user(tx, user_id, tenant_id=principal.tenant_id), user_id)


def _require(user: User | None, user_id: UUID | None) -> User:
    if user is None:
        raise UserUnknown(f"There is no user {user_id}.", [Fault("id", "unknown")])
    return user
