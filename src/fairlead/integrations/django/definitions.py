"""Publish the definitions of tasks, and find the tasks of a project."""

import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from importlib import import_module
from typing import Any

from django.conf import settings
from django.utils.module_loading import autodiscover_modules

from fairlead import sync
from fairlead.handlers.context import Context
from fairlead.integrations.django.framework import Task
from fairlead.integrations.django.task import build_key
from fairlead.integrations.django.task_run import run_task
from fairlead.library.app import Fairlead

ACTOR = "app:django"


def find_tasks(backend: Any) -> list[Any]:
    """The tasks of a backend: those in imported modules, after `tasks` of each application and the URLs were imported."""
    autodiscover_modules("tasks")
    for name in (*backend.task_modules, *filter(None, [getattr(settings, "ROOT_URLCONF", None)])):
        import_module(name)
    found = {task.module_path: task for task in _scan_modules() if task.backend == backend.alias}
    return [found[path] for path in sorted(found)]


def _scan_modules() -> Iterator[Any]:
    """Each task that is a name of its own module: workers and results import it by that."""
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            # by its type: isinstance would open objects that Django creates when they are first used
            if issubclass(type(value), Task) and value.module_path == f"{module.__name__}.{name}":
                yield value


def add_queues(backend: Any, tasks: Iterable[Any], queues: Iterable[str] = ()) -> list[Any]:
    """Each task in each of the queues that are given; by default in the backend's, or in its own if that allows any."""
    wanted = sorted(set(queues) or backend.queues)
    return [one.using(queue_name=queue) for one in tasks for queue in wanted or [one.queue_name]]


def add_tasks(fl: Fairlead, backend: Any, tasks: Iterable[Any]) -> None:
    """Make tasks jobs of this Fairlead, by their paths and queues."""
    for task in tasks:
        options = {
            "key": build_key(task),
            "max_attempts": getattr(task, "max_attempts", None) or backend.max_attempts,
            "timeout": getattr(task, "timeout", None) or backend.timeout,
            "description": _describe(task),
        }
        fl.as_job(_make_handler(backend.alias, task), options)


def _describe(task: Any) -> str:
    line = (task.func.__doc__ or "").strip().partition("\n")[0]
    return line or f"The task {task.module_path}."


def _make_handler(alias: str, task: Any) -> Any:
    # run_after is for the result only: by now its time has come
    def handle(
        ctx: Context,
        args: list[Any],
        kwargs: dict[str, Any],
        run_after: datetime | None = None,  # noqa: ARG001
    ) -> Any:
        return run_task(alias, task, ctx, args, kwargs)

    return handle


def publish(backend: Any, tasks: Iterable[Any]) -> None:
    """Store the definitions of tasks, in a connection and a transaction of their own."""
    fl = sync.Fairlead(settings=backend.load_settings(), actor=ACTOR)
    add_tasks(fl.inner, backend, tasks)
    with fl:
        pass  # opening it stores the definitions


def publish_all(backend: Any) -> list[str]:
    """Store the definitions of all tasks of a backend; their keys."""
    tasks = add_queues(backend, find_tasks(backend))
    publish(backend, tasks)
    return [build_key(one) for one in tasks]
