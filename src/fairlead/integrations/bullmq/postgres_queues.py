"""BullMQ's queues in PostgreSQL, through the package `bullmq`."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any

import msgspec
from bullmq.backends import PostgresBackend
from bullmq.backends.postgres_connection import PostgresConnection
from bullmq.flow_producer import MinimalQueue
from bullmq.job import Job

from fairlead.db.database_errors import translate_error
from fairlead.db.listen import Listener
from fairlead.db.sql import queries_beside
from fairlead.errors import EngineUnavailable, FairleadError
from fairlead.integrations.bullmq.queues import EVENTS, LeftCounts, WaitingJob
from fairlead.integrations.bullmq.stored_job import (
    CANCEL_EVENT,
    MOST_LOG_LINES,
    JobRef,
    QueueEvent,
    StoredJob,
    build_options,
)
from fairlead.integrations.engine import Handover

MOST_EVENTS = 1000
READ_AT_ONCE = 200
# How long a read waits for a notification, which may be missed.
WAIT_SECONDS = 1.0
# BullMQ's functions notify this channel of new events.
CHANNEL = "bullmq_events"

sql = queries_beside(__file__)


class _Connection(PostgresConnection):  # type: ignore[misc]  # the package has no annotations
    """A connection that does not create or migrate BullMQ's tables: that is for the workers' release to do."""

    async def wait_until_ready(self) -> None:
        self._ready = True


@asynccontextmanager
async def open_postgres_queues(url: str, schema: str) -> AsyncIterator["PostgresQueues"]:
    """The queues in this schema of a PostgreSQL."""
    connection = _Connection({"connection": url, "schema": schema})
    queues = PostgresQueues(connection, url)
    try:
        await queues.require_tables()
        async with Listener(url, CHANNEL) as listener:
            with listener.subscribe(queues.hear):
                yield queues
    finally:
        await connection.close()


class PostgresQueues:
    def __init__(self, connection: PostgresConnection, url: str) -> None:
        self._connection = connection
        self._url = url
        self._backend = PostgresBackend("fairlead", connection)
        self._watched: set[str] = set()
        self._cursor: int | None = None
        # the events after the cursor that were read before
        self._seen: set[int] = set()
        self._news = asyncio.Event()

    def hear(self, _payload: str) -> None:
        """There are new events."""
        self._news.set()

    @contextmanager
    def _translate(self) -> Iterator[None]:
        try:
            yield
        except FairleadError:
            raise
        except Exception as error:
            found = translate_error(error, self._url)
            if found is None:
                raise
            raise EngineUnavailable(f"BullMQ's PostgreSQL did not answer: {found.message}") from error

    async def _run(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        with self._translate():
            rows: list[dict[str, Any]] = (await self._connection.run(statement, list(values))).maps()
        return rows

    async def require_tables(self) -> None:
        """Raise EngineUnavailable if BullMQ's tables are not there."""
        [[exists]] = [
            row.values() for row in await self._run("select to_regclass('migration') is not null as yes")
        ]
        if not exists:
            raise EngineUnavailable(
                f"The schema {self._connection.schema} has no tables of BullMQ. Create them with BullMQ itself: start a "
                "worker or queue once with `migrate: true` in its connection."
            )

    async def add(self, handovers: Sequence[Handover]) -> None:
        queues = {
            name: MinimalQueue(name, self._backend.forQueue(name))
            for name in {one.queue for one in handovers}
        }
        entries = [
            {
                # BullMQ's function takes the data as a text that has JSON
                "job": Job(
                    queues[one.queue],
                    one.definition_key,
                    msgspec.json.encode(one.payload).decode(),
                    build_options(one),
                )
            }
            for one in handovers
        ]
        with self._translate():
            await self._backend.addFlow(entries)

    async def read(self, refs: Sequence[JobRef]) -> list[StoredJob | None]:
        rows = await self._run(
            sql.read, [ref.queue for ref in refs], [ref.id for ref in refs], MOST_LOG_LINES
        )
        found: list[StoredJob | None] = [None] * len(refs)
        for row in rows:
            state = row["state"] if row["state"] in ("completed", "failed") else "open"
            found[row["at"] - 1] = StoredJob(
                state=state,
                return_value=row["return_value"],
                failed_reason=row["failed_reason"],
                stacktrace=row["stacktrace"],
                log=row["log"],
            )
        return found

    async def take_back(self, ref: JobRef) -> bool | None:
        rows = await self._run(sql.take_back, ref.queue, ref.id)
        return not rows[0]["begun"] if rows and rows[0]["removed"] else None

    async def publish_cancel(self, ref: JobRef) -> None:
        data = msgspec.json.encode({"jobId": ref.id}).decode()
        await self._run("select publish_event($1, $2, $3::jsonb) as id", ref.queue, CANCEL_EVENT, data)

    async def remove(self, refs: Sequence[JobRef]) -> list[bool]:
        # in one order, so that two bridges do not wait for each other
        ordered = sorted(refs)
        rows = await self._run(sql.remove, [ref.queue for ref in ordered], [ref.id for ref in ordered])
        removed = {ordered[row["at"] - 1] for row in rows if row["removed"]}
        return [ref in removed for ref in refs]

    async def watch(self, names: Iterable[str]) -> None:
        if self._cursor is None:
            [row] = await self._run(sql.last_event)
            self._cursor = row["id"]
        if not self._watched.issuperset(names := set(names)):
            self._watched |= names
            self._news.set()

    def unwatch_all_but(self, names: Collection[str]) -> None:
        self._watched.intersection_update(names)

    async def read_events(self) -> Sequence[QueueEvent]:
        self._news.clear()
        if rows := await self._read_new():
            return rows
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), WAIT_SECONDS)
        return await self._read_new()

    async def _read_new(self) -> list[QueueEvent]:
        if self._cursor is None or not self._watched:
            return []
        rows = await self._run(sql.events, sorted(self._watched), self._cursor, MOST_EVENTS)
        new = [row for row in rows if row["id"] not in self._seen]
        self._advance(rows)
        return [
            QueueEvent(JobRef(row["queue"], row["job_id"]), row["event"], row["data"], row["previous"])
            for row in new
            if row["event"] in EVENTS and row["job_id"] is not None
        ]

    def _advance(self, rows: Sequence[dict[str, Any]]) -> None:
        """Move the cursor past the settled events: one with a lower id may be committed after the others."""
        settled = list(takewhile(lambda row: row["settled"], rows))
        if len(rows) == MOST_EVENTS and not settled:
            # a transaction has been open for long; the bridge looks for lost outcomes by itself
            settled = list(rows)
        if settled:
            self._cursor = settled[-1]["id"]
        self._seen = {row["id"] for row in rows[len(settled) :]}

    # For the importer

    async def is_paused(self, queue: str) -> bool:
        with self._translate():
            return bool(await self._backend.forQueue(queue).isPaused())

    async def set_paused(self, queue: str, *, paused: bool) -> None:
        with self._translate():
            await self._backend.forQueue(queue).pause(paused)

    async def count_left(self, queue: str) -> LeftCounts:
        [row] = await self._run(sql.left, queue)
        return LeftCounts(**row)

    async def list_waiting(self, queue: str) -> list[str]:
        return [row["id"] for row in await self._run(sql.waiting, queue)]

    async def read_waiting(self, queue: str, ids: Sequence[str]) -> AsyncIterator[WaitingJob]:
        for start in range(0, len(ids), READ_AT_ONCE):
            for row in await self._run(sql.read_waiting, queue, list(ids[start : start + READ_AT_ONCE])):
                yield _read_waiting(row)


def _read_waiting(row: dict[str, Any]) -> WaitingJob:
    return WaitingJob(
        id=row["id"],
        name=row["name"],
        data=msgspec.json.decode(row["data"]),
        options=msgspec.json.decode(row["opts"]),
        priority=row["priority"],
        created_at=_read_time(row["added_at_ms"]),
        due_at=_read_time(row["process_at_ms"]) if row["is_delayed"] else None,
        attempts_made=row["attempts_made"],
        has_parent=row["has_parent"],
        is_repeated=row["is_repeated"],
    )


def _read_time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
