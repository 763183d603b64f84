"""A connection that sends frequent statements without a cursor, and notifications with them."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache, cached_property, partial
from itertools import count
from typing import Any, TypeVar

import structlog
from psycopg import AsyncConnection, AsyncTransaction, abc
from psycopg import errors as pg
from psycopg.adapt import PyFormat, Transformer
from psycopg.generators import execute, fetch_many, send
from psycopg.pq import ConnStatus, ExecStatus, PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.rows import TupleRow

from fairlead.db.answer_reader import INTERVAL_SECONDS, Answers

log = structlog.get_logger(__name__)

Params = Mapping[str, Any] | tuple[Any, ...] | list[Any]
Command = Callable[[], None]
Statement = tuple[str, Params]
T = TypeVar("T")

# No more statements are prepared, which bounds the plans that a server process keeps.
MOST_PREPARED = 100
BEGIN_SNAPSHOT = b"begin isolation level repeatable read"
NOTIFY = b"select pg_notify($1, $2)"
FAILED = ExecStatus.FATAL_ERROR
_AUTO = [PyFormat.AUTO]
INTERRUPTIONS = (asyncio.CancelledError, KeyboardInterrupt, SystemExit)

_PLACEHOLDER = re.compile(r"%(?:\((\w+)\))?s|%%")


class Connection(AsyncConnection[TupleRow]):
    """Runs statements without a cursor: for a small statement, a cursor costs as much as the server's work."""

    # how long an interruption waits for the cancel of its statement, and then for its end: see session.py
    cancel_seconds = 5.0
    _leaves_statement = False

    async def run(
        self,
        query: str,
        params: Params,
        *,
        channel: str = "",
        words: Sequence[str] = (),
        first: str | None = None,
    ) -> list[TupleRow]:
        """Run one statement and return its rows; notify the channel with each word after its commit.

        `first` is a statement that runs before it, in the same transaction and the same round trip.

        The notifications follow the statement in the pipeline, each in its own transaction: listeners get them before the
        client has read the answer. They are sent also if the statement fails.
        """
        await self.lock.acquire()  # `async with` would take twice as long
        try:
            command = await self._build_command(query, params)
            if words or first is not None:
                commands = [] if first is None else [await self._build_command(first)]
                notifications = [self._build_notification(channel, word) for word in words]
                result = await self._run_and_notify([*commands, command], notifications)
            else:
                command()
                [result, *_] = await self.wait(execute(self.pgconn))
            return self._load_rows(result)
        finally:
            self.lock.release()

    async def run_all(self, statements: Sequence[Statement]) -> list[list[dict[str, Any]]]:
        """Run statements of a transaction in one round trip. The rows of each, by the names of their columns."""
        commands, ends = list[Command](), list[int]()
        # those to prepare: their names, and which command does it
        new: dict[tuple[str, Any], tuple[bytes, int]] = {}
        async with self.lock:
            for query, params in statements:
                text, types, dumped, formats = self._dump(query, params)
                name = self._names.get((text, types)) or new.get((text, types), (None,))[0]
                if name is None and (name := self._choose_name(len(new))) is not None:
                    new[text, types] = name, len(commands)
                    commands.append(partial(self.pgconn.send_prepare, name, text.encode(), types))
                commands.append(self._build_send(name, text, types, dumped, formats))
                ends.append(len(commands) - 1)
            results = await self._run_pipeline([commands])
            for key, (name, number) in new.items():  # they stay prepared if a later statement fails
                if number < len(results) and results[number].status == ExecStatus.COMMAND_OK:
                    self._names[key] = name
            self._check(_find_failed_or_last(results))
            return [self._load_dicts(results[end]) for end in ends]

    @asynccontextmanager
    async def begin(self, *statements: Statement, snapshot: bool = False) -> AsyncIterator[list[TupleRow]]:
        """A transaction that begins with these statements, in the same round trip. The rows of the last one.

        With `snapshot` all its statements see the same state of the database.
        """
        begin_text = BEGIN_SNAPSHOT if snapshot else self._get_tx_start_command()
        begin = partial(self.pgconn.send_query_params, begin_text, None)
        async with self.lock:
            commands = [await self._build_command(*statement) for statement in statements]
        transaction = _TransactionBegun(self, [begin, *commands])
        async with transaction:
            yield self._load_rows(_find_failed_or_last(transaction.results))

    async def wait(
        self,
        gen: abc.PQGen[T],
        interval: float = INTERVAL_SECONDS,
        timeout: float | None = None,  # noqa: ASYNC109 - as psycopg has it
    ) -> T:
        """Psycopg's `wait` with our own reader. An interruption also cancels the statement on the server."""
        answers = self._answers
        if timeout is not None or interval != INTERVAL_SECONDS:
            answers.forget_socket()
            return await super().wait(gen, interval, timeout)
        try:
            return await answers.read(gen)
        except INTERRUPTIONS:
            answers.forget_socket()
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE and not self._leaves_statement:
                await self._cancel_statement(gen)
            raise

    def leave_statement_running(self) -> None:
        """Let an interruption close the connection only, without a cancel request.

        For a statement that outlasted the server's own timeout: its commit waits for a synchronous standby, and a cancel
        would end this wait and make the commit visible before the standby has it.
        """
        self._leaves_statement = True

    async def close(self) -> None:
        self._answers.close()
        await super().close()

    async def _cancel_statement(self, gen: abc.PQGen[Any]) -> None:
        is_told = True
        try:
            await self.cancel_safe(timeout=self.cancel_seconds)
        except pg.Error as error:
            is_told = False
            log.warning("statement_not_canceled", why=str(error))
        # not asyncio.timeout: in a task that is being cancelled, Python before 3.11.4 takes its end for another cancel
        reading = asyncio.ensure_future(self._answers.read(gen))
        await asyncio.wait([reading], timeout=self.cancel_seconds)
        if reading.done():
            reading.exception()  # usually QueryCanceled; the caller gets the interruption
        else:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        if reading.cancelled() or not is_told:
            # a late answer would be taken for the answer to the next statement, and a late cancel would end that one
            await self.close()

    @cached_property
    def _answers(self) -> Answers:
        return Answers(self.pgconn)

    @cached_property
    def _transformer(self) -> abc.Transformer:
        return Transformer(self)

    @cached_property
    def _names(self) -> dict[tuple[str, Any], bytes]:
        """The names of the statements that are prepared on the server."""
        return {}

    @cached_property
    def _numbers(self) -> Iterator[int]:
        return count()

    def _deallocate(self, name: bytes | None) -> Generator[Any, Any, None]:
        """Psycopg drops every prepared statement, ours too, when a transaction is rolled back."""
        if name is None:
            self._names.clear()
        return super()._deallocate(name)

    async def _prepare(self, text: str, types: tuple[int, ...]) -> bytes | None:
        """Prepare a statement, and return its name there; None if it may not be prepared."""
        name = self._choose_name()
        if name is None:
            return None
        self.pgconn.send_prepare(name, text.encode(), types)
        [result, *_] = await self.wait(execute(self.pgconn))
        self._check(result)
        self._names[text, types] = name
        return name

    def _choose_name(self, beside: int = 0) -> bytes | None:
        """The name of the next statement to prepare; None if there are enough, with the `beside` that are prepared with it."""
        if self.prepare_threshold is None or len(self._names) + beside >= MOST_PREPARED:
            return None
        return b"fairlead_%d" % next(self._numbers)

    def _check(self, result: PGresult) -> None:
        if result.status == FAILED:
            raise pg.error_from_result(result, encoding=self.info.encoding)

    def _load_rows(self, result: PGresult) -> list[TupleRow]:
        self._check(result)
        self._transformer.set_pgresult(result)
        return self._transformer.load_rows(0, result.ntuples, tuple)

    def _load_dicts(self, result: PGresult) -> list[dict[str, Any]]:
        encoding = self.info.encoding
        names = [(result.fname(index) or b"").decode(encoding) for index in range(result.nfields)]
        return [dict(zip(names, row, strict=True)) for row in self._load_rows(result)]

    async def _build_command(self, query: str, params: Params = ()) -> Command:
        text, types, dumped, formats = self._dump(query, params)
        name = self._names.get((text, types)) or await self._prepare(text, types)
        return self._build_send(name, text, types, dumped, formats)

    def _dump(self, query: str, params: Params) -> tuple[str, tuple[int, ...], Any, Any]:
        """The text of a statement, and the types, the values and the formats of its parameters."""
        text, names = number_placeholders(query)
        values = params if isinstance(params, tuple | list) else [params[name] for name in names]
        dumped = self._transformer.dump_sequence(values, _AUTO * len(values))
        return text, self._transformer.types or (), dumped, self._transformer.formats

    def _build_send(
        self, name: bytes | None, text: str, types: tuple[int, ...], dumped: Any, formats: Any
    ) -> Command:
        if name:
            return partial(self.pgconn.send_query_prepared, name, dumped, formats)
        return partial(self.pgconn.send_query_params, text.encode(), dumped, types, formats)

    def _build_notification(self, channel: str, word: str) -> Command:
        return partial(self.pgconn.send_query_params, NOTIFY, [channel.encode(), word.encode()])

    async def _run_pipeline(self, transactions: Sequence[Sequence[Command]]) -> list[PGresult]:
        try:
            return await self.wait(_run_pipeline(self.pgconn, transactions))
        except BaseException:
            if self.pgconn.pipeline_status != PipelineStatus.OFF:
                # a late answer would be taken for the answer to the next statement
                await self.close()
            raise

    async def _run_and_notify(self, commands: list[Command], notifications: list[Command]) -> PGresult:
        results = await self._run_pipeline([commands, *([one] for one in notifications)])
        done, sent = results[: len(commands)], results[len(commands) :]
        result = _find_failed_or_last(done)
        for one in sent:
            if one.status == FAILED:  # each listener also polls
                log.debug("notification_not_sent", why=one.get_error_message().strip())
        return result


