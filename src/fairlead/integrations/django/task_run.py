"""Run a task in a worker: with Django's context, signals and connections."""

from traceback import format_exception
from typing import Any

from django.db import close_old_connections
from django.utils import timezone

from fairlead.handlers.context import Context, Fatal, Snooze, Stopped
from fairlead.integrations.django.context import use_job_context
from fairlead.integrations.django.framework import (
    TaskContext,
    TaskError,
    TaskResultStatus,
    normalize_json,
    task_backends,
    task_finished,
    task_started,
)
from fairlead.integrations.django.results import set_fields


def run_task(alias: str, task: Any, ctx: Context, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call a task with its arguments. Its return value, in JSON's types."""
    close_old_connections()  # the last task in this thread may have been long ago
    try:
        with use_job_context(ctx):
            return _call(task_backends[alias], task, ctx, args, kwargs)
    finally:
        close_old_connections()


def _call(backend: Any, task: Any, ctx: Context, args: list[Any], kwargs: dict[str, Any]) -> Any:
    result = backend.get_result(str(ctx.job_id))
    task_started.send(type(backend), task_result=result)
    given = [TaskContext(task_result=result), *args] if task.takes_context else args
    try:
        value = normalize_json(task.call(*given, **kwargs))
    except (Snooze, Stopped):
        raise  # it will run again, or was told to stop
    except BaseException as error:
        result.errors.append(_describe_error(error))
        if isinstance(error, Fatal) or len(_list_failures(result)) >= ctx.max_attempts:
            set_fields(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
            task_finished.send(type(backend), task_result=result)
        raise
    set_fields(result, status=TaskResultStatus.SUCCESSFUL, finished_at=timezone.now(), _return_value=value)
    task_finished.send(type(backend), task_result=result)
    return value


def _list_failures(result: Any) -> list[Any]:
    """The errors that count as attempts: those of lost workers do not."""
    return [one for one in result.errors if one.exception_class_path != "fairlead.errors.JobFailed"]


def _describe_error(error: BaseException) -> Any:
    kind = type(error)
    return TaskError(
        exception_class_path=f"{kind.__module__}.{kind.__qualname__}",
        traceback="".join(format_exception(error)),
    )
