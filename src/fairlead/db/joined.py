"""Sending one statement through a connection that is not ours, whatever driver it is of.

The statement takes one text and answers one text, so no driver has to know our types. Nothing
else is sent: the caller's role, search_path, settings and transaction stay as they are.
"""

import inspect
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar, cast

from psycopg.rows import tuple_row

from fairlead.errors import ConnectionNotSupported, DedupeClash

T = TypeVar("T")
Send = Callable[[str], Any]
Exchange = Generator[str, str, T]

SUPPORTED = (
    "a psycopg connection or cursor (sync or async), a SQLAlchemy Connection, Session, AsyncConnection or "
    "AsyncSession, a Django connection, or an asyncpg connection"
)


def sender(tx: Any, function: str) -> Send:
    """How to call `function(text) returns text` through `tx`. The call's result may be awaitable."""
    for family in (cls.__module__.partition(".")[0] for cls in type(tx).__mro__):
        if make := _FAMILIES.get(family):
            return make(tx, function)
    raise ConnectionNotSupported(
        f"tx= takes {SUPPORTED}; a {type(tx).__module__}.{type(tx).__qualname__} is none of these."
    )


def is_async(tx: Any) -> bool:
    """Whether answers through this connection have to be awaited."""
    return any("Async" in cls.__name__ or cls.__module__.startswith("asyncpg") for cls in type(tx).__mro__)


async def drive(exchange: Exchange[T], send: Send) -> T:
    """Carry each text of the exchange through the connection, awaiting where that is needed."""
    try:
        text = next(exchange)
        while True:
            answer = send(text)
            text = exchange.send(str(await answer if inspect.isawaitable(answer) else answer))
    except StopIteration as done:
        return cast("T", done.value)
    except Exception as error:
        raise_clash(error)
        raise


def drive_sync(exchange: Exchange[T], send: Send) -> T:
    """The same through a synchronous connection."""
    try:
        text = next(exchange)
        while True:
            text = exchange.send(str(send(text)))
    except StopIteration as done:
        return cast("T", done.value)
    except Exception as error:
        raise_clash(error)
        raise


def raise_clash(error: BaseException) -> None:
    """Raise DedupeClash if the caller's snapshot is older than a job with the same dedupe key."""
    cause: BaseException | None = error
    while cause is not None:
        state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        if state == "40001":
            raise DedupeClash(
                "Another transaction enqueued a job with this dedupe key after this one took its snapshot "
                "(REPEATABLE READ or SERIALIZABLE). Roll back and run the transaction again."
            ) from error
        cause = getattr(cause, "orig", None) or cause.__cause__


def _psycopg(tx: Any, function: str) -> Send:
    connection = getattr(tx, "connection", tx)  # a cursor knows its connection

    def send(text: str) -> Any:
        # our own cursor: the caller's may have rows still to be read, or make rows of another shape
        cursor = connection.cursor(row_factory=tuple_row)
        executed = cursor.execute(f"select {function}(%s)", (text,))
        return _first_async(executed, cursor) if inspect.isawaitable(executed) else _first(cursor)

    return send


def _first(cursor: Any) -> Any:
    try:
        return cursor.fetchone()[0]
    finally:
        cursor.close()


async def _first_async(executed: Awaitable[Any], cursor: Any) -> Any:
    try:
        await executed
        return (await cursor.fetchone())[0]
    finally:
        await cursor.close()


def _sqlalchemy(tx: Any, function: str) -> Send:
    from sqlalchemy import text as statement  # noqa: PLC0415 - the caller has it, we need not

    query = statement(f"select {function}(cast(:jobs as text))")

    def send(text: str) -> Any:
        result = tx.execute(query, {"jobs": text})
        return _scalar_async(result) if inspect.isawaitable(result) else result.scalar_one()

    return send


async def _scalar_async(result: Awaitable[Any]) -> Any:
    return (await result).scalar_one()


def _django(tx: Any, function: str) -> Send:
    if getattr(tx, "vendor", None) != "postgresql":
        raise ConnectionNotSupported(
            "tx= takes a Django connection to PostgreSQL, such as connections['default']."
        )

    def send(text: str) -> Any:
        with tx.cursor() as cursor:
            cursor.execute(f"select {function}(%s)", [text])
            return cursor.fetchone()[0]

    return send


def _asyncpg(tx: Any, function: str) -> Send:
    async def send(text: str) -> Any:
        return await tx.fetchval(f"select {function}($1)", text)

    return send


_FAMILIES: dict[str, Callable[[Any, str], Send]] = {
    "psycopg": _psycopg,
    "psycopg_pool": _psycopg,
    "sqlalchemy": _sqlalchemy,
    "django": _django,
    "asyncpg": _asyncpg,
}
