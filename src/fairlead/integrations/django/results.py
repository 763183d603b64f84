"""A job and its attempts as Django's TaskResult."""

import builtins
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.utils import timezone
from django.utils.module_loading import import_string

from fairlead.integrations.django.framework import (
    Task,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
)
from fairlead.integrations.django.task import split_key, to_django_priority
from fairlead.model.job import Attempt, Job, JobStatus

STATUSES = {JobStatus.QUEUED: "READY", JobStatus.RUNNING: "RUNNING", JobStatus.SUCCEEDED: "SUCCESSFUL"}
CANCELED_PATH = "fairlead.errors.JobFailed"


def build_result(job: Job, attempts: Sequence[Attempt], *, backend: str) -> Any:
    """The result of a task; TaskResultDoesNotExist if the job is not a task's."""
    payload = job.payload if isinstance(job.payload, dict) else {}
    result = TaskResult(
        task=_find_task(job, payload, backend),
        id=str(job.id),
        status=TaskResultStatus[STATUSES.get(job.status, "FAILED")],
        enqueued_at=to_django_time(job.queued_at),
        started_at=to_django_time(attempts[0].started_at) if attempts else None,
        finished_at=to_django_time(job.finished_at),
        last_attempted_at=to_django_time(attempts[-1].started_at) if attempts else None,
        args=payload["args"],
        kwargs=payload["kwargs"],
        backend=backend,
        errors=_list_errors(job, attempts),
        worker_ids=[one.worker_id for one in attempts],
    )
    if job.status is JobStatus.SUCCEEDED:
        set_fields(result, _return_value=job.output)
    return result


def set_fields(result: Any, **values: Any) -> None:
    """Change a TaskResult, which is frozen, as Django's own backends do."""
    for name, value in values.items():
        object.__setattr__(result, name, value)


def _find_task(job: Job, payload: dict[str, Any], backend: str) -> Any:
    """The task of a job, with the options that it was enqueued with."""
    path, queue = split_key(job.definition_key)
    if not isinstance(payload.get("args"), list) or not isinstance(payload.get("kwargs"), dict):
        raise TaskResultDoesNotExist(str(job.id))
    try:
        task = import_string(path)
    except ImportError as error:
        raise TaskResultDoesNotExist(
            f"{job.id}: its task {path!r} cannot be imported any more: {error}"
        ) from error
    if not isinstance(task, Task):
        raise TaskResultDoesNotExist(f"{job.id}: {path!r} is not a task any more.")
    after = payload.get("run_after")
    return task.using(
        priority=to_django_priority(job.priority),
        queue_name=queue,
        run_after=None if after is None else to_django_time(datetime.fromisoformat(after)),
        backend=backend,
    )


def to_django_time(moment: datetime | None) -> datetime | None:
    """A time as Django has it: aware, or with USE_TZ = False naive, in its time zone."""
    if moment is None or settings.USE_TZ:
        return moment
    naive: datetime = timezone.make_naive(moment)
    return naive


def from_django_time(moment: datetime | None) -> datetime | None:
    """An aware time for one of Django's."""
    if moment is None or timezone.is_aware(moment):
        return moment
    aware: datetime = timezone.make_aware(moment)
    return aware


def _list_errors(job: Job, attempts: Sequence[Attempt]) -> list[Any]:
    """An error for each attempt that failed; only the last one has its traceback."""
    ended = [one for one in attempts if one.status in ("failed", "timeout", "lost", "canceled")]
    errors = [
        _build_error(one.error_text or f"The attempt ended as {one.status}.", one.status) for one in ended
    ]
    last = job.error if isinstance(job.error, dict) else {}
    if ended and ended[-1] is attempts[-1] and last.get("traceback"):
        path = _find_class_path(str(last.get("type", "")), last["traceback"])
        errors[-1] = TaskError(exception_class_path=path, traceback=last["traceback"])
    if job.status is JobStatus.CANCELED and not errors:
        errors.append(TaskError(exception_class_path=CANCELED_PATH, traceback="The job was canceled.\n"))
    return errors


def _build_error(text: str, status: str) -> Any:
    kind, _, _ = text.partition(":")
    named = {"timeout": "builtins.TimeoutError", "canceled": CANCELED_PATH, "lost": CANCELED_PATH}.get(status)
    path = named or (f"builtins.{kind}" if hasattr(builtins, kind) else kind)
    return TaskError(exception_class_path=path, traceback=f"{text}\n")


def _find_class_path(kind: str, traceback: str) -> str:
    """The path of an exception's class, from the last line of its traceback that names it."""
    named = re.findall(rf"^((?:\w+\.)*{re.escape(kind)})(?::|$)", traceback, re.MULTILINE)
    path: str = named[-1] if named else kind
    return f"builtins.{path}" if hasattr(builtins, path) else path
