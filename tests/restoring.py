"""A copy of a template made equal to it again after a test: that takes a fraction of the time of a new copy."""

from typing import Any

import psycopg

# More pages than this are slower to empty than a database is to copy.
MOST_PAGES = 64

# What a test may do to a database beside its rows: then it is not used again.
OBJECTS = """
select
    (select array[count(*), sum(xmin::text::bigint), sum(relpages), sum(reltuples)::bigint] from pg_class where oid >= 16384)
    || (select array[count(*), sum(xmin::text::bigint)] from pg_proc where oid >= 16384)
    || (select array[count(*), sum(xmin::text::bigint)] from pg_constraint where oid >= 16384)
    || (select array[count(*), sum(xmin::text::bigint)] from pg_trigger where oid >= 16384)
    || (select array[count(*), sum(xmin::text::bigint)] from pg_policy)
    || (select array[count(*), sum(xmin::text::bigint)] from pg_type where oid >= 16384)
    || (select array[count(*), sum(xmin::text::bigint)] from pg_namespace)
    || (select array[count(*), sum(xmin::text::bigint)] from pg_extension)
    || (select array[count(*), 0] from pg_largeobject_metadata)
    || (select array[count(*), 0] from pg_statistic where starelid >= 16384)
    || (select array[count(*), 0] from pg_publication)
    || (select array[count(*), 0] from pg_db_role_setting d where d.setdatabase = (
        select oid from pg_database where datname = current_database()))
"""
TABLES = """
select c.oid::regclass::text from pg_class c
where c.relnamespace = 'fairlead'::regnamespace and c.relkind = 'r' order by 1
"""
SIZES = "select max(pg_relation_size(one::regclass)) from unnest(%s::text[]) one"


class Original:
    """The rows of a template's tables."""

    def __init__(self, url: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            tables = [str(name) for (name,) in connection.execute(TABLES)]
            self.rows = {name: _read(connection, name) for name in tables}
            self.filled = [name for name in tables if self.rows[name]]
            self.empty = [name for name in tables if not self.rows[name]]
            self.objects, _, self.versions = self.look_at(connection)

    def look_at(self, connection: psycopg.Connection[Any]) -> Any:
        """The objects of a database, which empty tables have rows now, and the versions of the rows of the others."""
        has_rows = ", ".join(f"exists (select from only {name})" for name in self.empty)
        # a changed row is a new version, elsewhere
        versions = ", ".join(
            f"(select string_agg(xmin::text || ctid::text, ' ') from only {name})" for name in self.filled
        )
        look = f"select ({OBJECTS}), array[{has_rows}], array[{versions}]"
        return connection.execute(look.encode(), prepare=True).fetchone()


class Copy:
    """One copy of it. Its session begins with the first restore: not every copy is used again."""

    def __init__(self, url: str, original: Original) -> None:
        self._url = url
        self._original = original
        self.uses = 1
        self._connection: psycopg.Connection[Any] | None = None
        # equal files
        self._objects, self._versions = original.objects, original.versions

    def restore(self) -> bool:
        """Whether the database is now equal to its template."""
        self.uses += 1
        try:
            connection = self._connect()
            objects, has_rows, versions = self._original.look_at(connection)
        except psycopg.Error:  # the test dropped tables, or ended all sessions
            return False
        if objects != self._objects:
            return False
        filled = zip(self._original.filled, self._versions, versions, strict=True)
        changed = [name for name, before, now in filled if now != before]
        grown = [name for name, has in zip(self._original.empty, has_rows, strict=True) if has]
        if not changed and not grown:
            return True
        [(size,)] = connection.execute(SIZES, [changed + grown]).fetchall()
        if size > MOST_PAGES * 8192:
            return False
        with connection.transaction():
            connection.execute(";".join(f"delete from only {name}" for name in changed + grown).encode())
            for name in changed:
                _write(connection, name, self._original.rows[name])
        if changed:
            _, _, self._versions = self._original.look_at(connection)
        return True

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    @property
    def pids(self) -> list[int]:
        """The server process of its session."""
        return [] if self._connection is None else [self._connection.info.backend_pid]

    def _connect(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            self._connection = psycopg.connect(self._url, autocommit=True, application_name="restore")
            # without triggers
            self._connection.execute("set session_replication_role = replica")
        return self._connection


def _read(connection: psycopg.Connection[Any], table: str) -> bytes:
    with (
        connection.cursor() as cursor,
        cursor.copy(f"copy {table} to stdout (format binary)".encode()) as copy,
    ):
        rows = b"".join(bytes(part) for part in copy)
    return (
        rows
        if connection.execute(f"select from only {table} limit 1".encode()).fetchone() is not None
        else b""
    )


def _write(connection: psycopg.Connection[Any], table: str, rows: bytes) -> None:
    with (
        connection.cursor() as cursor,
        cursor.copy(f"copy {table} from stdin (format binary)".encode()) as copy,
    ):
        copy.write(rows)
