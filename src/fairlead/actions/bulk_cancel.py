"""Cancel many jobs: waiting jobs at once, running jobs by a cancel request."""

import asyncio
from collections.abc import Collection
from uuid import UUID

from fairlead.db.tx import Tx
from fairlead.store import bulk_jobs

ROUNDS = 10
ROUND_SECONDS = 0.01


async def cancel_jobs(tx: Tx, ids: Collection[UUID]) -> tuple[list[UUID], list[UUID]]:
    """Cancel jobs. The canceled ones, and those that are asked to stop; tries jobs that are locked several times."""
    left, canceled, asked = set(ids), list[UUID](), list[UUID]()
    for _ in range(ROUNDS):
        ended = await bulk_jobs.cancel_queued(tx, list(left))
        requested = await bulk_jobs.request_cancel(tx, list(left.difference(ended)))
        canceled += ended
        asked += requested
        left = set(await bulk_jobs.filter_cancelable(tx, list(left.difference(ended, requested))))
        if not left:
            break
        await asyncio.sleep(ROUND_SECONDS)
    return canceled, asked
