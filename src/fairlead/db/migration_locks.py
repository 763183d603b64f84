"""Locks for migrations: short waits with retries, since all users of a table queue behind a waiting migration."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import structlog
from psycopg import AsyncConnection
from psycopg import errors as pg

from fairlead.errors import MigrationFailed

log = structlog.get_logger(__name__)

T = TypeVar("T")
Tell = Callable[[str], object]

# How long enqueues and claims may queue behind a waiting migration; much less than their own lock_timeout.
WAIT_SECONDS = 1.0
PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 10.0
# After this time the migration fails, and an operator decides.
PATIENCE_SECONDS = 120.0

# Transactions with locks on the schema's tables that are older than one wait: a migration waits for these.
_HOLDERS = """
select distinct a.pid, coalesce(nullif(a.application_name, ''), 'unnamed'), a.usename, coalesce(a.state, 'unknown'),
    a.xact_start
from pg_catalog.pg_locks l
join pg_catalog.pg_class c on c.oid = l.relation
join pg_catalog.pg_namespace n on n.oid = c.relnamespace and n.nspname = %s
join pg_catalog.pg_stat_activity a on a.pid = l.pid
where l.granted and l.pid <> pg_backend_pid() and l.database = (
    select oid from pg_catalog.pg_database where datname = current_database())
    and a.xact_start < clock_timestamp() - make_interval(secs => %s)
order by a.xact_start limit 5
"""


def log_wait(message: str) -> None:
    """Log that a migration waits."""
    log.warning("migration_waits", why=message)


async def retry_for_locks(
    connection: AsyncConnection[Any], schema: str, what: str, work: Callable[[], Awaitable[T]], *, tell: Tell
) -> T:
    """Run `work`, one transaction, again until it gets its locks; MigrationFailed names the sessions that hold them."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    pause = PAUSE_SECONDS
    brief = f"{int(WAIT_SECONDS * 1000)}ms"
    await connection.execute("select set_config('lock_timeout', %s, false)", (brief,))
    while True:
        try:
            return await work()
        except pg.LockNotAvailable as error:
            holders = await _describe_holders(connection, schema)
            if time.monotonic() + pause > deadline:
                raise MigrationFailed(
                    f"{what} did not get its locks within {PATIENCE_SECONDS:.0f} s, and nothing of it was changed. "
                    f"{holders} End that work (select pg_terminate_backend(pid)), or let it end, and run again: "
                    "fairlead migrate up"
                ) from error
            tell(f"{what} waits for a lock and tries again. {holders}")
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


async def _describe_holders(connection: AsyncConnection[Any], schema: str) -> str:
    cursor = await connection.execute(_HOLDERS, (schema, WAIT_SECONDS))
    found = [
        f"pid {pid} ({name}, user {user}, {state}, open since {since:%H:%M:%S})"
        for pid, name, user, state, since in await cursor.fetchall()
    ]
    return (
        f"Tables of schema {schema!r} are locked by: {', '.join(found)}."
        if found
        else (f"Tables of schema {schema!r} are locked by short transactions that follow one another.")
    )
