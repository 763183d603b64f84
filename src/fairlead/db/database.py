"""A database: its connections, and transactions that are repeated, timed and explained."""

import asyncio
import random
import select
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Self, TypeVar
from uuid import UUID

import msgspec
import psycopg
import psycopg_pool
import structlog
from psycopg import AsyncConnection, IsolationLevel
from psycopg.errors import ReadOnlySqlTransaction
from psycopg.rows import TupleRow
from psycopg.types.json import set_json_loads
from psycopg.types.uuid import UUIDBinaryDumper

from fairlead.db.addresses import check_address, describe_address, primary_parameters
from fairlead.db.arrays import register_arrays
from fairlead.db.commit_hooks import CommitHooks
from fairlead.db.connection import Connection, Statement
from fairlead.db.database_errors import (
    FAILED,
    IDLE,
    SAFE_TO_REPEAT,
    STANDBY,
    TOO_SLOW,
    SchemaMoved,
    advise_waiting,
    busy_error,
    describe_failure,
    first_line,
    idle_error,
    is_lost,
    refused_error,
    unreachable_error,
)
from fairlead.db.notifier import Notifier
from fairlead.db.schema_node import SchemaNode
from fairlead.db.server_version import require_supported
from fairlead.db.session import (
    KEEPALIVES,
    cancel_seconds,
    session_settings,
    set_config_statement,
    timeout_settings,
)
from fairlead.db.sharded_tables import ShardedTables
from fairlead.db.sql import in_schema
from fairlead.db.tx import (
    ExactJson,
    ExactJsonDumper,
    HeldTx,
    JsonText,
    JsonTextDumper,
    TransactionIdentity,
    Tx,
)
from fairlead.deadlines import Deadlines
from fairlead.errors import DatabaseUnreachable, FairleadError, TransactionIdle, WrongLoop
from fairlead.keys.keyring import Keyring
from fairlead.placement import require_readable, require_writable
from fairlead.settings import Settings, compile_patterns
from fairlead.turns.connections import ConnectionTurns

log = structlog.get_logger(__name__)

T = TypeVar("T")

RETRIES = 5

# The client waits this much longer than statement_timeout before it gives up on an answer.
GRACE_SECONDS = 5.0

# The pool tries for a connection after 0, 1, 3 and 4 seconds, and then starts over: a new primary is found soon.
RECONNECT_SECONDS = 4.0

# How long to look for the reason why the pool got no connection.
WHY_SECONDS = 5.0

IS_SET_READ_ONLY = (
    "select not pg_is_in_recovery() and current_setting('default_transaction_read_only')::boolean"
)

NOTIFY = "select pg_notify('fairlead', %s)"

WRONG_LOOP = (
    "This was opened on another event loop, and its connections belong to that one: use it there. "
    "A test of a web application calls it by httpx2.ASGITransport on its own loop; TestClient has another one. "
    "A thread hands its work over with asyncio.run_coroutine_threadsafe, or uses fairlead.sync."
)

# Row-level security shows this role only the rows of the transaction's tenant.
TENANT_ROLE = "fairlead_tenant"


class _Pool(psycopg_pool.AsyncConnectionPool[Connection]):
    """A pool that knows how many wait for a connection. Its statistics know it, too, but take longer than all of `getconn`."""

    waiting = 0

    async def getconn(self, timeout: float | None = None) -> Connection:  # noqa: ASYNC109 - as the pool has it
        self.waiting += 1
        try:
            return await super().getconn(timeout)
        finally:
            self.waiting -= 1


def _require_placement(acting: TransactionIdentity, row: TupleRow) -> None:
    """Refuse a tenant that does not live in this cell, and writes of one that is leaving it."""
    if acting.tenant_id is None or row[0] is None:
        return
    slug, placement, moved_to = row[0]
    require_readable(slug, placement, moved_to)
    if acting.writes:
        require_writable(slug, placement)


