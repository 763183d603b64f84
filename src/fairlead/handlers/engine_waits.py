"""The jobs of workflow steps that wait. They are durable functions: no worker is needed while they wait."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from fairlead.errors import ApprovalInvalid, FilterInvalid
from fairlead.handlers.context import Context, Fatal
from fairlead.model.approval_rules import mask_values
from fairlead.model.durable import MAX_NAME, MOST_SECONDS
from fairlead.model.workflow.waits import UNTIL_WORDS, WAIT_KEYS, parse_moment

# Attempts that begin or end a wait fail only with their worker or the database.
_MAX_ATTEMPTS = 10

Seconds = Annotated[float, Meta(ge=0, le=MOST_SECONDS)]
Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]


async def sleep(ctx: Context, seconds: Seconds | None = None, until: str | None = None) -> None:
    """Sleeps for a workflow, without a worker."""
    if (seconds is None) == (until is None):
        raise Fatal("A sleep needs either seconds or until.")
    if seconds is not None:
        await ctx.sleep(seconds)
    elif until is not None:
        moment = parse_moment(until)
        if moment is None:
            raise Fatal(f"until {UNTIL_WORDS}.")
        await ctx.sleep_until(moment)


async def wait_for_event(
    ctx: Context,
    event: Name,
    *,
    where: dict[str, Any] | None = None,
    timeout_seconds: Seconds | None = None,
    lookback_seconds: Seconds | None = None,
    on_timeout: Literal["fail", "continue"] = "fail",
) -> Any:
    """Waits for an event for a workflow, without a worker; the job's output is the event."""
    try:
        found = await ctx.wait_for_event(
            event, where=where, timeout=timeout_seconds, lookback=lookback_seconds
        )
    except FilterInvalid as error:
        raise Fatal(f"where is not a filter: {error.message}") from None
    if found is None and on_timeout == "fail":
        raise Fatal(f"No event {event} that matches came within {timeout_seconds:g} s.")
    return None if found is None else msgspec.to_builtins(found)


async def wait_for_approval(
    ctx: Context,
    name: Name,
    title: str,
    *,
    description: str | None = None,
    form: dict[str, Any] | None = None,
    roles: list[str] | None = None,
    timeout_seconds: Seconds | None = None,
    escalate: str | None = None,
    escalate_after_seconds: Seconds | None = None,
    on_timeout: Literal["fail", "continue"] = "fail",
    on_reject: Literal["fail", "continue"] = "fail",
) -> Any:
    """Asks a person for a workflow and waits for the answer, without a worker; the job's output is the answer."""
    try:
        answer = await ctx.wait_for_approval(
            name,
            title=title,
            description=description,
            form=form,
            roles=roles,
            timeout=timeout_seconds,
            escalate=escalate,
            escalate_after=escalate_after_seconds,
        )
    except ApprovalInvalid as error:
        raise Fatal(error.message) from None
    if answer is None:
        if on_timeout == "fail":
            raise Fatal(f"Nobody answered the approval {title!r} within {timeout_seconds:g} s.")
        return None
    if not answer and on_reject == "fail":
        told = "" if answer.comment is None else f": {answer.comment}"
        raise Fatal(f"{answer.answered_by} rejected the approval {title!r}{told}")
    # everyone who may read the run sees its steps' outputs
    return {**msgspec.to_builtins(answer), "values": mask_values(form, answer.values)}


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sleep": sleep,
    "wait_for_event": wait_for_event,
    "approval": wait_for_approval,
}


def list_waits() -> list[tuple[Callable[..., Any], Mapping[str, Any]]]:
    """The functions with their options as jobs."""
    return [
        (function, {"key": WAIT_KEYS[name], "durable": True, "max_attempts": _MAX_ATTEMPTS})
        for name, function in _FUNCTIONS.items()
    ]
