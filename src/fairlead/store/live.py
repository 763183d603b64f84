"""The changes that the live feed sends, and the tickets that open it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.access import Role
from fairlead.model.address_list import AddressList, build_lists
from fairlead.model.job import JobStatus

sql = queries_beside(__file__)


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """The principal of a ticket, and the token or session that it was issued for."""

    tenant_id: UUID | None
    actor: str
    role: Role
    token_id: UUID | None
    session_hash: bytes | None


class AuditChange(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of an audit entry that the live feed needs."""

    at: datetime
    action: str
    resource_type: str
    resource_id: str | None
    tenant_id: UUID | None
    attempt_no: int | None
    definition_key: str | None
    name: str | None


class RunningAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """A running attempt and its progress."""

    job_id: UUID
    attempt_no: int
    run_id: UUID
    tenant_id: UUID
    definition_key: str
    started_at: datetime
    progress: Any


class AttemptState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an attempt; `status` is its job's."""

    job_id: UUID
    attempt_no: int
    run_id: UUID
    tenant_id: UUID
    definition_key: str
    status: JobStatus
    attempt_status: str
    started_at: datetime
    finished_at: datetime | None
    duration_ms: int | None
    error: str | None


async def add_ticket(tx: Tx, *, ticket_hash: bytes, ticket: Ticket, seconds: float) -> None:
    """Store a ticket's hash for `seconds`."""
    values = {
        "ticket_hash": ticket_hash,
        "tenant_id": ticket.tenant_id,
        "actor": ticket.actor,
        "role": ticket.role,
        "token_id": ticket.token_id,
        "session_hash": ticket.session_hash,
        "seconds": seconds,
    }
    await tx.run(sql.add_ticket, values)


async def use_ticket(tx: Tx, ticket_hash: bytes) -> Ticket | None:
    """Use up a ticket. None if it was used before or has expired."""
    return await tx.first(Ticket, sql.redeem, {"ticket_hash": ticket_hash})


async def filter_valid_tokens(tx: Tx, ids: Sequence[UUID]) -> dict[UUID, tuple[AddressList, ...]]:
    """Those of the tokens that are neither revoked nor expired, with the allow-lists that bind them."""
    found = await tx.values(sql.good_tokens, {"ids": list(ids)})
    return {one: build_lists(own, tenant) for one, own, tenant in found}


async def filter_valid_sessions(tx: Tx, hashes: Sequence[bytes]) -> dict[bytes, tuple[AddressList, ...]]:
    """Those of the sessions that have neither ended nor expired, with the allow-lists that bind them."""
    found = await tx.values(sql.good_sessions, {"hashes": list(hashes)})
    return {bytes(one): build_lists(tenant=tenant) for one, tenant in found}


async def read_clock(tx: Tx) -> datetime:
    """The database's time."""
    [(time,)] = await tx.values(sql.now)
    return time  # type: ignore[no-any-return]


async def filter_active_tenants(tx: Tx, tenants: Sequence[UUID]) -> set[UUID]:
    """Those of the tenants that have running jobs or recent changes."""
    return {one for (one,) in await tx.values(sql.stirring, {"tenants": list(tenants)})}


async def list_changes(tx: Tx, *, tenant_id: UUID | None, since: datetime, limit: int) -> list[AuditChange]:
    """The newest changes since then, newest first."""
    return await tx.all(AuditChange, sql.tail, {"tenant_id": tenant_id, "since": since, "limit": limit})


async def list_system_changes(tx: Tx, *, since: datetime, limit: int) -> list[AuditChange]:
    """Changes that belong to no tenant, newest first."""
    return await tx.all(AuditChange, sql.system_tail, {"since": since, "limit": limit})


async def list_running(tx: Tx, *, tenant_id: UUID | None, limit: int) -> list[RunningAttempt]:
    """Up to `limit` of the attempts that run now."""
    return await tx.all(RunningAttempt, sql.running, {"tenant_id": tenant_id, "limit": limit})


async def list_newer_attempts(
    tx: Tx, known: Mapping[UUID, int], *, since: datetime
) -> list[tuple[UUID, int]]:
    """The attempts of these jobs after each job's last known one that began since then and have ended."""
    values = {"jobs": list(known), "attempts": list(known.values()), "since": since}
    return [(job, number) for job, number in await tx.values(sql.newer, values)]


async def list_attempts(tx: Tx, wanted: Sequence[tuple[UUID, int]]) -> list[AttemptState]:
    """The states of these attempts; removed attempts are missing."""
    jobs, numbers = [job for job, _ in wanted], [number for _, number in wanted]
    return await tx.all(AttemptState, sql.attempts, {"jobs": jobs, "attempts": numbers})


async def list_worker_ids(tx: Tx, *, limit: int) -> set[str]:
    """The ids of the workers that are alive."""
    return {one for (one,) in await tx.values(sql.workers, {"limit": limit})}
