"""A transaction in progress, and rows as records."""

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Generic, NamedTuple, TypeVar, cast
from uuid import UUID

import msgspec
import psycopg
from psycopg import errors as pg
from psycopg.adapt import Dumper
from psycopg.rows import BaseRowFactory, TupleRow, dict_row

from fairlead.db.citus import SHOW_SHARDS
from fairlead.db.connection import Connection, Params
from fairlead.db.schema_node import SchemaNode
from fairlead.db.session import set_config_statement
from fairlead.db.sharded_tables import ShardedTables
from fairlead.db.sql import in_schema
from fairlead.keys.keyring import Keyring
from fairlead.settings import Settings
from fairlead.turns.loop_pauses import LoopPauses

Row = TypeVar("Row")

UniqueViolation = pg.UniqueViolation
# PostgreSQL refused a value of the statement, and nothing of it remains.
REJECTED = (pg.IntegrityError, pg.DataError)
_NATIVE = (UUID,)


# Writes to the log only, so that the commit waits for a synchronous standby. Without such standbys it does nothing.
WAIT_FOR_STANDBY = """
select pg_catalog.pg_logical_emit_message(true, 'fairlead', '')
where pg_catalog.current_setting('synchronous_standby_names') <> ''
"""


class TransactionIdentity(NamedTuple):
    """The identity of a transaction: its tenant (None: the system), the client's IP address, and the user or token."""

    tenant_id: UUID | None = None
    ip: str | None = None
    principal_id: UUID | None = None
    # whether it may change the tenant's rows: refused while the tenant is moved to another cell
    writes: bool = True


class TypedQuery(NamedTuple, Generic[Row]):
    """A query with its values, and the type of its rows."""

    row: type[Row]
    text: str
    params: Params = ()


class JsonText(bytes):
    """Encoded JSON for a jsonb column."""

    __slots__ = ()


class ExactJson(bytes):
    """Encoded JSON that the database must not bring into another form: for a json column."""

    __slots__ = ()


class JsonTextDumper(Dumper):
    """Sends encoded JSON as it is."""

    oid = psycopg.adapters.types["jsonb"].oid

    def dump(self, obj: bytes) -> bytes:
        return obj


