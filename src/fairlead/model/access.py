"""Principals, roles and permissions: who sends a request, and what it may do."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec

from fairlead.errors import Forbidden
from fairlead.model.address_list import AddressList
from fairlead.model.flow import Rate

GLOBAL_TENANT = "global"
GLOBAL_TENANT_ID = UUID("00000000-0000-7000-8000-000000000000")
# The notification of transactions after which a token, a session or an agent may no longer be valid.
ACCESS_CHANGED = "access"


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    id: UUID
    slug: str
    name: str
    timezone: str
    weight: int
    max_running: int | None
    rate: Rate | None
    # the tenant's own quotas; for all others the settings apply
    quotas: dict[str, int]
    # the networks from which its users and tokens may be used; None means any
    addresses: tuple[str, ...] | None = None
    paused_at: datetime | None
    paused_by: str | None
    pause_note: str | None
    created_at: datetime
    # where it lives, in a list over several cells
    cell: str | None = None


class Role(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"
    TENANT_ADMIN = "tenant_admin"
    SUPER_ADMIN = "super_admin"
    # Roles for tokens only. An application enqueues jobs and reads their results. A worker and an agent may only use
    # the routes that run jobs.
    APPLICATION = "application"
    WORKER = "worker"
    AGENT = "agent"


PEOPLE = (Role.VIEWER, Role.OPERATOR, Role.TENANT_ADMIN, Role.SUPER_ADMIN)


class Permission(StrEnum):
    READ_JOBS = "jobs.read"
    ENQUEUE_JOBS = "jobs.enqueue"
    WRITE_JOBS = "jobs.write"
    ANSWER_APPROVALS = "approvals.answer"
    READ_DEFINITIONS = "definitions.read"
    MANAGE_DEFINITIONS = "definitions.manage"
    READ_TENANTS = "tenants.read"
    MANAGE_TENANTS = "tenants.manage"
    READ_AUDIT = "audit.read"
    READ_USAGE = "usage.read"
    READ_TRIGGERS = "triggers.read"
    MANAGE_TRIGGERS = "triggers.manage"
    READ_EVENTS = "events.read"
    EMIT_EVENTS = "events.emit"
    READ_SOURCES = "sources.read"
    READ_WORKFLOWS = "workflows.read"
    MANAGE_WORKFLOWS = "workflows.manage"
    START_WORKFLOWS = "workflows.start"
    RUN_WORKFLOWS = "workflows.run"
    READ_RUNS = "runs.read"
    READ_HOSTS = "hosts.read"
    MANAGE_HOSTS = "hosts.manage"
    MANAGE_TOKENS = "tokens.manage"
    MANAGE_USERS = "users.manage"
    MANAGE_ADDRESSES = "addresses.manage"
    READ_WORKERS = "workers.read"
    READ_QUEUE = "queue.read"
    MANAGE_SYSTEM = "system.manage"
    RUN_JOBS = "jobs.run"
    RUN_HOST_JOBS = "hosts.run"


_VIEWER = frozenset(
    {
        Permission.READ_JOBS,
        Permission.READ_DEFINITIONS,
        Permission.READ_AUDIT,
        Permission.READ_USAGE,
        Permission.READ_TRIGGERS,
        Permission.READ_EVENTS,
        Permission.READ_WORKFLOWS,
        Permission.READ_RUNS,
        Permission.READ_HOSTS,
    }
)
_OPERATOR = _VIEWER | {
    Permission.ENQUEUE_JOBS,
    Permission.WRITE_JOBS,
    Permission.ANSWER_APPROVALS,
    Permission.START_WORKFLOWS,
    Permission.RUN_WORKFLOWS,
}
GRANTS: dict[Role, frozenset[Permission]] = {
    Role.VIEWER: _VIEWER,
    Role.OPERATOR: _OPERATOR,
    Role.TENANT_ADMIN: _OPERATOR
    | {
        Permission.MANAGE_TRIGGERS,
        Permission.EMIT_EVENTS,
        Permission.READ_SOURCES,
        Permission.MANAGE_WORKFLOWS,
        Permission.MANAGE_HOSTS,
        Permission.MANAGE_TOKENS,
        Permission.MANAGE_USERS,
        Permission.MANAGE_ADDRESSES,
    },
    Role.SUPER_ADMIN: frozenset(Permission),
    Role.APPLICATION: frozenset(
        {
            Permission.READ_JOBS,
            Permission.ENQUEUE_JOBS,
            Permission.ANSWER_APPROVALS,
            Permission.EMIT_EVENTS,
            Permission.START_WORKFLOWS,
            Permission.READ_RUNS,
        }
    ),
    Role.WORKER: frozenset({Permission.RUN_JOBS}),
    Role.AGENT: frozenset({Permission.RUN_HOST_JOBS}),
}


# What no personal token may do: a stolen one must not make others that outlive it.
NOT_PERSONAL = frozenset({Permission.MANAGE_TOKENS, Permission.MANAGE_USERS, Permission.MANAGE_ADDRESSES})


class Principal(msgspec.Struct, frozen=True):
    """A user, token or process that acts: its name for the audit log, its role, and its tenant (None: every tenant)."""

    actor: str
    role: Role
    tenant_id: UUID | None = None
    host_id: UUID | None = None
    # the id of the token or the user: two of them may have the same name
    id: UUID | None = None
    # the user who signed in, or who created the token
    user_id: UUID | None = None
    # the definitions that a token may run or enqueue; None means all
    definitions: tuple[str, ...] | None = None
    # whether it is a user who signed in with a password, and has no second factor
    lacks_second_factor: bool = False
    # the permissions of the role that a token has; None means all
    scopes: frozenset[Permission] | None = None
    # whether it is a token that its user made for oneself
    is_personal: bool = False
    # the allow-lists of addresses that bind it
    address_lists: tuple[AddressList, ...] = ()
    # the share of its tenant in the turns of requests
    tenant_weight: int = 1

    @property
    def permissions(self) -> frozenset[Permission]:
        """What it may do: the permissions of its role, without those that its token does not have."""
        granted = GRANTS[self.role]
        if self.scopes is not None:
            granted &= self.scopes
        return granted - NOT_PERSONAL if self.is_personal else granted

    @property
    def token_addresses(self) -> tuple[str, ...] | None:
        """The networks that its token may be used from; None means any."""
        return next((one.networks for one in self.address_lists if one.owner == "token"), None)

    def serves(self, definition: str) -> bool:
        """Whether its token allows it to run or enqueue jobs of this definition."""
        return self.definitions is None or definition in self.definitions

    def require_definition(self, definition: str) -> None:
        """Raise Forbidden if its token does not allow this definition."""
        if not self.serves(definition):
            raise Forbidden(
                f"{self.actor} may enqueue only {', '.join(self.definitions or ())}, not {definition[:130]!r}. "
                "Use a token that allows this definition, or all definitions."
            )

    def require(self, permission: Permission, tenant_id: UUID | None = None) -> None:
        """Raise Forbidden unless this principal has the permission in the tenant."""
        if not has_permission(self, permission, tenant_id):
            raise missing_permission_error(permission, self, f"{self.actor} ({self.role})")


def missing_permission_error(permission: Permission, principal: Principal, whom: str) -> Forbidden:
    """The error for a missing permission; its message names the roles that have the permission."""
    if permission in GRANTS[principal.role] and permission not in principal.permissions:
        if principal.is_personal and permission in NOT_PERSONAL:
            return Forbidden(
                f"A personal token lacks the permission {permission}. Sign in, or use a token that an admin created for this."
            )
        return Forbidden(
            f"{whom} lacks the permission {permission}: the token's scopes are {', '.join(sorted(principal.scopes or ()))}. "
            f"Use a token with the scope {permission}."
        )
    holders = [str(role) for role, granted in GRANTS.items() if permission in granted]
    return Forbidden(
        f"{whom} lacks the permission {permission}. Ask for a role that has it: {', '.join(holders)}."
    )


def has_permission(principal: Principal, permission: Permission, tenant_id: UUID | None = None) -> bool:
    """Whether a principal has a permission in a tenant, or (None) for the whole system."""
    if permission not in principal.permissions:
        return False
    return principal.tenant_id is None or principal.tenant_id == tenant_id


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A person who signs in to the console."""

    id: UUID
    tenant_id: UUID | None
    tenant: str | None
    email: str
    role: Role
    created_by: str | None
    created_at: datetime
    updated_at: datetime
    disabled_at: datetime | None
    has_second_factor: bool
    # until when the user may accept the invitation; null if there is none, or it was accepted
    invitation_expires_at: datetime | None = None


class TokenState(StrEnum):
    """Whether a token is valid, and if not, why."""

    VALID = "valid"
    EXPIRED = "expired"
    REVOKED = "revoked"
    # valid again when the user who created it is enabled, or again has a role that can grant the token's role
    MAKER_DISABLED = "maker_disabled"
    MAKER_LACKS_ROLE = "maker_lacks_role"


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """An API token. Its secret is shown once, on creation, and only its hash is stored."""

    id: UUID
    tenant_id: UUID | None
    tenant: str | None
    host_id: UUID | None
    # the user who created it; the token is invalid while this user may not grant its role
    user_id: UUID | None
    name: str
    role: Role
    # the definitions that it may run or enqueue; None means all
    definitions: tuple[str, ...] | None
    # the permissions of its role that it has; None means all
    scopes: tuple[str, ...] | None
    # the networks that it may be used from; None means any
    addresses: tuple[str, ...] | None
    # made by its user for oneself
    is_personal: bool
    # the token that took its place when it was rotated
    replaced_by: UUID | None
    prefix: str
    created_by: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    state: TokenState


def trusted_principal(actor: str) -> Principal:
    """A super admin: the application itself, or a process that has the database's credentials."""
    return Principal(actor, Role.SUPER_ADMIN)
