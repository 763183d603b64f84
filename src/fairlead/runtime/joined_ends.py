"""Ends jobs in the transactions of their handlers, and finds out whether those committed."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import structlog

from fairlead.db.database import Database
from fairlead.db.joined import (
    Exchange,
    build_sender,
    drive,
    require_function,
    require_transaction,
    run_without_loop,
    wrong_database,
)
from fairlead.db.lent_connections import LentConnections
from fairlead.errors import ConnectionNotSupported, FairleadError, LeaseLost
from fairlead.handlers.attempt import MAX_OUTPUT_BYTES, AttemptContext, OutputInvalid, encode_output
from fairlead.handlers.commands import Command
from fairlead.handlers.context import Stopped
from fairlead.handlers.registry import Handler
from fairlead.handlers.return_type import always_returns_value
from fairlead.model.job import Lease
from fairlead.model.outcome import Change, Outcome, Succeeded
from fairlead.runtime.failure_log import job_log_fields
from fairlead.runtime.worker_attempt import WorkerAttempt
from fairlead.store import queue
from fairlead.store.queue import JoinedEnd

log = structlog.get_logger(__name__)

FUNCTION = "finish_joined"
# Pauses between two looks at a transaction that has not ended.
LOOK_SECONDS = 0.02
LONGEST_LOOK_SECONDS = 0.5


class JoinedEnds:
    """The ends that handlers of one worker write in their own transactions, all in one database."""

    def __init__(
        self,
        database: Database,
        *,
        worker: str,
        count: Callable[[Lease, Change], None] = lambda _lease, _change: None,
    ) -> None:
        """`count` is called with each attempt that has ended in a transaction."""
        self._database = database
        self.function = f"{database.schema}.{FUNCTION}"
        self.actor = f"worker:{worker}"
        self.count = count
        self.lent = LentConnections(database)
        self.identity: str | None = None
        # writes the log of an attempt that is being streamed: no line is accepted after its end
        self.write_log: Callable[[WorkerAttempt], Awaitable[None]] | None = None

    def attach(
        self, ctx: AttemptContext, attempt: WorkerAttempt, handler: Handler | Command | None = None
    ) -> None:
        """Let the handler of this context end its job in its own transactions."""
        ctx.make_ends = lambda _: AttemptEnds(self, ctx, attempt, _find_function(handler))

    async def prepare(self, attempt: WorkerAttempt) -> None:
        """Learn which database this is, and write the attempt's log."""
        await self.learn_identity()
        if self.write_log is not None:
            await self.write_log(attempt)

    async def learn_identity(self) -> None:
        """Learn which database this is. Before a transaction is lent: behind a pooler with few connections, transactions that
        are open would wait for a connection that only their ends set free.
        """
        if self.identity is None:
            self.identity = await self._database.reach(queue.read_identity)

    async def wait_for_end(self, lease: Lease, gave_up: Callable[[], bool] = lambda: False) -> JoinedEnd:
        """What became of an end that a handler has written; waits while its transaction is open, until `gave_up`."""
        pause = LOOK_SECONDS
        while True:
            try:
                state = await self._database.reach(lambda tx: queue.read_joined_end(tx, lease))
            except Exception as error:  # noqa: BLE001 - the attempt keeps its slot until this is known
                why = error.message if isinstance(error, FairleadError) else repr(error)
                log.warning("joined_end_unknown", job_id=str(lease.job_id), why=why)
            else:
                if state is not JoinedEnd.OPEN or gave_up():
                    return state
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
            pause = min(LONGEST_LOOK_SECONDS, pause * 2)

    async def close(self) -> None:
        """Close the connections of handlers."""
        await self.lent.close()


def _find_function(handler: Handler | Command | None) -> Callable[..., Any] | None:
    """The function whose return value is the job's output."""
    return handler.function if isinstance(handler, Handler) and handler.batch is None else None


