"""Calls in a transaction of the client's own, which also writes a row: the jobs exist exactly if the row does."""

import asyncio
from contextlib import suppress
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from fairlead.chaos import scenario
from fairlead.chaos.load.client_calls import CallFailed, CallResult, CallUnclear, ClientSession
from fairlead.chaos.load.client_jobs import ClientJob
from fairlead.chaos.load.enqueue_calls import build_result
from fairlead.db.direct_connection import connect_directly
from fairlead.db.tx import Tx
from fairlead.library.client import EnqueuedJob

CONNECT_SECONDS = 5.0
MOST_JOBS = 3
# The share of transactions that end with ROLLBACK, and of those that also emit an event.
ROLLBACKS = 0.25
EVENTS = 0.2

_CREATE = """
create table public.chaos_orders (
    id uuid primary key, call_id uuid not null, tenant text not null, at timestamptz not null default clock_timestamp())
"""
_INSERT = "insert into public.chaos_orders (id, call_id, tenant) values (%s, %s, %s)"


async def create_orders_table(tx: Tx) -> None:
    """Create the clients' own table."""
    await tx.run(_CREATE)


class OrderConnection:
    """The client's own connection to the database, opened again after it was lost. One transaction at a time."""

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self._name = name
        self._connection: Any = None
        self.lock = asyncio.Lock()

    async def open(self) -> Any:
        if self._connection is None or self._connection.closed:
            self._connection = await connect_directly(self._url, name=self._name, seconds=CONNECT_SECONDS)
        return self._connection

    async def close(self) -> None:
        """Close it, whatever state it is in: PostgreSQL rolls back what is open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(OSError):
                await connection.close()


class OrderCalls:
    """Places orders over one connection."""

    def __init__(self, session: ClientSession, connection: OrderConnection) -> None:
        self._session = session
        self._connection = connection

    async def place_order(self, session: ClientSession, tenant: str) -> None:
        number = session.chance.randint(1, MOST_JOBS)
        jobs = [session.jobs.choose(tenant, id=uuid7()) for _ in range(number)]
        what: dict[str, Any] = {
            "via": "library",
            "order": uuid7(),
            "jobs": [job.describe() for job in jobs],
            "rollback": session.chance.random() < ROLLBACKS,
            "event": session.chance.random() < EVENTS,
        }

        async def send(call: UUID) -> CallResult:
            async with self._connection.lock:
                return await self._transact(tenant, call, jobs, what)

        answer = await session.call("order", tenant, what, send)
        session.remember(tenant, answer.ids, [job.definition for job in jobs][: len(answer.ids)])

    async def _transact(
        self, tenant: str, call: UUID, jobs: list[ClientJob], what: dict[str, Any]
    ) -> CallResult:
        is_over = is_committing = False
        try:
            connection = await self._connection.open()
            await connection.execute("begin")
            made = await self._write(connection, tenant, call, jobs, what)
            if not what["rollback"]:
                is_committing = True
                await connection.execute("commit")
                is_over = True
                return build_result([one.id for one in made], [one.deduplicated for one in made])
            await connection.execute("rollback")
            is_over = True
        except Exception as error:
            code = type(error).__name__
            raise CallUnclear(code) if is_committing else CallFailed(code) from error
        finally:
            if not is_over:
                await self._connection.close()
        raise CallFailed("rolled_back")

    async def _write(
        self, connection: Any, tenant: str, call: UUID, jobs: list[ClientJob], what: dict[str, Any]
    ) -> list[EnqueuedJob]:
        await connection.execute(_INSERT, [what["order"], call, tenant])
        fl, host_id = self._session.fl, self._session.access.host_id
        new = [job.to_new(tenant, call, n, host_id) for n, job in enumerate(jobs)]
        made = await fl.enqueue_many(new, tx=connection)
        if what["event"]:
            data = {"call": str(call), "n": len(jobs), "seconds": 0.0}
            await fl.emit(
                scenario.EVENT_TYPE, tenant=tenant, data=data, correlation_id=str(call), tx=connection
            )
        return made
