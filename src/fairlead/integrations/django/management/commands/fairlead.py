"""`manage.py fairlead …`."""

import argparse
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from fairlead.integrations.django.command_line import run_fairlead
from fairlead.integrations.django.project import find_backend


class Command(BaseCommand):
    """Runs Fairlead's own commands."""

    help = "Run a command of Fairlead, such as `jobs list` or `serve`, with the database of settings.TASKS."
    requires_system_checks = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Pass everything on, options and --help, too."""
        sys.exit(run_fairlead(find_backend(), argv[2:]))

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """For call_command."""
        parser.add_argument("arguments", nargs=argparse.REMAINDER)

    def handle(self, *_: Any, arguments: list[str], **__: Any) -> None:
        """For call_command."""
        if code := run_fairlead(find_backend(), arguments):
            raise CommandError(f"fairlead {' '.join(arguments)} ended with {code}.", returncode=code)
