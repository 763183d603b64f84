"""Register and change hosts and resources; enrol agents and revoke their tokens."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from fairlead.actions import gates
from fairlead.db.tx import Tx, UniqueViolation
from fairlead.errors import (
    EnrolmentRefused,
    Fault,
    Forbidden,
    HostExists,
    HostInUse,
    HostUnknown,
    InvalidInput,
    ResourceExists,
    ResourceUnknown,
    Unauthenticated,
)
from fairlead.model.access import ACCESS_CHANGED, Permission, Principal, Role, Token
from fairlead.model.host import Host, Resource
from fairlead.model.page import Page
from fairlead.model.payload import encode, find_storage_flaw
from fairlead.model.secrets.generated import generate_secret, hash_secret
from fairlead.store import access, audit, bulk, hosts
from fairlead.store.hosts import HostJob

CODE_SECONDS = 900.0
# How long the old token stays valid while an agent stores its new one.
ROTATION_SECONDS = 600.0
LONGEST_NAME = 200
LONGEST_LABELS = 16_384
MAX_RUNNING = 10_000
MAX_PAGE = 1000
CHANGEABLE = ("name", "max_running", "labels", "draining")

Thing = TypeVar("Thing", Host, Resource)


class EnrolmentCode(msgspec.Struct, frozen=True):
    """A code that an agent exchanges for its token, once. It is shown only once."""

    host: Host
    code: str
    expires_at: datetime


class EnrolledAgent(msgspec.Struct, frozen=True):
    """The result of an enrolment: the agent's host and its own token."""

    host: Host
    token: Token
    secret: str


# Hosts


async def add(
    tx: Tx,
    principal: Principal,
    *,
    tenant_id: UUID,
    name: str,
    max_running: int = 1,
    labels: Mapping[str, Any] | None = None,
) -> Host:
    """Register a host."""
    principal.require(Permission.MANAGE_HOSTS, tenant_id)
    labels = {} if labels is None else labels
    _check_host(name=name, max_running=max_running, labels=labels)
    host_id = await hosts.add(
        tx,
        tenant_id=tenant_id,
        name=name,
        max_running=max_running,
        labels=labels,
        created_by=principal.actor,
    )
    if host_id is None:
        raise _host_exists_error(name)
    host = await _get_host(tx, host_id, principal.tenant_id)
    await _audit(tx, principal, "host_created", host)
    return host


async def change(tx: Tx, principal: Principal, host_id: UUID, changes: Mapping[str, Any]) -> Host:
    """Change the given fields of a host: name, max_running, labels, draining; `paused` (with `note`) is its gate."""
    old = await get(tx, principal, host_id, Permission.MANAGE_HOSTS)
    new = {
        name: changes[name] for name in CHANGEABLE if name in changes and changes[name] != getattr(old, name)
    }
    if new:
        values = {name: new.get(name, getattr(old, name)) for name in ("name", "max_running", "labels")}
        _check_host(**values)
        try:
            await hosts.change(tx, old.id, **new)
        except UniqueViolation as error:
            raise _host_exists_error(new["name"]) from error
        await bulk.notify(tx, "host")  # its agent is told
        await _audit(tx, principal, "host_changed", old, new)
    if "paused" in changes and changes["paused"] != (old.paused_at is not None):
        turn = gates.pause if changes["paused"] else gates.resume
        await turn(tx, principal, host=old.id, note=changes.get("note"))
    return await _get_host(tx, old.id, principal.tenant_id)


async def remove(tx: Tx, principal: Principal, host_id: UUID) -> Host:
    """Remove a host with its resources, codes and tokens. Refused while jobs wait for it or run on it."""
    host = await get(tx, principal, host_id, Permission.MANAGE_HOSTS)
    if not await hosts.lock(tx, host.id, alone=True):
        raise unknown_host_error(host_id)
    waiting, running = await hosts.count_jobs(tx, host)
    if waiting or running:
        raise HostInUse(
            f"Host {host.name} has jobs: {waiting} wait for it, and {running} run on it. Cancel them or let them end, "
            "then remove it.",
            [Fault("host_id", "has jobs")],
        )
    things = await hosts.remove(tx, host.id)
    await bulk.notify(tx, "host")  # its agent is told
    tx.notify(ACCESS_CHANGED)
    await _audit(tx, principal, "host_removed", host, {"resources": things})
    return host


