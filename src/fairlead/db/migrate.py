"""Migrations: numbered files, each applied once, in order, by one process at a time; then the stored functions."""

import hashlib
import re
from datetime import datetime
from functools import cache, partial
from importlib import resources
from typing import Any

import msgspec
import psycopg
from psycopg import AsyncConnection

from fairlead.db.citus import prepare_session, read_shards, require_distributed
from fairlead.db.database_errors import first_line
from fairlead.db.direct_connection import connect_directly
from fairlead.db.migration_locks import Tell, log_wait, retry_for_locks
from fairlead.db.sql import in_schema
from fairlead.db.statements import split_statements
from fairlead.db.stored_functions import apply_changed, list_changed, list_stored_functions
from fairlead.db.tx import make_row_factory
from fairlead.errors import DatabaseRefused, MigrationFailed, ProcessOutdated, SchemaOutdated
from fairlead.version import __version__

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_INCLUDE = re.compile(r"^\\ir \.\./functions/(\w+)\.sql$", re.MULTILINE)
# Statements of a migration that are only for schemas which Citus distributes, or only for others.
_MARK = re.compile(r"^-- (not|only) on Citus\b", re.MULTILINE)
# The oldest migration that a process must have in its code to work with the migrated schema.
_NEEDS = re.compile(r"^-- needs: (\d{4})\b", re.MULTILINE)
AUDIT_DAYS_AHEAD = 7

_BOOK = """
create schema if not exists fairlead;
create table if not exists fairlead.migrations (
    number     integer primary key,
    name       text not null,
    checksum   text not null,
    applied_at timestamptz not null default clock_timestamp(),
    needs      integer not null
);
create table if not exists fairlead.function_sources (
    name     text primary key,
    checksum text not null
);
"""
# A database from before migrations said what they need.
_ADD_NEEDS = """
alter table fairlead.migrations add column if not exists needs integer;
update fairlead.migrations set needs = number where needs is null;
alter table fairlead.migrations alter column needs set not null;
"""
# Also from such a database.
_APPLIED = """
select m.number, m.name, m.checksum, m.applied_at, coalesce((to_jsonb(m) ->> 'needs')::integer, m.number) as needs
from fairlead.migrations m order by m.number
"""


class Migration(msgspec.Struct, frozen=True):
    number: int
    name: str
    text: str

    @property
    def title(self) -> str:
        return f"Migration {self.number:04} {self.name}"

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def needs(self) -> int:
        """The oldest migration that a process must know to work after this one: by default, this one."""
        found = _NEEDS.search(self.text)
        return int(found[1]) if found else self.number


class AppliedMigration(msgspec.Struct, frozen=True):
    number: int
    name: str
    checksum: str
    applied_at: datetime
    needs: int


class MigrationStatus(msgspec.Struct, frozen=True):
    """A migration as `fairlead migrate status` shows it."""

    number: int
    name: str
    applied_at: datetime | None


@cache
def list_migrations() -> tuple[Migration, ...]:
    """Every migration of this version of Fairlead, in order."""
    found = sorted(
        (
            Migration(int(match[1]), match[2], file.read_text(encoding="utf-8"))
            for file in (resources.files("fairlead.db") / "migrations").iterdir()
            if (match := _FILE.fullmatch(file.name))
        ),
        key=lambda migration: migration.number,
    )
    if len({migration.number for migration in found}) != len(found):
        raise MigrationFailed("Two migrations have the same number: reinstall Fairlead.")
    if wrong := [one for one in found if not 1 <= one.needs <= one.number]:
        raise MigrationFailed(
            f"{wrong[0].title} needs migration {wrong[0].needs:04}, which comes after it: reinstall Fairlead."
        )
    return tuple(found)


