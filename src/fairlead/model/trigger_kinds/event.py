"""Triggers for events."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fairlead.errors import EventInvalid, Fault, TriggerInvalid
from fairlead.model.end_event import find_end_event_fault
from fairlead.model.event import Event, find_name_fault
from fairlead.model.template.filter import parse_filter
from fairlead.model.trigger import Trigger, TriggerRequest, TriggerType
from fairlead.model.trigger_kinds.kind import Check, TriggerKind, common_context


class EventKind(TriggerKind):
    """Fires for each event of its name that matches its filter."""

    trigger_type = TriggerType.EVENT
    noun = "trigger"
    forms = {"event_name": ("an event_name", ("filter",))}  # noqa: RUF012 - the base declares a class variable
    options = ()
    defaults = {"dedupe_window_seconds": 300}  # noqa: RUF012
    own_roots = ("event", "meta")

    def check_fields(self, asked: TriggerRequest) -> None:
        """Refuse an invalid name."""
        if why := find_name_fault(asked.event_name) or find_end_event_fault(str(asked.event_name)):
            raise EventInvalid(f"Invalid trigger: event_name {why}.", [Fault("event_name", why)])

    def list_checks(self, asked: TriggerRequest, zone: str) -> list[Check]:  # noqa: ARG002
        """The check of its filter."""
        return [lambda: parse_filter({} if asked.filter is None else asked.filter)]

    def describe(self, trigger: Trigger) -> str:
        """When the trigger fires, in words."""
        return f"on {trigger.event_name}"

    def build_manual_context(self, trigger: Trigger, now: datetime) -> Mapping[str, Any]:  # noqa: ARG002
        """Refuse: there is no event."""
        raise TriggerInvalid(
            "This trigger waits for events: replay one, or preview it with a sample.",
            [Fault("trigger_type", "must be schedule")],
        )


def build_event_context(trigger: Trigger, event: Event) -> dict[str, Any]:
    """The values that a template may use for an event."""
    meta = {
        "event_id": str(event.id),
        "event_name": event.name,
        "occurred_at": event.occurred_at.isoformat(),
        "correlation_id": event.correlation_id,
    }
    return {"event": event.data, "meta": meta, **common_context(trigger)}
