"""Triggers: rules that create jobs; the request for one, the stored record, and the record of each firing."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import Meta

from fairlead.model.field import Internal
from fairlead.model.input_fields import InputLimits

LONGEST_LABEL = 200
LONGEST_WINDOW = 30 * 86_400
LONGEST_JITTER = 86_400


class TriggerType(StrEnum):
    """The names of the kinds: `model/trigger_kinds` has a module for each."""

    EVENT = "event"
    SCHEDULE = "schedule"


class CatchUp(StrEnum):
    """Which missed instants create a job: none, the latest, or all."""

    SKIP = "skip"
    ONE = "one"
    ALL = "all"


class Overlap(StrEnum):
    """Whether a schedule creates a job while its previous one is still queued or running."""

    SKIP = "skip"
    ALLOW = "allow"


class FiringOutcome(StrEnum):
    ENQUEUED = "enqueued"
    DEDUPLICATED = "deduplicated"
    SKIPPED = "skipped"
    FAILED = "failed"


_TEXT = InputLimits(1, LONGEST_LABEL)
_WINDOW = InputLimits(0, LONGEST_WINDOW, "30 days")
_JITTER = InputLimits(0, LONGEST_JITTER, "a day")


class TriggerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a trigger that its owner sets. None means not given. Each face derives its own from these."""

    label: Annotated[str, _TEXT, Meta(description="Its display name.")]
    trigger_type: TriggerType
    definition_key: Annotated[str, _TEXT, Meta(description="The definition of its jobs: its key.")]
    is_enabled: bool = True
    event_name: Annotated[
        str | None, Meta(description="The name of the event, such as provider.folder.updated.")
    ] = None
    filter: Annotated[
        dict[str, Any] | None, Meta(description="Only events whose data matches this (JSON).")
    ] = None
    cron_expr: Annotated[
        str | None, _TEXT, Meta(description='When to run, such as "0 2 * * *" or @daily.')
    ] = None
    timezone: Annotated[
        str | None, _TEXT, Meta(description="The time zone of cron_expr (default: the tenant's).")
    ] = None
    every_seconds: Annotated[int | None, Meta(description="Run at this interval; 0 means once.")] = None
    start_at: Annotated[datetime | None, Meta(description="When the interval begins (default: now).")] = None
    end_at: Annotated[
        datetime | None, Meta(description="No run at or after this time (default: no end).")
    ] = None
    jitter_seconds: Annotated[
        int | None,
        _JITTER,
        Meta(
            description="Delay each run by a random part of these seconds, to spread the load (default: 0)."
        ),
    ] = None
    payload_template: Annotated[
        Any, Meta(description="The payload's template (JSON), with expressions such as {{event.id}}.")
    ] = None
    job_options: Annotated[
        dict[str, Any] | None,
        Meta(
            description="Options of its jobs (JSON), a template as the payload is: priority, max_attempts, tags, timeout, "
            "expires_in and, for events, debounce."
        ),
    ] = None
    dedupe_window_seconds: Annotated[
        int | None,
        _WINDOW,
        Meta(
            description="Seconds in which the same payload creates only one job "
            "(default: 300 for events, 0 for schedules)."
        ),
    ] = None
    catch_up: Annotated[CatchUp | None, Meta(description="Which missed runs to make up for.")] = None
    overlap: Annotated[
        Overlap | None, Meta(description="Whether to run while the previous run is active.")
    ] = None


class TriggerSpec(TriggerRequest, frozen=True, kw_only=True):
    """The validated fields of a trigger, with defaults for those that were not given, and its next firing."""

    definition_id: UUID
    filter: Any = msgspec.field(default_factory=dict)
    payload_template: Any = msgspec.field(default_factory=dict)
    job_options: Any = msgspec.field(default_factory=dict)
    dedupe_window_seconds: int = 0
    catch_up: CatchUp = CatchUp.SKIP
    overlap: Overlap = Overlap.ALLOW
    next_fire_at: datetime | None = None
    next_instant: Annotated[
        datetime | None,
        Meta(
            description="The scheduled time of the next run, which fires at next_fire_at, after its jitter."
        ),
    ] = None


class Trigger(TriggerSpec, frozen=True, kw_only=True):
    """A trigger as it is stored, with fields of its tenant and its definition."""

    id: UUID
    tenant_id: UUID
    tenant: str
    tenant_name: Internal[str]
    tenant_timezone: Internal[str]
    owner: str | None
    name: str | None
    last_fired_at: datetime | None
    is_over: Annotated[bool, Meta(description="Whether a schedule has no further runs.")] = False
    created_by: str | None
    created_at: datetime
    updated_at: datetime
    secret_paths: Internal[tuple[str, ...]]
    # where payloads have the key, if an enqueue acts on the other jobs of its key
    limit_pointer: Internal[str | None] = None

    @property
    def zone(self) -> str:
        """The time zone of its schedule."""
        return self.timezone or self.tenant_timezone


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one instant or event of a trigger."""

    id: UUID
    trigger_id: UUID
    slot: str
    scheduled_at: datetime | None
    event_id: UUID | None
    outcome: FiringOutcome
    job_id: UUID | None
    reason: str | None
    detail: str | None
    covers: int | None
    covers_until: datetime | None
    fired_at: datetime


class FiringCount(msgspec.Struct, frozen=True, kw_only=True):
    """The firings of a trigger with one outcome within some minutes."""

    trigger_id: UUID
    outcome: FiringOutcome
    reason: str | None
    first: datetime
    last: datetime
    count: int
