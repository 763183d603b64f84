"""Temporary folders and databases for tests and benchmarks, and benchmarks of plain PostgreSQL to compare with."""

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, conninfo, errors, sql
from psycopg.types.json import Jsonb
from uuid_utils.compat import uuid7

from fairlead.db.addresses import check_address, primary_parameters
from fairlead.db.binaries import is_last, release_share, take_share
from fairlead.db.sql import in_schema

CONNECT_SECONDS = 30.0
MEMORY = Path("/dev/shm")  # noqa: S108 - TemporaryDirectory makes a private folder there
PREFIX = "fairlead-test-"
ROOM = 2 << 30
# The process that uses a folder locks this file; a folder younger than NEW_SECONDS may not have it yet.
IN_USE = "in_use"
NEW_SECONDS = 60.0

_COLUMNS = "id, tenant_id, definition_id, priority, max_attempts, scheduled_for, created_by, payload"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for a server's files: in memory if there is enough, unless TMPDIR is set.

    Each database has hundreds of files, and a disk may create files slowly after many were deleted.
    """
    above = None if "TMPDIR" in os.environ or not _is_roomy(MEMORY) else MEMORY
    if above is not None:
        _prune(above)
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=above) as name:
        folder = Path(name)
        share = take_share(folder / IN_USE)
        try:
            # as root the server runs as another user, who must be able to enter
            folder.chmod(0o711)
            yield folder
        finally:
            release_share(share)


def _is_roomy(folder: Path) -> bool:
    try:
        return os.access(folder, os.W_OK) and shutil.disk_usage(folder).free >= ROOM
    except OSError:
        return False


def _prune(above: Path) -> None:
    """Remove the folders of killed processes, which would stay in memory until the next boot."""
    for folder in above.glob(f"{PREFIX}*"):
        try:
            seen = folder.lstat()
            if seen.st_uid != os.geteuid() or time.time() - seen.st_mtime < NEW_SECONDS:
                continue
            share = take_share(folder / IN_USE)
        except OSError:
            continue  # its process is removing it now
        if is_last(share):
            shutil.rmtree(folder, ignore_errors=True)
        release_share(share)


@asynccontextmanager
async def scratch_database(url: str, name: str, *, template: str | None = None) -> AsyncIterator[str]:
    """The URL of a new database on that server, dropped at the end."""
    check_address(url)
    made = sql.SQL("create database {}").format(sql.Identifier(name))
    if template is not None:
        made += sql.SQL(" template {}").format(sql.Identifier(template))
    primary = primary_parameters(url, seconds=CONNECT_SECONDS)
    async with await AsyncConnection.connect(url, autocommit=True, **primary) as connection:
        await connection.execute(made)
    try:
        yield replace_database(url, name)
    finally:
        async with await AsyncConnection.connect(url, autocommit=True, **primary) as connection:
            await connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def replace_database(url: str, name: str) -> str:
    """The URL of another database on the same server, in a form that every driver and SQLAlchemy can read."""
    named = primary_parameters(url, seconds=CONNECT_SECONDS) | conninfo.conninfo_to_dict(url)
    parts = {key: str(value) for key, value in named.items() if key not in ("dbname", "connect_timeout")}
    ours = [key for key in ("user", "password") if key in parts] if "user" in parts else []
    whose = ":".join(quote(parts.pop(key), safe="") for key in ours)
    return f"postgresql://{whose and whose + '@'}/{quote(name, safe='')}?{urlencode(parts, quote_via=quote)}"


async def settle_server(url: str) -> None:
    """Vacuum, analyze and checkpoint now, so that the server does not do it during the next measurement."""
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("vacuum (analyze)")
        with suppress(errors.InsufficientPrivilege):
            await connection.execute("checkpoint")


async def build_slow_commit_url(url: str, milliseconds: int) -> str | None:
    """A URL whose sessions delay each commit by this time; None if the role may not set it."""
    options = f"-c commit_delay={milliseconds * 1000} -c commit_siblings=0"
    slow = conninfo.make_conninfo(url, options=options)
    try:
        async with await AsyncConnection.connect(slow):
            return slow
    except psycopg.OperationalError:
        return None


async def measure_inserts(url: str, schema: str, count: int, *, connections: int = 1) -> float:
    """Rows per second of plain loops with one INSERT per transaction, into a table like jobs with its indexes.

    Each loop has its own connection, and all of them together insert `count` rows.
    """
    async with AsyncExitStack() as stack:
        opened = [
            await stack.enter_async_context(await AsyncConnection.connect(url, autocommit=True))
            for _ in range(connections)
        ]
        await _create_raw_jobs(opened[0], schema)
        for (
            connection
        ) in opened:  # psycopg prepares a statement after five runs, and a new session knows no table
            await _insert_rows(connection, iter(range(_WARM_UP)))
        numbers = iter(range(count))
        begun = time.perf_counter()
        await asyncio.gather(*(_insert_rows(connection, numbers) for connection in opened))
        return count / (time.perf_counter() - begun)


async def measure_step_inserts(url: str, schema: str, job_id: UUID, count: int) -> float:
    """Rows per second of a loop that inserts the steps of one function, each in its own transaction."""
    table = sql.Identifier(f"{schema}_raw_steps")
    insert = sql.SQL(
        "insert into {} (job_id, branch, position, attempt_no, status, kind, name, tenant_id, started_at, ended_at) "
        "values (%s, '', %s, 1, 'succeeded', 'step', 'step', %s, clock_timestamp(), clock_timestamp())"
    ).format(table)
    like = sql.SQL("create table {} (like {} including all)").format(
        table, sql.Identifier(schema, "job_steps")
    )
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(like)
        try:
            begun = time.perf_counter()
            for number in range(count):
                await connection.execute(insert, [job_id, number, job_id])
            return count / (time.perf_counter() - begun)
        finally:
            await connection.execute(sql.SQL("drop table {}").format(table))


async def _insert_rows(connection: AsyncConnection[Any], numbers: Iterator[int]) -> None:
    query: Any = f"insert into raw_jobs ({_COLUMNS}) values (%s, %s, %s, %s, %s, clock_timestamp(), %s, %s)"  # noqa: S608
    tenant, definition = uuid7(), uuid7()
    for number in numbers:
        row = (uuid7(), tenant, definition, 100, 3, "bench", Jsonb({"name": "somebody", "n": number}))
        await connection.execute(query, row)


def measure_copy(url: str, schema: str, payloads: Sequence[Any]) -> float:
    """Rows per second of a plain binary COPY of the same rows into a table like jobs with its indexes."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_raw_jobs_statement(schema))
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


