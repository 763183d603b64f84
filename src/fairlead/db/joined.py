"""Send one statement through the caller's own connection, of any supported driver.

The statement takes one text and returns one text, so no driver needs our types. Nothing else
is sent: the caller's role, search_path, settings and transaction stay as they are.
"""

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from typing import Any, TypeVar, cast

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from fairlead.errors import ConnectionNotSupported, DedupeClash, WrongDatabase

T = TypeVar("T")
Send = Callable[[str], Any]
Exchange = Generator[str, str, T]

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
SUPPORTED = (
    "a psycopg connection or cursor (sync or async), a SQLAlchemy Connection, Session, AsyncConnection or "
    "AsyncSession, a Django connection, or an asyncpg connection"
)


def build_sender(tx: Any, function: str) -> Send:
    """A function that calls `function(text) returns text` through `tx`. Its result may be awaitable."""
    for family in (cls.__module__.partition(".")[0] for cls in type(tx).__mro__):
        if (make := _FAMILIES.get(family)) and (send := make(tx, function)):
            return send
    raise ConnectionNotSupported(f"tx= takes {SUPPORTED}; got {type(tx).__module__}.{type(tx).__qualname__}.")


def is_async(tx: Any) -> bool:
    """Whether this connection is asynchronous."""
    execute = getattr(type(tx), "execute", None)
    return inspect.iscoroutinefunction(execute) or type(tx).__module__.startswith("asyncpg")


async def drive(exchange: Exchange[T], send: Send) -> T:
    """Send each text of the exchange through the connection, and await the answer if needed."""
    text = ""
    try:
        text = next(exchange)
        while True:
            answer = send(_to_ascii(text))
            if not isinstance(answer, str) and inspect.isawaitable(answer):  # the first is ten times as fast
                answer = await answer
            text = exchange.send(_to_text(answer))
    except StopIteration as done:
        return cast("T", done.value)
    except Exception as error:
        _raise_clash(error, text)
        raise


def run_without_loop(work: Coroutine[Any, Any, T], tx: Any) -> T:
    """Run a coroutine that only uses this synchronous connection, in a thread without a loop."""
    try:
        if not is_async(tx):
            work.send(None)  # with a synchronous connection there is nothing to wait for
    except StopIteration as done:
        return cast("T", done.value)
    finally:
        work.close()
    raise ConnectionNotSupported(
        f"A {type(tx).__name__} has to be awaited: use the asynchronous Fairlead, or an `async def` function, with it."
    )


def require_transaction(tx: Any) -> None:
    """Refuse a connection that would commit each statement by itself, as far as its driver tells."""
    connection = tx.connection if isinstance(tx, Cursor | AsyncCursor) else tx
    if isinstance(connection, Connection | AsyncConnection):
        alone = connection.autocommit and connection.info.transaction_status is TransactionStatus.IDLE
    elif hasattr(connection, "is_in_transaction"):  # asyncpg
        alone = not connection.is_in_transaction()
    elif hasattr(connection, "in_atomic_block"):  # Django
        alone = connection.get_autocommit() and not connection.in_atomic_block
    else:
        alone = False
    if alone:
        raise ConnectionNotSupported(
            "This connection is in no transaction, so the end would be committed without your changes: begin one first "
            "(`async with connection.transaction():`; in Django `with transaction.atomic():`)."
        )


def require_function(error: BaseException) -> None:
    """Raise WrongDatabase if a statement failed because the database has no such schema or function."""
    if any(state in ("3F000", "42883") for state in _states_of(error)):
        raise wrong_database() from error


def wrong_database() -> WrongDatabase:
    """The error for a transaction of another database than the job's."""
    return WrongDatabase(
        "This transaction is on another database than the job, so they cannot end together. Use a connection of "
        "`ctx.tx()`, or one to the database that `await fl.for_tenant(tenant)` names."
    )