async def find(
    tx: Tx, principal: Principal, name: str, permission: Permission = Permission.READ_HOSTS
) -> Host:
    """A host by id or name; refuses a name of several hosts."""
    principal.require(permission, principal.tenant_id)
    found = [] if find_storage_flaw(name) else await hosts.list_named(tx, name, tenant_id=principal.tenant_id)
    if not found:
        raise unknown_host_error(name)
    return _require_one(found, f"hosts are named {name!r}", "host_id")


async def find_id(tx: Tx, principal: Principal, name: str) -> UUID | None:
    """The id of a host by name, if it exists."""
    principal.require(Permission.READ_HOSTS, principal.tenant_id)
    found = await hosts.list_named(tx, name, tenant_id=principal.tenant_id)
    return found[0].id if found else None


async def get(
    tx: Tx, principal: Principal, host_id: UUID, permission: Permission = Permission.READ_HOSTS
) -> Host:
    """A host."""
    principal.require(permission, principal.tenant_id)
    return await _get_host(tx, host_id, principal.tenant_id)


async def list_hosts(
    tx: Tx, principal: Principal, *, after: UUID | None = None, limit: int = 100
) -> Page[Host]:
    """Hosts, oldest first."""
    principal.require(Permission.READ_HOSTS, principal.tenant_id)
    return await hosts.list_page(tx, tenant_id=principal.tenant_id, after=after, limit=min(limit, MAX_PAGE))


async def list_running(
    tx: Tx, principal: Principal, ids: Sequence[UUID], *, limit: int = MAX_PAGE
) -> list[HostJob]:
    """The jobs that these hosts run now."""
    principal.require(Permission.READ_HOSTS, principal.tenant_id)
    return await hosts.list_running(tx, ids, tenant_id=principal.tenant_id, limit=min(limit, MAX_PAGE))


# Resources


async def add_resource(
    tx: Tx, principal: Principal, *, tenant_id: UUID, host_id: UUID, kind: str, name: str
) -> Resource:
    """Register a resource of a host, for jobs that act on it."""
    principal.require(Permission.MANAGE_HOSTS, tenant_id)
    _check_texts(kind=kind, name=name)
    host = await hosts.get(tx, host_id, tenant_id=tenant_id)
    if host is None:
        raise unknown_host_error(host_id)
    made = await hosts.add_resource(
        tx, tenant_id=tenant_id, host_id=host.id, kind=kind, name=name, created_by=principal.actor
    )
    if made is None:
        raise _resource_exists_error(kind, name)
    resource = await _get_resource(tx, made, principal.tenant_id)
    await _audit_resource(tx, principal, "resource_created", resource)
    return resource


async def change_resource(
    tx: Tx, principal: Principal, resource_id: UUID, *, host_id: UUID | None = None, name: str | None = None
) -> Resource:
    """Move a resource to another host, or rename it. Existing jobs keep their host."""
    principal.require(Permission.MANAGE_HOSTS, principal.tenant_id)
    old = await _get_resource(tx, resource_id, principal.tenant_id)
    if host_id is not None and await hosts.get(tx, host_id, tenant_id=old.tenant_id) is None:
        raise unknown_host_error(host_id)
    _check_texts(kind=old.kind, name=old.name if name is None else name)
    if host_id in (None, old.host_id) and name in (None, old.name):
        return old
    try:
        await hosts.change_resource(tx, old.id, host_id=host_id, name=name)
    except UniqueViolation as error:
        raise _resource_exists_error(old.kind, str(name)) from error
    resource = await _get_resource(tx, old.id, principal.tenant_id)
    await _audit_resource(tx, principal, "resource_changed", resource)
    return resource


