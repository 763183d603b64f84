"""Database: connections, transactions, and rows as records."""

import asyncio
import random
import re
import select
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar, cast
from uuid import UUID

import msgspec
import psycopg
import psycopg_pool
import structlog
from psycopg import AsyncConnection, IsolationLevel
from psycopg import errors as pg
from psycopg.adapt import Dumper
from psycopg.rows import BaseRowFactory, TupleRow, dict_row
from psycopg.types.json import set_json_loads
from psycopg.types.uuid import UUIDBinaryDumper

from fairlead.db.arrays import register_arrays
from fairlead.db.commit_hooks import CommitHooks
from fairlead.db.connection import Connection, Params
from fairlead.db.database_errors import (
    FAILED,
    IDLE,
    SAFE_TO_REPEAT,
    STANDBY,
    TOO_SLOW,
    busy_error,
    check_address,
    describe_address,
    first_line,
    idle_error,
    is_lost,
    refused_error,
    unreachable_error,
)
from fairlead.db.notifier import Notifier
from fairlead.db.session import KEEPALIVES, session_settings, set_config_statement, timeout_settings
from fairlead.db.sql import in_schema
from fairlead.deadlines import Deadlines
from fairlead.errors import DatabaseRefused, DatabaseUnreachable, FairleadError, WrongLoop
from fairlead.settings import Settings, compile_patterns

log = structlog.get_logger(__name__)

T = TypeVar("T")
Row = TypeVar("Row")

OLDEST_VERSION = 140000
RETRIES = 5
UniqueViolation = pg.UniqueViolation
# PostgreSQL refused a value of the statement, and nothing of it remains.
REJECTED = (pg.IntegrityError, pg.DataError)
_NATIVE = (UUID,)


# The client waits this much longer than statement_timeout before it gives up on an answer.
GRACE_SECONDS = 5.0

NOTIFY = "select pg_notify('fairlead', %s)"

WRONG_LOOP = (
    "This was opened on another event loop, and its connections belong to that one: use it there. "
    "A test of a web application calls it by httpx2.ASGITransport on its own loop; TestClient has another one. "
    "A thread hands its work over with asyncio.run_coroutine_threadsafe, or uses fairlead.sync."
)

# Row-level security shows this role only the rows of the transaction's tenant.
TENANT_ROLE = "fairlead_tenant"


class TransactionIdentity(NamedTuple):
    """The identity of a transaction: its tenant (None: the system), the client's IP address, and the user or token."""

    tenant_id: UUID | None = None
    ip: str | None = None
    principal_id: UUID | None = None


class JsonText(bytes):
    """Encoded JSON for a jsonb column."""

    __slots__ = ()


class _JsonTextDumper(Dumper):
    oid = psycopg.adapters.types["jsonb"].oid

    def dump(self, obj: bytes) -> bytes:
        return obj


def json_text(value: Any) -> JsonText:
    """Encode a value for a jsonb column."""
    return JsonText(msgspec.json.encode(value))


