"""Workers: who is there to run jobs."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.model.page import Page
from fairlead.store import bounded

sql = queries_beside(__file__)

# How many workers with tokens of one tenant the registry has; others may work all the same.
MOST_OF_A_TENANT = 100


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as it last described itself."""

    worker_id: str
    # whose it is, if it serves one tenant only
    tenant_id: UUID | None
    tenant: str | None
    hostname: str
    version: str
    queues: list[str]
    started_at: datetime
    last_seen_at: datetime
    running_count: int
    concurrency: int
    metadata: Any
    stale: bool


async def seen(
    tx: Tx,
    *,
    worker_id: str,
    hostname: str,
    version: str,
    keys: Sequence[str],
    running: int,
    concurrency: int,
    metadata: Mapping[str, Any] | None = None,
    tenant_id: UUID | None = None,
) -> None:
    """A worker says that it is there, and what it serves (no keys: everything)."""
    values = {
        "worker_id": worker_id,
        "tenant_id": tenant_id,
        "most": MOST_OF_A_TENANT,
        "hostname": hostname,
        "version": version,
        "keys": list(keys),
        "running": running,
        "concurrency": concurrency,
        "metadata": json_text(metadata or {}),
    }
    await tx.run(sql.seen, values)


async def page(tx: Tx, *, stale_seconds: float, after: str, limit: int) -> Page[Worker]:
    """Workers by id, after this one; `stale` are those that were not seen for so long."""
    values = {"stale_seconds": stale_seconds, "after": after}
    return await bounded.page(tx, Worker, sql.page, values, limit=limit, weighed=("metadata", "queues"))


async def gone(tx: Tx, worker_id: str) -> None:
    """A worker says goodbye."""
    await tx.run(sql.gone, {"worker_id": worker_id})


async def prune(tx: Tx, *, seconds: float) -> int:
    """Forget the workers that were not seen for so long. How many."""
    return await tx.run(sql.prune, {"seconds": seconds})