async def find_resource(
    tx: Tx, principal: Principal, name: str, permission: Permission = Permission.READ_HOSTS
) -> Resource:
    """A resource by id or name; refuses a name of several resources."""
    principal.require(permission, principal.tenant_id)
    found = (
        []
        if find_storage_flaw(name)
        else await hosts.list_resources_named(tx, name, tenant_id=principal.tenant_id)
    )
    if not found:
        raise unknown_resource_error(name)
    return _require_one(found, f"resources are named {name!r}", "resource_id")


async def get_resource(tx: Tx, principal: Principal, resource_id: UUID) -> Resource:
    """A resource."""
    principal.require(Permission.READ_HOSTS, principal.tenant_id)
    return await _get_resource(tx, resource_id, principal.tenant_id)


async def list_resources(
    tx: Tx,
    principal: Principal,
    *,
    host_id: UUID | None = None,
    kind: str | None = None,
    after: UUID | None = None,
    limit: int = 100,
) -> Page[Resource]:
    """Resources, oldest first."""
    principal.require(Permission.READ_HOSTS, principal.tenant_id)
    return await hosts.list_resources(
        tx,
        tenant_id=principal.tenant_id,
        host_id=host_id,
        kind=kind,
        after=after,
        limit=min(limit, MAX_PAGE),
    )


# Enrolment


async def create_enrolment_code(tx: Tx, principal: Principal, host_id: UUID) -> EnrolmentCode:
    """Create a code for an agent of this host, valid once, for 15 minutes. Not with a personal token: the agent's outlives it."""
    host = await get(tx, principal, host_id, Permission.MANAGE_HOSTS)
    if principal.is_personal:
        raise Forbidden(
            "A personal token cannot enrol agents, whose tokens would outlive it. Sign in, or use a token that an admin created "
            "for this."
        )
    secret = generate_secret(host.tenant_id)
    expires_at = await hosts.add_code(
        tx,
        code_hash=secret.hash,
        tenant_id=host.tenant_id,
        host_id=host.id,
        created_by=principal.actor,
        seconds=CODE_SECONDS,
    )
    await _audit(tx, principal, "enrolment_code_created", host)
    return EnrolmentCode(host, secret.text, expires_at)


async def enrol(tx: Tx, code: str) -> EnrolledAgent:
    """Exchange a code for the agent's own token. Earlier tokens of the host's agents stay valid until revoked."""
    found = await hosts.use_code(tx, hash_secret(code))
    if found is None:
        raise EnrolmentRefused(
            "This code is unknown, used or expired. Get another with: fairlead hosts enrol HOST"
        )
    tenant_id, host_id = found
    host = await _get_host(tx, host_id, tenant_id)
    return await _create_token(
        tx, Principal(f"agent:{host.name}", Role.AGENT, tenant_id, host_id), host, "agent_enrolled"
    )


async def rotate_token(tx: Tx, principal: Principal, token_id: UUID) -> EnrolledAgent:
    """Replace an agent's token. The old one stays valid for ten minutes, since the answer may be lost."""
    if principal.host_id is None:
        raise EnrolmentRefused("Only an agent has a token to rotate.")
    host = await _get_host(tx, principal.host_id, principal.tenant_id)
    await hosts.lock(tx, host.id)  # a concurrent revocation then includes the new token
    if not await access.end_token(tx, token_id, seconds=ROTATION_SECONDS):
        raise Unauthenticated(
            "This token is expired or revoked. Enrol the agent again with: fairlead hosts enrol HOST"
        )
    return await _create_token(tx, principal, host, "agent_token_rotated")


async def revoke_agents(tx: Tx, principal: Principal, host_id: UUID) -> int:
    """Revoke the tokens of all agents of a host; the server refuses them within five seconds. Their number."""
    host = await get(tx, principal, host_id, Permission.MANAGE_HOSTS)
    await hosts.lock(tx, host.id, alone=True)
    count = await hosts.revoke_tokens(tx, host.id)
    tx.notify(ACCESS_CHANGED)
    await _audit(tx, principal, "agents_revoked", host, {"tokens": count})
    return count


