"""HTTP claims that have an id, and the jobs that each took."""

from collections.abc import Sequence
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.job import Lease

sql = queries_beside(__file__)


class StoredClaim(msgspec.Struct, frozen=True):
    """The jobs of a claim, and the token of their leases."""

    token: UUID
    jobs: list[UUID]


async def store_claim(tx: Tx, *, worker: str, claim_id: UUID, token: UUID, jobs: Sequence[UUID]) -> bool:
    """Store the jobs of a claim; False if its id has taken jobs before."""
    values = {"worker": worker, "claim_id": claim_id, "token": token, "jobs": list(jobs)}
    return bool(await tx.values(sql.note, values))


async def repeat_claim(tx: Tx, *, worker: str, claim_id: UUID) -> StoredClaim | None:
    """The jobs of the claim with this id, marked as known to the worker; None if it took none."""
    return await tx.first(StoredClaim, sql.repeat, {"worker": worker, "claim_id": claim_id})


async def remove_claim(tx: Tx, *, worker: str, claim_id: UUID) -> None:
    """Remove a claim, so that its id can take jobs again."""
    await tx.run(sql.forget_one, {"worker": worker, "claim_id": claim_id})


async def withdraw_claims(tx: Tx, *, worker: str, tokens: Sequence[UUID]) -> set[UUID]:
    """Remove these claims, so that their jobs can be released, but those that the worker has repeated. Their tokens."""
    values = {"worker": worker, "tokens": list(tokens)}
    await tx.run(sql.withdraw, values)
    return {token for (token,) in await tx.values(sql.kept, values)}


async def list_leases(tx: Tx, noted: StoredClaim, *, tenant_id: UUID | None) -> list[Lease]:
    """The leases of a claim that still exist, expired or not, of one tenant or (None) of any."""
    values = {"jobs": noted.jobs, "token": noted.token, "tenant_id": tenant_id}
    return [Lease(*row) for row in await tx.values(sql.held, values)]


async def is_any_lost(tx: Tx, noted: StoredClaim) -> bool:
    """Whether a lease of the claim expired and was rescued."""
    [(lost,)] = await tx.values(sql.is_any_lost, {"jobs": noted.jobs, "token": noted.token})
    return bool(lost)


async def undo_charges(tx: Tx, noted: StoredClaim, *, worker: str) -> list[UUID]:
    """Undo the charges of the claim's jobs whose leases expired. Their ids."""
    values = {"worker": worker, "jobs": noted.jobs, "token": noted.token}
    return [job_id for (job_id,) in await tx.values(sql.uncharge, values)]


async def remove_old(tx: Tx) -> int:
    """Remove claims that are older than an hour. Their number."""
    return await tx.run(sql.forget)
