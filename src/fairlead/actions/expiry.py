"""Cancel jobs that have not started in time."""

from fairlead.actions.workflow_progress import settle_or_leave
from fairlead.db.tx import Tx
from fairlead.model.job import JobStatus
from fairlead.store import queue


async def expire_jobs(tx: Tx, *, limit: int) -> bool:
    """Cancel up to `limit` of them, and move the runs of workflow steps on. Whether there may be more at once."""
    found = await queue.expire(tx, limit=limit)
    await settle_or_leave(tx, dict.fromkeys(found.canceled, JobStatus.CANCELED))
    if found.released:
        tx.notify("ready")
    return found.done == limit