class ExactJsonDumper(JsonTextDumper):
    """The same for a json column."""

    oid = psycopg.adapters.types["json"].oid


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
        tables: ShardedTables | None = None,
        keyring: Keyring | None = None,
    ) -> None:
        self.connection = connection
        # of a schema that Citus distributes: statements name its shards
        self._tables = tables
        # only if each statement is its own transaction: whether to send a word with the next statement
        self._goes_out_at_once = goes_out_at_once
        self.settings = settings
        self.schema = settings.schema
        # texts that are masked in results and in the audit log
        self.redact_patterns = redact_patterns
        # the process's keys for secrets at rest
        self.keyring = keyring or Keyring(settings)
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

    async def all_of(self, *queries: TypedQuery[Any]) -> list[list[Any]]:
        """Every row of each query, in one round trip."""
        statements = [(self._text(query.text), query.params) for query in queries]
        answers = await self.connection.run_all(statements)
        return [
            [convert_row(query.row, values) for values in rows]
            for query, rows in zip(queries, answers, strict=True)
        ]

    async def dicts(self, query: str, params: Params | None = None) -> list[dict[str, Any]]:
        """Every row as a dict by column name. Rows may have much JSON: other tasks run between two of them."""
        async with self.connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(self._text(query), params)
            rows, pauses = list[dict[str, Any]](), LoopPauses()
            while (row := await cursor.fetchone()) is not None:
                rows.append(row)
                await pauses.pause_if_due()
            return rows

    async def run_quick(self, query: str, params: Params) -> list[TupleRow]:
        """`values` without a cursor, for the most frequent statements.

        If each statement is its own transaction, it also sends the words that may be sent now.
        """
        return await self._run_quick(query, params)

    async def _run_quick(self, query: str, params: Params, *, first: str | None = None) -> list[TupleRow]:
        take = self._goes_out_at_once
        words = tuple(word for word in self.words if take(word)) if take and self.words else ()
        rows = await self.connection.run(
            self._text(query), params, channel=self.schema, words=words, first=first
        )
        self._sent = words
        return rows

    async def prefer_indexes(self, *, plan_each: bool = False) -> None:
        """Make the planner use index scans for the rest of this transaction, however small a table seems.

        For queries whose cost must not grow with a table: the planner's estimates sometimes choose another plan. With
        `plan_each` it also plans each statement for its tenant: a generic plan that suits large tenants would scan all jobs
        for a small one.
        """
        names = (
            "enable_seqscan",
            "enable_bitmapscan",
            "enable_sort",
            "enable_hashjoin",
            "enable_mergejoin",
            "jit",
        )
        settings = dict.fromkeys(names, "off")
        if plan_each:
            settings["plan_cache_mode"] = "force_custom_plan"
        await self.values(set_config_statement(settings, local=True))

    async def wait_for_standby(self) -> None:
        """Make this transaction's commit wait for a synchronous standby, if there is one, although it changes nothing.

        For an answer that rests on another transaction's commit: that one may have been canceled in its own wait, which made
        it visible before the standby had it. The standby gets commits in their order.
        """
        await self.run(WAIT_FOR_STANDBY)

    async def show_shards(self) -> None:
        """In a distributed schema, let the catalogs show its shards for the rest of this transaction."""
        if self._tables is not None:
            await self.values(SHOW_SHARDS)

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
        """A COPY into or out of the database, in the query's format."""
        async with self.connection.cursor() as cursor, cursor.copy(self._text(query)) as copy:
            yield copy

    def _text(self, query: str) -> Any:
        if self._tables is not None:
            query = self._tables.name_shards(query)
        return in_schema(query, self.schema)


class HeldTx(Tx):
    """Each statement is its own transaction, which keeps Citus from moving the schema until it ends."""

    def __init__(self, *args: Any, node: SchemaNode, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._node = node
        self._is_held = False
        # whether a statement has been committed
        self.has_run = False

    async def all(self, row: type[Row], query: str, params: Params | None = None) -> list[Row]:
        async with self._hold():
            return await super().all(row, query, params)

    async def first(self, row: type[Row], query: str, params: Params | None = None) -> Row | None:
        async with self._hold():
            return await super().first(row, query, params)

    async def run(self, query: str, params: Params | None = None) -> int:
        async with self._hold():
            return await super().run(query, params)

    async def values(self, query: str, params: Params | None = None) -> list[TupleRow]:
        async with self._hold():
            return await super().values(query, params)

    async def dicts(self, query: str, params: Params | None = None) -> list[dict[str, Any]]:
        async with self._hold():
            return await super().dicts(query, params)

    async def all_of(self, *queries: TypedQuery[Any]) -> list[list[Any]]:
        async with self._hold():
            return await super().all_of(*queries)

    async def run_quick(self, query: str, params: Params) -> list[TupleRow]:
        if self._is_held:
            return await super().run_quick(query, params)
        try:
            rows = await self._run_quick(query, params, first=self._node.hold_statement)
        except psycopg.Error as error:
            raise self._node.translate(error) from error
        self.has_run = True
        return rows

    @asynccontextmanager
    async def whole(self) -> AsyncIterator[None]:
        async with self._hold(), super().whole():
            yield

    @asynccontextmanager
    async def copy(self, query: str) -> AsyncIterator[psycopg.AsyncCopy]:
        async with self._hold(), super().copy(query) as copy:
            yield copy

    @asynccontextmanager
    async def _hold(self) -> AsyncIterator[None]:
        if self._is_held:
            yield
            return
        async with self.connection.transaction():
            await self._node.hold(self.connection)
            self._is_held = True
            try:
                yield
            finally:
                self._is_held = False
        self.has_run = True


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
