"""What a durable function waits for, as reasons why it is not running."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from fairlead.model.durable import StepError, StepKind
from fairlead.model.reason import Reason, ReasonCode, format_span, format_time

# A function may wait for thousands of things at once with `ctx.gather`.
MOST_WAITS = 10
# Of a filter, in a sentence. The facts have all of it.
MOST_FILTER_CHARACTERS = 300


class FunctionWait(msgspec.Struct, frozen=True, kw_only=True):
    """One wait of a durable function, with masked secrets."""

    place: str
    kind: StepKind
    name: str
    tries: int
    since: datetime
    # the end of a sleep or of a pause, or the timeout of a wait; None: it has none
    until: datetime | None
    request: dict[str, Any] | None
    error: StepError | None
    child_id: UUID | None
    # None if retention has removed the child
    child_status: str | None
    # of all waits of the function
    count: int


def explain_waits(waits: Sequence[FunctionWait], now: datetime) -> list[Reason]:
    """A reason for each of these waits; the last one says how many there are besides."""
    found = [_explain_wait(wait, now) for wait in waits]
    more = waits[-1].count - len(found) if waits else 0
    if more > 0:
        last = found.pop()
        text = f"{last.message} Besides these {len(found) + 1} waits it has {more:,} more."
        found.append(Reason(last.code, text, {**last.facts, "more": more}))
    return found


def _explain_wait(wait: FunctionWait, now: datetime) -> Reason:
    code, text, own = _describe(wait, now)
    left = None if wait.until is None else (wait.until - now).total_seconds()
    facts = {
        "step": wait.place,
        "name": wait.name,
        **own,
        "since": wait.since,
        "until": wait.until,
        "in_seconds": left,
    }
    return Reason(code, text, facts)


def _describe(wait: FunctionWait, now: datetime) -> tuple[ReasonCode, str, dict[str, Any]]:
    since = f"for {format_span(wait.since, now)}"
    ends = _format_timeout(wait, now)
    request = wait.request or {}
    match wait.kind:
        case StepKind.EVENT:
            where = request.get("where") or {}
            text = f"It has waited {since} for the event {wait.name}{_format_filter(where)}. {ends}"
            return ReasonCode.WAITING_FOR_EVENT, text, {"where": where}
        case StepKind.SIGNAL:
            return (
                ReasonCode.WAITING_FOR_SIGNAL,
                f"It has waited {since} for the signal {wait.name}. {ends}",
                {},
            )
        case StepKind.APPROVAL:
            title = request.get("title")
            text = (
                f"It has waited {since} for the approval {wait.name}{f': {title}' if title else ''}. {ends}"
            )
            facts = {"title": title, "approval_id": request.get("approval_id")}
            return ReasonCode.WAITING_FOR_APPROVAL, text, facts
        case StepKind.CALL:
            status = "which does not exist any more" if wait.child_status is None else wait.child_status
            text = f"It has waited {since} for its child {wait.child_id} ({wait.name}, {status})."
            return (
                ReasonCode.WAITING_FOR_CHILD,
                text,
                {"child_id": wait.child_id, "status": wait.child_status},
            )
        case StepKind.SLEEP:
            text = f"It has slept {since}, {_format_until(wait, now)}."
            return ReasonCode.SLEEPING, text, {}
        case _:
            error = f" Last error: {wait.error.message}" if wait.error else ""
            text = f"Try {wait.tries} of step {wait.name} failed: it waits {_format_until(wait, now)} for the next try.{error}"
            facts = {"tries": wait.tries, "last_error": wait.error and wait.error.message}
            return ReasonCode.STEP_BACKING_OFF, text, facts


def _format_until(wait: FunctionWait, now: datetime) -> str:
    if wait.until is None:
        return "without an end"
    return f"until {format_time(wait.until)}, another {format_span(now, wait.until)}"


def _format_timeout(wait: FunctionWait, now: datetime) -> str:
    if wait.until is None:
        return "It has no timeout."
    return f"Its timeout is in {format_span(now, wait.until)}, at {format_time(wait.until)}."


def _format_filter(where: Any) -> str:
    if not where:
        return ""
    text = msgspec.json.encode(where).decode()
    if len(text) > MOST_FILTER_CHARACTERS:
        text = text[:MOST_FILTER_CHARACTERS] + "…"
    return f" where {text}"