def _states_of(error: BaseException) -> Iterator[str]:
    """The SQLSTATEs of an error and of its causes."""
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if state := getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None):
            yield state
        cause = getattr(cause, "orig", None) or cause.__cause__


def _to_ascii(document: str) -> str:
    """The same JSON in ASCII, which every client_encoding has."""
    return (
        document if document.isascii() else _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], document)
    )


def _to_text(answer: str | bytes) -> str:
    """The answer as text; psycopg does not decode with client_encoding SQL_ASCII."""
    return answer.decode() if isinstance(answer, bytes) else str(answer)


def _raise_clash(error: BaseException, document: str) -> None:
    """Raise DedupeClash if the caller's snapshot is older than a job with a requested key, or a change of it."""
    # without a key the caller's own statements failed, and the driver's error says more
    if "40001" in _states_of(error) and _has_key(json.loads(document)):
        raise DedupeClash(
            "Another transaction enqueued a job with this key after this one took its snapshot "
            "(REPEATABLE READ or SERIALIZABLE). Roll back and run the transaction again."
        ) from error


def _has_key(request: Any) -> bool:
    """Whether this request enqueues a job with a key; other requests are no lists."""
    return isinstance(request, list) and any(job.keys() & {"dedupe_key", "debounce"} for job in request)


# One function for each driver. None: not a connection; an engine or a pool would run the statement in another
# transaction than the caller's.


def _psycopg_sender(tx: Any, function: str) -> Send | None:
    connection: Any = tx.connection if isinstance(tx, Cursor | AsyncCursor) else tx
    query = f"select {function}(%s)"

    # a new plain cursor: the caller's may have unread rows, another row factory or another placeholder style
    def send(text: str) -> Any:
        cursor = Cursor(connection, row_factory=tuple_row)
        cursor.execute(query.encode(), (text,))
        return _fetch_value(cursor)

    def send_async(text: str) -> Any:
        cursor = AsyncCursor(connection, row_factory=tuple_row)
        return _fetch_value_async(cursor.execute(query.encode(), (text,)), cursor)

    if isinstance(connection, Connection):
        return send
    return send_async if isinstance(connection, AsyncConnection) else None


def _fetch_value(cursor: Any) -> Any:
    try:
        return cursor.fetchone()[0]
    finally:
        cursor.close()


async def _fetch_value_async(executed: Awaitable[Any], cursor: Any) -> Any:
    try:
        await executed
        return (await cursor.fetchone())[0]
    finally:
        await cursor.close()


def _sqlalchemy_sender(tx: Any, function: str) -> Send | None:
    if not hasattr(type(tx), "execute"):
        return None
    from sqlalchemy import text as statement  # noqa: PLC0415 - the caller has it, we need not

    query = statement(f"select {function}(cast(:jobs as pg_catalog.text))")

    def send(text: str) -> Any:
        result = tx.execute(query, {"jobs": text})
        return _fetch_scalar_async(result) if inspect.isawaitable(result) else result.scalar_one()

    return send


async def _fetch_scalar_async(result: Awaitable[Any]) -> Any:
    return (await result).scalar_one()


def _django_sender(tx: Any, function: str) -> Send:
    if getattr(tx, "vendor", None) != "postgresql":
        raise ConnectionNotSupported(
            "tx= takes a Django connection to PostgreSQL, such as connections['default']."
        )

    def send(text: str) -> Any:
        with tx.cursor() as cursor:
            cursor.execute(f"select {function}(%s)", [text])
            return cursor.fetchone()[0]

    return send


def _asyncpg_sender(tx: Any, function: str) -> Send | None:
    if not hasattr(tx, "is_in_transaction"):
        return None

    async def send(text: str) -> Any:
        return await tx.fetchval(f"select {function}($1)", text)

    return send


_FAMILIES: dict[str, Callable[[Any, str], Send | None]] = {
    "psycopg": _psycopg_sender,
    "sqlalchemy": _sqlalchemy_sender,
    "django": _django_sender,
    "asyncpg": _asyncpg_sender,
}
