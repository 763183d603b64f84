"""Alembic: a revision that applies Fairlead's schema, and autogenerate without Fairlead's tables."""

import asyncio
from collections.abc import MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fairlead.db import migrate
from fairlead.errors import InvalidInput
from fairlead.settings import Settings, load


def upgrade_schema(
    connection: Any, *, database_url: str | None = None, schema: str | None = None
) -> list[str]:
    """Bring Fairlead's schema in the database of `op.get_bind()` up to date. The names of the migrations that it applied.

    It uses a connection of its own: what your revision has changed before is not committed yet, and it does not wait for it.
    """
    given = load({"database_url": database_url or _find_url(connection), "schema": schema})
    # Alembic may run in the loop of an asynchronous engine
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, _upgrade(given)).result()


async def _upgrade(given: Settings) -> list[str]:
    applied = await migrate.up(given.database_url or "", given.schema, citus=given.citus)
    return [one.title for one in applied]


def include_name(name: str | None, type_: str, parent_names: MutableMapping[Any, str | None]) -> bool:
    """For `context.configure(include_schemas=True, include_name=include_name)`: everything but Fairlead's schema."""
    ours = load().schema
    return name != ours if type_ == "schema" else parent_names.get("schema_name") != ours


def _find_url(connection: Any) -> str | None:
    """The URL of a SQLAlchemy connection; None for an engine with a creator, which has none."""
    if not hasattr(connection, "engine"):
        raise InvalidInput(
            "upgrade_schema needs a connection, op.get_bind(). In offline mode (alembic upgrade --sql) there is none: run "
            "`fairlead migrate up` instead."
        )
    url = connection.engine.url
    return url.render_as_string(hide_password=False) if url.database else None
