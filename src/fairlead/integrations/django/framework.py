"""Django's task framework: `django.tasks` since Django 6, its backport `django_tasks` before."""

from importlib import import_module
from typing import Any

import django

# `django.tasks`, where Django has it
FRAMEWORK = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"


def _load(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != "django_tasks":
            raise
        raise ModuleNotFoundError(
            f"Django {django.get_version()} has no tasks of its own: install the backport, `pip install django-tasks`, "
            "or Django 6.",
            name=error.name,
        ) from error


_tasks = _load(FRAMEWORK)
_base = _load(f"{FRAMEWORK}.base")
_exceptions = _load(f"{FRAMEWORK}.exceptions")
_signals = _load(f"{FRAMEWORK}.signals")

BaseTaskBackend: Any = _load(f"{FRAMEWORK}.backends.base").BaseTaskBackend
DEFAULT_QUEUE: str = _base.DEFAULT_TASK_QUEUE_NAME
# the backport called them otherwise until it took Django's names
InvalidTask: Any = getattr(_exceptions, "InvalidTask", None) or _exceptions.InvalidTaskError
InvalidTaskBackend: Any = (
    getattr(_exceptions, "InvalidTaskBackend", None) or _exceptions.InvalidTaskBackendError
)
Task: Any = _base.Task
TaskContext: Any = _base.TaskContext
TaskError: Any = _base.TaskError
TaskResult: Any = _base.TaskResult
TaskResultDoesNotExist: Any = _exceptions.TaskResultDoesNotExist
TaskResultStatus: Any = _base.TaskResultStatus
normalize_json: Any = _load(
    "django.utils.json" if FRAMEWORK == "django.tasks" else "django_tasks.utils"
).normalize_json
task_backends: Any = _tasks.task_backends
task_enqueued: Any = _signals.task_enqueued
task_finished: Any = _signals.task_finished
task_started: Any = _signals.task_started
