"""The look for due jobs ends where the due jobs end, however many are due later."""

from fairlead.db.tx import Tx
from fairlead.store import queue


async def test_the_look_for_due_jobs_reads_only_due_ones(tx: Tx) -> None:
    await tx.prefer_indexes()
    rows = await tx.values(f"explain {queue.sql.stage}", {"limit": 1000})
    plan = "\n".join(line for (line,) in rows)
    assert "Index Scan using later_due" in plan
    assert "Index Cond: (due_at <=" in plan
