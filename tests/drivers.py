"""Other people's connections: every driver that `tx=` takes, behind one face for the tests.

A caller is always inside a transaction: `commit` and `rollback` end one and begin the next.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from functools import partial
from typing import Any

import asyncpg
import django
import django.conf
import psycopg
from django.db import connection as django_connection
from django.db import connections, transaction
from psycopg import conninfo
from sqlalchemy import Connection, NullPool, create_engine, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from fairlead import Fairlead, JobLease, Settings, sync

# Nobody answers there: whatever works with it never opened a connection of its own.
NOWHERE = Settings(database_url="postgresql://nobody@nowhere.invalid/none", connect_timeout_seconds=1)


@dataclass(frozen=True)
class Hands:
    """What a driver's user does; all of it awaitable, or none of it."""

    tx: Any
    run: Callable[[str], Any]
    commit: Callable[[], Any]
    rollback: Callable[[], Any]


class Caller:
    """Somebody inside a transaction, with a Fairlead that was never opened."""

    def __init__(
        self, hands: Hands, face: Fairlead | sync.Fairlead, do: Callable[..., Awaitable[Any]]
    ) -> None:
        self.tx = hands.tx
        self.commit = partial(do, hands.commit)
        self.rollback = partial(do, hands.rollback)
        self.run = partial(do, hands.run)
        self.emit = partial(do, partial(face.emit, tx=hands.tx))
        self.enqueue = partial(do, partial(face.enqueue, tx=hands.tx))
        self.enqueue_many = partial(do, partial(face.enqueue_many, tx=hands.tx))
        self.show = partial(do, partial(face.show, tx=hands.tx))
        self._do = do
        self._face = face

    async def succeed(self, lease: JobLease, output: Any) -> Any:
        """End a job in the transaction."""
        one = sync.JobLease(self._face, lease) if isinstance(self._face, sync.Fairlead) else lease
        return await self._do(partial(one.succeed, output, tx=self.tx))


@asynccontextmanager
async def caller(driver: str, url: str, settings: Settings = NOWHERE) -> AsyncIterator[Caller]:
    """A caller with this driver: synchronous ones in a thread, where no loop runs."""
    if driver in ASYNCHRONOUS:
        async with ASYNCHRONOUS[driver](url) as hands:
            yield Caller(hands, Fairlead(settings=settings, actor="shop"), _await)
        return
    with ThreadPoolExecutor(1) as thread:
        do = partial(asyncio.get_running_loop().run_in_executor, thread)
        opened = SYNCHRONOUS[driver](url)
        hands = await do(opened.__enter__)
        try:
            face = sync.Fairlead(settings=settings, actor="shop")
            yield Caller(hands, face, lambda work, *args, **named: do(partial(work, *args, **named)))
        finally:
            await do(opened.__exit__, None, None, None)


async def _await(work: Callable[..., Awaitable[Any]], *args: Any, **named: Any) -> Any:
    return await work(*args, **named)


def keywords(url: str) -> dict[str, Any]:
    """The address as asyncpg takes it."""
    parts = conninfo.conninfo_to_dict(url)
    parts["database"] = parts.pop("dbname")
    return parts


# psycopg


def _psycopg(
    pick: Callable[[psycopg.Connection[Any]], Any],
) -> Callable[[str], AbstractContextManager[Hands]]:
    @contextmanager
    def opened(url: str) -> Iterator[Hands]:
        connection = psycopg.connect(url)

        def run(query: str) -> Any:
            cursor = connection.execute(query.encode())
            return cursor.fetchall() if cursor.description else []

        try:
            yield Hands(pick(connection), run, connection.commit, connection.rollback)
        finally:
            connection.close()

    return opened


def _psycopg_async(
    pick: Callable[[psycopg.AsyncConnection[Any]], Any],
) -> Callable[[str], AbstractAsyncContextManager[Hands]]:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Hands]:
        # a pooler in transaction mode may hand the next transaction another connection
        connection = await psycopg.AsyncConnection.connect(url, prepare_threshold=None)

        async def run(query: str) -> Any:
            cursor = await connection.execute(query.encode())
            return await cursor.fetchall() if cursor.description else []

        try:
            yield Hands(pick(connection), run, connection.commit, connection.rollback)
        finally:
            await connection.close()

    return opened


# asyncpg


@asynccontextmanager
async def _in_asyncpg(connection: Any) -> AsyncIterator[Hands]:
    current = connection.transaction()
    await current.start()

    async def end(how: str) -> None:
        nonlocal current
        await getattr(current, how)()
        current = connection.transaction()
        await current.start()

    async def run(query: str) -> Any:
        return [tuple(row) for row in await connection.fetch(query)]

    try:
        yield Hands(connection, run, partial(end, "commit"), partial(end, "rollback"))
    finally:
        await current.rollback()


