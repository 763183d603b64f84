"""Keys that outlive their jobs: dedupe keys that stay taken for a time, and debounced keys."""

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx

sql = queries_beside(__file__)


async def free_over(tx: Tx, *, limit: int) -> int:
    """Free dedupe keys whose time is over and whose jobs have ended. Their number."""
    return len(await tx.values(sql.free_over, {"limit": limit}))


async def forget_debounced(tx: Tx, *, limit: int) -> int:
    """Remove debounced keys whose jobs started or ended long ago. Their number."""
    return len(await tx.values(sql.forget_debounced, {"limit": limit}))