async def _read_server_version(tx: Tx) -> int:
    return tx.connection.info.server_version


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
        self.keyring = Keyring(settings)
        limit = settings.statement_timeout_seconds
        self._patience = limit + GRACE_SECONDS if limit else None
        self._deadlines = Deadlines()
        self._given_up: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        # A connection kept out of the pool between single statements: the pool would cost a tenth of a statement.
        self._spare: Connection | None = None
        self._checking: asyncio.Task[None] | None = None
        self._before_close: list[Callable[[], Awaitable[None]]] = []
        self.notifier = Notifier(self._notify)
        self._hooks = hooks or CommitHooks()
        self._node = SchemaNode(url, settings.schema) if settings.citus else None
        self._tables: ShardedTables | None = None
        self.connection_turns = ConnectionTurns(settings.pool_size, settings.connect_timeout_seconds)
        self._pool = _Pool(
            self._node.find if self._node else url,
            min_size=1,
            max_size=settings.pool_size,
            timeout=settings.connect_timeout_seconds,
            open=False,
            connection_class=Connection,
            configure=self._configure,
            check=self._check_if_readable,
            reconnect_timeout=RECONNECT_SECONDS,
            reconnect_failed=self._start_over,
            kwargs={
                "autocommit": True,
                # a pooler in transaction mode hands the next transaction another connection
                "prepare_threshold": None if settings.pooled else 5,
                "application_name": "fairlead",
                **primary_parameters(url, seconds=settings.connect_timeout_seconds),
                **KEEPALIVES,
            },
            name="fairlead",
        )

    async def _check_if_readable(self, connection: Connection) -> None:
        """Check a connection only if data arrived while it was idle: usually the server has closed it."""
        poll = select.poll()
        poll.register(connection.pgconn.socket, select.POLLIN)
        if not poll.poll(0):
            return
        try:
            await self._pool.check_connection(connection)
        except psycopg.OperationalError:
            self._check_idle()
            raise

    def _check_idle(self) -> None:
        """Replace the other dead connections, too: the pool would find them one by one, with growing pauses in between."""
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._pool.check(), name="fairlead-check")

    async def _start_over(self, pool: psycopg_pool.AsyncConnectionPool[Any]) -> None:
        """Try for another connection, since the pool gave up on one. Its pauses would otherwise grow to minutes."""
        if not pool.closed:
            await pool.resize(0, self.settings.pool_size)
            await pool.resize(1, self.settings.pool_size)

    async def open(self) -> None:
        """Connect, or raise an error that says why not."""
        self._loop = asyncio.get_running_loop()
        check_address(self.url)
        if self._node is not None:
            await self._node.find()
            self._tables = await self._node.read_shards()
        await self._pool.open()
        try:
            await self._pool.wait(self.settings.connect_timeout_seconds)
            require_supported(await self.transact(_read_server_version))
        except BaseException as error:  # also a cancellation: the pool would go on connecting
            await self._pool.close()
            if isinstance(error, FAILED):
                raise await self._explain(error) from error
            raise

    @property
    def address(self) -> str:
        """Where the database is, without the password; of a distributed schema, the node that holds it."""
        return describe_address(self.url) if self._node is None else self._node.address

    async def find_url(self) -> str:
        """The URL for transactions that jobs join: of a distributed schema, the node that holds it now."""
        return self.url if self._node is None else await self._node.find()

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
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)
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

    def transaction(
        self, acting: TransactionIdentity | None = None, *, unhurried: bool = False, snapshot: bool = False
    ) -> AbstractAsyncContextManager[Tx]:
        """A transaction: commits at the end, rolls back on an exception. `unhurried` has no time limit.

        With `acting`, row-level security limits it to the rows of that tenant. With `snapshot`, all its statements see
        the database as the first one does.
        """
        if self._node is not None:
            return self._follow(acting, unhurried=unhurried, snapshot=snapshot)
        return self._transaction(acting, unhurried=unhurried, snapshot=snapshot)

    @asynccontextmanager
    async def _follow(
        self, acting: TransactionIdentity | None, *, unhurried: bool, snapshot: bool
    ) -> AsyncIterator[Tx]:
        """A transaction on the node that holds the schema. After a move, it begins again there."""
        async with AsyncExitStack() as stack:
            yield await self._repeat_if_moved(
                lambda: stack.enter_async_context(
                    self._transaction(acting, unhurried=unhurried, snapshot=snapshot)
                )
            )

    async def _repeat_if_moved(self, begin: Callable[[], Awaitable[T]]) -> T:
        """Begin again on another connection while Citus has the schema on another node, until the connect timeout."""
        deadline = asyncio.get_running_loop().time() + self.settings.connect_timeout_seconds
        pause = 0.01
        while True:
            try:
                return await begin()
            except SchemaMoved as error:
                if error.is_partly_done or asyncio.get_running_loop().time() + pause > deadline:
                    raise
                # the nodes learn of a move one after the other
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)

    async def _hold(self, node: SchemaNode, connection: Connection, *, snapshot: bool) -> None:
        """Keep Citus from moving the schema until the transaction ends; SchemaMoved if another node holds it."""
        await node.hold(connection, snapshot=snapshot)
        if snapshot:
            # a move that ended while it waited for the lock is not in its snapshot
            async with self._pool.connection() as other:
                await node.hold(other)

    @asynccontextmanager
    async def _transaction(
        self, acting: TransactionIdentity | None, *, unhurried: bool, snapshot: bool
    ) -> AsyncIterator[Tx]:
        self.check_loop()
        async with self._connection() as connection:
            try:
                async with self._begin(connection, acting, unhurried=unhurried, snapshot=snapshot):
                    tx = Tx(
                        connection,
                        self.settings,
                        self._redact_patterns,
                        tables=self._tables,
                        keyring=self.keyring,
                    )
                    yield tx
            except STANDBY:
                await connection.close()  # a new connection may reach the primary
                raise
            except IDLE as error:
                raise idle_error(error) from error
            self._hooks.run(tx.words)
            self.notifier.tell(tx.words)

    @asynccontextmanager
    async def _begin(
        self,
        connection: Connection,
        acting: TransactionIdentity | None,
        *,
        unhurried: bool,
        snapshot: bool,
    ) -> AsyncIterator[None]:
        """Begin a transaction, and set its timeouts and its identity."""
        statements = list[Statement]()
        if self.settings.pooled or unhurried:
            timeouts = timeout_settings(self.settings, unhurried=unhurried) | self._session
            statements.append((set_config_statement(timeouts, local=True), ()))
        if acting is not None:
            statements.append(self._identity_statement(acting))
        if self._node is None:
            async with connection.begin(*statements, snapshot=snapshot) as rows:
                if acting is not None:
                    _require_placement(acting, rows[0])
                yield
            return
        async with connection.begin(snapshot=snapshot):
            await self._hold(self._node, connection, snapshot=snapshot)
            for statement in statements:
                rows = await connection.run(*statement)
            if acting is not None:
                _require_placement(acting, rows[0])
            yield

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        """A connection of the pool, in this owner's turn."""
        owner = await self.connection_turns.enter()
        try:
            async with self._pool.connection() as connection:
                yield connection
        finally:
            self.connection_turns.leave(owner)

    def _identity_statement(self, acting: TransactionIdentity) -> Statement:
        """The statement and values that set a transaction's identity, for this transaction only."""
        local = {
            f"{self.schema}.ip": acting.ip or "",
            f"{self.schema}.principal_id": str(acting.principal_id or ""),
        }
        if acting.tenant_id is not None:
            local |= {f"{self.schema}.tenant_id": str(acting.tenant_id), "role": TENANT_ROLE}
        settings = ", ".join(["set_config(%s, %s, true)"] * len(local))
        values = [part for pair in local.items() for part in pair]
        if acting.tenant_id is None:
            return f"select {settings}", values
        where = self._text("from fairlead.tenants t where t.id = %s")
        return f"select (select array[t.slug, t.placement, t.moved_to] {where}), {settings}", [
            str(acting.tenant_id),
            *values,
        ]

    def _text(self, query: str) -> str:
        return in_schema(self._tables.name_shards(query) if self._tables else query, self.schema)

    async def single(self, work: Callable[[Tx], Awaitable[T]]) -> T:
        """Run `work` with each statement as its own transaction: one round trip instead of three."""
        try:
            return await self._single(work)
        except TOO_SLOW as error:
            raise busy_error(error) from error
        except FAILED as error:
            raise await self._explain(error) from error

    async def _single(self, work: Callable[[Tx], Awaitable[T]]) -> T:
        if self._node is not None:
            return await self._repeat_if_moved(lambda: self._single_here(work))
        return await self._single_here(work)

    def _single_tx(self, connection: Connection) -> Tx:
        if self._node is None:
            return Tx(
                connection,
                self.settings,
                self._redact_patterns,
                goes_out_at_once=self.notifier.take,
                keyring=self.keyring,
            )
        return HeldTx(
            connection,
            self.settings,
            self._redact_patterns,
            goes_out_at_once=self.notifier.take,
            tables=self._tables,
            node=self._node,
            keyring=self.keyring,
        )

    async def _single_here(self, work: Callable[[Tx], Awaitable[T]]) -> T:
        if self.settings.pooled:  # a pooler needs the timeouts to be set in the transaction
            async with self.transaction() as tx:
                return await work(tx)
        self.check_loop()
        owner = await self.connection_turns.enter()
        try:
            return await self._single_now(work)
        finally:
            self.connection_turns.leave(owner)

    async def _single_now(self, work: Callable[[Tx], Awaitable[T]]) -> T:
        connection = self._take_spare() or await self._pool.getconn()
        tx = self._single_tx(connection)
        try:
            answer = await self._await_in_time(connection, work(tx))
        except BaseException as error:
            # its earlier statements are committed, and perhaps the last one, too
            self.notifier.tell(tx.unsent)
            if isinstance(error, STANDBY):
                await connection.close()
            if isinstance(error, SchemaMoved) and isinstance(tx, HeldTx):
                error.is_partly_done = tx.has_run
            await self._pool.putconn(connection)
            if isinstance(error, IDLE):
                raise idle_error(error) from error
            raise
        if self._spare is None and self.settings.pool_size > 1 and not self._pool.waiting:
            self._spare = connection
        else:  # a waiting task gets it before the next caller
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
        self._deadlines.add(task, self._patience, partial(self._give_up, task, connection))
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

    def _give_up(self, task: "asyncio.Task[Any]", connection: Connection) -> None:
        self._given_up.add(task)
        connection.leave_statement_running()
        task.cancel()

    def _take_spare(self) -> Connection | None:
        spare, self._spare = self._spare, None
        return spare

    async def transact(self, work: Callable[[Tx], Awaitable[T]], *, unhurried: bool = False) -> T:
        """Run `work` in a transaction; repeat it after a serialization failure, a deadlock or a pause of this process."""
        for attempt in range(1, RETRIES + 1):
            try:
                async with self.transaction(unhurried=unhurried) as tx:
                    return await work(tx)
            except SAFE_TO_REPEAT as error:
                if attempt == RETRIES:
                    raise busy_error(error) from error
                log.info("transaction_repeated", attempt=attempt, why=type(error).__name__)
                await asyncio.sleep(random.uniform(0, 0.02 * 2**attempt))  # noqa: S311
            except TransactionIdle:
                # a commit is not idle: nothing of the transaction remains
                if attempt == RETRIES:
                    raise
                log.info("transaction_repeated", attempt=attempt, why="TransactionIdle")
            except TOO_SLOW as error:
                raise busy_error(error) from error
            except FAILED as error:
                # the commit may have happened or not: only the caller knows whether to repeat it
                raise await self._explain(error) from error
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def transaction_beside(
        self, *, unhurried: bool = False, snapshot: bool = False
    ) -> AsyncIterator[Tx]:
        """A transaction inside one of another database: explains errors of its own connection, and lets others pass."""
        tx = None
        try:
            async with self.transaction(unhurried=unhurried, snapshot=snapshot) as tx:
                yield tx
        except FAILED as error:
            if tx is None or tx.connection.closed:
                raise await self._explain(error) from error
            raise

    async def reach(self, work: Callable[[Tx], Awaitable[T]]) -> T:
        """`single` for work that is safe to repeat: retries lost connections until the connect timeout."""
        deadline = asyncio.get_running_loop().time() + self.settings.connect_timeout_seconds
        pause = 0.05
        was_lost = False
        while True:
            try:
                answer = await self._single(work)
                if was_lost:
                    await self._single(Tx.wait_for_standby)
            except TOO_SLOW as error:
                raise busy_error(error) from error
            except FAILED as error:
                again = is_lost(error) or isinstance(error, SAFE_TO_REPEAT)
                if isinstance(error, ReadOnlySqlTransaction) and await self._is_set_read_only():
                    again = False
                if not again or asyncio.get_running_loop().time() + pause > deadline:
                    raise await self._explain(error) from error
                log.warning("database_lost", why=describe_failure(error))
                was_lost = True
                await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
                pause = min(pause * 2, 2.0)
            else:
                return answer

    async def _configure(self, connection: Connection) -> None:
        connection.cancel_seconds = cancel_seconds(self.settings)
        set_json_loads(msgspec.json.decode, connection)
        connection.adapters.register_dumper(JsonText, JsonTextDumper)
        connection.adapters.register_dumper(ExactJson, ExactJsonDumper)
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

    async def _is_set_read_only(self) -> bool:
        """Whether a new connection reaches a primary that was set to be read-only: no failover ends that."""
        try:
            async with await AsyncConnection.connect(
                self.url, **primary_parameters(self.url, seconds=WHY_SECONDS)
            ) as connection:
                cursor = await connection.execute(IS_SET_READ_ONLY)
                return await cursor.fetchone() == (True,)
        except psycopg.OperationalError:
            return False  # the next try reports it

    async def _why_unreachable(self, error: Exception) -> FairleadError:
        """The pool knows only that it got no connection; connecting once more shows why."""
        if isinstance(error, ReadOnlySqlTransaction):
            return unreachable_error(self.url, error)
        try:
            async with await AsyncConnection.connect(
                self.url, **primary_parameters(self.url, seconds=WHY_SECONDS)
            ):
                why = f"{first_line(error)}; {advise_waiting(error)}"
        except (psycopg.OperationalError, psycopg.ProgrammingError) as now:
            return unreachable_error(self.url, now)
        return DatabaseUnreachable(f"The database at {describe_address(self.url)} did not answer: {why}.")
