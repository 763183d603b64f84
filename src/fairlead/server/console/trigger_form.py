"""The form of a trigger: its texts, and the trigger that they describe."""

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from fairlead.errors import (
    DefinitionInactive,
    DefinitionUnknown,
    FairleadError,
    Fault,
    FilterInvalid,
    PayloadNotJson,
    PayloadTooDeep,
    PayloadTooLarge,
    TemplateInvalid,
    TimezoneUnknown,
)
from fairlead.model.input_fields import list_input_fields
from fairlead.model.schedule.spec import ScheduledRun, in_words, preview_new
from fairlead.model.trigger import CatchUp, Overlap, Trigger, TriggerRequest, TriggerType
from fairlead.model.trigger_kinds import KINDS
from fairlead.model.trigger_kinds.schedule import build_schedule
from fairlead.model.trigger_spec import list_refusals
from fairlead.server.console.forms import Form

_FIELDS = list_input_fields(TriggerRequest)
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
# The form has a number and its unit for the interval, and another field for the time of a single run.
NAMES = (*_FIELDS, "how", "every", "every_unit", "once_at")
EMPTY = {
    "trigger_type": TriggerType.SCHEDULE,
    "how": CRON,
    "is_enabled": "on",
    "every_unit": "minutes",
    "catch_up": CatchUp.SKIP,
    "overlap": Overlap.SKIP,
}
# The fields that define when a schedule runs.
TIMES = {"cron_expr", "timezone", "every", "start_at", "once_at", "end_at", "jitter_seconds"}
# What a trigger has in the fields of other kinds.
_UNSET = dict.fromkeys(_FIELDS) | {"filter": {}, "catch_up": CatchUp.SKIP, "overlap": Overlap.ALLOW}
# The fields of all kinds.
_OWN = {"trigger_type", *(name for kind in KINDS.values() for name in kind.fields)}
_COMMON = [name for name in _FIELDS if name not in _OWN]


class KindForm(NamedTuple):
    """The part of the form that only one kind has. `templates/trigger_kinds` has a file for each kind."""

    # the choice in the form, and its icon
    title: str
    icon: str
    # instead of the time of its next run
    no_next_run: str
    # the texts of a stored trigger, where they are not the fields' own
    texts: Callable[[Trigger, ZoneInfo], dict[str, str]]
    # its own fields, as submitted; the trigger is the edited one
    read: Callable[[Form, ZoneInfo, Trigger | None], dict[str, Any]]
    # its times in words and its next runs, for a preview while other fields have faults
    preview_times: Callable[[TriggerRequest, str, datetime], tuple[str, list[ScheduledRun]]] | None = None
    # whether a preview takes an event or sample data
    takes_event: bool = False
    why_not_by_hand: str | None = None


class Draft(msgspec.Struct, frozen=True):
    """A submitted form: its texts, the trigger's document, and the faults."""

    texts: dict[str, str]
    document: dict[str, Any] = msgspec.field(default_factory=dict)
    # the fields of `document` that differ from the edited trigger
    changes: dict[str, Any] = msgspec.field(default_factory=dict)
    faults: list[Fault] = msgspec.field(default_factory=list)

    @property
    def kind(self) -> KindForm:
        """The part of the form for the chosen kind."""
        return FORMS[_type_of(self.texts)]


def empty_texts(**given: str | None) -> dict[str, str]:
    """The texts of a form for a new trigger."""
    return dict.fromkeys(NAMES, "") | EMPTY | {name: text for name, text in given.items() if text}


def texts_of(trigger: Trigger, zone: ZoneInfo) -> dict[str, str]:
    """The form's texts for an existing trigger, with secrets masked."""
    texts = {name: _format(name, getattr(trigger, name), zone) for name in _FIELDS}
    return empty_texts() | texts | FORMS[trigger.trigger_type].texts(trigger, zone)


def draft_of(given: dict[str, str], zone: ZoneInfo, *, old: Trigger | None = None) -> Draft:
    """Read a submitted form; `old` is the edited trigger."""
    form = Form(given)
    texts = {name: given.get(name, "") for name in NAMES}
    kind = _type_of(texts)
    document: dict[str, Any] = {
        **_UNSET,
        "trigger_type": kind,
        **{name: _read(form, name) for name in _COMMON},
        **FORMS[kind].read(form, zone, old),
    }
    wrong = {one.path for one in form.faults}
    faults = [one for one in _find_faults(document, zone.key) if one.path not in wrong]
    changes = {
        name: value
        for name, value in document.items()
        if old is None or _json(value) != _json(getattr(old, name))
    }
    return Draft(texts, document, changes, [*form.faults, *faults])


def _type_of(texts: dict[str, str]) -> TriggerType:
    said = texts["trigger_type"]
    return TriggerType(said) if said in list(TriggerType) else TriggerType.SCHEDULE


def find_missing_label(draft: Draft) -> list[Fault]:
    """A fault if the label is missing, which matters only when the trigger is saved."""
    return [] if draft.document["label"] else [Fault("label", "is required")]


