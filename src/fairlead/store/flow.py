"""How many jobs ended, step by step: for charts."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx

sql = queries_beside(__file__)


class Step(msgspec.Struct, frozen=True):
    """How many jobs ended well and badly from `at` on; less those that were retried by hand."""

    at: datetime
    succeeded: int
    failed: int


class Ended(msgspec.Struct, frozen=True):
    """How many jobs of a tenant ended well and badly; less those that were retried by hand."""

    tenant_id: UUID
    succeeded: int
    failed: int


async def flow(tx: Tx, *, tenant_id: UUID | None, seconds: int, step: int) -> list[Step]:
    """The last so many seconds, of a tenant or (None) of all, in steps; the oldest first."""
    return await tx.all(Step, sql.flow, {"tenant_id": tenant_id, "seconds": seconds, "step": step})


async def ended(tx: Tx, tenants: Sequence[UUID], *, seconds: int) -> list[Ended]:
    """What ended at each of these tenants in the last so many seconds."""
    await tx.by_index()
    return await tx.all(Ended, sql.ended, {"tenants": list(tenants), "seconds": seconds})
