"""Hosts, resources, enrolment codes, and deliveries of jobs to agents."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, cast
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.model.host import Host, HostState, Resource
from fairlead.model.job import Lease
from fairlead.model.page import Page
from fairlead.store import bounded_page, leases

sql = queries_beside(__file__)


class HostJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a host runs now."""

    host_id: UUID
    job_id: UUID
    definition_key: str


# Hosts


async def get(tx: Tx, host_id: UUID, *, tenant_id: UUID | None = None) -> Host | None:
    """A host of a tenant, or (None) of any."""
    return await tx.first(Host, f"{sql.hosts} {sql.host_by_id}", {"id": host_id, "tenant_id": tenant_id})


async def list_named(tx: Tx, name: str, *, tenant_id: UUID | None = None) -> list[Host]:
    """The host with this id, and the hosts with this name: each tenant may have one."""
    return await tx.all(Host, f"{sql.hosts} {sql.hosts_named}", {"name": name, "tenant_id": tenant_id})


async def list_page(tx: Tx, *, tenant_id: UUID | None, after: UUID | None, limit: int) -> Page[Host]:
    """Hosts, oldest first."""
    values = {"tenant_id": tenant_id, "after": after}
    query = f"{sql.hosts} {sql.hosts_page}"
    return await bounded_page.fetch_page(
        tx, Host, query, values, limit=limit, weighed=("labels", "pause_note")
    )


async def list_running(tx: Tx, ids: Sequence[UUID], *, tenant_id: UUID | None, limit: int) -> list[HostJob]:
    """The jobs that these hosts run now."""
    values = {"ids": list(ids), "tenant_id": tenant_id, "limit": limit}
    return await tx.all(HostJob, sql.running, values)


async def add(
    tx: Tx, *, tenant_id: UUID, name: str, max_running: int, labels: Mapping[str, Any], created_by: str
) -> UUID | None:
    """Add a host. Its id; None if the name is taken."""
    values = {
        "tenant_id": tenant_id,
        "name": name,
        "max_running": max_running,
        "labels": json_text(labels),
        "created_by": created_by,
    }
    found = await tx.values(sql.add_host, values)
    return found[0][0] if found else None


async def change(
    tx: Tx,
    host_id: UUID,
    *,
    name: str | None = None,
    max_running: int | None = None,
    labels: Mapping[str, Any] | None = None,
    draining: bool | None = None,
) -> None:
    """Change the given fields of a host; UniqueViolation if the name is taken."""
    values = {
        "id": host_id,
        "name": name,
        "max_running": max_running,
        "labels": None if labels is None else json_text(labels),
        "draining": draining,
    }
    await tx.run(sql.change_host, values)


async def lock(tx: Tx, host_id: UUID, *, alone: bool = False) -> bool:
    """Lock a host against removal, or (alone) also against new jobs, until the transaction ends; False if it is gone."""
    return bool(await tx.values(sql.hold_host_alone if alone else sql.hold_host, {"id": host_id}))


async def count_jobs(tx: Tx, host: Host) -> tuple[int, int]:
    """The number of jobs that wait for a host, and that it runs."""
    [(waiting, running)] = await tx.values(sql.jobs_of_host, {"id": host.id, "tenant_id": host.tenant_id})
    return int(waiting), int(running)


async def remove(tx: Tx, host_id: UUID) -> int:
    """Remove a host with its resources, its codes and its agents' tokens. The number of its resources."""
    [(things,)] = await tx.values(sql.remove_host, {"id": host_id})
    return int(things)


# Resources


async def get_resource(tx: Tx, resource_id: UUID, *, tenant_id: UUID | None = None) -> Resource | None:
    """A resource of a tenant, or (None) of any."""
    values = {"id": resource_id, "tenant_id": tenant_id}
    return await tx.first(Resource, f"{sql.resources} {sql.resource_by_id}", values)


async def list_resources_named(tx: Tx, name: str, *, tenant_id: UUID | None = None) -> list[Resource]:
    """The resource with this id, and the resources with this name: of several kinds or tenants."""
    values = {"name": name, "tenant_id": tenant_id}
    return await tx.all(Resource, f"{sql.resources} {sql.resources_named}", values)


async def list_resources(
    tx: Tx, *, tenant_id: UUID | None, host_id: UUID | None, kind: str | None, after: UUID | None, limit: int
) -> Page[Resource]:
    """Resources, oldest first."""
    values = {"tenant_id": tenant_id, "host_id": host_id, "kind": kind, "after": after}
    query = f"{sql.resources} {sql.resources_page}"
    return await bounded_page.fetch_page(tx, Resource, query, values, limit=limit, weighed=("name", "kind"))


