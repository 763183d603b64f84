"""The form of a trigger: its texts, and the trigger that they describe."""

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from fairlead.actions.trigger_spec import find_first
from fairlead.errors import (
    DefinitionInactive,
    DefinitionUnknown,
    FairleadError,
    Fault,
    FilterInvalid,
    PayloadNotJson,
    PayloadTooDeep,
    PayloadTooLarge,
    Refused,
    TemplateInvalid,
    TimezoneUnknown,
)
from fairlead.model.request import EARLIEST
from fairlead.model.schedule.spec import Schedule, ScheduledRun, in_words, preview_runs
from fairlead.model.template.filter import parse_filter
from fairlead.model.template.spec import compile_template
from fairlead.model.trigger import (
    EVENT_ROOTS,
    SCHEDULE_ROOTS,
    CatchUp,
    Overlap,
    Trigger,
    TriggerType,
    build_schedule,
)
from fairlead.server.console.forms import Form

# The ways to define a schedule: each is a radio button with its own fields.
CRON, EVERY, ONCE = "cron", "every", "once"
# Seconds of each unit.
UNITS = {"days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}
# Errors whose faults are within one field, or use another name.
FIELD_OF: dict[type[FairleadError], str] = {
    FilterInvalid: "filter",
    TemplateInvalid: "payload_template",
    PayloadNotJson: "sample",
    PayloadTooDeep: "sample",
    PayloadTooLarge: "sample",
    DefinitionUnknown: "definition_key",
    DefinitionInactive: "definition_key",
    TimezoneUnknown: "timezone",
}
EMPTY = {
    "trigger_type": TriggerType.SCHEDULE,
    "how": CRON,
    "is_enabled": "on",
    "every_unit": "minutes",
    "catch_up": CatchUp.SKIP,
    "overlap": Overlap.SKIP,
}
NAMES = (
    *("label", "trigger_type", "definition_key", "is_enabled", "event_name", "filter", "how", "cron_expr"),
    *("timezone", "every", "every_unit", "start_at", "once_at", "payload_template"),
    *("dedupe_window_seconds", "catch_up", "overlap"),
)


# The fields that define when a schedule runs.
TIMES = {"cron_expr", "timezone", "every", "start_at", "once_at"}


class Draft(msgspec.Struct, frozen=True):
    """A submitted form: its texts, the trigger's document, and the faults."""

    texts: dict[str, str]
    document: dict[str, Any] = msgspec.field(default_factory=dict)
    # the fields of `document` that differ from the edited trigger
    changes: dict[str, Any] = msgspec.field(default_factory=dict)
    faults: list[Fault] = msgspec.field(default_factory=list)


def empty_texts(**given: str | None) -> dict[str, str]:
    """The texts of a form for a new trigger."""
    return dict.fromkeys(NAMES, "") | EMPTY | {name: text for name, text in given.items() if text}


def texts_of(trigger: Trigger, zone: ZoneInfo) -> dict[str, str]:
    """The form's texts for an existing trigger, with secrets masked."""
    every, unit = _split_interval(trigger.every_seconds)
    once = trigger.every_seconds == 0
    scheduled = trigger.trigger_type is TriggerType.SCHEDULE
    start = format_moment(trigger.start_at, zone)
    return empty_texts() | {
        "label": trigger.label,
        "trigger_type": trigger.trigger_type,
        "definition_key": trigger.definition_key,
        "is_enabled": "on" if trigger.is_enabled else "",
        "event_name": trigger.event_name or "",
        "filter": _format_json(trigger.filter),
        "how": CRON if trigger.every_seconds is None else ONCE if once else EVERY,
        "cron_expr": trigger.cron_expr or "",
        "timezone": trigger.timezone or "",
        "every": every,
        "every_unit": unit,
        "start_at": "" if once else start,
        "once_at": start if once else "",
        "payload_template": _format_json(trigger.payload_template),
        "dedupe_window_seconds": str(trigger.dedupe_window_seconds),
        "catch_up": trigger.catch_up,
        "overlap": trigger.overlap if scheduled else Overlap.SKIP,
    }


def draft_of(given: dict[str, str], zone: ZoneInfo, *, old: Trigger | None = None) -> Draft:
    """Read a submitted form; `old` is the edited trigger."""
    form = Form(given)
    texts = {name: given.get(name, "") for name in NAMES}
    scheduled = texts["trigger_type"] != TriggerType.EVENT
    document: dict[str, Any] = {
        "label": form.some_text("label"),
        "trigger_type": TriggerType.SCHEDULE if scheduled else TriggerType.EVENT,
        "definition_key": form.some_text("definition_key"),
        "is_enabled": bool(texts["is_enabled"]),
        "payload_template": read_json(form, "payload_template"),
        "dedupe_window_seconds": form.some_whole("dedupe_window_seconds"),
        "event_name": None,
        "filter": {},
        **_NO_TIMES,
        **(_read_times(form, zone, old) if scheduled else _read_event_fields(form)),
    }
    if document["definition_key"] is None:
        form.faults.append(Fault("definition_key", "is required: choose one"))
    wrong = {one.path for one in form.faults}
    faults = [one for one in _find_faults(document, zone.key) if one.path not in wrong]
    changes = {
        name: value
        for name, value in document.items()
        if old is None or _json(value) != _json(getattr(old, name))
    }
    return Draft(texts, document, changes, [*form.faults, *faults])


def find_missing_label(draft: Draft) -> list[Fault]:
    """A fault if the label is missing, which matters only when the trigger is saved."""
    return [] if draft.document["label"] else [Fault("label", "is required")]


def _find_faults(document: dict[str, Any], zone: str) -> Iterator[Fault]:
    """All faults of a readable document; an action would stop at the first."""
    scheduled = document["trigger_type"] is TriggerType.SCHEDULE
    roots = SCHEDULE_ROOTS if scheduled else EVENT_ROOTS
    checks: list[Callable[[], object]] = [
        lambda: parse_filter(document["filter"]),
        lambda: compile_template(document["payload_template"], roots),
    ]
    if scheduled and (document["cron_expr"] is not None or document["every_seconds"] is not None):
        checks.append(lambda: _build_schedule(document, zone, EARLIEST))
    for check in checks:
        try:
            check()
        except Refused as error:
            yield from faults_of(error)


def _build_schedule(document: dict[str, Any], zone: str, now: datetime) -> Schedule:
    return build_schedule(
        cron_expr=document["cron_expr"],
        zone=document["timezone"] or zone,
        every_seconds=document["every_seconds"],
        start_at=document["start_at"] or now.replace(microsecond=0),
    )


def runs_of(draft: Draft, zone: str, now: datetime) -> tuple[str, list[ScheduledRun]]:
    """The schedule in words and its next runs; requires that the fields in TIMES have no faults."""
    schedule = _build_schedule(draft.document, zone, now)
    first = find_first(schedule, now)  # an interval that starts now also runs now
    after = now if first is None else first - timedelta.resolution
    return in_words(schedule), preview_runs(schedule, after, zone=draft.document["timezone"] or zone)


def faults_of(error: FairleadError) -> list[Fault]:
    """An error's faults by form field; a fault of no field has an empty path."""
    name = FIELD_OF.get(type(error))
    if name in ("filter", "payload_template"):
        return [Fault(name, f"{one.path}: {one.message}".removeprefix(": ")) for one in error.faults]
    if name is not None:
        return [Fault(name, error.message)]
    faults = [Fault(_FIELDS.get(one.path, one.path), one.message) for one in error.faults]
    return [one for one in faults if one.path in NAMES] or [Fault("", error.message)]


_FIELDS = {"every_seconds": "every"}
_NO_TIMES: dict[str, Any] = {
    "cron_expr": None,
    "timezone": None,
    "every_seconds": None,
    "start_at": None,
    "catch_up": CatchUp.SKIP,
    "overlap": Overlap.ALLOW,
}


def _read_event_fields(form: Form) -> dict[str, Any]:
    name = form.some_text("event_name")
    if name is None:
        form.faults.append(Fault("event_name", "is required: the name of the events that fire it"))
    return {"event_name": name, "filter": read_json(form, "filter")}


def _read_times(form: Form, zone: ZoneInfo, old: Trigger | None) -> dict[str, Any]:
    said = {name: form.some_text(name) for name in ("catch_up", "overlap")}
    if form.text("how") == EVERY:
        return said | {
            "every_seconds": _read_interval(form),
            "start_at": _read_moment(form, "start_at", zone, old),
        }
    if form.text("how") == ONCE:
        at = _read_moment(form, "once_at", zone, old)
        if at is None and not form.faults:
            form.faults.append(Fault("once_at", "is required: when it runs"))
        return said | {"every_seconds": 0, "start_at": at}
    expression = form.some_text("cron_expr")
    if expression is None:
        form.faults.append(Fault("cron_expr", "is required, such as 0 2 * * * for every day at 02:00"))
    return said | {"cron_expr": expression, "timezone": form.some_text("timezone")}


def _read_interval(form: Form) -> int | None:
    count = form.some_whole("every")
    if count is None or count < 1:
        if not any(one.path == "every" for one in form.faults):
            form.faults.append(Fault("every", "is required: 1 or more"))
        return None
    return count * UNITS.get(form.given.get("every_unit", ""), 1)


def _read_moment(form: Form, name: str, zone: ZoneInfo, old: Trigger | None) -> Any:
    # the field has no fractions of a second: an unchanged time keeps them
    if old is not None and old.start_at is not None and form.text(name) == format_moment(old.start_at, zone):
        return old.start_at
    return form.some_moment(name, zone)


def _split_interval(seconds: int | None) -> tuple[str, str]:
    if not seconds:
        return "", "minutes"
    unit, size = next((unit, size) for unit, size in UNITS.items() if seconds % size == 0)
    return str(seconds // size), unit


def read_json(form: Form, name: str) -> Any:
    """A field's JSON; an empty field is an empty object."""
    return form.json(name) if form.text(name) else {}


def format_moment(at: datetime | None, zone: ZoneInfo) -> str:
    """A time as a field's text: local time of the zone, to the second."""
    return "" if at is None else at.astimezone(zone).replace(tzinfo=None).isoformat(timespec="seconds")


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def _format_json(value: Any) -> str:
    return "" if value in (None, {}) else _json(value)
