"""`fairlead worker --server`, and what it shares with `fairlead agent`: both run jobs without a database."""

import os
from collections.abc import Callable, Mapping
from typing import NoReturn

from fairlead.errors import InvalidInput, NotOpen
from fairlead.library.app import Fairlead
from fairlead.model.workflow.spec import ENGINE_RUN
from fairlead.runtime.execution import Execution, ExecutionServices
from fairlead.runtime.http_worker import HttpWorkerPlan
from fairlead.runtime.recycling import Recycling
from fairlead.settings import TOKEN_VARIABLE, compile_patterns
from fairlead.version import __version__


def http_worker_plan(
    fl: Fairlead,
    server: str,
    *,
    concurrency: int,
    stopping: Callable[[int], object],
    labels: Mapping[str, str],
    recycling: Recycling | None = None,
) -> HttpWorkerPlan:
    """The plan of a worker over HTTP that runs the functions and commands of a Fairlead."""
    return HttpWorkerPlan(
        server=server,
        token=_read_token(),
        start=lambda means: build_execution(fl, means, "A worker over HTTP"),
        threads=fl.threads,
        # jobs of ENGINE_RUN start workflows in the database, and durable functions record their steps there
        keys=sorted({*fl.functions, *fl.commands} - {ENGINE_RUN, *_list_durable(fl)}),
        concurrency=concurrency,
        labels=labels,
        drain_seconds=fl.settings.drain_seconds,
        version=__version__,
        stopping=stopping,
        recycling=recycling,
    )


def _list_durable(fl: Fairlead) -> set[str]:
    return {handler.key for handler in fl.registry if handler.durable}


def _read_token() -> str:
    """The token of a worker over HTTP: from the environment, since command lines are visible to other users."""
    if token := os.environ.get(TOKEN_VARIABLE):
        return token
    raise InvalidInput(
        f"--server needs the token of a worker in {TOKEN_VARIABLE}. "
        "Create one: fairlead tokens create NAME --role worker --tenant TENANT"
    )


def build_execution(fl: Fairlead, means: ExecutionServices, whose: str) -> Execution:
    """The execution of a process without a database: a function that enqueues gets an error."""

    async def enqueue(_: object) -> NoReturn:
        raise NotOpen(
            f"{whose} has no database and cannot enqueue: use a trigger on the job's end event, or a workflow."
        )

    return Execution(
        fl.registry,
        threads=fl.threads,
        enqueue=enqueue,
        commands=fl.commands,
        means=means,
        redact_patterns=compile_patterns(fl.settings.redact_patterns),
        middleware=fl.middleware,
        secrets=fl.secrets,
    )
