"""The registry of workers."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.model.page import Page
from fairlead.store import bounded_page

sql = queries_beside(__file__)

# The most workers with tokens of one tenant in the registry; more workers can still run jobs.
MOST_OF_A_TENANT = 100


class RegisteredWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as it last described itself."""

    worker_id: str
    # its tenant, if it serves only one
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


async def register(
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
    """Register a live worker and the definitions that it serves (no keys: all)."""
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


async def list_page(tx: Tx, *, stale_seconds: float, after: str, limit: int) -> Page[RegisteredWorker]:
    """Workers ordered by id, after the given id; `stale`: not seen for `stale_seconds`."""
    values = {"stale_seconds": stale_seconds, "after": after}
    return await bounded_page.fetch_page(
        tx, RegisteredWorker, sql.page, values, limit=limit, weighed=("metadata", "queues")
    )


async def remove(tx: Tx, worker_id: str) -> None:
    """Remove a worker that stops."""
    await tx.run(sql.gone, {"worker_id": worker_id})


async def remove_stale(tx: Tx, *, seconds: float) -> int:
    """Remove the workers that were not seen for `seconds`. Their number."""
    return await tx.run(sql.prune, {"seconds": seconds})
