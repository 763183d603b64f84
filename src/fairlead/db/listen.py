"""One LISTEN connection for all subscribers of a process; reconnects when it is lost."""

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self

import psycopg
import structlog
from psycopg import AsyncConnection, sql

from fairlead.db.addresses import check_address, primary_parameters
from fairlead.db.citus import HOLD, find_node
from fairlead.db.database_errors import describe_failure
from fairlead.db.sql import in_schema
from fairlead.errors import FairleadError

log = structlog.get_logger(__name__)

# The payload for subscribers when notifications may have been missed.
POLL = "poll"
CHECK_SECONDS = 30.0
CONNECT_SECONDS = 10.0
# How often to check that Citus has not moved the schema: then notifications are sent on another node.
NODE_CHECK_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 5.0

Subscriber = Callable[[str], None]


class Listener:
    """Listens to the schema's channel. A notification means only "look now" and may be lost, so every
    subscriber also polls, and gets POLL after each reconnect.
    """

    def __init__(self, url: str, channel: str, *, citus: bool = False) -> None:
        """`citus`: the channel's schema is distributed, and the URL is that of the coordinator."""
        self._url = url
        self._channel = channel
        self._citus = citus
        self._subscribers: list[Subscriber] = []
        self._task: asyncio.Task[None] | None = None
        self.connected = asyncio.Event()

    @contextmanager
    def subscribe(self, subscriber: Subscriber) -> Iterator[None]:
        """Call `subscriber` with each payload until the block ends. It must not block or raise."""
        self._subscribers.append(subscriber)
        try:
            yield
        finally:
            self._subscribers.remove(subscriber)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="fairlead-listen")
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        pause = 0.1
        while True:
            try:
                async with await self._connect() as connection:
                    pause = 0.1
                    await self._listen(connection)
            except (psycopg.Error, OSError, FairleadError) as error:  # a standby, for example, refuses LISTEN
                log.warning("listen_lost", why=describe_failure(error), again_in_seconds=pause)
            finally:
                self.connected.clear()
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _connect(self) -> AsyncConnection[tuple[object, ...]]:
        url = await find_node(self._url, self._channel) if self._citus else self._url
        connection = await AsyncConnection.connect(
            url,
            autocommit=True,
            prepare_threshold=None,
            application_name="fairlead listen",
            **primary_parameters(self._url, seconds=CONNECT_SECONDS),
            keepalives_idle=30,
            keepalives_interval=10,
            keepalives_count=3,
        )
        try:
            await connection.execute(sql.SQL("listen {}").format(sql.Identifier(self._channel)))
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _listen(self, connection: AsyncConnection[tuple[object, ...]]) -> None:
        self.connected.set()
        self._call_subscribers(POLL)
        seconds = NODE_CHECK_SECONDS if self._citus else CHECK_SECONDS
        check: Any = in_schema(HOLD, self._channel) if self._citus else "select 1"
        while True:
            async for notice in connection.notifies(timeout=seconds):
                self._call_subscribers(notice.payload)
            # a dead peer closes nothing: only a query shows it
            async with asyncio.timeout(CHECK_SECONDS):
                await connection.execute(check)

    def _call_subscribers(self, payload: str) -> None:
        for subscriber in list(self._subscribers):
            subscriber(payload)


async def check_round_trip(url: str, channel: str, *, citus: bool = False, seconds: float = 2.0) -> bool:
    """Whether a notification that is sent through this URL arrives through it."""
    check_address(url)
    heard = asyncio.Event()
    if citus:
        url = await find_node(url, channel)
    async with Listener(url, channel) as listener:
        with listener.subscribe(lambda payload: heard.set() if payload == "doctor" else None):
            try:
                async with asyncio.timeout(seconds):
                    await listener.connected.wait()
                    async with await AsyncConnection.connect(
                        url,
                        autocommit=True,
                        prepare_threshold=None,
                        **primary_parameters(url, seconds=CONNECT_SECONDS),
                    ) as other:
                        await other.execute("select pg_notify(%s, 'doctor')", (channel,))
                    await heard.wait()
            except (TimeoutError, psycopg.OperationalError) as error:
                log.info("notification_not_heard", why=str(error))
    return heard.is_set()
