"""Steps of workflows that wait and run no code of an application: a sleep, a wait for an event."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from fairlead.errors import Fault, FilterInvalid
from fairlead.model.durable import MAX_NAME, MOST_SECONDS
from fairlead.model.template.filter import parse_filter
from fairlead.model.template.placeholder import OPEN

ON_TIMEOUT = ("fail", "continue")
# The definitions whose jobs wait, by the field of a step that asks for one.
WAIT_KEYS = {"sleep": "ENGINE_SLEEP", "wait_for_event": "ENGINE_EVENT"}
WAIT_TYPES = {key: name for name, key in WAIT_KEYS.items()}


class SleepStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A step that ends after `seconds`, or at `until`: a time with its zone. Either may be a placeholder."""

    seconds: int | float | str | None = None
    until: str | None = None

    def find_faults(self) -> Iterator[Fault]:
        """What no input could make valid."""
        if (self.seconds is None) == (self.until is None):
            yield Fault("", "must have either seconds or until")
        yield from _find_duration_faults("seconds", self.seconds)
        if self.until is not None and OPEN not in self.until and parse_moment(self.until) is None:
            yield Fault("/until", UNTIL_WORDS)


class EventStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A step that ends when an event of this name comes whose data matches `where`. Its output is the event."""

    event: str
    where: Any = None
    timeout_seconds: int | float | str | None = None
    # how long before the step the event may have come; by default since the start of the run
    lookback_seconds: int | float | str | None = None
    # after the timeout the step fails, or ends without output
    on_timeout: str = ON_TIMEOUT[0]

    def find_faults(self) -> Iterator[Fault]:
        """What no input could make valid."""
        if not 1 <= len(self.event) <= MAX_NAME:
            yield Fault("/event", f"must be the name of an event, of 1 to {MAX_NAME} characters")
        yield from _find_duration_faults("timeout_seconds", self.timeout_seconds)
        yield from _find_duration_faults("lookback_seconds", self.lookback_seconds)
        if self.on_timeout not in ON_TIMEOUT:
            yield Fault("/on_timeout", 'must be "fail" or "continue"')
        if self.where is None or OPEN in msgspec.json.encode(self.where).decode():
            return
        try:
            parse_filter(self.where)
        except FilterInvalid as error:
            for path, message in error.faults:
                yield Fault(f"/where{path}", message)


def describe_work(step: Mapping[str, Any]) -> str:
    """What a step of a document does, in a few words: its definition, or what it waits for."""
    if (asked := step.get("sleep")) is not None:
        return f"sleep {asked['seconds']} s" if "seconds" in asked else f"sleep until {asked.get('until')}"
    if (asked := step.get("wait_for_event")) is not None:
        return f"event {asked['event']}"
    return str(step.get("definition") or "")


UNTIL_WORDS = "must be a time with its zone, such as 2030-01-31T08:00:00+01:00, or a placeholder"


def parse_moment(text: str) -> datetime | None:
    """A time with its zone; None if it is not one."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if moment.tzinfo is None else moment


def _find_duration_faults(name: str, value: float | str | None) -> Iterator[Fault]:
    if isinstance(value, str):
        if OPEN not in value:
            yield Fault(f"/{name}", "must be a number of seconds, or a placeholder such as {{input.seconds}}")
    elif value is not None and not 0 <= value <= MOST_SECONDS:
        yield Fault(f"/{name}", f"must be between 0 and {MOST_SECONDS:.0f}")