async def _create_raw_jobs(connection: AsyncConnection[Any], schema: str) -> None:
    await connection.execute(_raw_jobs_statement(schema))


def _raw_jobs_statement(schema: str) -> Any:
    return in_schema(
        "drop table if exists raw_jobs; create table raw_jobs (like fairlead.job_records including all)",
        schema,
    )


# The rows that a connection inserts before the time is taken.
_WARM_UP = 10

# The lock that plain loops wait for before they begin.
_START = 7_224_901
_WAITING = "select count(*)::int from pg_locks where locktype = 'advisory' and not granted"


def measure_drain(url: str, count: int, loops: int = 1) -> float:
    """Jobs per second of plain loops, each in a process of its own, on one narrow table.

    The minimum work of such a queue: UUID keys, an index on priority and age, durable claims and ends.
    """
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("drop table if exists raw_queue")
        connection.execute(
            "create table raw_queue (id uuid primary key, status text not null default 'queued', "
            "priority int not null default 100, run_at timestamptz not null default now(), "
            "payload jsonb not null default '{}')"
        )
        connection.execute(
            "create index raw_queue_waiting on raw_queue (priority, run_at, id) where status = 'queued'"
        )
        with connection.cursor() as cursor, cursor.copy("copy raw_queue (id) from stdin") as copy:
            for _ in range(count):
                copy.write_row((uuid7(),))
        connection.execute("analyze raw_queue")
        with ProcessPoolExecutor(loops, get_context("spawn")) as processes:
            connection.execute("select pg_advisory_lock(%s)", [_START])
            running = [processes.submit(_drain_raw_queue, url) for _ in range(loops)]
            while connection.execute(_WAITING).fetchall() != [(loops,)] and not any(
                one.done() for one in running
            ):
                time.sleep(0.01)
            begun = time.perf_counter()
            connection.execute("select pg_advisory_unlock(%s)", [_START])
            for one in running:
                one.result()
            return count / (time.perf_counter() - begun)


def _drain_raw_queue(url: str) -> None:
    """Claim 100 rows with skip locked and update them by primary key, until there are none. All loops begin together."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select pg_advisory_lock_shared(%s)", [_START])
        while rows := connection.execute(
            "update raw_queue set status = 'running' where id = any(array("
            "select id from raw_queue where status = 'queued' and run_at <= now() "
            "order by priority, run_at, id limit 100 for update skip locked)) returning id, payload"
        ).fetchall():
            connection.execute(
                "update raw_queue set status = 'done' where id = any(%s)", [[one for one, _ in rows]]
            )


@contextmanager
def open_ping(url: str) -> Iterator[Callable[[], float]]:
    """A function that returns the seconds from an INSERT and NOTIFY in one transaction to the listener."""
    with psycopg.connect(url, autocommit=True) as one, psycopg.connect(url, autocommit=True) as other:
        one.execute(
            "create table if not exists raw_pings (id bigint generated always as identity primary key)"
        )
        other.execute("listen raw_ping")

        def ping() -> float:
            begun = time.perf_counter()
            one.execute(
                "with made as (insert into raw_pings default values returning id) "
                "select pg_notify('raw_ping', '') from made"
            )
            next(other.notifies(stop_after=1))
            return time.perf_counter() - begun

        yield ping