class Tx:
    """A transaction in progress. Store functions take one; they never open or end it."""

    def __init__(
        self,
        connection: Connection,
        settings: Settings,
        redact_patterns: tuple[re.Pattern[str], ...] = (),
        *,
        goes_out_at_once: Callable[[str], bool] | None = None,
    ) -> None:
        self.connection = connection
        # only if each statement is its own transaction: whether to send a word with the next statement
        self._goes_out_at_once = goes_out_at_once
        self.settings = settings
        self.schema = settings.schema
        # texts that are masked in results and in the audit log
        self.redact_patterns = redact_patterns
        # notifications for after the commit
        self.words: set[str] = set()
        self._sent: tuple[str, ...] = ()

    def notify(self, word: str) -> None:
        """Notify listeners with this word after this transaction has committed."""
        self.words.add(word)

    @property
    def unsent(self) -> set[str]:
        """The words that were not sent with a statement."""
        return self.words.difference(self._sent)

    async def all(self, row: type[Row], query: str, params: Params | None = None) -> list[Row]:
        """Every row, each as the given type."""
        async with self.connection.cursor(row_factory=make_row_factory(row)) as cursor:
            await cursor.execute(self._text(query), params)
            return await cursor.fetchall()

    async def first(self, row: type[Row], query: str, params: Params | None = None) -> Row | None:
        """The first row as the given type, or None."""
        async with self.connection.cursor(row_factory=make_row_factory(row)) as cursor:
            await cursor.execute(self._text(query), params)
            return await cursor.fetchone()

    async def run(self, query: str, params: Params | None = None) -> int:
        """Run a statement. The number of rows that it affected."""
        cursor = await self.connection.execute(self._text(query), params)
        return cursor.rowcount

    async def values(self, query: str, params: Params | None = None) -> list[TupleRow]:
        """Every row as a plain tuple."""
        cursor = await self.connection.execute(self._text(query), params)
        return await cursor.fetchall()

    async def dicts(self, query: str, params: Params | None = None) -> list[dict[str, Any]]:
        """Every row as a dict by column name."""
        async with self.connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(self._text(query), params)
            return await cursor.fetchall()

    async def run_quick(self, query: str, params: Params) -> list[TupleRow]:
        """`values` without a cursor, for the most frequent statements.

        If each statement is its own transaction, it also sends the words that may be sent now.
        """
        take = self._goes_out_at_once
        words = tuple(word for word in self.words if take(word)) if take and self.words else ()
        rows = await self.connection.run(self._text(query), params, channel=self.schema, words=words)
        self._sent = words
        return rows

    async def prefer_indexes(self) -> None:
        """Make the planner use index scans for the rest of this transaction, however small a table seems.

        For queries whose cost must not grow with a table: the planner's estimates sometimes choose another plan.
        """
        names = (
            "enable_seqscan",
            "enable_bitmapscan",
            "enable_sort",
            "enable_hashjoin",
            "enable_mergejoin",
            "jit",
        )
        await self.values("select " + ", ".join(f"set_config('{name}', 'off', true)" for name in names))

    async def wait_for_locks(self, seconds: float) -> None:
        """Set the lock timeout for the rest of this transaction."""
        await self.values("select set_config('lock_timeout', %s, true)", [f"{max(1, int(seconds * 1000))}ms"])

    @asynccontextmanager
    async def whole(self) -> AsyncIterator[None]:
        """Run the block's statements in one transaction, also in `Database.single`."""
        async with self.connection.transaction():
            yield

    @asynccontextmanager
    async def copy(self, query: str) -> AsyncIterator[psycopg.AsyncCopy]:
        """A COPY into the database, in the query's format."""
        async with self.connection.cursor() as cursor, cursor.copy(self._text(query)) as copy:
            yield copy

    def _text(self, query: str) -> Any:
        return in_schema(query, self.schema)


async def _check_if_readable(connection: Connection) -> None:
    """Check a connection only if data arrived while it was idle: usually the server has closed it."""
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    if poll.poll(0):
        await psycopg_pool.AsyncConnectionPool.check_connection(connection)


def convert_row(row: type[Row], values: Mapping[str, Any]) -> Row:
    """Convert a row's columns to the given type; ignores columns that the type does not have."""
    return msgspec.convert(values, row, builtin_types=_NATIVE)


