"""Events that tell how jobs and runs of workflows ended, and webhooks: triggers that pass them on to a URL."""

from collections.abc import Sequence
from typing import Any

from fairlead.model.job import JobStatus
from fairlead.model.workflow_run import RunStatus

JOB_EVENTS = tuple(f"job.{status}" for status in JobStatus if status.terminal)
RUN_EVENTS = tuple(f"workflow.{status}" for status in RunStatus if status is not RunStatus.RUNNING)
END_EVENTS = (*JOB_EVENTS, *RUN_EVENTS)
_TOLD = {"job.": ("jobs", JOB_EVENTS), "workflow.": ("runs", RUN_EVENTS)}


def unheard_of(name: str) -> str | None:
    """What is wrong with the name of an end, if anything: nobody else emits one of these."""
    for prefix, (what, names) in _TOLD.items():
        if name.startswith(prefix) and name not in names:
            return f"must be one of {', '.join(names)}: of {what}, no other events are told"
    return None


def call_template(url: str, *, sign_with: str | None) -> dict[str, Any]:
    """The template of the requests of a webhook: the body as Standard Webhooks has it, and an id that stays the same."""
    call: dict[str, Any] = {
        "url": url,
        "method": "POST",
        "webhook_id": "{{meta.event_id}}",
        "body": {"type": "{{meta.event_name}}", "timestamp": "{{meta.occurred_at}}", "data": "{{event}}"},
    }
    return call if sign_with is None else {**call, "sign_with": sign_with}


def ends_of(event: str, *, definitions: Sequence[str], workflows: Sequence[str]) -> dict[str, Any]:
    """The filter for ends of jobs of these definitions, or of runs of these workflows; where none is named, of all."""
    field, names = ("definition_key", definitions) if event in JOB_EVENTS else ("workflow", workflows)
    return {field: {"in": list(names)}} if names else {}
