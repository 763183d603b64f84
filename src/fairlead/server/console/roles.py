"""Descriptions of roles, and the roles that a form offers."""

from fairlead.model.access import Role
from fairlead.server.console.visit import Visit

DESCRIPTIONS = {
    Role.VIEWER: "sees jobs, workflows, triggers, events, hosts, usage and the audit log; changes nothing",
    Role.OPERATOR: "a viewer who also enqueues, cancels and retries jobs, and starts, cancels and retries workflow runs",
    Role.TENANT_ADMIN: "an operator who also manages triggers, workflows, hosts, tokens and members, and emits events",
    Role.SUPER_ADMIN: "everything, in every tenant",
    Role.APPLICATION: "enqueues jobs, emits events, starts workflows and reads its jobs; cancels and manages nothing",
    Role.WORKER: "only runs jobs: for workers that claim over HTTP",
    Role.AGENT: "only runs the jobs of one host: its agent's key, if you do not enrol it with a code",
}


def list_member_roles(visit: Visit) -> list[Role]:
    """The roles for a new user: super admins belong to no tenant."""
    if visit.tenant_id is None:
        return [Role.SUPER_ADMIN]
    return [Role.VIEWER, Role.OPERATOR, Role.TENANT_ADMIN]


def list_token_roles(visit: Visit) -> list[Role]:
    """The roles for a new token."""
    if visit.tenant_id is None:
        return [Role.WORKER, Role.SUPER_ADMIN]
    workers = [Role.WORKER] if visit.is_super else []
    return [Role.APPLICATION, Role.OPERATOR, Role.VIEWER, Role.TENANT_ADMIN, *workers, Role.AGENT]


def list_own_roles(visit: Visit) -> list[Role]:
    """The roles for a personal token: the visitor's own first, then lesser ones of the same tenant."""
    if visit.is_super:
        return [Role.SUPER_ADMIN]
    people = [Role.TENANT_ADMIN, Role.OPERATOR, Role.VIEWER]
    return people[people.index(visit.principal.role) :]


def find_role(text: str) -> Role | None:
    """The role with this name, if any."""
    return Role(text) if text in set(Role) else None
