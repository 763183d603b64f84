"""A task with Fairlead's own options, and the definition that its jobs have."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

from fairlead.integrations.django.framework import DEFAULT_QUEUE, InvalidTask, Task
from fairlead.model.definition import KEY

QUEUE = re.compile(r"[A-Za-z0-9._-]+")
# Django runs tasks with a larger number first, from -100 to 100; Fairlead jobs with a smaller one, by default 100.
NEUTRAL_PRIORITY = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class FairleadTask(Task):
    """A task with options for Fairlead; None means the backend's or the definition's."""

    # the slug of the tenant
    tenant: str | None = None
    max_attempts: int | None = None
    # seconds
    timeout: int | None = None
    # an active job with this key is returned instead of a second one
    dedupe_key: str | None = None
    tags: Sequence[str] | None = None

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | None = None,
        backend: str | None = None,
        **options: Any,
    ) -> Any:
        """The same task with other options."""
        given: dict[str, Any] = {
            "priority": priority,
            "queue_name": queue_name,
            "run_after": run_after,
            "backend": backend,
        }
        if unknown := options.keys() - _OPTIONS:
            raise TypeError(
                f"using() has no option {', '.join(sorted(unknown))}; Fairlead's are {', '.join(_OPTIONS)}."
            )
        return replace(self, **{name: value for name, value in given.items() if value is not None}, **options)


_OPTIONS = tuple(one.name for one in fields(FairleadTask) if one.name not in {of.name for of in fields(Task)})


def build_key(task: Any) -> str:
    """The key of a task's definition: its path, and its queue unless that is the default."""
    path: str = task.module_path
    return path if task.queue_name == DEFAULT_QUEUE else f"{path}-{task.queue_name}"


def split_key(key: str) -> tuple[str, str]:
    """The path and the queue of a definition's key. A path has no hyphen."""
    path, _, queue = key.partition("-")
    return path, queue or DEFAULT_QUEUE


def check_task(task: Any) -> None:
    """Refuse a task whose path and queue cannot be a definition's key."""
    if not QUEUE.fullmatch(task.queue_name):
        raise InvalidTask(
            f"Queue {task.queue_name!r} is not valid for Fairlead: use letters, digits, dots, underscores and hyphens."
        )
    if not KEY.fullmatch(key := build_key(task)):
        raise InvalidTask(
            f"{key!r} cannot be the key of a definition: it must begin with a letter and have up to 128 letters, digits, "
            "dots, underscores and hyphens. Move or rename the task, or shorten the name of its queue."
        )


def to_fairlead_priority(priority: int) -> int:
    """Fairlead's priority for Django's."""
    return NEUTRAL_PRIORITY - int(priority)


def to_django_priority(priority: int) -> int:
    """Django's priority for Fairlead's, within Django's bounds."""
    return max(-100, min(100, NEUTRAL_PRIORITY - priority))