async def up(url: str, schema: str, *, citus: bool = False, tell: Tell = log_wait) -> list[Migration]:
    """Bring the schema to this version; safe to run from many processes at once. The migrations that it applied.

    With `citus`, the URL is that of a Citus cluster's coordinator, and a new schema is a distributed one.
    `tell` gets a message when a migration waits for other transactions.
    """
    async with await connect_directly(url, name="fairlead migrate") as connection:
        lock = f"fairlead.migrate.{schema}"
        await connection.execute("select pg_advisory_lock(hashtextextended(%s, 0))", (lock,))
        try:
            await _require_utf8(connection)
            if citus:
                await prepare_session(connection, schema)
            await _create_bookkeeping(connection, schema)
            if citus:
                await require_distributed(connection, schema)
            known = await _read_applied(connection, schema)
            _refuse_changed_migrations(known)
            _refuse_later_migrations(known)
            missing = [one for one in list_migrations() if one.number not in known]
            for one in missing:
                await retry_for_locks(
                    connection,
                    schema,
                    one.title,
                    partial(_apply, connection, schema, one, citus=citus),
                    tell=tell,
                )
            await retry_for_locks(
                connection,
                schema,
                "The update of stored functions",
                partial(_apply_functions, connection, schema, citus=citus, all_of_them=bool(missing)),
                tell=tell,
            )
            await retry_for_locks(
                connection,
                schema,
                "The preparation of the audit log",
                partial(_prepare_audit_days, connection, schema),
                tell=tell,
            )
        finally:
            await connection.execute("select pg_advisory_unlock(hashtextextended(%s, 0))", (lock,))
    return missing


async def status(url: str, schema: str) -> list[MigrationStatus]:
    """Each migration and the time it was applied."""
    async with await connect_directly(url, name="fairlead migrate") as connection:
        known = await _read_applied(connection, schema)
    return [
        MigrationStatus(one.number, one.name, known[one.number].applied_at if one.number in known else None)
        for one in list_migrations()
    ]


async def check(url: str, schema: str) -> None:
    """Raise SchemaOutdated unless the schema has what this version of Fairlead needs; ProcessOutdated if it needs a later version."""
    async with await connect_directly(url, name="fairlead migrate") as connection:
        await check_connection(connection, schema)


async def check_connection(connection: AsyncConnection[Any], schema: str) -> None:
    """`check` through an open connection."""
    known = await _read_applied(connection, schema)
    _refuse_changed_migrations(known)
    require_known(max((one.needs for one in known.values()), default=0))
    if max(known, default=0) > list_migrations()[-1].number:
        # a later version migrated it, and says that this one may go on; the stored functions are the later version's
        return
    missing = [one for one in list_migrations() if one.number not in known]
    if missing:
        names = ", ".join(f"{one.number:04} {one.name}" for one in missing)
        raise SchemaOutdated(
            f"The schema {schema!r} lacks {len(missing)} migration(s): {names}. Run: fairlead migrate up"
        )
    if changed := await list_changed(connection, schema):
        names = ", ".join(one.name for one in changed)
        raise SchemaOutdated(
            f"The schema {schema!r} lacks the current version of {len(changed)} stored function(s): {names}. "
            "Run: fairlead migrate up"
        )


async def read_needed(connection: AsyncConnection[Any], schema: str) -> int:
    """The oldest migration that a process must know to work with this schema."""
    return max((one.needs for one in (await _read_applied(connection, schema)).values()), default=0)


def require_known(needed: int) -> None:
    """Raise ProcessOutdated if the schema needs processes that know a migration which this version does not have."""
    newest = list_migrations()[-1].number
    if needed > newest:
        raise ProcessOutdated(
            f"The database was migrated for a later Fairlead: it needs migration {needed:04}, and Fairlead {__version__} "
            f"here ends with {newest:04}. Upgrade Fairlead here to the version that ran `fairlead migrate up`, and start "
            "this process again."
        )


def _refuse_changed_migrations(known: dict[int, AppliedMigration]) -> None:
    ours = {one.number: one for one in list_migrations()}
    if 1 in known and known[1].name != ours[1].name:
        raise SchemaOutdated(
            "This database was created before Fairlead's first release, with migrations that no longer exist; nothing "
            "upgrades it. Start a new one: set another database (FAIRLEAD_DATABASE_URL) or another schema in this "
            "one (FAIRLEAD_SCHEMA), or delete the data folder of `fairlead dev` (.fairlead by default)."
        )
    for number, applied in known.items():
        if number in ours and ours[number].checksum != applied.checksum:
            raise SchemaOutdated(
                f"Migration {number:04} {applied.name} was applied with a different text than this Fairlead has. "
                "Use the Fairlead version that migrated this database, or start a new schema (FAIRLEAD_SCHEMA)."
            )


def _refuse_later_migrations(known: dict[int, AppliedMigration]) -> None:
    """Refuse to migrate what a later version has migrated: its stored functions would be replaced by older ones."""
    ours = {one.number for one in list_migrations()}
    for number, applied in known.items():
        if number not in ours:
            raise SchemaOutdated(
                f"The database has migration {number:04} {applied.name}, which this Fairlead does not have: "
                "a later version migrated it. Upgrade Fairlead here."
            )


