"""Database: connections, transactions, and rows as dataclasses."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar, cast
from uuid import UUID

import msgspec
import psycopg
import psycopg_pool
import structlog
from psycopg import AsyncConnection
from psycopg import errors as pg
from psycopg.adapt import Dumper
from psycopg.rows import BaseRowFactory, TupleRow
from psycopg.types.json import set_json_loads

from fairlead.db.sql import in_schema
from fairlead.errors import DatabaseBusy, DatabaseRefused, DatabaseUnreachable
from fairlead.settings import Settings

log = structlog.get_logger(__name__)

T = TypeVar("T")
Row = TypeVar("Row")
Params = Mapping[str, Any] | Sequence[Any]

OLDEST_VERSION = 140000
RETRIES = 5
UniqueViolation = pg.UniqueViolation
# What PostgreSQL itself asks to be tried again. Nothing of the failed transaction remains.
SAFE_TO_REPEAT = (pg.SerializationFailure, pg.DeadlockDetected)
_NATIVE = (UUID,)


class JsonText(bytes):
    """JSON that is already written, on its way into a jsonb column."""

    __slots__ = ()


class _JsonTextDumper(Dumper):
    oid = psycopg.adapters.types["jsonb"].oid

    def dump(self, obj: bytes) -> bytes:
        return obj


def json_text(value: Any) -> JsonText:
    """A value as JSON, ready for a jsonb column."""
    return JsonText(msgspec.json.encode(value))


class Tx:
    """A transaction in progress. Store functions take one; they never open or end it."""

    def __init__(self, connection: AsyncConnection[TupleRow], schema: str) -> None:
        self.connection = connection
        self.schema = schema

    async def all(self, row: type[Row], query: str, params: Params | None = None) -> list[Row]:
        """Every row, each as the given type."""
        async with self.connection.cursor(row_factory=rows_of(row)) as cursor:
            await cursor.execute(self._text(query), params)
            return await cursor.fetchall()

    async def first(self, row: type[Row], query: str, params: Params | None = None) -> Row | None:
        """The first row as the given type, or None."""
        async with self.connection.cursor(row_factory=rows_of(row)) as cursor:
            await cursor.execute(self._text(query), params)
            return await cursor.fetchone()

    async def run(self, query: str, params: Params | None = None) -> int:
        """How many rows the statement touched."""
        cursor = await self.connection.execute(self._text(query), params)
        return cursor.rowcount

    async def values(self, query: str, params: Params | None = None) -> list[TupleRow]:
        """Every row as a plain tuple."""
        cursor = await self.connection.execute(self._text(query), params)
        return await cursor.fetchall()

    @asynccontextmanager
    async def copy(self, query: str) -> AsyncIterator[psycopg.AsyncCopy]:
        """A COPY into the database, in whatever form the query says."""
        async with self.connection.cursor() as cursor, cursor.copy(self._text(query)) as copy:
            yield copy

    def _text(self, query: str) -> Any:
        return in_schema(query, self.schema)


def rows_of(row: type[Row]) -> BaseRowFactory[Row]:
    """A row factory that makes dataclasses, nested ones and enums included."""

    def factory(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> Callable[[Sequence[Any]], Row]:
        names = [column.name for column in cursor.description or ()]

        def make(values: Sequence[Any]) -> Row:
            return msgspec.convert(dict(zip(names, values, strict=True)), row, builtin_types=_NATIVE)

        return make

    return cast("BaseRowFactory[Row]", factory)


class Database:
    """Connections to one PostgreSQL: opened once, healed by itself, closed once."""

    def __init__(self, url: str, settings: Settings) -> None:
        self.url = url
        self.settings = settings
        self.schema = settings.schema
        self._pool = psycopg_pool.AsyncConnectionPool(
            url,
            min_size=1,
            max_size=settings.pool_size,
            timeout=settings.connect_timeout_seconds,
            open=False,
            configure=self._configure,
            kwargs={
                "autocommit": True,
                # a pooler in transaction mode hands the next transaction another connection
                "prepare_threshold": None if settings.pooled else 5,
                "application_name": "fairlead",
                "connect_timeout": max(2, int(settings.connect_timeout_seconds)),
            },
            name="fairlead",
        )

    async def open(self) -> None:
        """Connect, or say plainly why not."""
        await self._pool.open()
        try:
            await self._pool.wait(self.settings.connect_timeout_seconds)
            async with self.transaction() as tx:
                version = tx.connection.info.server_version
        except (psycopg_pool.PoolTimeout, psycopg.OperationalError) as error:
            await self._pool.close()
            raise await self._why_unreachable() from error
        if version < OLDEST_VERSION:
            await self._pool.close()
            raise DatabaseRefused(
                f"PostgreSQL {version // 10000} is too old: Fairlead needs 14 or later. Upgrade the server."
            )

    async def close(self) -> None:
        await self._pool.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @asynccontextmanager
    async def transaction(self, *, unhurried: bool = False) -> AsyncIterator[Tx]:
        """A transaction: commits at the end, rolls back on an exception. `unhurried` has no time limit."""
        async with self._pool.connection() as connection, connection.transaction():
            if self.settings.pooled or unhurried:
                await connection.execute(self._timeouts(local=True, unhurried=unhurried))
            yield Tx(connection, self.schema)

    @asynccontextmanager
    async def statement(self) -> AsyncIterator[Tx]:
        """A connection for one statement that is its own transaction: a single round trip."""
        if self.settings.pooled:
            async with self.transaction() as tx:
                yield tx
            return
        connection = await self._pool.getconn()
        try:
            yield Tx(connection, self.schema)
        finally:
            await self._pool.putconn(connection)

    async def transact(self, work: Callable[[Tx], Awaitable[T]], *, unhurried: bool = False) -> T:
        """Run `work` in a transaction, again from the start where PostgreSQL asks for that."""
        for attempt in range(1, RETRIES + 1):
            try:
                async with self.transaction(unhurried=unhurried) as tx:
                    return await work(tx)
            except SAFE_TO_REPEAT as error:
                if attempt == RETRIES:
                    raise
                log.info("transaction_repeated", attempt=attempt, why=type(error).__name__)
                await asyncio.sleep(random.uniform(0, 0.02 * 2**attempt))  # noqa: S311
        raise AssertionError("unreachable")

    async def reach(self, work: Callable[[], Awaitable[T]], *, patience: float | None = None) -> T:
        """Run `work`, which must be safe to repeat, again and again while the connection keeps breaking."""
        deadline = asyncio.get_running_loop().time() + (patience or self.settings.connect_timeout_seconds)
        pause = 0.05
        while True:
            try:
                return await work()
            except (pg.QueryCanceled, pg.LockNotAvailable) as error:
                raise DatabaseBusy(
                    f"The database did not get to it in time: {str(error).strip().splitlines()[0]}. Another "
                    "transaction holds what this one needs; end it, or try again."
                ) from error
            except (psycopg.OperationalError, psycopg_pool.PoolTimeout) as error:
                if asyncio.get_running_loop().time() + pause > deadline:
                    raise await self._why_unreachable() from error
                log.warning("database_lost", why=str(error).strip().splitlines()[0] if str(error) else "")
                await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
                pause = min(pause * 2, 2.0)

    async def _configure(self, connection: AsyncConnection[Any]) -> None:
        set_json_loads(msgspec.json.decode, connection)
        connection.adapters.register_dumper(JsonText, _JsonTextDumper)
        if not self.settings.pooled:
            await connection.execute(self._timeouts(local=False, unhurried=False))

    def _timeouts(self, *, local: bool, unhurried: bool) -> Any:
        statement = 0 if unhurried else int(self.settings.statement_timeout_seconds * 1000)
        lock = int(self.settings.lock_timeout_seconds * 1000)
        scope = str(local).lower()
        return (
            f"select set_config('statement_timeout', '{statement}', {scope}), "
            f"set_config('lock_timeout', '{lock}', {scope})"
        )

    async def _why_unreachable(self) -> DatabaseUnreachable | DatabaseRefused:
        try:
            async with await AsyncConnection.connect(self.url, connect_timeout=5):
                why = "all its connections are busy; raise FAIRLEAD_POOL_SIZE or look for long transactions"
        except psycopg.OperationalError as error:
            why = str(error).strip().splitlines()[-1]
        address = describe(self.url)
        return DatabaseUnreachable(
            f"Cannot use the database at {address}: {why}. Is PostgreSQL running there, and is "
            "FAIRLEAD_DATABASE_URL right?"
        )


def describe(url: str) -> str:
    """Where a URL points, without its password."""
    try:
        parts = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        return "an address that cannot be read"
    host = parts.get("host") or parts.get("hostaddr") or "the default socket"
    return f"{host}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"
