"""Usage: what was done for whom, and when."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx

sql = queries_beside(__file__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """How many jobs of a definition ended how, in an hour or a day; less those that were retried by hand."""

    definition_key: str
    starts_at: datetime
    succeeded: int
    failed: int
    dead_letter: int
    canceled: int


async def flows(tx: Tx, *, tenant_id: UUID | None, by: str) -> list[Flow]:
    """The last day by `hour` or `day`, of a tenant or (None) of all together; the newest first."""
    return await tx.all(Flow, sql.flows, {"tenant_id": tenant_id, "by": by})
