"""Triggers: rules that create jobs for events or at scheduled times; and the record of each firing."""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from fairlead.errors import Refused
from fairlead.model.event import Event
from fairlead.model.schedule.spec import Every, Schedule, in_words, parse_cron_schedule
from fairlead.model.schedule.zone import load_zone

EVENT_ROOTS = ("event", "meta", "trigger", "tenant")
SCHEDULE_ROOTS = ("schedule", "trigger", "tenant")


class TriggerType(StrEnum):
    EVENT = "event"
    SCHEDULE = "schedule"


# The roots that a template's paths may begin with.
ROOTS = {TriggerType.EVENT: EVENT_ROOTS, TriggerType.SCHEDULE: SCHEDULE_ROOTS}


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


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger as it is stored, with fields of its tenant and its definition."""

    id: UUID
    tenant_id: UUID
    tenant: str
    tenant_name: str
    tenant_timezone: str
    label: str
    is_enabled: bool
    trigger_type: TriggerType
    event_name: str | None
    filter: Any
    cron_expr: str | None
    timezone: str | None
    every_seconds: int | None
    start_at: datetime | None
    definition_id: UUID
    definition_key: str
    payload_template: Any
    dedupe_window_seconds: int
    catch_up: CatchUp
    overlap: Overlap
    owner: str | None
    name: str | None
    next_fire_at: datetime | None
    last_fired_at: datetime | None
    created_by: str | None
    created_at: datetime
    updated_at: datetime
    secret_paths: tuple[str, ...]

    @property
    def zone(self) -> str:
        """The time zone of its schedule."""
        return self.timezone or self.tenant_timezone

    @property
    def roots(self) -> tuple[str, ...]:
        """The roots that its template's paths may begin with."""
        return ROOTS[self.trigger_type]


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


def build_schedule(
    *, cron_expr: str | None, zone: str, every_seconds: int | None, start_at: datetime | None
) -> Schedule:
    """The schedule that a trigger's fields describe."""
    if cron_expr is not None:
        return parse_cron_schedule(cron_expr, zone)
    if every_seconds is None or start_at is None:
        raise ValueError("a schedule has a cron expression, or an interval and a start")
    return Every(every_seconds, start_at)


def schedule_of_trigger(trigger: Trigger) -> Schedule:
    """The schedule of a trigger that has one."""
    return build_schedule(
        cron_expr=trigger.cron_expr,
        zone=trigger.zone,
        every_seconds=trigger.every_seconds,
        start_at=trigger.start_at,
    )


def describe_trigger(trigger: Trigger) -> str:
    """When the trigger fires, in words."""
    if trigger.trigger_type is TriggerType.EVENT:
        return f"on {trigger.event_name}"
    try:
        return in_words(schedule_of_trigger(trigger))
    except Refused:  # this machine does not know the time zone
        return f"{trigger.cron_expr} ({trigger.zone})"


# Values for templates


def build_event_context(trigger: Trigger, event: Event) -> dict[str, Any]:
    """The values that a template may use for an event."""
    meta = {
        "event_id": str(event.id),
        "event_name": event.name,
        "occurred_at": event.occurred_at.isoformat(),
        "correlation_id": event.correlation_id,
    }
    return {"event": event.data, "meta": meta, **_common_context(trigger)}


def build_schedule_context(trigger: Trigger, instant: datetime) -> dict[str, Any]:
    """The values that a template may use for a scheduled instant."""
    schedule = {
        "scheduled_for": instant.astimezone(UTC).isoformat(),
        "local_time": instant.astimezone(load_zone(trigger.zone)).isoformat(),
        "timezone": trigger.zone,
    }
    return {"schedule": schedule, **_common_context(trigger)}


def _common_context(trigger: Trigger) -> Mapping[str, Any]:
    return {
        "trigger": {"id": str(trigger.id), "label": trigger.label},
        "tenant": {
            "id": str(trigger.tenant_id),
            "slug": trigger.tenant,
            "name": trigger.tenant_name,
            "timezone": trigger.tenant_timezone,
        },
    }