class _TransactionBegun(AsyncTransaction):
    """A transaction whose first statements are sent with its BEGIN."""

    results: Sequence[PGresult] = ()

    def __init__(self, connection: Connection, commands: Sequence[Command]) -> None:
        super().__init__(connection)
        self._commands = commands

    def _enter_gen(self) -> Generator[Any, Any, None]:
        self.status = self.Status.ACTIVE
        self._push_savepoint()
        self.results = yield from _run_pipeline(self.pgconn, [self._commands])


def _find_failed_or_last(results: Sequence[PGresult]) -> PGresult:
    """The result that matters: after an error the rest of a transaction is not run."""
    return next((result for result in results if result.status == FAILED), results[-1])


def _run_pipeline(
    line: PGconn, transactions: Sequence[Sequence[Command]]
) -> Generator[Any, Any, list[PGresult]]:
    """Send all commands at once, those of a transaction together, and read their answers."""
    line.enter_pipeline_mode()
    for commands in transactions:
        for command in commands:
            command()
        line.pipeline_sync()
    yield from send(line)
    results: list[PGresult] = []
    for commands in transactions:
        for _ in commands:
            results += yield from fetch_many(line)
        yield from fetch_many(line)  # the answer to the sync
        if line.status == ConnStatus.BAD:
            return results
    line.exit_pipeline_mode()
    return results


@cache
def number_placeholders(query: str) -> tuple[str, tuple[str, ...]]:
    """The statement with numbered placeholders ($1), and the parameters' names in that order."""
    names: list[str] = []
    numbers = count(1)

    def number(found: re.Match[str]) -> str:
        if found.group() == "%%":
            return "%"
        name = found.group(1)
        if name is None:
            return f"${next(numbers)}"
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    return _PLACEHOLDER.sub(number, query), tuple(names)