async def add_resource(
    tx: Tx, *, tenant_id: UUID, host_id: UUID, kind: str, name: str, created_by: str
) -> UUID | None:
    """Add a resource. Its id; None if there is one of this kind and name."""
    values = {
        "tenant_id": tenant_id,
        "host_id": host_id,
        "kind": kind,
        "name": name,
        "created_by": created_by,
    }
    found = await tx.values(sql.add_resource, values)
    return found[0][0] if found else None


async def change_resource(
    tx: Tx, resource_id: UUID, *, host_id: UUID | None = None, name: str | None = None
) -> None:
    """Change the given fields of a resource; UniqueViolation if the name is taken."""
    await tx.run(sql.change_resource, {"id": resource_id, "host_id": host_id, "name": name})


# Enrolment


async def add_code(
    tx: Tx, *, code_hash: bytes, tenant_id: UUID, host_id: UUID, created_by: str, seconds: float
) -> datetime:
    """Store an enrolment code. The time at which it expires."""
    values = {
        "code_hash": code_hash,
        "tenant_id": tenant_id,
        "host_id": host_id,
        "created_by": created_by,
        "seconds": seconds,
    }
    [(expires_at,)] = await tx.values(sql.add_code, values)
    return cast("datetime", expires_at)


async def use_code(tx: Tx, code_hash: bytes) -> tuple[UUID, UUID] | None:
    """Use up a code. Its tenant and host; None if it is not valid."""
    found = await tx.values(sql.use_code, {"code_hash": code_hash})
    return (found[0][0], found[0][1]) if found else None


async def revoke_tokens(tx: Tx, host_id: UUID) -> int:
    """Revoke the tokens of a host's agents. Their number."""
    return len(await tx.values(sql.revoke_tokens, {"host_id": host_id}))


# Agents


async def begin_session(tx: Tx, host_id: UUID, *, session_id: UUID, version: str) -> bool:
    """Make this the session of the host; False if it is already."""
    values = {"id": host_id, "session_id": session_id, "version": version}
    return bool(await tx.values(sql.begin_session, values))


async def list_states(tx: Tx, ids: Sequence[UUID]) -> list[HostState]:
    """The states of these hosts."""
    return await tx.all(HostState, sql.states, {"ids": list(ids)})


async def mark_seen(tx: Tx, ids: Sequence[UUID]) -> None:
    """Note that the agents of these hosts are online."""
    await tx.run(sql.seen, {"ids": list(ids)})


async def deliver(tx: Tx, host_id: UUID, session_id: UUID, *, token: UUID) -> dict[UUID, UUID]:
    """Note that the jobs claimed with this token are being delivered to an agent. The ids of their attempts.

    Empty if the session is no longer the host's.
    """
    values = {"host_id": host_id, "session_id": session_id, "token": token}
    return {job_id: run_id for job_id, run_id in await tx.values(sql.deliver, values)}  # noqa: C416 - rows are longer to mypy


async def list_with_work(tx: Tx) -> list[UUID]:
    """Hosts with waiting jobs and room for them."""
    return [host_id for (host_id,) in await tx.values(sql.with_work)]


async def has_work(tx: Tx, host_id: UUID) -> bool:
    """Whether jobs wait for this host."""
    [(found,)] = await tx.values(sql.has_work, {"host_id": host_id})
    return bool(found)


async def accept(tx: Tx, lease: Lease, *, host_id: UUID | None, lease_seconds: float) -> bool | None:
    """Note that the host's agent accepted a job. Whether a cancel was requested; None if the host does not hold the lease."""
    values = {**leases.lease_params(lease), "host_id": host_id, "lease_seconds": lease_seconds}
    found = await tx.values(sql.accept, values)
    return bool(found[0][0]) if found else None


async def list_undelivered(tx: Tx, host_id: UUID, session_id: UUID, *, limit: int) -> list[Lease]:
    """The leases that were delivered to a host's agent and not accepted, if this is still its session."""
    values = {"host_id": host_id, "session_id": session_id, "limit": limit}
    return [Lease(*row) for row in await tx.values(sql.undelivered, values)]


async def filter_leases(tx: Tx, host_id: UUID | None, held: Sequence[Lease]) -> list[Lease]:
    """Those of the leases whose jobs are this host's."""
    found = await tx.values(sql.leases_of, {"host_id": host_id, "jobs": [lease.job_id for lease in held]})
    there = {job_id for (job_id,) in found}
    return [lease for lease in held if lease.job_id in there]


async def remove_leftovers(tx: Tx) -> None:
    """Remove expired codes, ended deliveries, and limit locks of removed hosts."""
    await tx.run(sql.forget_codes)
    await tx.run(sql.forget_deliveries)
    await tx.run(sql.forget_limits)
