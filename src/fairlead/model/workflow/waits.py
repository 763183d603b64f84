"""Steps of workflows that wait and run no code of an application: a sleep, a wait for an event or for an approval."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from fairlead.errors import ApprovalInvalid, Fault, FilterInvalid
from fairlead.model.approval import NewApproval
from fairlead.model.approval_rules import check_approval, parse_roles
from fairlead.model.durable import MAX_NAME, MOST_SECONDS
from fairlead.model.template.filter import parse_filter
from fairlead.model.template.placeholder import OPEN

ON_TIMEOUT = ("fail", "continue")
_NO_ID = UUID(int=0)
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"))
# The definitions whose jobs wait, by the field of a step that asks for one.
WAIT_KEYS = {"sleep": "ENGINE_SLEEP", "wait_for_event": "ENGINE_EVENT", "approval": "ENGINE_APPROVAL"}
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


class ApprovalStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A step that ends when a person approves. Its output is the answer; after a rejection or the timeout it fails."""

    title: str
    description: str | None = None
    # a JSON Schema of the values that the answer has
    form: Any = None
    roles: tuple[str, ...] | None = None
    timeout_seconds: int | float | str | None = None
    # the event that is emitted after `escalate_after_seconds`, else after the timeout, if there is no answer
    escalate: str | None = None
    escalate_after_seconds: int | float | str | None = None
    on_timeout: str = ON_TIMEOUT[0]
    on_reject: str = ON_TIMEOUT[0]

    def find_faults(self) -> Iterator[Fault]:
        """What no input could make valid."""
        durations = {
            "timeout_seconds": self.timeout_seconds,
            "escalate_after_seconds": self.escalate_after_seconds,
        }
        for name, value in durations.items():
            yield from _find_duration_faults(name, value)
        for name, chosen in (("on_timeout", self.on_timeout), ("on_reject", self.on_reject)):
            if chosen not in ON_TIMEOUT:
                yield Fault(f"/{name}", 'must be "fail" or "continue"')
        if OPEN in msgspec.json.encode(self).decode():
            return
        try:
            check_approval(self._build())
        except ApprovalInvalid as error:
            for path, message in error.faults:
                yield Fault(f"/{path}", message)

    def _build(self) -> NewApproval:
        seconds, later = self.timeout_seconds, self.escalate_after_seconds
        return NewApproval(
            id=_NO_ID,
            title=self.title,
            description=self.description,
            form=self.form,
            roles=parse_roles(self.roles),
            escalate=self.escalate,
            escalate_seconds=None if self.escalate is None else _number(seconds if later is None else later),
            seconds=_number(seconds),
        )


def _number(value: float | str | None) -> float | None:
    return None if isinstance(value, str) else value


def _describe_seconds(value: float | str) -> str:
    """A duration in its largest whole unit; a template as it is."""
    if isinstance(value, str):
        return f"{value} s"
    size, unit = next((one for one in _UNITS if value and value % one[0] == 0), (1, "s"))
    return f"{value / size:g} {unit}"


def describe_work(step: Mapping[str, Any]) -> str:
    """What a step of a document does, in a few words: its definition, or what it waits for."""
    if (asked := step.get("sleep")) is not None:
        seconds = asked.get("seconds")
        return (
            f"sleep until {asked.get('until')}" if seconds is None else f"sleep {_describe_seconds(seconds)}"
        )
    if (asked := step.get("wait_for_event")) is not None:
        return f"event {asked['event']}"
    if (asked := step.get("approval")) is not None:
        return f"approval: {asked['title']}"
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
