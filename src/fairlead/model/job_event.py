"""Events that tell how jobs ended, and webhooks: triggers that pass them on to a URL."""

from collections.abc import Sequence
from typing import Any

from fairlead.model.job import JobStatus

JOB_EVENTS = tuple(f"job.{status}" for status in JobStatus if status.terminal)
PREFIX = "job."


def unheard_of(name: str) -> str | None:
    """What is wrong with the name of a job's event, if anything: nobody else emits one of these."""
    if not name.startswith(PREFIX) or name in JOB_EVENTS:
        return None
    return f"must be one of {', '.join(JOB_EVENTS)}: of jobs, no other events are told"


def call_template(url: str, *, sign_with: str | None) -> dict[str, Any]:
    """The template of the requests of a webhook: the body as Standard Webhooks has it, and an id that stays the same."""
    call: dict[str, Any] = {
        "url": url,
        "method": "POST",
        "webhook_id": "{{meta.event_id}}",
        "body": {"type": "{{meta.event_name}}", "timestamp": "{{meta.occurred_at}}", "data": "{{event}}"},
    }
    return call if sign_with is None else {**call, "sign_with": sign_with}


def ends_of(definitions: Sequence[str]) -> dict[str, Any]:
    """The filter for ends of jobs of these definitions; of all, where none is named."""
    return {"definition_key": {"in": list(definitions)}} if definitions else {}
