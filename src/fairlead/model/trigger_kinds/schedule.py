"""Triggers on a schedule: at the times of a cron expression, at an interval, or once."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from fairlead.errors import Fault, Refused, ScheduleInvalid
from fairlead.model.request import EARLIEST
from fairlead.model.schedule.spec import (
    Every,
    Schedule,
    check_end,
    find_fire_time,
    find_first,
    in_words,
    parse_cron_schedule,
)
from fairlead.model.schedule.zone import load_zone
from fairlead.model.trigger import Overlap, Trigger, TriggerRequest, TriggerSpec, TriggerType
from fairlead.model.trigger_kinds.kind import Check, TriggerKind, common_context

_WHEN = ("cron_expr", "timezone", "every_seconds", "start_at", "is_enabled")


class ScheduleKind(TriggerKind):
    """Fires at the instants of its schedule."""

    trigger_type = TriggerType.SCHEDULE
    noun = "schedule"
    forms = {  # noqa: RUF012 - the base declares a class variable
        "cron_expr": ("a cron_expr", ("timezone",)),
        "every_seconds": ("every_seconds", ("start_at",)),
    }
    options = ("end_at", "jitter_seconds", "catch_up", "overlap")
    defaults = {"overlap": Overlap.SKIP}  # noqa: RUF012
    own_roots = ("schedule",)

    def check_fields(self, asked: TriggerRequest) -> None:
        """Refuse the start of a cron expression, and the time zone of an interval."""
        if asked.start_at is not None and asked.every_seconds is None:
            raise ScheduleInvalid(
                "start_at goes with every_seconds; a cron expression sets its own times.",
                [Fault("start_at", "not with cron_expr")],
            )
        if asked.timezone is not None and asked.cron_expr is None:
            raise ScheduleInvalid(
                "timezone goes with cron_expr; an interval runs on elapsed time.",
                [Fault("timezone", "not with every_seconds")],
            )

    def list_checks(self, asked: TriggerRequest, zone: str) -> list[Check]:
        """The check of its times, if it has any."""
        if asked.cron_expr is None and asked.every_seconds is None:
            return []
        return [lambda: build_schedule(asked, zone, start_at=EARLIEST)]

    def complete(self, asked: TriggerRequest, now: datetime) -> dict[str, Any]:
        """The start of an interval, by default now."""
        if asked.every_seconds is None or asked.start_at is not None:
            return {}
        if asked.end_at is not None and asked.end_at <= now:
            raise ScheduleInvalid(
                "Invalid schedule: end_at must be after the start, which is now unless there is a start_at.",
                [Fault("end_at", "must be after the start, which is now")],
            )
        return {"start_at": now.replace(microsecond=0)}

    def find_next(
        self, spec: TriggerSpec, old: Trigger | None, *, zone: str, now: datetime, at_once: bool
    ) -> datetime | None:
        """The next instant of its schedule; a change of other fields keeps it."""
        schedule = build_schedule(spec, zone)
        if old is not None and all(getattr(spec, name) == getattr(old, name) for name in _WHEN):
            if spec.end_at == old.end_at or old.next_instant is not None:
                kept = old.next_instant
                return kept if kept is not None and schedule.is_before_end(kept) else None
            return schedule.next_after(now)
        if old is None or (spec.every_seconds, spec.start_at) != (old.every_seconds, old.start_at):
            return find_first(schedule, now, at_once=at_once)
        return schedule.next_after(now)

    def find_fire_time(
        self, spec: TriggerSpec, instant: datetime, *, trigger_id: UUID, zone: str
    ) -> datetime:
        """When it fires for an instant: later by a part of its jitter."""
        return find_fire_time(build_schedule(spec, zone), trigger_id, instant)

    def iterate_instants(self, trigger: Trigger, since: datetime) -> Iterator[datetime]:
        """Its instants from a time on."""
        return schedule_of_trigger(trigger).runs(since - timedelta.resolution)

    def describe(self, trigger: Trigger) -> str:
        """When the trigger fires, in words."""
        return self.describe_times(trigger) or f"{trigger.cron_expr} ({trigger.zone})"

    def describe_times(self, trigger: Trigger) -> str | None:
        """Its schedule in words."""
        try:
            return in_words(schedule_of_trigger(trigger))
        except Refused:
            return None  # its time zone is no longer known: its next firing reports that

    def build_manual_context(self, trigger: Trigger, now: datetime) -> Mapping[str, Any]:
        """The values for an instant at this time."""
        return build_schedule_context(trigger, now)


def build_schedule(said: TriggerRequest, zone: str, *, start_at: datetime | None = None) -> Schedule:
    """The schedule of these fields, by default in this zone and from this start."""
    end_at, jitter = check_end(said.end_at), said.jitter_seconds or 0
    if said.cron_expr is not None:
        return parse_cron_schedule(
            said.cron_expr, said.timezone or zone, end_at=end_at, jitter_seconds=jitter
        )
    start_at = said.start_at or start_at
    if said.every_seconds is None or start_at is None:
        raise ValueError("a schedule has a cron expression, or an interval and a start")
    return Every(said.every_seconds, start_at, end_at=end_at, jitter_seconds=jitter)


def schedule_of_trigger(trigger: Trigger) -> Schedule:
    """The schedule of a trigger that has one."""
    return build_schedule(trigger, trigger.tenant_timezone)


def build_schedule_context(trigger: Trigger, instant: datetime) -> dict[str, Any]:
    """The values that a template may use for a scheduled instant."""
    schedule = {
        "scheduled_for": instant.astimezone(UTC).isoformat(),
        "local_time": instant.astimezone(load_zone(trigger.zone)).isoformat(),
        "timezone": trigger.zone,
    }
    return {"schedule": schedule, **common_context(trigger)}
