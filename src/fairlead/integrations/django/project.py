"""The Fairlead backends of a project, and the application that a worker runs."""

import os
from collections.abc import Iterable
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from fairlead.integrations.django.backend import FairleadBackend
from fairlead.integrations.django.definitions import ACTOR, add_queues, add_tasks, find_tasks
from fairlead.integrations.django.framework import task_backends
from fairlead.library.app import Fairlead

# Which backend and queues the worker of this process serves; `manage.py fairlead_worker` sets them.
BACKEND_VARIABLE = "DJANGO_TASKS_BACKEND"
QUEUES_VARIABLE = "DJANGO_TASKS_QUEUES"


def list_backends() -> list[FairleadBackend]:
    """The Fairlead backends of settings.TASKS."""
    return [one for one in task_backends.all() if isinstance(one, FairleadBackend)]


def find_backend(alias: str | None = None) -> FairleadBackend:
    """The backend with this alias, or the first one."""
    found: dict[str, FairleadBackend] = {one.alias: one for one in list_backends()}
    if not found:
        raise ImproperlyConfigured(
            "settings.TASKS has no Fairlead backend: add one with "
            "'BACKEND': 'fairlead.integrations.django.FairleadBackend'."
        )
    if alias is None:
        return next(iter(found.values()))
    if alias not in found:
        raise ImproperlyConfigured(
            f"settings.TASKS has no Fairlead backend {alias!r}; it has {', '.join(sorted(found))}."
        )
    return found[alias]


def find_option(name: str) -> Any:
    """The first value that a Fairlead backend has for an option; None if none has one."""
    return next((one.options[name] for one in list_backends() if one.options.get(name)), None)


def build_app(backend: Any, queues: Iterable[str] = ()) -> Fairlead:
    """A Fairlead that runs the tasks of a backend: of these queues, or of all."""
    fl = Fairlead(settings=backend.load_settings(), actor=ACTOR)
    add_tasks(fl, backend, add_queues(backend, find_tasks(backend), queues))
    return fl


def build_app_of_environment() -> Fairlead:
    """The Fairlead of the backend and the queues that the environment names."""
    queues = [queue for queue in os.environ.get(QUEUES_VARIABLE, "").split(",") if queue]
    return build_app(find_backend(os.environ.get(BACKEND_VARIABLE)), queues)
