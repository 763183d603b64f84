"""Fairlead's schema in Django's databases."""

import asyncio

from fairlead.db import migrate
from fairlead.db.migrate import Migration
from fairlead.integrations.django.definitions import publish_all
from fairlead.integrations.django.project import list_backends
from fairlead.settings import Settings


def list_schemas(alias: str) -> list[Settings]:
    """The settings of each schema that a backend has in this database."""
    found = [one.load_settings() for one in list_backends() if one.database == alias]
    return list({one.schema: one for one in found}.values())


def bring_up_to_date(alias: str) -> list[Migration]:
    """Apply missing migrations and changed stored functions in this database, in every schema that a backend uses."""
    applied: list[Migration] = []
    for one in list_schemas(alias):
        applied += asyncio.run(migrate.up(one.database_url or "", one.schema, citus=one.citus))
    return applied


def check(alias: str) -> None:
    """Raise SchemaOutdated if a schema in this database is not current."""
    for one in list_schemas(alias):
        asyncio.run(migrate.check(one.database_url or "", one.schema))


def publish_definitions(alias: str) -> list[str]:
    """Store the definitions of the tasks of each backend of this database; their keys."""
    return [key for one in list_backends() if one.database == alias for key in publish_all(one)]
