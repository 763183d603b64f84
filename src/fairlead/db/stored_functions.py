"""Stored functions: one source file each in functions/, applied again whenever its text changes."""

import hashlib
from functools import cache
from importlib import resources
from typing import Any

import msgspec
import psycopg
from psycopg import AsyncConnection
from psycopg import errors as pg

from fairlead.db.sql import in_schema
from fairlead.errors import MigrationFailed


class StoredFunction(msgspec.Struct, frozen=True):
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


@cache
def stored_functions() -> tuple[StoredFunction, ...]:
    """Every stored function of this version of Fairlead, by name."""
    files = (resources.files("fairlead.db") / "functions").iterdir()
    found = (
        StoredFunction(file.name.removesuffix(".sql"), file.read_text(encoding="utf-8"))
        for file in files
        if file.name.endswith(".sql")
    )
    return tuple(sorted(found, key=lambda one: one.name))


async def apply_changed(connection: AsyncConnection[Any], schema: str) -> list[str]:
    """Create or replace the functions whose source is not the one in the database. Their names."""
    changed = await list_changed(connection, schema)
    if not changed:
        return []
    names = [one.name for one in changed]
    try:
        async with connection.transaction():
            # bodies may name functions and tables that come later in the same transaction
            await connection.execute("set local check_function_bodies = off")
            before = await _signatures(connection, schema, names)
            for one in changed:
                await _replace(connection, _text(one.text, schema), before.get(one.name, set()))
                await connection.execute(
                    _text(
                        "insert into fairlead.function_sources (name, checksum) values (%s, %s) "
                        "on conflict (name) do update set checksum = excluded.checksum",
                        schema,
                    ),
                    (one.name, one.checksum),
                )
            await _drop_replaced(connection, before, await _signatures(connection, schema, names))
    except psycopg.errors.LockNotAvailable:
        raise
    except psycopg.Error as error:
        raise MigrationFailed(
            f"The stored functions could not be applied, and none was changed: {str(error).strip()}"
        ) from error
    return names


async def list_changed(connection: AsyncConnection[Any], schema: str) -> list[StoredFunction]:
    """The functions whose source in the database is missing or another one."""
    cursor = await connection.execute(_text("select name, checksum from fairlead.function_sources", schema))
    known = dict(await cursor.fetchall())
    return [one for one in stored_functions() if known.get(one.name) != one.checksum]


async def _signatures(connection: AsyncConnection[Any], schema: str, names: list[str]) -> dict[str, set[str]]:
    """Each function's signatures, as `drop function` takes them."""
    cursor = await connection.execute(
        "select p.proname, p.oid::regprocedure::text from pg_catalog.pg_proc p "
        "where p.pronamespace = %s::regnamespace and p.proname = any(%s)",
        (f'"{schema}"', names),
    )
    found: dict[str, set[str]] = {}
    for name, signature in await cursor.fetchall():
        found.setdefault(name, set()).add(signature)
    return found


async def _replace(connection: AsyncConnection[Any], text: Any, old: set[str]) -> None:
    """Create or replace a function; drop its old form first where its result has another type."""
    try:
        async with connection.transaction():
            await connection.execute(text)
    except pg.InvalidFunctionDefinition:
        for signature in old:
            await connection.execute(f"drop function {signature}".encode())
        old.clear()
        await connection.execute(text)


async def _drop_replaced(
    connection: AsyncConnection[Any], before: dict[str, set[str]], after: dict[str, set[str]]
) -> None:
    """Drop the old form of a function whose arguments changed: both together would make calls ambiguous."""
    for name, signatures in after.items():
        old = before.get(name, set())
        if signatures - old:
            for signature in old:
                await connection.execute(f"drop function {signature}".encode())


def _text(query: str, schema: str) -> Any:
    return in_schema(query, schema)
