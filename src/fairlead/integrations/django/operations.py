"""What a Django migration does for Fairlead."""

from typing import Any

from django.db.migrations.operations.base import Operation
from django.db.utils import NotSupportedError

from fairlead.integrations.django.schema import bring_up_to_date, list_schemas


class ApplyFairleadSchema(Operation):
    """Creates Fairlead's schema, or brings it up to date, in the databases that its backends use.

    It uses a connection of its own: a migration with it must have `atomic = False`.
    """

    reversible = False
    reduces_to_sql = False

    def state_forwards(self, app_label: str, state: Any) -> None:
        """No model of Django changes."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:  # noqa: ARG002 - Django's
        """Apply Fairlead's migrations, if a backend uses this database."""
        connection = schema_editor.connection
        if not list_schemas(connection.alias):
            return
        if connection.vendor != "postgresql":
            raise NotSupportedError(
                f"Fairlead needs PostgreSQL; the database {connection.alias!r} is another."
            )
        bring_up_to_date(connection.alias)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Not possible: it would delete every job."""
        raise NotImplementedError("To remove Fairlead with all its jobs: DROP SCHEMA fairlead CASCADE.")

    def describe(self) -> str:
        """The operation in `manage.py migrate --plan`."""
        return "Apply Fairlead's schema"
