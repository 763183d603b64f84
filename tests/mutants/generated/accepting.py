"""Whether PostgreSQL creates a version of a stored function."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from fairlead.db import migrate, scratch
from fairlead.db.embedded import EmbeddedPostgres
from fairlead.db.sql import in_schema, include_queries
from fairlead.db.statements import split_statements
from tests.mutants.generated.versions import Version


@contextmanager
def acceptance() -> Iterator[Callable[[Version], bool]]:
    """Asks a PostgreSQL of its own, which has all functions as they are."""
    with scratch.scratch_folder() as folder, EmbeddedPostgres(folder / "data") as embedded:
        asyncio.run(migrate.up(embedded.url, "fairlead"))
        with psycopg.connect(embedded.url, autocommit=True) as connection:

            def accepts(version: Version) -> bool:
                create = next(split_statements(include_queries(version.text)))
                try:
                    with connection.transaction(force_rollback=True):
                        connection.execute(in_schema(create, "fairlead"))
                except psycopg.Error:
                    return False
                return True

            yield accepts
