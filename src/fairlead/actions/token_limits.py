"""What a new token may be: no more than its creator is, in role, scopes, place and time."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from fairlead.errors import Fault, Forbidden, InvalidInput
from fairlead.model.access import GRANTS, Permission, Principal, Role
from fairlead.model.address_list import is_within, read_networks
from fairlead.model.payload import find_storage_flaw

LONGEST_NAME = 200
# The default lifetime of a token, and the longest that anyone but a super admin may set.
DEFAULT_DAYS = 90
LONGEST_DAYS = 366


def require_grantable(principal: Principal, role: Role, scopes: Sequence[str] | None = None) -> None:
    """Refuse to grant more than the principal has. Those who manage a tenant's hosts may also grant the role agent.

    Not the role worker: a worker reads payloads that the platform wrote, and reports what a run has cost.
    """
    if (
        role is Role.AGENT
        and principal.role is Role.TENANT_ADMIN
        and Permission.MANAGE_HOSTS in principal.permissions
    ):
        return
    missing = list_granted(role, scopes) - principal.permissions
    if not missing:
        return
    if scopes is None and not GRANTS[role] <= GRANTS[principal.role]:
        raise Forbidden(
            f"{principal.actor} ({principal.role}) cannot grant the role {role}, which may do more than {principal.role}. "
            f"Ask {_describe_granters(role)}."
        )
    raise Forbidden(
        f"{principal.actor} ({principal.role}) cannot grant what it lacks: {', '.join(sorted(missing))}. "
        "Leave these scopes out, or ask a user who has them."
    )


def require_revocable(principal: Principal, role: Role, scopes: Sequence[str] | None = None) -> None:
    """Refuse to let a scoped token end tokens that may do more than it.

    Those who have all permissions of their role end every token that they see, also one that only others grant.
    """
    missing = (list_granted(role, scopes) & GRANTS[principal.role]) - principal.permissions
    if missing:
        raise Forbidden(
            f"{principal.actor} ({principal.role}) cannot revoke what may do more than itself: {', '.join(sorted(missing))}. "
            "Ask a user who has these permissions."
        )


def _describe_granters(role: Role) -> str:
    """Whom to ask for a token of this role: of some roles there are only tokens."""
    able = [
        one
        for one, granted in GRANTS.items()
        if Permission.MANAGE_TOKENS in granted and GRANTS[role] <= granted
    ]
    return " or ".join(f"a {one.replace('_', ' ')}" for one in able)


def list_granted(role: Role, scopes: Sequence[str] | None) -> frozenset[Permission]:
    """The permissions of a token with this role and these scopes."""
    return GRANTS[role] if scopes is None else GRANTS[role] & frozenset(Permission(one) for one in scopes)


def read_scopes(role: Role, given: Sequence[str] | None) -> tuple[list[Permission] | None, list[Fault]]:
    """The scopes in their order, each once; None for all permissions of the role. And what is wrong with them."""
    if given is None:
        return None, []
    if not given:
        return None, [Fault("scopes", "must be at least one permission, or left out for all of the role's")]
    known = {str(one) for one in GRANTS[role]}
    if unknown := [one for one in given if one not in known]:
        offered = ", ".join(sorted(known))
        return None, [
            Fault("scopes", f"{unknown[0][:80]!r} is no permission of the role {role}, which has {offered}")
        ]
    return sorted({Permission(one) for one in given}), []


def read_addresses(
    principal: Principal, given: Sequence[str] | None
) -> tuple[tuple[str, ...] | None, list[Fault]]:
    """The allow-list of a new token. A token with a list passes it on: its tokens work nowhere else, either."""
    found, faults = read_networks(given)
    own = principal.token_addresses
    if faults or own is None:
        return found, faults
    if found is None:
        return own, []
    if is_within(found, own):
        return found, []
    return None, [Fault("addresses", f"must be within the creator's own allow-list: {', '.join(own)}")]


def find_name_faults(name: str) -> list[Fault]:
    if 0 < len(name) <= LONGEST_NAME and name.isprintable() and not find_storage_flaw(name):
        return []
    return [Fault("name", "must have 1 to 200 characters, without control characters")]


def find_expiry_faults(
    principal: Principal, expires_at: datetime | None, *, longest_days: int = LONGEST_DAYS
) -> list[Fault]:
    """What is wrong with an expiry; only super admins create tokens that are valid for longer, or forever."""
    if expires_at is not None and (expires_at.tzinfo is None or not 1970 <= expires_at.year <= 2999):
        return [Fault("expires_at", "must be a time with its zone, in the years 1970 to 2999")]
    latest = datetime.now(UTC) + timedelta(days=longest_days)
    if principal.role is not Role.SUPER_ADMIN and (expires_at is None or expires_at > latest):
        return [
            Fault(
                "expires_at",
                f"must be at most {longest_days} days from now: only a super admin creates tokens that are valid for longer",
            )
        ]
    return []


def refuse_faults(faults: Sequence[Fault], what: str = "create") -> None:
    """Raise InvalidInput if there are faults."""
    if faults:
        raise InvalidInput(f"Cannot {what} the token: {faults[0].path} {faults[0].message}.", list(faults))