def _find_faults(document: dict[str, Any], zone: str) -> Iterator[Fault]:
    for refusal in list_refusals(document | {"label": document["label"] or "preview"}, zone):
        yield from faults_of(refusal)


def faults_of(error: FairleadError) -> list[Fault]:
    """An error's faults by form field; a fault of no field has an empty path."""
    name = FIELD_OF.get(type(error))
    if name in ("filter", "payload_template"):
        return [Fault(name, f"{one.path}: {one.message}".removeprefix(": ")) for one in error.faults]
    if name is not None:
        return [Fault(name, error.message)]
    faults = [Fault({"every_seconds": "every"}.get(one.path, one.path), one.message) for one in error.faults]
    return [one for one in faults if one.path in NAMES] or [Fault("", error.message)]


# On an event


def _event_texts(_trigger: Trigger, _zone: ZoneInfo) -> dict[str, str]:
    return {"overlap": Overlap.SKIP}  # what a schedule would begin with


def _read_event_fields(form: Form, _zone: ZoneInfo, _old: Trigger | None) -> dict[str, Any]:
    name = form.some_text("event_name")
    if name is None:
        form.faults.append(Fault("event_name", "is required: the name of the events that fire it"))
    return {"event_name": name, "filter": read_json(form, "filter")}


# On a schedule


def _schedule_texts(trigger: Trigger, zone: ZoneInfo) -> dict[str, str]:
    every, unit = _split_interval(trigger.every_seconds)
    start = format_moment(trigger.start_at, zone)
    once = trigger.every_seconds == 0
    return {
        "how": CRON if trigger.every_seconds is None else ONCE if once else EVERY,
        "every": every,
        "every_unit": unit,
        "start_at": "" if once else start,
        "once_at": start if once else "",
    }


def _read_times(form: Form, zone: ZoneInfo, old: Trigger | None) -> dict[str, Any]:
    said: dict[str, Any] = {name: form.some_text(name) for name in ("catch_up", "overlap")}
    said |= {
        "end_at": _read_moment(form, "end_at", zone, None if old is None else old.end_at),
        "jitter_seconds": form.some_whole("jitter_seconds"),
    }
    start = None if old is None else old.start_at
    if form.text("how") == EVERY:
        return said | {
            "every_seconds": _read_interval(form),
            "start_at": _read_moment(form, "start_at", zone, start),
        }
    if form.text("how") == ONCE:
        at = _read_moment(form, "once_at", zone, start)
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


def _read_moment(form: Form, name: str, zone: ZoneInfo, old: datetime | None) -> Any:
    # the field has no fractions of a second: an unchanged time keeps them
    if old is not None and form.text(name) == format_moment(old, zone):
        return old
    return form.some_moment(name, zone)


def _split_interval(seconds: int | None) -> tuple[str, str]:
    if not seconds:
        return "", "minutes"
    unit, size = next((unit, size) for unit, size in UNITS.items() if seconds % size == 0)
    return str(seconds // size), unit


def _preview_times(said: TriggerRequest, zone: str, now: datetime) -> tuple[str, list[ScheduledRun]]:
    schedule = build_schedule(said, zone, start_at=now.replace(microsecond=0))
    return in_words(schedule), preview_new(schedule, now, zone=said.timezone or zone)


# The first is chosen in an empty form.
FORMS = {
    TriggerType.SCHEDULE: KindForm(
        "On a schedule",
        "calendar-clock",
        "never again",
        _schedule_texts,
        _read_times,
        preview_times=_preview_times,
    ),
    TriggerType.EVENT: KindForm(
        "On an event",
        "radio",
        "when it happens",
        _event_texts,
        _read_event_fields,
        takes_event=True,
        why_not_by_hand="Event triggers fire on events. Send or replay one.",
    ),
}


# Values as texts


def read_json(form: Form, name: str) -> Any:
    """A field's JSON; an empty field is an empty object."""
    return form.json(name) if form.text(name) else {}


def format_moment(at: datetime | None, zone: ZoneInfo) -> str:
    """A time as a field's text: local time of the zone, to the second."""
    return "" if at is None else at.astimezone(zone).replace(tzinfo=None).isoformat(timespec="seconds")


def _read(form: Form, name: str) -> Any:
    """A field's value, by its type."""
    field = _FIELDS[name]
    if field.is_json:
        return read_json(form, name)
    if field.type is bool:
        return bool(form.text(name))
    return form.some_whole(name) if field.type is int else form.some_text(name)


def _format(name: str, value: Any, zone: ZoneInfo) -> str:
    """A value as its field's text."""
    kind = _FIELDS[name].type
    if kind is bool:
        return "on" if value else ""
    if kind is datetime:
        return format_moment(value, zone)
    if _FIELDS[name].is_json:
        return "" if value in (None, {}) else _json(value)
    return "" if value is None else str(value)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
