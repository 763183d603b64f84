"""Fairlead as a Django application."""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class FairleadConfig(AppConfig):
    """Fairlead: migrations, commands, checks and the admin link."""

    name = "fairlead.integrations.django"
    label = "fairlead"
    verbose_name = "Fairlead"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Keep Fairlead's schema and definitions up to date with `manage.py migrate`."""
        post_migrate.connect(_update_schema, sender=self)


def _update_schema(
    sender: Any,  # noqa: ARG001 - Django gives it
    *,
    using: str,
    verbosity: int = 1,
    plan: Sequence[Any] | None = None,
    **_: Any,
) -> None:
    """After `manage.py migrate`: what a later version of Fairlead, or new tasks, need in this database."""
    if plan is None:
        return  # after `flush`, which leaves Fairlead's tables as they are: each TransactionTestCase ends with it
    from fairlead.integrations.django import schema  # noqa: PLC0415 - the models must be loaded first

    if not schema.list_schemas(using):
        return
    schema.bring_up_to_date(using)
    published = schema.publish_definitions(using)
    if verbosity >= 2:
        print(f"Published {len(published)} tasks to Fairlead.")  # noqa: T201 - as other handlers of this signal do
