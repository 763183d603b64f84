"""The backend of Django's tasks: enqueues through Django's own connection, and so in its transaction."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.apps import apps
from django.core import checks
from django.db import connections
from django.utils.module_loading import import_string

from fairlead.errors import DefinitionUnknown, JobUnknown
from fairlead.integrations.django.context import current_tenant
from fairlead.integrations.django.databases import build_url
from fairlead.integrations.django.definitions import ACTOR, publish
from fairlead.integrations.django.framework import (
    BaseTaskBackend,
    InvalidTaskBackend,
    TaskResultDoesNotExist,
    normalize_json,
    task_enqueued,
)
from fairlead.integrations.django.results import build_result, from_django_time
from fairlead.integrations.django.task import (
    QUEUE,
    FairleadTask,
    build_key,
    check_task,
    to_fairlead_priority,
)
from fairlead.model.access import GLOBAL_TENANT
from fairlead.model.job import NewJob
from fairlead.settings import Settings, load
from fairlead.sync import EnqueuedJob, Fairlead

APP = "fairlead.integrations.django"
OPTIONS = frozenset(
    {
        "CONSOLE_URL",
        "DATABASE",
        "MAX_ATTEMPTS",
        "SCHEMA",
        "TASK_MODULES",
        "TENANT",
        "TENANT_OF_REQUEST",
        "TIMEOUT",
    }
)


class FairleadBackend(BaseTaskBackend):
    """Runs Django's tasks as Fairlead's jobs; `manage.py fairlead_worker` runs them."""

    task_class = FairleadTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        if unknown := sorted(self.options.keys() - OPTIONS):
            raise InvalidTaskBackend(
                f"TASKS[{alias!r}]['OPTIONS'] has unknown options: {', '.join(unknown)}. Known: "
                f"{', '.join(sorted(OPTIONS))}."
            )
        self.database: str = self.options.get("DATABASE", "default")
        # how often a task is tried, unless the task says otherwise
        self.max_attempts: int = self.options.get("MAX_ATTEMPTS", 1)
        # seconds; None: the definition's
        self.timeout: int | None = self.options.get("TIMEOUT")
        # modules with tasks, in addition to `tasks` of each application
        self.task_modules: Iterable[str] = self.options.get("TASK_MODULES", ())

    def validate_task(self, task: Any) -> None:
        """Refuse what the backend cannot run."""
        super().validate_task(task)
        check_task(task)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Enqueue a task in the transaction of Django's connection; without one, it is stored at once."""
        self.validate_task(task)
        job = self._submit(task, self._build_request(task, list(args), dict(kwargs)))
        result = self.get_result(str(job.id))
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """The result of a task of any process; TaskResultDoesNotExist if there is none."""
        try:
            job_id = UUID(str(result_id))
            job, attempts = self._client().show(job_id, tx=connections[self.database])
        except (ValueError, JobUnknown):
            raise TaskResultDoesNotExist(str(result_id)) from None
        return build_result(job, attempts, backend=self.alias)

    def find_tenant(self, task: Any) -> str:
        """The tenant of a task: its own, that of the surrounding code, the backend's, or `global`."""
        return (
            getattr(task, "tenant", None) or current_tenant() or self._find_default_tenant() or GLOBAL_TENANT
        )

    def _find_default_tenant(self) -> str | None:
        """OPTIONS["TENANT"]: a slug, or a function without parameters that returns one, or the path of such a function."""
        given: Any = self.options.get("TENANT")
        if isinstance(given, str) and "." in given:
            given = import_string(given)
        tenant: str | None = given() if callable(given) else given
        return tenant

    def load_settings(self) -> Settings:
        """Fairlead's settings, with Django's database."""
        return load({"database_url": build_url(self.database), "schema": self.options.get("SCHEMA")})

    def _client(self) -> Fairlead:
        return _open_client(self.database, self.options.get("SCHEMA"))

    def _build_request(self, task: Any, args: list[Any], kwargs: dict[str, Any]) -> NewJob:
        run_after = from_django_time(task.run_after)
        payload = {"args": normalize_json(args), "kwargs": normalize_json(kwargs)}
        if run_after is not None:
            payload["run_after"] = run_after.isoformat()
        return NewJob(
            definition=build_key(task),
            tenant=self.find_tenant(task),
            payload=payload,
            priority=to_fairlead_priority(task.priority),
            scheduled_for=run_after,
            max_attempts=getattr(task, "max_attempts", None),
            timeout=getattr(task, "timeout", None),
            dedupe_key=getattr(task, "dedupe_key", None),
            tags=None if (tags := getattr(task, "tags", None)) is None else tuple(tags),
        )

    def _submit(self, task: Any, new: NewJob) -> EnqueuedJob:
        client, connection = self._client(), connections[self.database]
        try:
            return client.submit(new, tx=connection)
        except DefinitionUnknown:
            # a task that is newer than the last `manage.py migrate` and the workers
            publish(self, [task])
            return client.submit(new, tx=connection)

    def check(self, **_: Any) -> Iterator[checks.CheckMessage]:
        """What Django's system checks report."""
        yield from super().check()
        for passed, message, hint, number in self._list_checks():
            if not passed():
                text = f"TASKS[{self.alias!r}]: {message}"
                yield checks.Error(text, hint=hint, obj=type(self), id=f"fairlead.E{number:03}")

    def _list_checks(self) -> list[tuple[Callable[[], object], str, str, int]]:
        return [
            (
                lambda: apps.is_installed(APP),
                "Fairlead's application is not installed.",
                f"Add {APP!r} to INSTALLED_APPS: it has the migrations and the commands.",
                1,
            ),
            (
                lambda: self.database in connections,
                f"there is no database {self.database!r}.",
                "Name one of settings.DATABASES in OPTIONS['DATABASE'].",
                2,
            ),
            (
                lambda: self.database not in connections or connections[self.database].vendor == "postgresql",
                f"the database {self.database!r} is not PostgreSQL.",
                "Fairlead needs PostgreSQL: name such a database in OPTIONS['DATABASE'].",
                3,
            ),
            (
                lambda: all(QUEUE.fullmatch(queue) for queue in self.queues),
                "a queue's name is not valid.",
                "Use letters, digits, dots, underscores and hyphens in QUEUES.",
                4,
            ),
        ]


@lru_cache(maxsize=32)
def _open_client(alias: str, schema: str | None) -> Fairlead:  # noqa: ARG001 - one for each database, as they cache definitions
    """A Fairlead that is never open: it only uses Django's connections."""
    return Fairlead(settings=load({"schema": schema}), actor=ACTOR)
