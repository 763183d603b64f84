"""What workers run and could start now, by tenant and definition."""

from uuid import UUID

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.queue_depth import PairDepth

sql = queries_beside(__file__)

# The most due jobs of a tenant and definition that are counted, and the fewest, however many pairs there are.
MOST_DUE = 10_000
LEAST_DUE = 10
# About how many are counted in all, twice: of every pair, and then of the pairs that have more.
BUDGET = 25_000


async def list_pairs(tx: Tx, *, tenant_id: UUID | None, definition_id: UUID | None) -> list[PairDepth]:
    """Pairs with due jobs of a tenant and definition, or (None) of all, and all pairs with leases."""
    bounds = {"most": MOST_DUE, "least": LEAST_DUE, "budget": BUDGET}
    values = {"tenant_id": tenant_id, "definition_id": definition_id, **bounds}
    return await tx.all(PairDepth, sql.pairs, values)
