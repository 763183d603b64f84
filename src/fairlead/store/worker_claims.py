"""Claims over HTTP that have an id: what each took. Takes a Tx, never opens one."""

from collections.abc import Sequence
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.job import Lease

sql = queries_beside(__file__)


class Noted(msgspec.Struct, frozen=True):
    """What a claim took: jobs, under leases with this token."""

    token: UUID
    jobs: list[UUID]


async def note(tx: Tx, *, worker: str, claim_id: UUID, token: UUID, jobs: Sequence[UUID]) -> bool:
    """Write down what this claim took; False if its id has taken jobs before."""
    values = {"worker": worker, "claim_id": claim_id, "token": token, "jobs": list(jobs)}
    return bool(await tx.values(sql.note, values))


async def repeat(tx: Tx, *, worker: str, claim_id: UUID) -> Noted | None:
    """What the claim with this id took, if it took anything: from now on the worker may know of it."""
    return await tx.first(Noted, sql.repeat, {"worker": worker, "claim_id": claim_id})


async def forget_one(tx: Tx, *, worker: str, claim_id: UUID) -> None:
    """Let the id take jobs again."""
    await tx.run(sql.forget_one, {"worker": worker, "claim_id": claim_id})


async def withdraw(tx: Tx, *, worker: str, tokens: Sequence[UUID]) -> set[UUID]:
    """Forget these claims, so that their jobs can be given back. Which ones the worker has asked for again: not those."""
    values = {"worker": worker, "tokens": list(tokens)}
    await tx.run(sql.withdraw, values)
    return {token for (token,) in await tx.values(sql.kept, values)}


async def held(tx: Tx, noted: Noted, *, tenant_id: UUID | None) -> list[Lease]:
    """What is left of a claim, of one tenant or (None) of any: leases that nobody has ended, expired or not."""
    values = {"jobs": noted.jobs, "token": noted.token, "tenant_id": tenant_id}
    return [Lease(*row) for row in await tx.values(sql.held, values)]


async def is_any_lost(tx: Tx, noted: Noted) -> bool:
    """Whether a lease of the claim expired and was rescued."""
    [(lost,)] = await tx.values(sql.is_any_lost, {"jobs": noted.jobs, "token": noted.token})
    return bool(lost)


async def uncharge(tx: Tx, noted: Noted, *, worker: str) -> list[UUID]:
    """Take back what jobs of the claim were charged when its leases expired. Which jobs."""
    values = {"worker": worker, "jobs": noted.jobs, "token": noted.token}
    return [job_id for (job_id,) in await tx.values(sql.uncharge, values)]


async def forget(tx: Tx) -> int:
    """Forget claims that are older than an hour. How many."""
    return await tx.run(sql.forget)
