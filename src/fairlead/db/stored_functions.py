"""Stored functions: one source file each in functions/, applied again whenever its text changes."""

import hashlib
import re
from functools import cache
from importlib import resources
from typing import Any

import msgspec
import psycopg
from psycopg import AsyncConnection
from psycopg import errors as pg

from fairlead.db.sharded_tables import ShardedTables
from fairlead.db.sql import in_schema, include_queries
from fairlead.db.statements import split_statements
from fairlead.errors import MigrationFailed

# Functions that change tables, which only the coordinator of a Citus cluster does.
_ON_COORDINATOR = re.compile(r"\bneeds_coordinator\b")
# Marks statements in a function's body that only a distributed schema needs.
_ON_CITUS = "-- on Citus: "


class StoredFunction(msgspec.Struct, frozen=True):
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


@cache
def list_stored_functions() -> tuple[StoredFunction, ...]:
    """Every stored function of this version of Fairlead, by name."""
    files = (resources.files("fairlead.db") / "functions").iterdir()
    found = (
        StoredFunction(file.name.removesuffix(".sql"), include_queries(file.read_text(encoding="utf-8")))
        for file in files
        if file.name.endswith(".sql")
    )
    return tuple(sorted(found, key=lambda one: one.name))


async def apply_changed(
    connection: AsyncConnection[Any],
    schema: str,
    *,
    tables: ShardedTables | None = None,
    all_of_them: bool = False,
) -> list[str]:
    """Create or replace the functions whose source differs from the database's. Their names.

    With `tables`, the functions read and write the shards of these tables directly.
    """
    changed = list(list_stored_functions()) if all_of_them else await list_changed(connection, schema)
    if not changed:
        return []
    try:
        async with connection.transaction():
            # bodies may name functions and tables that come later in the same transaction
            await connection.execute("set local check_function_bodies = off")
            for one in changed:
                await _apply(connection, schema, one, tables)
    except psycopg.errors.LockNotAvailable:
        raise
    except psycopg.Error as error:
        raise MigrationFailed(
            f"The stored functions could not be applied, and none was changed: {str(error).strip()}"
        ) from error
    return [one.name for one in changed]


async def list_changed(connection: AsyncConnection[Any], schema: str) -> list[StoredFunction]:
    """The functions that are missing in the database, or have another source there."""
    cursor = await connection.execute(
        _in_schema("select name, checksum from fairlead.function_sources", schema)
    )
    known = dict(await cursor.fetchall())
    cursor = await connection.execute(
        "select proname from pg_catalog.pg_proc where pronamespace = %s::regnamespace", (f'"{schema}"',)
    )
    existing = {name for (name,) in await cursor.fetchall()}
    return [
        function
        for function in list_stored_functions()
        if function.name not in existing or known.get(function.name) != function.checksum
    ]


async def _apply(
    connection: AsyncConnection[Any], schema: str, function: StoredFunction, tables: ShardedTables | None
) -> None:
    """Create or replace a function, then run the rest of its file: the grants."""
    on_shards = tables is not None and not _ON_COORDINATOR.search(function.text)
    text = function.text
    if tables is not None and on_shards:
        text = tables.name_shards(text.replace(_ON_CITUS, ""))
    create, *rights = (_in_schema(one, schema) for one in split_statements(text))
    old = await _list_signatures(connection, schema, function.name)
    try:
        async with connection.transaction():
            await connection.execute(create)
    except pg.InvalidFunctionDefinition:  # its return type changed
        await _drop(connection, old)
        await connection.execute(create)
    # The old and the new signature together would make calls ambiguous.
    if old and (await _list_signatures(connection, schema, function.name)) - old:
        await _drop(connection, old)
    for one in rights:
        await connection.execute(one)
    await connection.execute(
        _in_schema(
            "insert into fairlead.function_sources (name, checksum) values (%s, %s) "
            "on conflict (name) do update set checksum = excluded.checksum",
            schema,
        ),
        (function.name, function.checksum),
    )


async def _list_signatures(connection: AsyncConnection[Any], schema: str, name: str) -> set[str]:
    """A function's signatures, as `drop function` takes them."""
    cursor = await connection.execute(
        "select p.oid::regprocedure::text from pg_catalog.pg_proc p "
        "where p.pronamespace = %s::regnamespace and p.proname = %s",
        (f'"{schema}"', name),
    )
    return {signature for (signature,) in await cursor.fetchall()}


async def _drop(connection: AsyncConnection[Any], signatures: set[str]) -> None:
    for signature in signatures:
        await connection.execute(f"drop function if exists {signature}".encode())


def _in_schema(query: str, schema: str) -> Any:
    return in_schema(query, schema)