class AttemptEnds:
    """Ends the job of one attempt in transactions of its handler."""

    def __init__(
        self,
        ends: JoinedEnds,
        ctx: AttemptContext,
        attempt: WorkerAttempt,
        function: Callable[..., Any] | None = None,
    ) -> None:
        self._ends = ends
        self._function = function
        self._ctx = ctx
        self._attempt = attempt
        self._lent: Any = None
        self._written: Change | None = None

    async def succeed(self, output: Any, tx: Any) -> None:
        """Write the success through the handler's connection."""
        change = await self._prepare(output)
        await self._write(change, tx)

    def succeed_in_thread(self, output: Any, tx: Any) -> None:
        """The same in a thread, with a synchronous connection."""
        change = self._on_loop(self._prepare(output))
        run_without_loop(self._write(change, tx), tx)

    async def confirm(self, tx: Any) -> None:
        """Write the last success again, or one without output: a savepoint may have taken it back."""
        await self._write(self._written or await self._prepare_without_output(), tx)

    def confirm_in_thread(self, tx: Any) -> None:
        """The same in a thread."""
        change = self._written or self._on_loop(self._prepare_without_output())
        run_without_loop(self._write(change, tx), tx)

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Any]:
        """A connection in a transaction, which ends with the block."""
        await self._ends.learn_identity()
        async with self._ends.lent.lend() as connection:
            with self._hold(connection):
                yield connection

    @contextmanager
    def lend_in_thread(self) -> Iterator[Any]:
        """The same in a thread, with a synchronous connection."""
        self._on_loop(self._ends.learn_identity())
        url = self._on_loop(self._ends.lent.find_url())
        with self._ends.lent.lend_in_thread(url) as connection, self._hold(connection):
            yield connection

    @contextmanager
    def _hold(self, connection: Any) -> Iterator[None]:
        if self._lent is not None:
            raise ConnectionNotSupported(
                "This job has a transaction of ctx.tx() already: use its connection."
            )
        self._lent = connection
        try:
            yield
        finally:
            self._lent = None

    def handle_commit(self) -> None:
        """The transaction of a lent connection has committed: the job has ended."""
        self._attempt.has_ended = True

    def handle_rollback(self, tx: Any) -> None:
        """The transaction of a lent connection was rolled back; if its connection is lost, that will be found out."""
        if not tx.broken:
            self._attempt.joined = self._written = None

    async def _prepare_without_output(self) -> Change:
        """Refuse a function that always returns an output: it would do so after the commit, when the job has ended."""
        if self._function is not None and always_returns_value(self._function):
            raise OutputInvalid(
                f"{self._function.__qualname__} declares that it returns a value, but its job ends with the block of ctx.tx(): "
                "a value that is returned afterwards is no output. Nothing is committed. Give the output within the block, with "
                "ctx.succeed(output, tx=connection), or declare `-> None`."
            )
        return await self._prepare(None)

    async def _prepare(self, output: Any) -> Change:
        """The change to write, with the attempt's log and cost until now."""
        self._require_running()
        plain = None if output is None else encode_output(output, MAX_OUTPUT_BYTES)[0]
        await self._ends.prepare(self._attempt)
        outcome: Outcome = Succeeded(plain, self._ctx.cost_cents)
        if self._ctx.mask is not None:
            outcome = self._ctx.mask.outcome(outcome)
        return self._attempt.change(outcome)

    def _require_running(self) -> None:
        """Refuse an attempt that is over or out of time: its handler must roll back."""
        if self._attempt.lost:
            raise self._lost_error()
        if self._ctx.is_over or self._ctx.has_expired:
            raise Stopped

    async def _write(self, change: Change, tx: Any) -> None:
        self._require_running()
        if (
            self._lent is not None
            and getattr(tx, "connection", tx) is not self._lent
            and tx is not self._lent
        ):
            raise ConnectionNotSupported(
                "Within ctx.tx() the job ends in that transaction: give ctx.succeed its connection."
            )
        require_transaction(tx)
        send = build_sender(tx, self._ends.function)
        # from now on a missing lease may mean that the transaction has committed
        self._attempt.joined = self._written = change
        try:
            done = await drive(self._exchange(change), send)
        except Exception as error:
            # the statement failed, and with it the transaction, unless its answer was lost: that will be found out
            require_function(error)
            raise
        if done is None:
            self._attempt.joined = self._written = None
            raise wrong_database()
        if self._attempt.held.lease.job_id not in done:
            self._attempt.joined = self._written = None
            # the lease may be in another cell: it is released there
            self._attempt.lost = True
            raise self._lost_error()

    def _exchange(self, change: Change) -> Exchange[set[Any] | None]:
        ends = [(self._attempt.held.lease, change)]
        return queue.finish_joined(ends, actor=self._ends.actor, database=self._ends.identity)

    def _lost_error(self) -> LeaseLost:
        lease = self._attempt.held.lease
        log.warning("stale_write_refused", **job_log_fields(self._attempt.held.job, self._attempt.worker_id))
        return LeaseLost(
            f"The lease of job {lease.job_id}, attempt {lease.attempt_no}, is lost: another worker may run the job. "
            "Roll back your transaction."
        )

    def _on_loop(self, work: Any) -> Any:
        if self._ctx.loop is None:
            work.close()
            raise Stopped
        return asyncio.run_coroutine_threadsafe(work, self._ctx.loop).result()
