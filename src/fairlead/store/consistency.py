"""Check that queue, record and counts agree, in pieces that each read a bounded number of rows."""

from typing import NamedTuple
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.inconsistency import Inconsistency

sql = queries_beside(__file__)

BEGINNING = UUID(int=0)
LOOK = 5000
LOOK_RUNS = 200

_faults = msgspec.json.Decoder(list[Inconsistency])


class CheckedPiece(NamedTuple):
    """The faults of a piece, and the place where the next piece begins; None: it was the last."""

    faults: list[Inconsistency]
    place: UUID | None


class KeyPlace(NamedTuple):
    """The position of the walk through the keys in use."""

    tenant_id: UUID = BEGINNING
    key_hash: bytes = b""


async def check_jobs(tx: Tx, place: UUID | None, *, look: int = LOOK) -> CheckedPiece:
    """Check `look` jobs after a place: those that are not in the hot table that their status requires."""
    await tx.prefer_indexes()  # it costs the same however large the tables are
    [(after, text)] = await tx.values(sql.jobs, {"place": place or BEGINNING, "look": look})
    return CheckedPiece(_faults.decode(text), after)


async def find_newest_job_place(tx: Tx, *, look: int) -> UUID | None:
    """The place before the newest `look` jobs."""
    rows = await tx.values(sql.newest_place, {"look": look})
    return rows[0][0] if rows else None


async def check_leases(tx: Tx) -> list[Inconsistency]:
    """Leases of attempts that do not run."""
    return await tx.all(Inconsistency, sql.leases)


async def check_keys(
    tx: Tx, place: KeyPlace, *, look: int = LOOK
) -> tuple[list[Inconsistency], KeyPlace | None]:
    """Check `look` keys in use: those whose job has ended. And the next place."""
    await tx.prefer_indexes()  # it costs the same however large the tables are
    [(tenant_id, key_hash, text)] = await tx.values(sql.keys, {**place._asdict(), "look": look})
    return _faults.decode(text), None if tenant_id is None else KeyPlace(tenant_id, key_hash)


async def check_runs(tx: Tx, place: UUID | None, *, look: int = LOOK_RUNS) -> CheckedPiece:
    """Check `look` runs after a place: those whose counters are wrong."""
    await tx.prefer_indexes()  # it costs the same however large the tables are
    [(after, text)] = await tx.values(sql.runs, {"place": place or BEGINNING, "look": look})
    return CheckedPiece(_faults.decode(text), after)


async def find_newest_run_place(tx: Tx, *, look: int) -> UUID | None:
    """The place before the newest `look` runs."""
    rows = await tx.values(sql.newest_run, {"look": look})
    return rows[0][0] if rows else None


async def check_levels(tx: Tx) -> list[Inconsistency]:
    """Tenants whose counts of queued and running jobs are wrong."""
    return await tx.all(Inconsistency, sql.levels)


async def list_tenant_ids(tx: Tx) -> list[UUID]:
    """Every tenant."""
    return [tenant_id for (tenant_id,) in await tx.values(sql.tenants)]


async def check_counts(tx: Tx, tenant_id: UUID) -> list[Inconsistency]:
    """The faults of a tenant's counts and usage: reads all of its jobs."""
    return await tx.all(Inconsistency, sql.counts, {"tenant_id": tenant_id})
