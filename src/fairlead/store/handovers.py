"""Handovers: the attempts that delivery engines carry to workers elsewhere."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
import structlog

from fairlead.db.arrays import IntegerArray, UuidArray
from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.errors import KEY_ERRORS
from fairlead.model.delivery import SECRET_DIGITS, AttemptRef
from fairlead.model.job import Lease
from fairlead.store import sealing
from fairlead.store.leases import LeaseOwner

sql = queries_beside(__file__)
log = structlog.get_logger(__name__)

NIL = UUID(int=0)


class DeliveredDefinition(msgspec.Struct, frozen=True):
    """A definition whose jobs an engine delivers."""

    id: UUID
    key: str
    engine: str
    queue: str | None


class HostName(msgspec.Struct, frozen=True):
    id: UUID
    name: str


class HandoverRow(msgspec.Struct, frozen=True, kw_only=True):
    """A running attempt that an engine carries."""

    job_id: UUID
    attempt_no: int
    token: UUID
    queue: str
    tenant_id: UUID
    tenant: str
    definition_key: str
    payload: Any = None  # only while the engine has not confirmed it
    timeout_seconds: int
    max_attempts: int
    correlation_id: str | None
    parent_id: UUID | None
    host: str | None
    handed_over_at: datetime | None
    stopped_at: datetime | None
    is_canceled: bool
    # its time limit has passed
    is_late: bool

    @property
    def lease(self) -> Lease:
        return Lease(self.job_id, self.attempt_no, self.token)


async def list_definitions(tx: Tx, engines: Collection[str]) -> list[DeliveredDefinition]:
    """The definitions whose jobs these engines deliver."""
    return await tx.all(DeliveredDefinition, sql.definitions, {"engines": list(engines)})


async def list_hosts(tx: Tx, definitions: Sequence[UUID], *, limit: int) -> list[HostName]:
    """The hosts that have ready jobs of these definitions."""
    return await tx.all(HostName, sql.hosts, {"definitions": UuidArray(definitions), "limit": limit})


async def add(tx: Tx, engine: str, leases: Sequence[Lease], queues: Sequence[str]) -> None:
    """Note that an engine will carry these attempts, which one claim took."""
    values = {
        "engine": engine,
        "token": leases[0].token,
        "jobs": UuidArray([one.job_id for one in leases]),
        "attempts": IntegerArray([one.attempt_no for one in leases]),
        "queues": list(queues),
    }
    await tx.run(sql.add, values)


async def list_unconfirmed(
    tx: Tx, engine: str, *, bridge: str, patience: float, limit: int
) -> list[HandoverRow]:
    """Attempts that the engine has not confirmed: those of this bridge, and of others after `patience` seconds.

    Without those whose keys cannot be had now.
    """
    values = {"engine": engine, "bridge": bridge, "patience": patience, "limit": limit}
    rows, ready = await tx.all(HandoverRow, sql.unconfirmed, values), list[HandoverRow]()
    await sealing.fetch_keys(tx, [row.payload for row in rows])
    for row in rows:
        try:
            payload = await _open(tx, row, row.payload, row.job_id)
        except KEY_ERRORS as error:
            log.warning("handover_put_off", job_id=str(row.job_id), tenant=row.tenant, why=error.message)
        else:
            ready.append(msgspec.structs.replace(row, payload=payload))
    return ready


async def _open(tx: Tx, row: "HandoverRow | HandoverOwner", payload: Any, job_id: UUID) -> Any:
    """A payload with its secrets; SealBroken or EncryptionKeyMissing if it cannot be opened."""
    return await sealing.unseal_payload(
        tx, payload, tenant_id=row.tenant_id, definition=row.definition_key, job_id=job_id
    )


async def list_in_flight(tx: Tx, engine: str, *, after: UUID = NIL, limit: int) -> list[HandoverRow]:
    """Attempts that the engine has, ordered by job; without their payloads."""
    return await tx.all(HandoverRow, sql.in_flight, {"engine": engine, "after": after, "limit": limit})


async def count(tx: Tx, engine: str) -> int:
    """How many attempts the engine carries."""
    [(number,)] = await tx.values(sql.count, {"engine": engine})
    return int(number)


async def confirm(tx: Tx, leases: Sequence[Lease]) -> None:
    """Note that the engine has these attempts: their time begins."""
    await tx.run(sql.confirm, _lease_arrays(leases))


async def mark_stopped(tx: Tx, leases: Sequence[Lease]) -> None:
    """Note that the engine was told to stop these attempts."""
    await tx.run(sql.stop, _lease_arrays(leases))


async def renew(tx: Tx, engines: Collection[str], *, lease_seconds: float) -> int:
    """Renew the leases of everything that these engines carry. How many were renewed."""
    return await tx.run(sql.renew, {"engines": list(engines), "lease_seconds": lease_seconds})


class HandoverOwner(LeaseOwner, frozen=True, kw_only=True):
    """The job of a lease, for the attempt at this place of a list."""

    at: int
    token: UUID


async def find_owners(
    tx: Tx, engine: str, attempts: Sequence[AttemptRef]
) -> dict[int, tuple[Lease, LeaseOwner]]:
    """The lease and the job of each attempt, by its place; without attempts that have ended, or that the engine has not."""
    values = {
        "engine": engine,
        "digits": SECRET_DIGITS,
        "jobs": UuidArray([attempt.job_id for attempt in attempts]),
        "attempts": IntegerArray([attempt.attempt_no for attempt in attempts]),
        "tokens": [attempt.token for attempt in attempts],
        "secrets": [attempt.secret for attempt in attempts],
        "queues": [attempt.queue for attempt in attempts],
    }
    found: dict[int, tuple[Lease, LeaseOwner]] = {}
    for one in await tx.all(HandoverOwner, sql.owners, values):
        attempt = attempts[one.at - 1]
        plain = None if one.payload is None else await _open(tx, one, one.payload, attempt.job_id)
        found[one.at - 1] = (
            Lease(attempt.job_id, attempt.attempt_no, one.token),
            msgspec.structs.replace(one, payload=plain),
        )
    return found


async def remove_ended(tx: Tx, engines: Collection[str], *, limit: int) -> int:
    """Remove the handovers of attempts that have ended. Their number."""
    return await tx.run(sql.forget, {"engines": list(engines), "limit": limit})


def _lease_arrays(leases: Sequence[Lease]) -> dict[str, Any]:
    return {
        "jobs": UuidArray([one.job_id for one in leases]),
        "attempts": IntegerArray([one.attempt_no for one in leases]),
        "tokens": UuidArray([one.token for one in leases]),
    }