async def _create_token(tx: Tx, principal: Principal, host: Host, action: str) -> EnrolledAgent:
    secret = generate_secret(host.tenant_id)
    token = await access.add_token(
        tx,
        tenant_id=host.tenant_id,
        host_id=host.id,
        name=f"agent of {host.name}",
        role=Role.AGENT,
        prefix=secret.prefix,
        secret_hash=secret.hash,
        created_by=principal.actor,
        expires_at=None,
        user_id=principal.user_id,  # if a user created the token that is rotated
        addresses=principal.token_addresses,
    )
    await _audit(tx, principal, action, host, {"prefix": secret.prefix})
    return EnrolledAgent(host, token, secret.text)


def unknown_host_error(host_id: UUID | str | None) -> HostUnknown:
    return HostUnknown(
        f"There is no host {host_id}. Register it with: fairlead hosts add NAME",
        [Fault("host_id", "unknown")],
    )


def unknown_resource_error(resource_id: UUID | str) -> ResourceUnknown:
    return ResourceUnknown(
        f"There is no resource {resource_id}. Register it with: fairlead resources add NAME --host HOST --kind KIND",
        [Fault("resource_id", "unknown")],
    )


def _host_exists_error(name: str) -> HostExists:
    return HostExists(f"There is a host {name!r} already. Choose another name.", [Fault("name", "taken")])


def _resource_exists_error(kind: str, name: str) -> ResourceExists:
    return ResourceExists(
        f"There is a {kind} {name!r} already. Choose another name.", [Fault("name", "taken")]
    )


def _require_one(found: Sequence[Thing], several: str, field: str) -> Thing:
    if len(found) > 1:
        ids = ", ".join(str(one.id) for one in found[:5])
        raise InvalidInput(
            f"{len(found)} {several}: give the tenant, or the id of one ({ids}).",
            [Fault(field, "several have this name")],
        )
    return found[0]


async def _get_host(tx: Tx, host_id: UUID, tenant_id: UUID | None) -> Host:
    found = await hosts.get(tx, host_id, tenant_id=tenant_id)
    if found is None:
        raise unknown_host_error(host_id)
    return found


async def _get_resource(tx: Tx, resource_id: UUID, tenant_id: UUID | None) -> Resource:
    found = await hosts.get_resource(tx, resource_id, tenant_id=tenant_id)
    if found is None:
        raise unknown_resource_error(resource_id)
    return found


def _check_host(*, name: Any, max_running: Any, labels: Any) -> None:
    faults = []
    if not _is_text(name):
        faults.append(Fault("name", f"must be text of 1 to {LONGEST_NAME} characters"))
    if type(max_running) is not int or not 1 <= max_running <= MAX_RUNNING:
        faults.append(Fault("max_running", f"must be 1 to {MAX_RUNNING}"))
    if not isinstance(labels, Mapping):
        faults.append(Fault("labels", "must be an object"))
    if faults:
        raise InvalidInput(f"Invalid host: {faults[0].path} {faults[0].message}.", faults)
    encode(labels, max_bytes=LONGEST_LABELS)


def _check_texts(**texts: str) -> None:
    faults = [
        Fault(name, f"must be text of 1 to {LONGEST_NAME} characters")
        for name, text in texts.items()
        if not _is_text(text)
    ]
    if faults:
        raise InvalidInput(f"Invalid resource: {faults[0].path} {faults[0].message}.", faults)


def _is_text(text: Any) -> bool:
    return isinstance(text, str) and 0 < len(text) <= LONGEST_NAME and not find_storage_flaw(text)


async def _audit(
    tx: Tx, principal: Principal, action: str, host: Host, details: Mapping[str, Any] | None = None
) -> None:
    await audit.write(
        tx,
        actor=principal.actor,
        action=action,
        resource_type="host",
        resource_id=host.id,
        tenant_id=host.tenant_id,
        details={"name": host.name, **(details or {})},
    )


async def _audit_resource(tx: Tx, principal: Principal, action: str, resource: Resource) -> None:
    await audit.write(
        tx,
        actor=principal.actor,
        action=action,
        resource_type="resource",
        resource_id=resource.id,
        tenant_id=resource.tenant_id,
        details={"kind": resource.kind, "name": resource.name, "host_id": str(resource.host_id)},
    )
