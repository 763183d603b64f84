"""BullMQ's queues in Redis, through the package `bullmq` and redis-py."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Collection, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
from bullmq.backends import RedisBackend
from bullmq.flow_producer import MinimalQueue
from bullmq.job import Job
from bullmq.redis_connection import RedisConnection
from redis.asyncio import Redis
from redis.exceptions import RedisError, WatchError

from fairlead.errors import EngineUnavailable
from fairlead.integrations.bullmq.queues import EVENTS, WAIT_SECONDS, LeftCounts, WaitingJob
from fairlead.integrations.bullmq.stored_job import (
    CANCEL_EVENT,
    MOST_LOG_LINES,
    JobRef,
    QueueEvent,
    StoredJob,
    build_options,
)
from fairlead.integrations.engine import Handover

CONNECT_SECONDS = 5
ANSWER_SECONDS = 15
MOST_EVENTS = 1000
# What BullMQ itself keeps of a queue's events, unless told otherwise.
KEPT_EVENTS = 10_000
ROUNDS = 10
# A delayed job's score is its due time in milliseconds, times this, plus a counter.
SCORE_FACTOR = 0x1000
READ_AT_ONCE = 200

_FIELDS = ("timestamp", "returnvalue", "failedReason", "stacktrace")
# A worker has begun the job if one of these is set. BullMQ before 5.0 has no `ats`.
_BEGUN = ("ats", "processedOn")


@contextmanager
def _translate() -> Iterator[None]:
    try:
        yield
    except (RedisError, OSError) as error:
        # names the host and the port, never the password
        raise EngineUnavailable(f"BullMQ's Redis did not answer: {error}") from error


@asynccontextmanager
async def open_redis_queues(url: str, prefix: str) -> AsyncIterator["RedisQueues"]:
    """The queues of a Redis whose keys begin with this prefix."""
    redis = Redis.from_url(
        url,
        decode_responses=True,
        socket_connect_timeout=CONNECT_SECONDS,
        socket_timeout=ANSWER_SECONDS,
        client_name="fairlead",
        protocol=2,  # the newer one has other answers
    )
    try:
        with _translate():
            await _wait(redis.ping())
        yield RedisQueues(redis, prefix)
    finally:
        await redis.aclose()


async def _wait(answer: Any) -> Any:
    """The answer of redis-py, whose annotations also allow for its synchronous client."""
    return await cast("Awaitable[Any]", answer)


class RedisQueues:
    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._backend = RedisBackend("fairlead", RedisConnection(redis), prefix=prefix)
        # the last entry read of the events of each watched queue
        self._cursors: dict[str, str] = {}

    def _queue(self, name: str) -> RedisBackend:
        return self._backend.forQueue(name)

    def _key(self, ref: JobRef) -> str:
        return str(self._queue(ref.queue).toKey(ref.id))

    async def add(self, handovers: Sequence[Handover]) -> None:
        queues = {name: MinimalQueue(name, self._queue(name)) for name in {one.queue for one in handovers}}
        entries = [
            {"job": Job(queues[one.queue], one.definition_key, one.payload, build_options(one))}
            for one in handovers
        ]
        with _translate():
            await self._backend.addFlow(entries)

    async def read(self, refs: Sequence[JobRef]) -> list[StoredJob | None]:
        with _translate():
            async with self._redis.pipeline(transaction=True) as pipe:
                for ref in refs:
                    keys = self._queue(ref.queue)
                    pipe.hmget(keys.toKey(ref.id), _FIELDS)
                    pipe.zscore(keys.toKey("completed"), ref.id)
                    pipe.zscore(keys.toKey("failed"), ref.id)
                    pipe.lrange(keys.toKey(f"{ref.id}:logs"), -MOST_LOG_LINES, -1)
                answers = await pipe.execute()
        return [_read_job(*answers[start : start + 4]) for start in range(0, len(answers), 4)]

    async def take_back(self, ref: JobRef) -> bool | None:
        with _translate():
            for _ in range(ROUNDS):
                try:
                    return await self._try_take_back(ref)
                except WatchError:  # a worker has begun or finished it: look again
                    continue
        return None

    async def _try_take_back(self, ref: JobRef) -> bool | None:
        keys = self._queue(ref.queue)
        async with self._redis.pipeline(transaction=True) as pipe:
            await pipe.watch(self._key(ref))
            made, finished, *begun = await _wait(
                pipe.hmget(self._key(ref), ["timestamp", "finishedOn", *_BEGUN])
            )
            if made is None or finished is not None:
                return None
            pipe.multi()  # type: ignore[no-untyped-call]
            await self._remove_with(pipe, keys, ref.id)
            [removed] = await pipe.execute()
        return not any(begun) if removed else None

    async def _remove_with(self, pipe: Any, keys: RedisBackend, job_id: str) -> None:
        """What `keys.remove` does, in a pipeline. The script removes nothing that a worker has locked."""
        script = keys.scripts.commands["removeJob"]
        await script(
            keys=[keys.toKey(job_id), keys.keys["repeat"]], args=[job_id, 0, keys.keys[""]], client=pipe
        )

    async def publish_cancel(self, ref: JobRef) -> None:
        with _translate():
            await self._redis.xadd(
                self._queue(ref.queue).keys["events"],
                {"event": CANCEL_EVENT, "jobId": ref.id},
                maxlen=KEPT_EVENTS,
                approximate=True,
            )

    async def remove(self, refs: Sequence[JobRef]) -> list[bool]:
        if not refs:
            return []
        with _translate():
            async with self._redis.pipeline(transaction=True) as pipe:
                for ref in refs:
                    pipe.exists(self._key(ref))  # the script answers 1 for a job that is not there, too
                    await self._remove_with(pipe, self._queue(ref.queue), ref.id)
                answers = await pipe.execute()
        return [answers[place : place + 2] == [1, 1] for place in range(0, len(answers), 2)]

    async def watch(self, names: Iterable[str]) -> None:
        new = [name for name in names if name not in self._cursors]
        if not new:
            return
        with _translate():
            async with self._redis.pipeline(transaction=False) as pipe:
                for name in new:
                    pipe.xrevrange(self._queue(name).keys["events"], count=1)
                answers = await pipe.execute()
        for name, last in zip(new, answers, strict=True):
            self._cursors[name] = last[0][0] if last else "0-0"

    def unwatch_all_but(self, names: Collection[str]) -> None:
        self._cursors = {name: cursor for name, cursor in self._cursors.items() if name in names}

    async def read_events(self) -> Sequence[QueueEvent]:
        if not self._cursors:
            await asyncio.sleep(WAIT_SECONDS)
            return []
        streams = {str(self._queue(name).keys["events"]): name for name in self._cursors}
        cursors = {key: self._cursors[name] for key, name in streams.items()}
        with _translate():
            answer = await _wait(
                self._redis.xread(cast("Any", cursors), count=MOST_EVENTS, block=int(WAIT_SECONDS * 1000))
            )
        events = []
        for key, entries in answer or []:
            queue = streams[key]
            if queue in self._cursors:
                self._cursors[queue] = entries[-1][0]
            events += [
                QueueEvent(
                    JobRef(queue, entry["jobId"]), entry["event"], entry.get("data"), entry.get("prev")
                )
                for _, entry in entries
                if entry.get("event") in EVENTS and "jobId" in entry
            ]
        return events

    # For the importer

    async def is_paused(self, queue: str) -> bool:
        with _translate():
            return bool(await self._queue(queue).isPaused())

    async def set_paused(self, queue: str, *, paused: bool) -> None:
        with _translate():
            await self._queue(queue).pause(paused)

    async def count_left(self, queue: str) -> LeftCounts:
        with _translate():
            active, children = await self._queue(queue).getCounts(["active", "waiting-children"])
            schedulers = await self._queue(queue).getJobSchedulersCount()
        return LeftCounts(active=active, waiting_children=children, schedulers=schedulers)

    async def list_waiting(self, queue: str) -> list[str]:
        found: dict[str, None] = {}
        with _translate():
            # `paused` has the jobs of a queue that BullMQ before 6.0 paused
            for state in ("paused", "wait", "prioritized", "delayed"):
                ids = await self._queue(queue).getRanges([state], 0, -1, True)
                # before 5.0, a marker such as 0:1700000000000 could be among them
                found |= dict.fromkeys(one for one in ids if not one.startswith("0:"))
        return list(found)

    async def read_waiting(self, queue: str, ids: Sequence[str]) -> AsyncIterator[WaitingJob]:
        keys = self._queue(queue)
        for start in range(0, len(ids), READ_AT_ONCE):
            some = ids[start : start + READ_AT_ONCE]
            with _translate():
                async with self._redis.pipeline(transaction=True) as pipe:
                    for one in some:
                        pipe.hgetall(keys.toKey(one))
                        pipe.zscore(keys.toKey("delayed"), one)
                    answers = await pipe.execute()
            for place, one in enumerate(some):
                fields, score = answers[2 * place : 2 * place + 2]
                if fields:
                    yield _read_waiting(one, fields, score)


def _read_job(
    fields: Sequence[str | None], completed: float | None, failed: float | None, log: Sequence[str]
) -> StoredJob | None:
    made, returned, reason, stacktrace = fields
    if made is None:
        return None
    state = "completed" if completed is not None else "failed" if failed is not None else "open"
    return StoredJob(state=state, return_value=returned, failed_reason=reason, stacktrace=stacktrace, log=log)


def _read_waiting(job_id: str, fields: dict[str, str], score: float | None) -> WaitingJob:
    return WaitingJob(
        id=job_id,
        name=fields.get("name", ""),
        data=msgspec.json.decode(fields.get("data") or "{}"),
        options=msgspec.json.decode(fields.get("opts") or "{}"),
        priority=int(fields.get("priority") or 0),
        created_at=_read_time(int(fields.get("timestamp") or 0)),
        due_at=None if score is None else _read_time(int(score) // SCORE_FACTOR),
        attempts_made=int(fields.get("atm") or fields.get("attemptsMade") or 0),
        has_parent="parentKey" in fields or "parent" in fields,
        is_repeated="rjk" in fields,
    )


def _read_time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
