"""The kinds of triggers, a module each. Other code looks a kind up here, and does not ask which one it is."""

from collections.abc import Collection, Mapping
from typing import Any

from fairlead.model.trigger import Trigger, TriggerRequest, TriggerType
from fairlead.model.trigger_kinds.event import EventKind
from fairlead.model.trigger_kinds.kind import TriggerKind
from fairlead.model.trigger_kinds.schedule import ScheduleKind

# In the order of messages and of the console.
KINDS: Mapping[TriggerType, TriggerKind] = {
    TriggerType.EVENT: EventKind(),
    TriggerType.SCHEDULE: ScheduleKind(),
}


def kind_of(said: TriggerRequest) -> TriggerKind:
    """The kind of a trigger, or of a request for one."""
    return KINDS[said.trigger_type]


def describe_trigger(trigger: Trigger) -> str:
    """When the trigger fires, in words."""
    return kind_of(trigger).describe(trigger)


def find_type(document: Mapping[str, Any]) -> TriggerType:
    """The type to which a document's fields belong; a schedule if it has none of a type."""
    found = (one for one, kind in KINDS.items() if any(document.get(name) is not None for name in kind.forms))
    return next(found, TriggerType.SCHEDULE)


def list_replaced_fields(given: Collection[str]) -> set[str]:
    """The fields that these replace: those of the kind's other forms."""
    return {
        name
        for kind in KINDS.values()
        if not kind.forms.keys().isdisjoint(given)
        for form, (_, others) in kind.forms.items()
        for name in (form, *others)
        if form not in given
    }
