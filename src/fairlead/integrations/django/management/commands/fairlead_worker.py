"""`manage.py fairlead_worker`."""

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from fairlead.errors import FairleadError
from fairlead.integrations.django.command_line import run_worker
from fairlead.integrations.django.project import find_backend
from fairlead.integrations.django.testing import run_due_tasks

CONCURRENCY = 10


class Command(BaseCommand):
    """Runs tasks."""

    help = "Run the tasks of a Fairlead backend, until SIGTERM or Ctrl-C."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The options; most are those of `fairlead worker`."""
        parser.add_argument(
            "--backend", help="The alias in settings.TASKS (default: the first Fairlead backend)."
        )
        parser.add_argument(
            "--queue",
            action="append",
            default=[],
            dest="queues",
            metavar="NAME",
            help="Run only the tasks of this queue; may be repeated.",
        )
        parser.add_argument("--once", action="store_true", help="Run the tasks that are due, and exit.")
        parser.add_argument(
            "--concurrency",
            type=int,
            default=CONCURRENCY,
            help=f"The most tasks at once in a process, each with its own database connection (default: {CONCURRENCY}).",
        )
        parser.add_argument("--processes", type=int, help="The number of worker processes.")
        parser.add_argument(
            "--scheduler", action="store_true", help="Also fire schedules and dispatch events."
        )
        parser.add_argument("--max-jobs", type=int, metavar="N", help="Replace a process after N tasks.")
        parser.add_argument(
            "--max-rss", metavar="SIZE", help="Replace a process that uses more memory: 512M."
        )
        parser.add_argument(
            "--label", action="append", metavar="NAME=VALUE", help="A label of this worker; may be repeated."
        )

    def handle(self, *_: Any, backend: str | None, queues: list[str], once: bool, **options: Any) -> None:
        """Run until told to stop; with --once until nothing is due."""
        try:
            found = find_backend(backend)
            if once:
                self.stdout.write(f"ran {run_due_tasks(backend=found.alias, queues=queues)} task(s)")
                return
        except FairleadError as error:
            raise CommandError(error.message) from error
        if code := run_worker(found, queues, list(_pass_on(options))):
            sys.exit(code)


def _pass_on(options: dict[str, Any]) -> Iterator[str]:
    """The options of `fairlead worker`."""
    for name in ("concurrency", "processes", "max_jobs", "max_rss", "label", "scheduler"):
        flag, value = f"--{name.replace('_', '-')}", options.get(name)
        if value is True:
            yield flag
        elif value is not None and value is not False:
            for one in value if isinstance(value, list) else [value]:
                yield from (flag, str(one))
