"""Streaming of functions' logs, round by round."""

import asyncio
from contextlib import suppress

import msgspec
import pytest

from fairlead.db.database import Database
from fairlead.errors import DatabaseUnreachable
from fairlead.handlers.attempt import AttemptContext
from fairlead.model.outcome import Outcome, Succeeded
from fairlead.runtime.function_logs import MOST_STREAMED, FunctionLogs
from fairlead.runtime.job_source import HeldJob
from fairlead.runtime.log_writer import LogWriter, append_to_database
from fairlead.runtime.store_source import StoreSource
from fairlead.runtime.worker_attempt import WorkerAttempt
from fairlead.store import logs
from tests import given
from tests.handlers.attempts import context
from tests.runtime.test_log_writer import Unruly
from tests.waiting import eventually, until_somebody_waits


class Running:
    """Attempts that log, over a database that fails or waits when it is told to."""

    def __init__(self, db: Database, helds: list[HeldJob]) -> None:
        self.db = db
        self.unruly = Unruly(db)
        self.writer = LogWriter(append_to_database(self.unruly))  # type: ignore[arg-type]
        self.ended: list[Outcome] = []
        self.attempts = [WorkerAttempt(held, lambda _, outcome: self.ended.append(outcome)) for held in helds]
        for attempt in self.attempts:
            attempt.run = context()
        self.logs = FunctionLogs(
            lambda: [one for one in self.attempts if one.run is not None and one.run.is_logging], self.writer
        )

    def context(self, number: int = 0) -> AttemptContext:
        run = self.attempts[number].run
        assert isinstance(run, AttemptContext)
        return run

    async def rounds(self, number: int = 2) -> None:
        for _ in range(number):
            await self.logs()
        await self.writer()

    async def end(self, number: int = 0) -> None:
        self.context(number).close()
        self.attempts[number].handle_end(Succeeded(None))
        await eventually(lambda: self.ended, "the end of the attempt")

    async def events(self, number: int = 0) -> list[str]:
        async with self.db.transaction() as tx:
            chunks = await logs.read(tx, self.attempts[number].held.lease.job_id, limit=1000)
        lines = "".join(chunk.text for chunk in chunks).splitlines()
        return [line.split()[2] for line in lines]


@pytest.fixture
async def running(db: Database) -> Running:
    async with db.transaction() as tx:
        for _ in range(3):
            await given.queued_job(tx)
    return Running(db, await StoreSource(db, worker="w", lease_seconds=30).claim(3))


async def test_an_attempt_that_ends_in_its_first_round_is_left_to_its_end(running: Running) -> None:
    running.context().log.info("one")
    await running.rounds(1)
    running.context().close()
    await running.rounds()

    assert await running.events() == []


def count_statements(running: Running) -> list[object]:
    """What is sent to the database from now on."""
    sent: list[object] = []
    append = running.unruly.single

    async def count(work: object) -> object:
        sent.append(work)
        return await append(work)  # type: ignore[arg-type]

    running.unruly.single = count  # type: ignore[method-assign]
    return sent


async def test_new_lines_of_all_attempts_are_one_statement(running: Running) -> None:
    sent = count_statements(running)
    for number in range(3):
        running.context(number).log.info(f"of_{number}")
    await running.rounds()
    await running.rounds()

    assert len(sent) == 1
    assert [await running.events(number) for number in range(3)] == [["of_0"], ["of_1"], ["of_2"]]


async def test_a_function_that_does_not_log_costs_no_statement_and_ends_at_once(running: Running) -> None:
    sent = count_statements(running)
    await running.rounds(3)
    running.context().close()
    running.attempts[0].handle_end(Succeeded(None))

    assert running.ended == [Succeeded(None)]
    assert sent == []


async def test_lines_are_neither_lost_nor_doubled_at_the_end(running: Running) -> None:
    running.context().log.info("one")
    await running.rounds()
    running.context().log.info("two")
    await running.rounds()
    running.context().log.info("three")
    await running.end()

    assert await running.events() == ["one", "two", "three"]


async def test_the_last_lines_are_written_again_after_a_failure(running: Running) -> None:
    running.context().log.info("one")
    await running.rounds()
    running.context().log.info("two")
    running.unruly.fails, running.unruly.after_all = 2, True
    await running.end()

    assert await running.events() == ["one", "two"]


async def test_an_attempt_that_lost_its_lease_writes_nothing_and_ends(running: Running) -> None:
    [attempt, *_] = running.attempts
    stale = HeldJob(msgspec.structs.replace(attempt.held.lease, attempt_no=7), attempt.held.job)
    running.attempts[0] = WorkerAttempt(stale, attempt.then)
    running.attempts[0].run = attempt.run
    running.context(0).log.info("stale")
    running.context(1).log.info("held")
    await running.rounds()
    running.context().log.info("still_stale")
    await running.end()

    assert (await running.events(0), await running.events(1)) == ([], ["held"])
    assert running.ended == [Succeeded(None)]


async def test_a_lease_that_another_transaction_has_locked_delays_no_other_attempt(running: Running) -> None:
    running.context(0).log.info("locked")
    running.context(1).log.info("free")
    async with running.db.transaction() as tx:
        await given.hold(tx, "lease", running.attempts[0].held.lease.job_id)
        await running.rounds()
        assert (await running.events(0), await running.events(1)) == ([], ["free"])
        writing = asyncio.create_task(running.writer())
        await until_somebody_waits(tx)
    await writing

    assert await running.events(0) == ["locked"]


async def test_a_very_long_log_keeps_its_last_lines(running: Running) -> None:
    line = "x" * 1000
    for _ in range(MOST_STREAMED // 20_000 + 2):
        for _ in range(20):
            running.context().log.info(line)
        await running.rounds()
    for number in range(1000):
        running.context().log.info(f"late_{number}", line=line)
    await running.rounds()
    await running.end()

    events = await running.events()
    assert events[-1] == "late_999"
    assert "late_0" not in events
    async with running.db.transaction() as tx:
        page = await logs.read_back(tx, running.attempts[0].held.lease.job_id, limit=1000)
    text = "".join(chunk.text for chunk in page)
    assert "the next lines follow when the attempt ends" in text
    assert "lines dropped" in text
    assert "was not stored" not in text


async def test_a_database_that_stays_away_does_not_hold_up_the_end(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.runtime.log_writer.PAUSE_SECONDS", 0)
    running.context().log.info("one")
    await running.rounds()
    running.context().log.info("two")
    running.unruly.fails = 1000
    await running.end()
    with suppress(DatabaseUnreachable):
        await running.writer()

    assert running.ended == [Succeeded(None)]
