import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlead.db.database import Database
from fairlead.errors import DatabaseUnreachable
from fairlead.model.job import Lease
from fairlead.model.log import LAST_SEQ
from fairlead.runtime.job_source import HeldJob
from fairlead.runtime.log_writer import (
    IDLE_SECONDS,
    IN_TAILS,
    MOST_WAITING,
    PAUSE_SECONDS,
    AttemptOutput,
    LogWriter,
    append_to_database,
)
from fairlead.runtime.store_source import StoreSource
from fairlead.store import logs
from fairlead.store.queue import HeartbeatResult
from tests import given


class Unruly:
    """A database that fails, or waits, when it is told to."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.fails = 0
        self.after_all = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def single(self, work: Callable[..., Awaitable[Any]]) -> Any:
        await self.gate.wait()
        if self.fails:
            self.fails -= 1
            if self.after_all:  # it was written, and the answer was lost
                await self._database.single(work)
            raise DatabaseUnreachable("not now")
        return await self._database.single(work)


@pytest.fixture
async def held(db: Database) -> HeldJob:
    await given.queued_job(db)
    source = StoreSource(db, worker="w", lease_seconds=30)
    [one] = await source.claim(1)
    return one


async def written(db: Database, lease: Lease) -> list[tuple[int, str, str]]:
    async with db.transaction() as tx:
        chunks = await logs.read(tx, lease.job_id, limit=1000)
    return [(chunk.seq, chunk.stream, chunk.text) for chunk in chunks]


async def test_what_is_said_is_written_in_order_and_numbered_without_gaps(
    db: Database, held: HeldJob
) -> None:
    shipper = LogWriter(append_to_database(db))
    for stream, text in [("stdout", "a"), ("stdout", "b"), ("stderr", "c"), ("stdout", "d")]:
        shipper.add(held, stream, text)

    assert await shipper() == IDLE_SECONDS
    shipper.add(held, "stdout", "e")
    await shipper.settle(held.lease)

    assert await written(db, held.lease) == [
        (1, "stdout", "ab"),
        (2, "stderr", "c"),
        (3, "stdout", "d"),
        (4, "stdout", "e"),
    ]


@pytest.mark.parametrize("after_all", [False, True])
async def test_what_could_not_be_written_is_written_later(
    db: Database, held: HeldJob, *, after_all: bool
) -> None:
    unruly = Unruly(db)
    unruly.fails, unruly.after_all = 1, after_all
    shipper = LogWriter(append_to_database(unruly))  # type: ignore[arg-type]
    shipper.add(held, "stdout", "a")
    with pytest.raises(DatabaseUnreachable):
        await shipper()

    shipper.add(held, "stdout", "b")
    await shipper()

    assert await written(db, held.lease) == [(1, "stdout", "a"), (2, "stdout", "b")]


@pytest.mark.parametrize(("fails", "last"), [(0, []), (1, []), (0, ["b"])])
async def test_an_attempt_does_not_end_and_its_last_is_not_written_before_the_write_that_runs(
    db: Database, held: HeldJob, *, fails: int, last: list[str]
) -> None:
    unruly = Unruly(db)
    unruly.gate.clear()
    shipper = LogWriter(append_to_database(unruly))  # type: ignore[arg-type]
    shipper.add(held, "stdout", "a")
    round_ = asyncio.create_task(shipper())
    await asyncio.sleep(0)
    for text in last:
        shipper.add(held, "stdout", text)
    settling = asyncio.create_task(shipper.settle(held.lease))
    await asyncio.sleep(0)
    assert not settling.done()

    unruly.fails = fails
    unruly.gate.set()
    await asyncio.gather(round_, settling, return_exceptions=bool(fails))

    assert await written(db, held.lease) == [(1, "stdout", "a"), *((2, "stdout", text) for text in last)]


async def test_a_short_output_that_nobody_followed_is_left_to_the_tails(db: Database, held: HeldJob) -> None:
    shipper = LogWriter(append_to_database(db))
    shipper.add(held, "stdout", "x" * IN_TAILS)

    await shipper.settle(held.lease)

    assert await written(db, held.lease) == []


async def test_beyond_its_bytes_an_attempt_is_marked_and_written_no_more(db: Database, held: HeldJob) -> None:
    shipper = LogWriter(append_to_database(db))
    shipper.add(held, "stdout", "x" * 90, max_bytes=100)
    await shipper()
    shipper.add(held, "stdout", "y" * 20, max_bytes=100)
    await shipper()
    shipper.add(held, "stdout", "z", max_bytes=100)

    assert await shipper() == IDLE_SECONDS
    assert [seq for seq, _, _ in await written(db, held.lease)] == [1, LAST_SEQ]


async def test_behind_a_database_that_is_slow_the_rest_is_left_out_and_marked(held: HeldJob) -> None:
    said = AttemptOutput(held, 10**9)
    for _ in range(10 * MOST_WAITING // 1000):
        said.add("stdout", "x" * 1000)
    taken = said.take()
    said.add("stdout", "after")

    assert sum(len(chunk.text) for chunk in taken) <= MOST_WAITING
    assert [(chunk.seq, chunk.stream) for chunk in said.chunks] == [
        (len(taken) + 1, "log"),
        (len(taken) + 2, "stdout"),
    ]
    assert "characters were dropped" in said.chunks[0].text


async def test_more_to_write_is_written_soon(db: Database, held: HeldJob) -> None:
    unruly = Unruly(db)
    shipper = LogWriter(append_to_database(unruly))  # type: ignore[arg-type]
    shipper.add(held, "stdout", "a")
    unruly.gate.clear()
    round_ = asyncio.create_task(shipper())
    await asyncio.sleep(0)
    shipper.add(held, "stdout", "b")
    unruly.gate.set()

    assert await round_ == PAUSE_SECONDS
    await shipper.settle(held.lease)


async def test_a_talkative_attempt_is_renewed_at_every_beat(db: Database, held: HeldJob) -> None:
    """Its log is written without a pause; a beat that finds its lease locked would leave it unrenewed."""
    shipper = LogWriter(append_to_database(db))
    source = StoreSource(db, worker="w", lease_seconds=30)

    async def talk() -> None:
        while True:
            shipper.add(held, "stdout", "a line\n")
            await shipper()

    talking = asyncio.create_task(talk())
    beats = [(await source.heartbeat([held.lease]))[held.lease] for _ in range(50)]
    assert not talking.done()
    talking.cancel()
    await asyncio.gather(talking, return_exceptions=True)

    assert beats == [HeartbeatResult()] * 50