def make_row_factory(row: type[Row]) -> BaseRowFactory[Row]:
    """A row factory that makes records, with nested records and enums."""

    def factory(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> Callable[[Sequence[Any]], Row]:
        names = [column.name for column in cursor.description or ()]

        def make(values: Sequence[Any]) -> Row:
            return convert_row(row, dict(zip(names, values, strict=True)))

        return make

    return cast("BaseRowFactory[Row]", factory)


class Database:
    """The connection pool of one PostgreSQL database; it replaces lost connections."""

    def __init__(
        self,
        url: str,
        settings: Settings,
        *,
        session: Mapping[str, str] | None = None,
        hooks: CommitHooks | None = None,
    ) -> None:
        self.url = url
        self.settings = settings
        self._session = dict(session or {})
        self.schema = settings.schema
        self._redact_patterns = compile_patterns(settings.redact_patterns)
        limit = settings.statement_timeout_seconds
        self._patience = limit + GRACE_SECONDS if limit else None
        self._deadlines = Deadlines()
        self._given_up: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        # A connection kept out of the pool between single statements: the pool would cost a tenth of a statement.
        self._spare: Connection | None = None
        self._before_close: list[Callable[[], Awaitable[None]]] = []
        self.notifier = Notifier(self._notify)
        self._hooks = hooks or CommitHooks()
        self._pool = psycopg_pool.AsyncConnectionPool(
            url,
            min_size=1,
            max_size=settings.pool_size,
            timeout=settings.connect_timeout_seconds,
            open=False,
            connection_class=Connection,
            configure=self._configure,
            check=_check_if_readable,
            kwargs={
                "autocommit": True,
                # a pooler in transaction mode hands the next transaction another connection
                "prepare_threshold": None if settings.pooled else 5,
                "application_name": "fairlead",
                "connect_timeout": max(2, int(settings.connect_timeout_seconds)),
                **KEEPALIVES,
            },
            name="fairlead",
        )

    async def open(self) -> None:
        """Connect, or raise an error that says why not."""
        self._loop = asyncio.get_running_loop()
        check_address(self.url)
        await self._pool.open()
        try:
            await self._pool.wait(self.settings.connect_timeout_seconds)
            async with self.transaction() as tx:
                version = tx.connection.info.server_version
        except FAILED as error:
            await self._pool.close()
            raise await self._explain(error) from error
        if version < OLDEST_VERSION:
            await self._pool.close()
            raise DatabaseRefused(
                f"PostgreSQL {version // 10000} is too old: Fairlead needs 14 or later. Upgrade the server."
            )

    def before_close(self, stop: Callable[[], Awaitable[None]]) -> None:
        """Register a function to await before the connections are closed: for loops that use them."""
        self._before_close.append(stop)

    async def close(self) -> None:
        """Stop the loops that use the connections, send the waiting notifications, and disconnect."""
        while self._before_close:
            await self._before_close.pop()()
        await self.notifier.close()
        if spare := self._take_spare():
            await self._pool.putconn(spare)
        await self._pool.close()

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that opened the database and owns its connections."""
        return self._loop

    def check_loop(self) -> None:
        """Refuse another event loop: a wait for a connection would never end there, and would happen only sometimes."""
        if asyncio.get_running_loop() is not self._loop:
            raise WrongLoop(WRONG_LOOP)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @asynccontextmanager
    async def transaction(
        self, acting: TransactionIdentity | None = None, *, unhurried: bool = False
    ) -> AsyncIterator[Tx]:
        """A transaction: commits at the end, rolls back on an exception. `unhurried` has no time limit.

        With `acting`, row-level security limits it to the rows of that tenant.
        """
        self.check_loop()
        async with self._pool.connection() as connection:
            try:
                async with connection.transaction():
                    if self.settings.pooled or unhurried:
                        await connection.execute(
                            set_config_statement(
                                timeout_settings(self.settings, unhurried=unhurried) | self._session,
                                local=True,
                            )
                        )
                    if acting is not None:
                        await connection.execute(*self._identity_statement(acting))
                    tx = Tx(connection, self.settings, self._redact_patterns)
                    yield tx
            except STANDBY:
                await connection.close()  # a new connection may reach the primary
                raise
            except IDLE as error:
                raise idle_error(error) from error
            self._hooks.run(tx.words)
            self.notifier.tell(tx.words)

    def _identity_statement(self, acting: TransactionIdentity) -> tuple[Any, list[str]]:
        """The statement and values that set a transaction's identity, for this transaction only."""
        local = {
            f"{self.schema}.ip": acting.ip or "",
            f"{self.schema}.principal_id": str(acting.principal_id or ""),
        }
        if acting.tenant_id is not None:
            local |= {f"{self.schema}.tenant_id": str(acting.tenant_id), "role": TENANT_ROLE}
        query = "select " + ", ".join(["set_config(%s, %s, true)"] * len(local))
        return query, [part for pair in local.items() for part in pair]

    async def single(self, work: Callable[[Tx], Awaitable[T]]) -> T:
        """Run `work` with each statement as its own transaction: one round trip instead of three."""
        try:
            return await self._single(work)
        except TOO_SLOW as error:
            raise busy_error(error) from error
        except FAILED as error:
            raise await self._explain(error) from error

    async def _single(self, work: Callable[[Tx], Awaitable[T]]) -> T:
        if self.settings.pooled:  # a pooler needs the timeouts to be set in the transaction
            async with self.transaction() as tx:
                return await work(tx)
        self.check_loop()
        connection = self._take_spare() or await self._pool.getconn()
        tx = Tx(connection, self.settings, self._redact_patterns, goes_out_at_once=self.notifier.take)
        try:
            answer = await self._await_in_time(connection, work(tx))
        except BaseException as error:
            # its earlier statements are committed, and perhaps the last one, too
            self.notifier.tell(tx.unsent)
            if isinstance(error, STANDBY):
                await connection.close()
            await self._pool.putconn(connection)
            if isinstance(error, IDLE):
                raise idle_error(error) from error
            raise
        if self._spare is None and self.settings.pool_size > 1:
            self._spare = connection
        else:
            await self._pool.putconn(connection)
        self.notifier.tell(tx.unsent)
        return answer

    async def _notify(self, word: str) -> None:
        await self._single(lambda tx: tx.run(NOTIFY, [word]))

    async def _await_in_time(self, connection: Connection, answer: Awaitable[T]) -> T:
        """Await the answer; if it does not come in time, close the connection."""
        task = asyncio.current_task()
        if self._patience is None or task is None:
            return await answer
        self._deadlines.add(task, self._patience, partial(self._give_up, task))
        try:
            return await answer
        except asyncio.CancelledError:
            if task not in self._given_up:
                raise
            task.uncancel()
            await connection.close()
            raise psycopg.OperationalError("the database did not answer in time") from None
        finally:
            self._given_up.discard(task)
            self._deadlines.leave(task, self._patience)

    def _give_up(self, task: "asyncio.Task[Any]") -> None:
        self._given_up.add(task)
        task.cancel()

    def _take_spare(self) -> Connection | None:
        spare, self._spare = self._spare, None
        return spare

    async def transact(self, work: Callable[[Tx], Awaitable[T]], *, unhurried: bool = False) -> T:
        """Run `work` in a transaction; repeat it after a serialization failure or a deadlock."""
        for attempt in range(1, RETRIES + 1):
            try:
                async with self.transaction(unhurried=unhurried) as tx:
                    return await work(tx)
            except SAFE_TO_REPEAT as error:
                if attempt == RETRIES:
                    raise busy_error(error) from error
                log.info("transaction_repeated", attempt=attempt, why=type(error).__name__)
                await asyncio.sleep(random.uniform(0, 0.02 * 2**attempt))  # noqa: S311
            except TOO_SLOW as error:
                raise busy_error(error) from error
            except FAILED as error:
                # the commit may have happened or not: only the caller knows whether to repeat it
                raise await self._explain(error) from error
        raise AssertionError("unreachable")

    async def reach(self, work: Callable[[Tx], Awaitable[T]]) -> T:
        """`single` for work that is safe to repeat: retries lost connections until the connect timeout."""
        deadline = asyncio.get_running_loop().time() + self.settings.connect_timeout_seconds
        pause = 0.05
        while True:
            try:
                return await self._single(work)
            except TOO_SLOW as error:
                raise busy_error(error) from error
            except FAILED as error:
                again = is_lost(error) or isinstance(error, SAFE_TO_REPEAT)
                if not again or asyncio.get_running_loop().time() + pause > deadline:
                    raise await self._explain(error) from error
                log.warning("database_lost", why=first_line(error))
                await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
                pause = min(pause * 2, 2.0)

    async def _configure(self, connection: AsyncConnection[Any]) -> None:
        set_json_loads(msgspec.json.decode, connection)
        connection.adapters.register_dumper(JsonText, _JsonTextDumper)
        register_arrays(connection)
        # by default psycopg sends ids as text, which takes it five times as long
        connection.adapters.register_dumper(UUID, UUIDBinaryDumper)
        # limits are exact only if each statement of a claim sees everything that was committed before it
        await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
        if not self.settings.pooled:
            await connection.execute(
                set_config_statement(session_settings(self.settings) | self._session, local=False)
            )

    async def _explain(self, error: Exception) -> FairleadError:
        """The Fairlead error for a failed statement."""
        if isinstance(error, SAFE_TO_REPEAT):
            return busy_error(error)
        return await self._why_unreachable(error) if is_lost(error) else refused_error(error)

    async def _why_unreachable(self, error: Exception) -> FairleadError:
        """The pool knows only that it got no connection; connecting once more shows why."""
        try:
            async with await AsyncConnection.connect(self.url, connect_timeout=5):
                why = f"{first_line(error)}; if its connections are all busy, raise FAIRLEAD_POOL_SIZE"
        except (psycopg.OperationalError, psycopg.ProgrammingError) as now:
            return unreachable_error(self.url, now)
        return DatabaseUnreachable(f"The database at {describe_address(self.url)} did not answer: {why}.")
