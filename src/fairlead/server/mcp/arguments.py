"""The arguments of tools. Their JSON Schemas are the tools' input schemas."""

from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from fairlead.model.error_groups import GroupOrder, GroupState
from fairlead.model.job import MAX_TAGS, JobStatus, Source, WaitingFor
from fairlead.server.mcp.bounds import MOST_ITEMS

# The statuses of jobs that are in error groups.
Troubled = Literal["dead_letter", "failed"]


class ToolArguments(BaseModel):
    """Arguments that every tool takes. Unknown ones are rejected."""

    model_config = ConfigDict(extra="forbid")

    tenant: str | None = Field(
        None,
        max_length=200,
        description="The tenant's slug or id. Only for a super admin's token: others have one tenant.",
    )


class PageArguments(ToolArguments):
    limit: int = Field(20, ge=1, le=MOST_ITEMS, description="How many lines, at most.")
    cursor: str | None = Field(None, max_length=1000, description="The next_cursor of the page before.")


class JobsArguments(PageArguments):
    status: list[JobStatus] | None = Field(None, min_length=1, description="Any of these.")
    definition_key: str | None = Field(None, description="The key of their definition.")
    source: Source | None = Field(None, description="How they were enqueued.")
    waiting_for: WaitingFor | None = Field(
        None,
        description="Queued jobs that wait for a worker, for their time, or for their next attempt after a failure.",
    )
    tags: list[str] | None = Field(None, min_length=1, max_length=MAX_TAGS, description="All of these.")
    error: str | None = Field(None, min_length=1, max_length=200, description="A part of the last error.")
    worker: str | None = Field(
        None, min_length=1, max_length=200, description="The worker's id, or the beginning of it."
    )
    correlation_id: str | None = Field(None, description="Exactly this one.")
    workflow_run_id: UUID | None = Field(None, description="The steps of this workflow run.")
    created_after: str | None = Field(None, description="A time with its zone: 2026-01-31T08:00:00Z.")
    created_before: str | None = Field(None, description="A time with its zone: 2026-01-31T08:00:00Z.")
    duration_over: float | None = Field(None, ge=0, description="Seconds of the last attempt.")
    payload_contains: dict[str, Any] | None = Field(
        None, description='Values that the payload has: {"customer": {"id": 42}}.'
    )
    q: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="A part of an id, a definition's key, an error or a payload.",
    )


class JobArguments(ToolArguments):
    job_id: UUID = Field(description="The job's id.")


class LogArguments(JobArguments):
    attempt_no: int | None = Field(None, ge=1, description="Only this attempt.")
    cursor: str | None = Field(None, max_length=100, description="The next_cursor of the part before.")


class DefinitionArguments(ToolArguments):
    definition_key: str = Field(max_length=200, description="The definition's key.")


class GroupsArguments(PageArguments):
    status: Troubled | None = Field("dead_letter", description="Groups with such jobs; null: both.")
    definition_key: str | None = Field(None, description="The key of their definition.")
    since: str | None = Field(None, description="Groups that failed since this time: 2026-01-31T08:00:00Z.")
    state: GroupState = Field(GroupState.OPEN, description="Open: with jobs, and not muted.")
    order: GroupOrder = Field(GroupOrder.LAST_SEEN, description="What comes first.")
    q: str | None = Field(None, min_length=1, max_length=200, description="A part of the error.")


class GroupArguments(ToolArguments):
    group_id: UUID = Field(description="The error group's id.")


class GroupRetryArguments(GroupArguments):
    status: Troubled | None = Field(None, description="Only such jobs; null: both.")
    limit: int = Field(100, ge=1, le=1000, description="The most jobs to retry.")


class EnqueueArguments(ToolArguments):
    definition_key: str = Field(max_length=200, description="The definition's key.")
    payload: dict[str, Any] = Field(
        default_factory=dict, description="As the definition's arg_schema describes it: see show_definition."
    )
    priority: int | None = Field(None, description="Lower runs first.")
    scheduled_for: str | None = Field(None, description="Not before this time: 2026-01-31T08:00:00Z.")
    delay_seconds: float | None = Field(None, ge=0, description="Not before so many seconds from now.")
    dedupe_key: str | None = Field(
        None, description="An active job with this key is returned instead of a second one."
    )
    correlation_id: str | None = Field(None, description="Joins jobs that belong together.")
    tags: list[str] | None = Field(None, max_length=MAX_TAGS, description="Short texts to find it by.")


class RetryArguments(JobArguments):
    payload: dict[str, Any] | None = Field(None, description="Run it with this payload instead.")
