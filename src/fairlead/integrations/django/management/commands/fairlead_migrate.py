"""`manage.py fairlead_migrate`."""

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from fairlead.errors import FairleadError
from fairlead.integrations.django import schema
from fairlead.integrations.django.project import list_backends


class Command(BaseCommand):
    """Applies Fairlead's schema without Django's migrations."""

    help = (
        "Bring Fairlead's schema up to date and store the definitions of all tasks. `manage.py migrate` does the same: use "
        "this where you run Fairlead's migrations separately."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The options."""
        parser.add_argument(
            "--check", action="store_true", help="Only check: exit with 1 if it is not current."
        )

    def handle(self, *_: Any, check: bool, **__: Any) -> None:
        """Migrate each database of a Fairlead backend."""
        for alias in sorted({one.database for one in list_backends()}):
            try:
                self._migrate(alias, check=check)
            except FairleadError as error:
                raise CommandError(f"{alias}: {error.message}") from error

    def _migrate(self, alias: str, *, check: bool) -> None:
        if check:
            schema.check(alias)
            self.stdout.write(f"{alias}: Fairlead's schema is current.")
            return
        applied = schema.bring_up_to_date(alias)
        published = schema.publish_definitions(alias)
        self.stdout.write(
            f"{alias}: {len(applied)} migration(s) applied, {len(published)} task(s) published."
        )
