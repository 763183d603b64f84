"""When attempts and steps waited and ran."""

from datetime import datetime
from uuid import UUID

import msgspec

from fairlead.model.workflow.run import RunStatus, StepState


class AttemptSpan(msgspec.Struct, frozen=True, kw_only=True):
    """When an attempt of a job ran."""

    job_id: UUID
    attempt_no: int
    status: str
    started_at: datetime
    finished_at: datetime | None


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """When a step of a run was released, began and ended; and the run that it waits for."""

    place: int
    name: str
    definition_key: str
    state: StepState
    items: int | None
    queued_at: datetime
    finished_at: datetime | None
    job_id: UUID | None
    # of a step with items: when the first of them began
    started_at: datetime | None
    run_id: UUID | None
    run_key: str | None
    run_status: RunStatus | None
    run_created_at: datetime | None
    run_finished_at: datetime | None
