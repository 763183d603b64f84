"""Connections for handlers that end their jobs in a transaction: those of psycopg, from pools of their own.

A handler may hold one for long: the worker's own connections must stay free for claims and ends.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
import psycopg_pool

from fairlead.db.addresses import primary_parameters
from fairlead.db.connection import Connection
from fairlead.db.database import Database
from fairlead.db.database_errors import translate_error
from fairlead.db.session import KEEPALIVES, cancel_seconds
from fairlead.settings import Settings

AsyncPool = psycopg_pool.AsyncConnectionPool[Connection]
ThreadPool = psycopg_pool.ConnectionPool[psycopg.Connection[Any]]


class LentConnections:
    """Lends connections to handlers on the loop and in threads: to each kind at most `pool_size` at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._size = database.settings.pool_size
        # a handler waits here as long as its own timeout allows; the pool waits only for the server
        self._free = asyncio.Semaphore(self._size)
        self._free_in_threads = threading.Semaphore(self._size)
        self._lock = threading.Lock()
        self._pools: dict[str, AsyncPool] = {}
        self._thread_pools: dict[str, ThreadPool] = {}

    async def find_url(self) -> str:
        """The address of the database; of a distributed schema, of the node that holds it now."""
        return await self._database.find_url()

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """A connection during the block, in a transaction that commits at its end, or rolls back on an exception."""
        async with self._free:
            pool = await self._open_pool(await self.find_url())
            try:
                connection = await pool.getconn()
            except psycopg_pool.PoolTimeout as error:
                raise (translate_error(error, self._database.url) or error) from error
            try:
                async with connection.transaction():
                    yield connection
            finally:
                await pool.putconn(connection)

    @contextmanager
    def lend_in_thread(self, url: str) -> Iterator[psycopg.Connection[Any]]:
        """`lend` for a thread."""
        with self._free_in_threads:
            pool = self._open_thread_pool(url)
            try:
                connection = pool.getconn()
            except psycopg_pool.PoolTimeout as error:
                raise (translate_error(error, self._database.url) or error) from error
            try:
                with connection.transaction():
                    yield connection
            finally:
                pool.putconn(connection)

    async def close(self) -> None:
        """Close the connections that are not lent now, and the others when they come back."""
        for pool in self._pools.values():
            await pool.close()
        for threads in self._thread_pools.values():
            await asyncio.to_thread(threads.close)

    async def _open_pool(self, url: str) -> AsyncPool:
        if url not in self._pools:
            pool = self._pools[url] = psycopg_pool.AsyncConnectionPool(
                url,
                connection_class=Connection,
                open=False,
                configure=self._configure,
                check=psycopg_pool.AsyncConnectionPool.check_connection,
                **self._options(url),
            )
            await pool.open()
        return self._pools[url]

    async def _configure(self, connection: Connection) -> None:
        connection.cancel_seconds = cancel_seconds(self._database.settings)

    def _open_thread_pool(self, url: str) -> ThreadPool:
        with self._lock:
            if url not in self._thread_pools:
                self._thread_pools[url] = psycopg_pool.ConnectionPool(
                    url, open=True, check=psycopg_pool.ConnectionPool.check_connection, **self._options(url)
                )
            return self._thread_pools[url]

    def _options(self, url: str) -> dict[str, Any]:
        settings: Settings = self._database.settings
        return {
            "min_size": 0,
            "max_size": self._size,
            "timeout": settings.connect_timeout_seconds,
            "kwargs": {
                # a pooler in transaction mode hands the next transaction another connection
                "prepare_threshold": None if settings.pooled else 5,
                "application_name": "fairlead handler",
                **primary_parameters(url, seconds=settings.connect_timeout_seconds),
                **KEEPALIVES,
            },
            "name": "fairlead-handlers",
        }
