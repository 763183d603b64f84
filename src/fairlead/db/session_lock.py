"""A lock that one process holds while a connection of its own lives: PostgreSQL frees it at once when the process dies."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import make_conninfo

from fairlead.db.addresses import check_address, primary_parameters
from fairlead.db.database_errors import unreachable_error
from fairlead.db.session import KEEPALIVES

TRY = "select pg_try_advisory_lock(hashtextextended(%s, 0))"


class SessionLock:
    """A lock that this process holds."""

    def __init__(self, url: str, connection: AsyncConnection[tuple[object, ...]]) -> None:
        self._url = url
        self._connection = connection

    async def check(self) -> None:
        """Raise DatabaseUnreachable if the connection is lost, and the lock with it."""
        try:
            await self._connection.execute("select 1")
        except psycopg.OperationalError as error:
            raise unreachable_error(self._url, error) from error


@asynccontextmanager
async def hold_session_lock(url: str, name: str) -> AsyncIterator[SessionLock | None]:
    """Hold the lock of this name during the block; None if another process holds it. The URL must not lead to a pooler."""
    check_address(url)
    try:
        connection = await AsyncConnection.connect(
            make_conninfo(url, **{**KEEPALIVES, **primary_parameters(url, seconds=10)}),
            autocommit=True,
            prepare_threshold=None,
            application_name="fairlead lock",
        )
    except psycopg.OperationalError as error:
        raise unreachable_error(url, error) from error
    async with connection:
        cursor = await connection.execute(TRY, [name])
        row = await cursor.fetchone()
        yield SessionLock(url, connection) if row is not None and row[0] else None
