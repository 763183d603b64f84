"""Time travel for tests."""

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx

sql = queries_beside(__file__)


async def make_all_due(tx: Tx) -> int:
    """Make every job in later due now. Their number."""
    return await tx.run(sql.bring_forward)


async def pass_time(tx: Tx, seconds: float) -> None:
    """Move the times of waiting jobs and durable functions back, as if these seconds had passed."""
    await tx.run(sql.pass_time, {"seconds": seconds})
