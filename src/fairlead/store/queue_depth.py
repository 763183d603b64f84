"""What workers run and could start now, by tenant and definition."""

from uuid import UUID

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.queue_depth import PairDepth

sql = queries_beside(__file__)

# The most due jobs of a tenant and definition that are counted.
MOST_DUE = 10_000


async def list_pairs(tx: Tx, *, tenant_id: UUID | None, definition_id: UUID | None) -> list[PairDepth]:
    """Pairs with due jobs of a tenant and definition, or (None) of all, and all pairs with leases."""
    values = {"tenant_id": tenant_id, "definition_id": definition_id, "most": MOST_DUE}
    return await tx.all(PairDepth, sql.pairs, values)
