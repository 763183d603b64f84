"""Events for the end of jobs and workflow runs, and webhooks: triggers that send them to a URL."""

from collections.abc import Sequence
from typing import Any

from fairlead.model.job import JobStatus
from fairlead.model.workflow.run import RunStatus

JOB_EVENTS = tuple(f"job.{status}" for status in JobStatus if status.terminal)
RUN_EVENTS = tuple(f"workflow.{status}" for status in RunStatus if status is not RunStatus.RUNNING)
END_EVENTS = (*JOB_EVENTS, *RUN_EVENTS)
_NAMES_BY_PREFIX = {"job.": ("jobs", JOB_EVENTS), "workflow.": ("runs", RUN_EVENTS)}


def find_end_event_fault(name: str) -> str | None:
    """The fault in the name of an end event, or None; only the system emits names with these prefixes."""
    for prefix, (what, names) in _NAMES_BY_PREFIX.items():
        if name.startswith(prefix) and name not in names:
            return f"must be one of {', '.join(names)}: there are no other events for {what}"
    return None


def build_webhook_template(url: str, *, sign_with: str | None) -> dict[str, Any]:
    """The template of a webhook's requests: a Standard Webhooks body, and an id that stays the same on retries."""
    call: dict[str, Any] = {
        "url": url,
        "method": "POST",
        "webhook_id": "{{meta.event_id}}",
        "body": {"type": "{{meta.event_name}}", "timestamp": "{{meta.occurred_at}}", "data": "{{event}}"},
    }
    return call if sign_with is None else {**call, "sign_with": sign_with}


def build_end_filter(event: str, *, definitions: Sequence[str], workflows: Sequence[str]) -> dict[str, Any]:
    """The filter for end events of these definitions or workflows; without names, of all."""
    field, names = ("definition_key", definitions) if event in JOB_EVENTS else ("workflow", workflows)
    return {field: {"in": list(names)}} if names else {}
