"""Read-only views of runs and their steps."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.job import JobStatus
from fairlead.model.page import Page
from fairlead.model.workflow.run import RunStatus, StepState, StepSummary
from fairlead.store import bounded_page

sql = queries_beside(__file__)


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A run as a list of workflows shows it."""

    key: str
    id: UUID
    status: RunStatus
    created_at: datetime


class ItemJob(msgspec.Struct, frozen=True, kw_only=True):
    """The job of one item of a step."""

    item: int
    id: UUID
    status: JobStatus
    attempt_count: int
    started_at: datetime | None
    finished_at: datetime | None
    last_error: str | None
    queue_ms: int | None
    duration_ms: int | None


async def list_recent_runs(tx: Tx, *, tenant_id: UUID, keys: Sequence[str], each: int) -> list[RunSummary]:
    """The last few runs of each of these workflows, newest first."""
    return await tx.all(RunSummary, sql.recent, {"tenant_id": tenant_id, "keys": list(keys), "each": each})


async def list_step_summaries(tx: Tx, run_id: UUID) -> list[StepSummary]:
    """Every step of a run, with only the fields of the drawing."""
    return await tx.all(StepSummary, sql.summaries, {"run_id": run_id})


async def list_step_groups(tx: Tx, run_id: UUID) -> list[tuple[list[int], list[int]]]:
    """The places that steps wait for, and the places of the steps that wait for exactly these."""
    return [(before, places) for before, places in await tx.values(sql.groups, {"run_id": run_id})]


async def list_states(tx: Tx, run_id: UUID) -> list[StepState]:
    """The state of every step of a run, in order."""
    return [StepState(state) for (state,) in await tx.values(sql.states, {"run_id": run_id})]


async def list_items(
    tx: Tx, run_id: UUID, place: int, *, first: int, status: JobStatus | None, limit: int
) -> Page[ItemJob]:
    """The jobs of a for_each step, from an item on."""
    values = {"run_id": run_id, "place": place, "first": first, "status": status}
    return await bounded_page.fetch_page(tx, ItemJob, sql.items, values, limit=limit, weighed=("last_error",))
