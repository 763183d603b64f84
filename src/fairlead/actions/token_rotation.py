"""Replace a token's secret: a new token like the old one, which ends after an overlap."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from fairlead.actions import quotas
from fairlead.actions.access import NewToken
from fairlead.actions.token_limits import DEFAULT_DAYS, LONGEST_DAYS, read_addresses, require_grantable
from fairlead.db.tx import Tx
from fairlead.errors import Fault, Forbidden, InvalidInput, TokenEnded, TokenUnknown
from fairlead.model.access import ACCESS_CHANGED, Permission, Principal, Role, Token, TokenState
from fairlead.model.secrets.generated import generate_secret
from fairlead.store import access, audit

DEFAULT_OVERLAP_SECONDS = 3600.0
LONGEST_OVERLAP_SECONDS = 30 * 86_400.0


async def rotate(
    tx: Tx, principal: Principal, token_id: UUID, *, overlap_seconds: float = DEFAULT_OVERLAP_SECONDS
) -> NewToken:
    """A new token with the name, role, scopes, definitions, addresses and lifetime of a valid one, which ends after the overlap.

    The principal gets a secret that may do what the old one may: nobody rotates a token that may do more than they.
    """
    if not 0 <= overlap_seconds <= LONGEST_OVERLAP_SECONDS:
        raise InvalidInput(
            "The overlap must be 0 seconds to 30 days.", [Fault("overlap_seconds", "must be 0 to 2592000")]
        )
    old = await find_rotatable(tx, principal, token_id)
    if old.tenant_id is not None:
        await quotas.require_token(tx, old.tenant_id)
    # within the principal's own list, if it has one
    addresses, faults = read_addresses(principal, old.addresses)
    if faults:
        raise Forbidden(f"Cannot rotate the token: its addresses: {faults[0].message}.")
    secret = generate_secret(old.tenant_id)
    token = await access.add_token(
        tx,
        tenant_id=old.tenant_id,
        host_id=old.host_id,
        name=old.name,
        role=old.role,
        prefix=secret.prefix,
        secret_hash=secret.hash,
        created_by=principal.actor,
        expires_at=_find_expiry(principal, old),
        user_id=principal.user_id,
        definitions=old.definitions,
        scopes=old.scopes,
        addresses=addresses,
    )
    await access.replace_token(tx, old.id, replaced_by=token.id, seconds=overlap_seconds)
    tx.notify(ACCESS_CHANGED)
    await audit.write(
        tx,
        actor=principal.actor,
        action="token_rotated",
        resource_type="token",
        resource_id=old.id,
        tenant_id=old.tenant_id,
        details={
            "name": old.name,
            "new_id": str(token.id),
            "prefix": secret.prefix,
            "overlap_seconds": overlap_seconds,
        },
    )
    return NewToken(token, secret.text)


async def find_rotatable(tx: Tx, principal: Principal, token_id: UUID) -> Token:
    """A token that the principal may rotate, locked; or the error that says why not."""
    principal.require(Permission.MANAGE_TOKENS, principal.tenant_id)
    old = await access.lock_token(tx, token_id, tenant_id=principal.tenant_id)
    if old is None:
        raise TokenUnknown(f"There is no token {token_id}.", [Fault("id", "unknown")])
    _require_rotatable(principal, old)
    return old


def _require_rotatable(principal: Principal, old: Token) -> None:
    if old.is_personal:
        raise Forbidden(
            "A personal token is its user's: only the user creates another, signed in, on the account page."
        )
    if old.role is Role.WORKER and principal.role is not Role.SUPER_ADMIN:
        raise Forbidden("Only a super admin rotates the tokens of workers.")
    require_grantable(principal, old.role, old.scopes)
    if old.state is not TokenState.VALID:
        raise TokenEnded(f"The token is {old.state}: create another with: fairlead tokens create")
    if old.replaced_by is not None:
        raise TokenEnded(
            f"The token was rotated already: rotate the one that replaced it, {old.replaced_by}."
        )


def _find_expiry(principal: Principal, old: Token) -> datetime | None:
    """As long from now as the old token was valid from its creation on, at most as long as the principal may set."""
    if old.expires_at is None:
        lifetime = None if principal.role is Role.SUPER_ADMIN else timedelta(days=DEFAULT_DAYS)
    else:
        lifetime = old.expires_at - old.created_at
        if principal.role is not Role.SUPER_ADMIN:
            lifetime = min(lifetime, timedelta(days=LONGEST_DAYS))
    return None if lifetime is None else datetime.now(UTC) + lifetime