async def _apply_functions(
    connection: AsyncConnection[Any], schema: str, *, citus: bool, all_of_them: bool
) -> None:
    if citus:
        # a migration may have replaced a table, and a shard's name is part of the functions' text
        tables = await read_shards(connection, schema)
        await apply_changed(connection, schema, tables=tables, all_of_them=all_of_them)
    else:
        await apply_changed(connection, schema)


async def _apply(connection: AsyncConnection[Any], schema: str, one: Migration, *, citus: bool) -> None:
    try:
        async with connection.transaction():
            for statement in split_statements(_include_functions(one.text)):
                if (mark := _MARK.search(statement)) and (mark[1] == "only") != citus:
                    continue
                await connection.execute(_in_schema(statement, schema))
            await connection.execute(
                _in_schema(
                    "insert into fairlead.migrations (number, name, checksum, needs) values (%s, %s, %s, %s)",
                    schema,
                ),
                (one.number, one.name, one.checksum, one.needs),
            )
    except psycopg.errors.LockNotAvailable:
        raise
    except psycopg.Error as error:
        raise MigrationFailed(f"{one.title} failed and was rolled back: {str(error).strip()}") from error


def _include_functions(text: str) -> str:
    """The migration's text with the sources of the functions that it includes."""
    sources = {one.name: one.text for one in list_stored_functions()}
    return _INCLUDE.sub(lambda match: sources[match[1]], text)


async def _prepare_audit_days(connection: AsyncConnection[Any], schema: str) -> None:
    await connection.execute(
        _in_schema("select fairlead.prepare_audit_days(%s)", schema), (AUDIT_DAYS_AHEAD,)
    )


async def _require_utf8(connection: AsyncConnection[Any]) -> None:
    cursor = await connection.execute("show server_encoding")
    if await cursor.fetchone() != ("UTF8",):
        raise DatabaseRefused(
            "The database's encoding is not UTF8, which payloads need. Create one with ENCODING 'UTF8'."
        )


async def _create_bookkeeping(connection: AsyncConnection[Any], schema: str) -> None:
    if await _has_table(connection, schema, "function_sources"):
        if not await _has_column(connection, schema, "migrations", "needs"):
            for statement in split_statements(_ADD_NEEDS):
                await connection.execute(_in_schema(statement, schema))
    else:
        try:
            for statement in split_statements(_BOOK):
                await connection.execute(_in_schema(statement, schema))
        except psycopg.errors.InsufficientPrivilege as error:
            raise MigrationFailed(
                f"This role may not create the schema {schema!r}: {str(error).strip()}. Grant it with: "
                "GRANT CREATE ON DATABASE … TO …"
            ) from error


async def _has_table(connection: AsyncConnection[Any], schema: str, table: str = "migrations") -> bool:
    # not to_regclass, which fails for a role without rights on the schema
    cursor = await connection.execute(
        "select from pg_catalog.pg_class where relname = %s "
        "and relnamespace = (select oid from pg_catalog.pg_namespace where nspname = %s)",
        (table, schema),
    )
    return await cursor.fetchone() is not None


async def _has_column(connection: AsyncConnection[Any], schema: str, table: str, column: str) -> bool:
    cursor = await connection.execute(
        "select from pg_catalog.pg_attribute a join pg_catalog.pg_class c on c.oid = a.attrelid "
        "where c.relname = %s and a.attname = %s "
        "and c.relnamespace = (select oid from pg_catalog.pg_namespace where nspname = %s)",
        (table, column, schema),
    )
    return await cursor.fetchone() is not None


async def _read_applied(connection: AsyncConnection[Any], schema: str) -> dict[int, AppliedMigration]:
    if not await _has_table(connection, schema):
        return {}
    try:
        async with connection.cursor(row_factory=make_row_factory(AppliedMigration)) as cursor:
            await cursor.execute(_in_schema(_APPLIED, schema))
            return {row.number: row for row in await cursor.fetchall()}
    except psycopg.errors.InsufficientPrivilege as error:
        raise DatabaseRefused(
            f"The role {connection.info.user!r} may not use the schema {schema!r}: {first_line(error)}. Connect as the "
            "role that ran the migrations, or grant this role its rights."
        ) from error


def _in_schema(query: str, schema: str) -> Any:
    return in_schema(query, schema)
