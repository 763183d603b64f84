"""What a durable function has recorded, as a document that new code can be compared with."""

from typing import Any, Literal
from uuid import UUID

import msgspec

from fairlead.errors import InvalidInput
from fairlead.model.durable import MOST_SECONDS, JobStep, StepRecord, StepStatus
from fairlead.model.job import Job, JobStatus


class HistoryJob(msgspec.Struct, frozen=True, kw_only=True):
    """The job of a history."""

    id: UUID
    tenant: str
    tenant_id: UUID
    definition_key: str
    status: JobStatus
    payload: Any
    output: Any
    error: Any
    attempt_count: int
    max_attempts: int
    correlation_id: str | None
    parent_id: UUID | None
    # of a replay: the id of the first job that it repeats, with whose random numbers it goes on
    replay_of: str | None = None


class JobHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a durable function, and all that it has recorded."""

    format: Literal["fairlead.history.1"] = "fairlead.history.1"
    job: HistoryJob
    steps: tuple[JobStep, ...]

    def list_records(self) -> list[StepRecord]:
        """The steps as a replay needs them. What waits goes on waiting."""
        return [
            StepRecord(
                branch=step.branch,
                position=step.number - 1,
                kind=step.kind,
                name=step.name,
                status=step.status,
                tries=step.tries,
                attempt_no=step.attempt_no,
                seconds_left=MOST_SECONDS if step.status is StepStatus.WAITING else None,
                result=step.result,
                error=step.error,
            )
            for step in self.steps
        ]


def build_history(job: Job, steps: list[JobStep], *, replay_of: str | None = None) -> JobHistory:
    """The history of a job."""
    fields = {name: getattr(job, name) for name in HistoryJob.__struct_fields__ if name != "replay_of"}
    return JobHistory(job=HistoryJob(**fields, replay_of=replay_of), steps=tuple(steps))


def parse_history(document: Any) -> JobHistory:
    """The history in a document: JSON, or its values."""
    try:
        if isinstance(document, str | bytes):
            return msgspec.json.decode(document, type=JobHistory)
        return msgspec.convert(document, JobHistory)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidInput(
            f"This is not the history of a durable function: {error}. Get one with: fairlead jobs history JOB_ID --json"
        ) from None
