"""Connections that wait for permission before each statement and each commit."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any, NamedTuple

from psycopg import AsyncConnection, AsyncCursor, AsyncTransaction
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from fairlead import Settings
from fairlead.db.connection import Connection, Params, Statement
from fairlead.db.database import Database

# Statements that touch only other tables read what no participant writes, so their order makes no difference.
CONTENDED = re.compile(
    r"\b(ready|later|leases|jobs|job_records|job_attempts|attempts|active_keys|lost_workers|claim|claim_suspect|"
    r"enqueue\w*|workflow_runs|workflow_steps|move_on|release_steps|trigger_firings|job_triggers|dedupe_windows|"
    r"events|events_waiting|emit\w*|finish_joined|edit_waiting|cancel_waiting|"
    r"job_steps|job_signals|approvals|ended_children|begin_wait|complete_waits)\b"
)
UNCONTENDED = re.compile(r"^\s*(select pg_notify|select set_config|insert into \S*audit_log)", re.IGNORECASE)
FUNCTION_CALL = re.compile(r"\bfairlead\.\w+\s*\(")
WRITE = re.compile(
    r"\b(insert into|update|delete from|for (no key )?update|for (key )?share)\b", re.IGNORECASE
)
TABLE = re.compile(r"\bfairlead\.(\w+)")
# The tables of views.
TABLES = {"jobs": {"job_records", "leases"}, "attempts": {"job_attempts", "job_records", "leases"}}
COMMIT = "commit"
ROLLBACK = "rollback"


class StepKind(NamedTuple):
    """What a step may have to do with steps of others."""

    # it ends a transaction, or is one
    commits: bool = False
    # it writes rows or locks them
    writes: bool = True
    # the tables that it names; None: any
    tables: frozenset[str] | None = None

    def is_independent_of(self, other: "StepKind") -> bool:
        """Whether the order of two adjacent steps makes no difference.

        A statement sees only what was committed, so one that locks nothing does not notice what others have not committed.
        """
        if self.commits or other.commits:
            return False
        if not (self.writes and other.writes):
            return True
        return self.tables is not None and other.tables is not None and self.tables.isdisjoint(other.tables)


def classify(statement: str, *, in_transaction: bool) -> StepKind:
    """The kind of a statement, in a transaction or by itself."""
    if statement in (COMMIT, ROLLBACK):
        return StepKind(commits=True)
    calls = FUNCTION_CALL.search(statement) is not None
    writes = calls or WRITE.search(statement) is not None
    named = set(TABLE.findall(statement))
    tables = named.union(*(TABLES.get(one, set()) for one in named))
    return StepKind(writes and not in_transaction, writes, None if calls else frozenset(tables))


class Turns:
    """Where a participant is: before a step, within one, or at its end."""

    def __init__(self, contended: re.Pattern[str] = CONTENDED) -> None:
        self.task: asyncio.Task[Any] | None = None
        self.changed = asyncio.Event()
        # the statement that it waits to send
        self.at: str | None = None
        # whether that statement is part of a larger transaction
        self.in_transaction = False
        self.contended = contended
        self._go: asyncio.Future[None] | None = None

    @property
    def is_done(self) -> bool:
        return self.task is not None and self.task.done()

    @property
    def is_parked(self) -> bool:
        return self.at is not None

    async def wait(self, statement: str, *, in_transaction: bool) -> None:
        """Wait until the explorer permits this statement. Other tasks of the process need no permission."""
        if asyncio.current_task() is not self.task or not self._matters(statement):
            return
        self._go = asyncio.get_running_loop().create_future()
        self.at = statement
        self.in_transaction = in_transaction
        self.changed.set()
        try:
            await self._go
        finally:
            self.at = None

    def permit(self) -> None:
        """Let the participant take its next step."""
        assert self._go is not None
        self.at = None
        self._go.set_result(None)

    def _matters(self, statement: str) -> bool:
        if statement in (COMMIT, ROLLBACK):
            return True
        return bool(self.contended.search(statement)) and not UNCONTENDED.search(statement)


class SteppedCursor(AsyncCursor[Any]):
    """A cursor that waits for its turn before each statement."""

    async def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        assert isinstance(self.connection, SteppedConnection)
        await self.connection.wait_for_turn(query)
        return await super().execute(query, params, **options)


class SteppedConnection(Connection):
    """A connection of the product whose statements and commits wait for their turns."""

    turns: Turns | None = None

    async def wait_for_turn(self, statement: Any) -> None:
        if self.turns is not None:
            text = statement if isinstance(statement, str) else str(statement)
            is_idle = self.info.transaction_status == TransactionStatus.IDLE
            await self.turns.wait(text, in_transaction=not is_idle)

    async def run(self, query: str, params: Params, **options: Any) -> Any:
        await self.wait_for_turn(query)
        return await super().run(query, params, **options)

    async def run_all(self, statements: Sequence[Statement]) -> Any:
        await self.wait_for_turn("; ".join(query for query, _ in statements))
        return await super().run_all(statements)

    @asynccontextmanager
    async def begin(self, *statements: Statement, snapshot: bool = False) -> AsyncIterator[list[TupleRow]]:
        async with super().begin(*statements, snapshot=snapshot) as rows, self._wait_before_end():
            yield rows

    @asynccontextmanager
    async def transaction(self, *args: Any, **options: Any) -> AsyncIterator[AsyncTransaction]:
        is_outermost = self.info.transaction_status == TransactionStatus.IDLE
        waiting = self._wait_before_end() if is_outermost else nullcontext()
        async with super().transaction(*args, **options) as transaction, waiting:
            yield transaction

    @asynccontextmanager
    async def _wait_before_end(self) -> AsyncIterator[None]:
        try:
            yield
        except Exception:
            await self.wait_for_turn(ROLLBACK)
            raise
        await self.wait_for_turn(COMMIT)


class SteppedDatabase(Database):
    """The database of one participant: one connection, each step of which waits for its turn."""

    def __init__(self, url: str, number: int, session: Mapping[str, str]) -> None:
        # a participant may wait for long, for its turn or for a lock
        settings = Settings(
            pool_size=1, lease_seconds=600, lock_timeout_seconds=120, statement_timeout_seconds=120
        )
        stops = {"explorer.participant": str(number), "explorer.stop": "0"}
        super().__init__(url, settings, session={**stops, **session})
        self.number = number
        self.turns = Turns()
        self.pid = 0
        self.stepped: SteppedConnection | None = None
        self._pool.connection_class = SteppedConnection

    async def _configure(self, connection: AsyncConnection[Any]) -> None:
        assert isinstance(connection, SteppedConnection)
        await super()._configure(connection)
        connection.cursor_factory = SteppedCursor
        connection.turns = self.turns
        self.pid = connection.info.backend_pid
        self.stepped = connection

    @property
    def is_in_transaction(self) -> bool:
        return self.stepped is not None and self.stepped.pgconn.transaction_status != TransactionStatus.IDLE
