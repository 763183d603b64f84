"""Parse and validate a request for a trigger, and compute its next firing."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from fairlead.errors import (
    EventInvalid,
    Fault,
    ScheduleInvalid,
    TriggerFormInvalid,
    TriggerInvalid,
)
from fairlead.model.end_event import find_end_event_fault
from fairlead.model.event import find_name_fault
from fairlead.model.payload import find_storage_flaw
from fairlead.model.schedule.spec import Every, Schedule
from fairlead.model.schedule.zone import load_zone as known_zone
from fairlead.model.template.filter import parse_filter
from fairlead.model.template.spec import compile_template
from fairlead.model.trigger import (
    ROOTS,
    CatchUp,
    Overlap,
    Trigger,
    TriggerType,
    build_schedule,
)
from fairlead.store.triggers import TriggerSpec

LONGEST_LABEL = 200
LONGEST_WINDOW = 30 * 86_400
EVENT_WINDOW = 300

_FORM = (
    "A trigger has either an event_name, or a cron_expr, or every_seconds: give exactly one, and the trigger_type "
    "that goes with it (event or schedule)."
)
_EVENT_ONLY = ("event_name", "filter")
_SCHEDULE_ONLY = ("cron_expr", "timezone", "every_seconds", "start_at", "catch_up", "overlap")


class TriggerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a trigger. None means not given."""

    label: str
    trigger_type: TriggerType
    definition_key: str
    is_enabled: bool = True
    event_name: str | None = None
    filter: Any = None
    cron_expr: str | None = None
    timezone: str | None = None
    every_seconds: int | None = None
    start_at: datetime | None = None
    payload_template: Any = None
    dedupe_window_seconds: int | None = None
    catch_up: CatchUp | None = None
    overlap: Overlap | None = None


REQUEST_FIELDS = TriggerRequest.__struct_fields__
_NEEDED = ("label", "trigger_type", "definition_key")


def parse_request(document: Mapping[str, Any]) -> TriggerRequest:
    """Parse a document; the error names every invalid field."""
    faults = [Fault(str(name), "unknown field") for name in document if name not in REQUEST_FIELDS]
    faults += [Fault(name, "is required") for name in _NEEDED if document.get(name) is None]
    faults += [
        Fault(name, why)
        for name, check in _CHECKS.items()
        if document.get(name) is not None and (why := check(document[name]))
    ]
    if faults:
        raise TriggerInvalid(f"Invalid trigger: {faults[0].path} {faults[0].message}.", faults)
    given = {name: value for name, value in document.items() if value is not None}
    for name, kind in _ENUMS.items():
        if name in given:
            given[name] = kind(given[name])
    asked = TriggerRequest(**given)
    _check_form(asked)
    return asked


def build_spec(
    asked: TriggerRequest,
    *,
    definition_id: UUID,
    zone: str,
    now: datetime,
    unless_changed_from: Trigger | None = None,
    at_once: bool = False,
) -> TriggerSpec:
    """The trigger to store, with its next firing: with `at_once`, now if it began in the past."""
    scheduled = asked.trigger_type is TriggerType.SCHEDULE
    parse_filter({} if asked.filter is None else asked.filter)
    template = {} if asked.payload_template is None else asked.payload_template
    compile_template(template, ROOTS[asked.trigger_type])
    if asked.timezone is not None:
        known_zone(asked.timezone)
    start_at = asked.start_at
    if asked.every_seconds is not None and start_at is None:
        start_at = now.replace(microsecond=0)
    next_fire_at = None
    if scheduled:
        schedule = build_schedule(
            cron_expr=asked.cron_expr,
            zone=asked.timezone or zone,
            every_seconds=asked.every_seconds,
            start_at=start_at,
        )
        if asked.is_enabled:
            next_fire_at = _find_next(schedule, asked, now, unless_changed_from, at_once=at_once)
    window = asked.dedupe_window_seconds
    return TriggerSpec(
        label=asked.label,
        trigger_type=asked.trigger_type,
        definition_id=definition_id,
        is_enabled=asked.is_enabled,
        event_name=asked.event_name,
        filter={} if asked.filter is None else asked.filter,
        cron_expr=asked.cron_expr,
        timezone=asked.timezone,
        every_seconds=asked.every_seconds,
        start_at=start_at,
        payload_template=template,
        dedupe_window_seconds=window if window is not None else 0 if scheduled else EVENT_WINDOW,
        catch_up=asked.catch_up or CatchUp.SKIP,
        overlap=asked.overlap or (Overlap.SKIP if scheduled else Overlap.ALLOW),
        next_fire_at=next_fire_at,
    )


