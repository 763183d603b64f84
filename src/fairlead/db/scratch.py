"""Databases that are made for a purpose and dropped after it, and raw figures to compare with."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg import AsyncConnection, conninfo, sql
from psycopg.types.json import Jsonb
from uuid_utils.compat import uuid7

from fairlead.db.sql import in_schema

_COLUMNS = "id, tenant_id, definition_id, priority, max_attempts, scheduled_for, created_by, payload"


@asynccontextmanager
async def scratch_database(url: str, name: str, *, template: str | None = None) -> AsyncIterator[str]:
    """A new database on that server, dropped at the end. Its URL."""
    made = sql.SQL("create database {}").format(sql.Identifier(name))
    if template is not None:
        made += sql.SQL(" template {}").format(sql.Identifier(template))
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(made)
    try:
        yield at_database(url, name)
    finally:
        async with await AsyncConnection.connect(url, autocommit=True) as connection:
            await connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def at_database(url: str, name: str) -> str:
    """The same server's URL for another database."""
    return conninfo.make_conninfo(url, dbname=name)


async def raw_inserts(url: str, schema: str, count: int) -> float:
    """Rows a second: one INSERT a transaction, a bare loop, into a table like jobs with its indexes."""
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        await _like_jobs(connection, schema)
        query: Any = (
            f"insert into raw_jobs ({_COLUMNS}) values (%s, %s, %s, %s, %s, clock_timestamp(), %s, %s)"  # noqa: S608
        )
        tenant, definition = uuid7(), uuid7()
        begun = time.perf_counter()
        for number in range(count):
            row = (uuid7(), tenant, definition, 100, 3, "bench", Jsonb({"name": "somebody", "n": number}))
            await connection.execute(query, row)
        return count / (time.perf_counter() - begun)


def raw_copy(url: str, schema: str, payloads: Sequence[Any]) -> float:
    """Rows a second: a bare binary COPY loop of the same rows into a table like jobs with its indexes."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_like(schema))
        [(now,)] = connection.execute("select clock_timestamp()").fetchall()
        tenant, definition = uuid7(), uuid7()
        rows = [(uuid7(), tenant, definition, 100, 3, now, "bench", Jsonb(payload)) for payload in payloads]
        query: Any = f"copy raw_jobs ({_COLUMNS}) from stdin (format binary)"
        begun = time.perf_counter()
        with connection.transaction(), connection.cursor() as cursor, cursor.copy(query) as copy:
            copy.set_types(("uuid", "uuid", "uuid", "int4", "int4", "timestamptz", "text", "jsonb"))
            for row in rows:
                copy.write_row(row)
        return len(rows) / (time.perf_counter() - begun)


async def _like_jobs(connection: AsyncConnection[Any], schema: str) -> None:
    await connection.execute(_like(schema))


def _like(schema: str) -> Any:
    return in_schema(
        "drop table if exists raw_jobs; create table raw_jobs (like fairlead.jobs including all)", schema
    )
