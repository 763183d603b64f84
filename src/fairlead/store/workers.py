"""The registry of workers."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.model.page import Page
from fairlead.model.summary import RunningJobSummary
from fairlead.store import bounded_page

sql = queries_beside(__file__)

# The most workers with tokens of one tenant in the registry; more workers can still run jobs.
MOST_OF_A_TENANT = 100
MEGABYTE = 1_048_576


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
    labels: dict[str, str]
    metadata: Any
    # since when it is asked to claim nothing more
    drain_requested_at: datetime | None
    drain_requested_by: str | None
    stale: bool

    @property
    def recycling(self) -> "RecyclingState":
        """When it is replaced; without limits if it did not say so."""
        try:
            return msgspec.convert(self.metadata["recycling"], RecyclingState)
        except (TypeError, KeyError, msgspec.ValidationError):
            return RecyclingState()


class RecyclingState(msgspec.Struct, frozen=True):
    """When a worker process is replaced, and how near that is: as it last described itself."""

    jobs: int = 0
    rss: int = 0
    max_jobs: int | None = None
    max_rss: int | None = None
    # the limit that it has reached: it claims until its successor does
    reason: str | None = None

    @property
    def words(self) -> str:
        """The limits and the present figures, as text; empty without limits."""
        parts = []
        if self.max_jobs is not None:
            parts.append(f"{self.jobs:,} of {self.max_jobs:,} jobs")
        if self.max_rss is not None:
            parts.append(f"{self.rss // MEGABYTE:,} of {self.max_rss // MEGABYTE:,} MB")
        return ", ".join(parts)


class LostLeases(msgspec.Struct, frozen=True, kw_only=True):
    """That a worker lost leases: when the last one expired, and the job that was charged with it."""

    expired_at: datetime
    # whether one job was accused
    blamed: bool
    charged_job: UUID | None
    charged_attempt: int | None


async def register(
    tx: Tx,
    *,
    worker_id: str,
    hostname: str,
    version: str,
    keys: Sequence[str],
    running: int,
    concurrency: int,
    labels: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    tenant_id: UUID | None = None,
    draining: bool = False,
    may_add: bool = True,
) -> bool:
    """Register a live worker and the definitions that it serves (no keys: all). Whether it must claim nothing more.

    `draining`: it was told so before. Without `may_add` a worker of one tenant is only updated.
    """
    values = {
        "worker_id": worker_id,
        "tenant_id": tenant_id,
        "most": MOST_OF_A_TENANT,
        "hostname": hostname,
        "version": version,
        "keys": list(keys),
        "running": running,
        "concurrency": concurrency,
        "labels": json_text(labels or {}),
        "metadata": json_text(metadata or {}),
        "draining": draining,
        "may_add": may_add,
    }
    return any(told for (told,) in await tx.values(sql.seen, values))


async def list_page(tx: Tx, *, stale_seconds: float, after: str, limit: int) -> Page[RegisteredWorker]:
    """Workers ordered by id, after the given id; `stale`: not seen for `stale_seconds`."""
    values = {"stale_seconds": stale_seconds, "after": after}
    return await bounded_page.fetch_page(
        tx, RegisteredWorker, sql.page, values, limit=limit, weighed=("metadata", "queues", "labels")
    )


async def find(tx: Tx, worker_id: str, *, stale_seconds: float) -> RegisteredWorker | None:
    """A worker by id; its running jobs are counted."""
    values = {"worker_id": worker_id, "stale_seconds": stale_seconds}
    return await tx.first(RegisteredWorker, sql.find, values)


async def list_jobs(tx: Tx, worker_id: str, *, limit: int) -> list[RunningJobSummary]:
    """The jobs that a worker runs, the longest running first."""
    return await tx.all(RunningJobSummary, sql.jobs, {"worker_id": worker_id, "limit": limit})


async def find_lost(tx: Tx, worker_id: str) -> LostLeases | None:
    """The leases that a worker lost in the last day."""
    return await tx.first(LostLeases, sql.lost, {"worker_id": worker_id})


async def request_drain(tx: Tx, worker_id: str, *, actor: str) -> bool:
    """Ask a worker to claim nothing more. Whether there is such a worker."""
    return bool(await tx.values(sql.drain, {"worker_id": worker_id, "actor": actor}))


async def end_drain(tx: Tx, worker_id: str) -> bool:
    """Let a worker claim again. Whether there is such a worker."""
    return bool(await tx.values(sql.resume, {"worker_id": worker_id}))


async def remove(tx: Tx, worker_id: str) -> None:
    """Remove a worker that stops."""
    await tx.run(sql.gone, {"worker_id": worker_id})


async def remove_stale(tx: Tx, *, seconds: float) -> int:
    """Remove the workers that were not seen for `seconds`. Their number."""
    return await tx.run(sql.prune, {"seconds": seconds})