def find_first(schedule: Schedule, now: datetime, *, at_once: bool = False) -> datetime | None:
    """A new schedule's first instant: its start, if that is less than one interval ago."""
    if isinstance(schedule, Every) and schedule.start_at <= now:
        step = timedelta(seconds=schedule.seconds)
        if not schedule.seconds or now - schedule.start_at < step:
            return schedule.start_at
        if at_once:
            return schedule.start_at + (now - schedule.start_at) // step * step
    return schedule.next_after(now)


_WHEN = ("cron_expr", "timezone", "every_seconds", "start_at", "is_enabled")


def _find_next(
    schedule: Schedule, asked: TriggerRequest, now: datetime, old: Trigger | None, *, at_once: bool
) -> datetime | None:
    if old is None:
        return find_first(schedule, now, at_once=at_once)
    if all(getattr(asked, name) == getattr(old, name) for name in _WHEN):
        return old.next_fire_at
    fresh = (asked.every_seconds, asked.start_at) != (old.every_seconds, old.start_at)
    return find_first(schedule, now, at_once=at_once) if fresh else schedule.next_after(now)


def _check_form(asked: TriggerRequest) -> None:
    forms = [
        name for name in ("event_name", "cron_expr", "every_seconds") if getattr(asked, name) is not None
    ]
    wanted = TriggerType.EVENT if forms == ["event_name"] else TriggerType.SCHEDULE
    if len(forms) != 1 or asked.trigger_type is not wanted:
        raise TriggerFormInvalid(
            _FORM, [Fault(name, "not together") for name in forms] or [Fault("", "is missing")]
        )
    event = wanted is TriggerType.EVENT
    foreign = [name for name in (_SCHEDULE_ONLY if event else _EVENT_ONLY) if _is_set(asked, name)]
    if foreign:
        raise TriggerFormInvalid(
            f"{foreign[0]} does not go with a trigger of type {asked.trigger_type}: leave it out.",
            [Fault(name, f"not with {asked.trigger_type}") for name in foreign],
        )
    if event and (why := find_name_fault(asked.event_name) or find_end_event_fault(str(asked.event_name))):
        raise EventInvalid(f"Invalid trigger: event_name {why}.", [Fault("event_name", why)])
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


def _is_set(asked: TriggerRequest, name: str) -> bool:
    # a stored event trigger has these defaults
    return getattr(asked, name) not in (None, {}, CatchUp.SKIP, Overlap.ALLOW)


def _check_text(value: Any) -> str | None:
    fits = isinstance(value, str) and 0 < len(value) <= LONGEST_LABEL and not find_storage_flaw(value)
    return None if fits else f"must be text of 1 to {LONGEST_LABEL} characters"


def _check_boolean(value: Any) -> str | None:
    return None if isinstance(value, bool) else "must be true or false"


def _check_integer(value: Any) -> str | None:
    return None if type(value) is int else "must be an integer"


def _check_moment(value: Any) -> str | None:
    return None if isinstance(value, datetime) else "must be a time such as 2026-02-16T10:30:00Z"


def _check_window(value: Any) -> str | None:
    fits = type(value) is int and 0 <= value <= LONGEST_WINDOW
    return None if fits else f"must be an integer between 0 and {LONGEST_WINDOW} (30 days)"


def _check_one_of(kind: type[TriggerType] | type[CatchUp] | type[Overlap]) -> Any:
    words = " or ".join(kind)
    return lambda value: None if value in list(kind) else f"must be {words}"


_ENUMS: dict[str, Any] = {"trigger_type": TriggerType, "catch_up": CatchUp, "overlap": Overlap}
_CHECKS: dict[str, Any] = {
    "label": _check_text,
    "definition_key": _check_text,
    "cron_expr": _check_text,
    "timezone": _check_text,
    "is_enabled": _check_boolean,
    "every_seconds": _check_integer,
    "start_at": _check_moment,
    "dedupe_window_seconds": _check_window,
    **{name: _check_one_of(kind) for name, kind in _ENUMS.items()},
}