@asynccontextmanager
async def _asyncpg(url: str) -> AsyncIterator[Hands]:
    connection = await asyncpg.connect(**keywords(url), statement_cache_size=0)
    try:
        async with _in_asyncpg(connection) as hands:
            yield hands
    finally:
        await connection.close()


@asynccontextmanager
async def _asyncpg_pool(url: str) -> AsyncIterator[Hands]:
    async with (
        asyncpg.create_pool(**keywords(url), min_size=1, max_size=1) as pool,
        pool.acquire() as proxy,
        _in_asyncpg(proxy) as hands,
    ):
        yield hands


# SQLAlchemy


def _sqlalchemy(kind: type[Connection | Session]) -> Callable[[str], AbstractContextManager[Hands]]:
    @contextmanager
    def opened(url: str) -> Iterator[Hands]:
        engine = create_engine(
            "postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=NullPool
        )
        with Session(engine) if issubclass(kind, Session) else engine.connect() as tx:

            def run(query: str) -> Any:
                result: Any = tx.execute(text(query))
                return result.all() if result.returns_rows else []

            yield Hands(tx, run, tx.commit, tx.rollback)

    return opened


def _sqlalchemy_async(
    driver: str, kind: type[AsyncConnection | AsyncSession]
) -> Callable[[str], AbstractAsyncContextManager[Hands]]:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Hands]:
        async def connect() -> Any:
            if driver == "asyncpg":
                return await asyncpg.connect(**keywords(url))
            return await psycopg.AsyncConnection.connect(url)

        engine = create_async_engine(f"postgresql+{driver}://", async_creator=connect, poolclass=NullPool)
        async with AsyncSession(engine) if issubclass(kind, AsyncSession) else engine.connect() as tx:

            async def run(query: str) -> Any:
                result: Any = await tx.execute(text(query))
                return result.all() if result.returns_rows else []

            yield Hands(tx, run, tx.commit, tx.rollback)

    return opened


# Django


def _django(pick: Callable[[], Any]) -> Callable[[str], AbstractContextManager[Hands]]:
    @contextmanager
    def opened(url: str) -> Iterator[Hands]:
        if not django.conf.settings.configured:
            django.conf.settings.configure(
                DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}}, LOGGING_CONFIG=None
            )
            django.setup()
        parts = conninfo.conninfo_to_dict(url)
        names = {"NAME": "dbname", "USER": "user", "HOST": "host", "PORT": "port"}
        # each thread makes its connection from these when it first asks for one
        connections.settings["default"].update({name: parts[key] for name, key in names.items()})
        current = transaction.atomic()
        current.__enter__()

        def end(*, undo: bool) -> None:
            nonlocal current
            if undo:
                transaction.set_rollback(True)
            current.__exit__(None, None, None)
            current = transaction.atomic()
            current.__enter__()

        def run(query: str) -> Any:
            with django_connection.cursor() as cursor:
                cursor.execute(query)
                return cursor.fetchall() if cursor.description else []

        try:
            yield Hands(pick(), run, partial(end, undo=False), partial(end, undo=True))
        finally:
            transaction.set_rollback(True)
            current.__exit__(None, None, None)
            connections.close_all()

    return opened


SYNCHRONOUS: dict[str, Callable[[str], AbstractContextManager[Hands]]] = {
    "psycopg-connection": _psycopg(lambda connection: connection),
    "psycopg-cursor": _psycopg(lambda connection: connection.cursor()),
    "sqlalchemy-connection": _sqlalchemy(Connection),
    "sqlalchemy-session": _sqlalchemy(Session),
    "django-connection": _django(lambda: django_connection),
    "django-wrapper": _django(lambda: connections["default"]),
}
ASYNCHRONOUS: dict[str, Callable[[str], AbstractAsyncContextManager[Hands]]] = {
    "psycopg-async-connection": _psycopg_async(lambda connection: connection),
    "psycopg-async-cursor": _psycopg_async(lambda connection: connection.cursor()),
    "sqlalchemy-async-connection-psycopg": _sqlalchemy_async("psycopg", AsyncConnection),
    "sqlalchemy-async-connection-asyncpg": _sqlalchemy_async("asyncpg", AsyncConnection),
    "sqlalchemy-async-session-psycopg": _sqlalchemy_async("psycopg", AsyncSession),
    "sqlalchemy-async-session-asyncpg": _sqlalchemy_async("asyncpg", AsyncSession),
    "asyncpg-connection": _asyncpg,
    "asyncpg-pool": _asyncpg_pool,
}
DRIVERS = [*SYNCHRONOUS, *ASYNCHRONOUS]
