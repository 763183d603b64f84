"""Prints the firings of a trigger or of an event."""

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from fairlead.cli import output
from fairlead.model.trigger import Firing, Trigger

COLUMNS = ("fired", "for", "outcome", "job", "why")


def print_firings(found: Sequence[Firing], *, triggers: Sequence[Trigger] = (), empty: str) -> None:
    """Print firings, one per line; with a trigger column if `triggers` are given."""
    labels = {one.id: one.label for one in triggers}
    named = bool(labels)
    output.print_table(
        ("trigger", *COLUMNS) if named else COLUMNS,
        [(labels.get(one.trigger_id, one.trigger_id), *_row(one)) if named else _row(one) for one in found],
        empty=empty,
    )


def _row(firing: Firing) -> tuple[Any, ...]:
    return (
        firing.fired_at,
        describe_cause(firing),
        firing.outcome,
        firing.job_id,
        Text(describe_reason(firing) or ""),
    )


def describe_cause(firing: Firing) -> str:
    """The cause of a firing: one or more instants, an event, or a user."""
    if firing.scheduled_at is None:
        return "by hand" if firing.event_id is None else f"event {firing.event_id}"
    at = firing.scheduled_at.isoformat(timespec="seconds")
    if firing.covers_until is None:
        return at
    many = "" if firing.covers is None else f" ({firing.covers} runs)"
    return f"{at} to {firing.covers_until.isoformat(timespec='seconds')}{many}"


def describe_reason(firing: Firing) -> str | None:
    """Why the firing created no job, if it did not."""
    return ": ".join(text for text in (firing.reason, firing.detail) if text) or None
