"""Run Fairlead's command line in a Django project."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fairlead.cli.root import main
from fairlead.integrations.django.project import BACKEND_VARIABLE, QUEUES_VARIABLE

APP = "fairlead.integrations.django.app:fl"


def run_fairlead(backend: Any, arguments: Sequence[str]) -> int:
    """Run a command with the database of a backend. Its exit code."""
    settings = backend.load_settings()
    given = {"FAIRLEAD_DATABASE_URL": settings.database_url or "", "FAIRLEAD_SCHEMA": settings.schema}
    return _run(arguments, {**_describe_project(), **given})


def run_worker(backend: Any, queues: Iterable[str], options: Sequence[str]) -> int:
    """Run `fairlead worker` for the tasks of these queues, or of all. Its exit code."""
    given = {BACKEND_VARIABLE: backend.alias, QUEUES_VARIABLE: ",".join(queues)}
    return _run(["worker", APP, *options], {**_describe_project(), **given})


def _describe_project() -> dict[str, str]:
    """The folder of manage.py, for further processes: they search for modules in their working folder only."""
    before = [one for one in [os.environ.get("PYTHONPATH")] if one]
    return {"PYTHONPATH": os.pathsep.join([sys.path[0] or os.getcwd(), *before])}  # noqa: PTH109 - text


def _run(arguments: Sequence[str], variables: dict[str, str]) -> int:
    # further worker processes get the arguments of this one
    with _changed_environment(variables), _changed_arguments(["fairlead", *arguments]):
        try:
            main(args=list(arguments), prog_name="fairlead")
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


@contextmanager
def _changed_environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _changed_arguments(arguments: list[str]) -> Iterator[None]:
    before, sys.argv = sys.argv, arguments
    try:
        yield
    finally:
        sys.argv = before
