"""A database that only reads for a while, as one does that was the primary or is to be it, and worse: nothing is lost."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from fairlead import Context, Fairlead, JobStatus, Settings
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.errors import DatabaseUnreachable
from fairlead.runtime.job_source import HeldJob
from fairlead.runtime.store_source import StoreSource
from tests.given import TENANT
from tests.waiting import SECONDS, eventually


@asynccontextmanager
async def reading_only(server: str) -> AsyncIterator[None]:
    """Within the block the server takes no writes, on any connection."""

    async def turn(to: str) -> None:
        async with await psycopg.AsyncConnection.connect(server, autocommit=True) as connection:
            await connection.execute("set default_transaction_read_only = off")
            await connection.execute(f"alter system set default_transaction_read_only = {to}")
            await connection.execute("select pg_reload_conf()")
        # when a new session has it, all others have been told
        async with asyncio.timeout(SECONDS):
            while await show() != to:
                await asyncio.sleep(0.01)

    async def show() -> str:
        async with await psycopg.AsyncConnection.connect(server, autocommit=True) as connection:
            [(value,)] = await (await connection.execute("show default_transaction_read_only")).fetchall()
        return str(value)

    await turn("on")
    try:
        yield
    finally:
        await turn("off")


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails is given up after a second; a connection may take its time."""
    reach = Database.reach

    async def give_up_soon(self: Database, work: Callable[[Tx], Awaitable[Any]]) -> Any:
        self.settings = replace(self.settings, connect_timeout_seconds=1)
        return await reach(self, work)

    monkeypatch.setattr(Database, "reach", give_up_soon)


@pytest.mark.usefixtures("_impatient")
async def test_a_worker_writes_how_its_jobs_ended_when_it_can_and_keeps_them_meanwhile(
    server: str, settings: Settings
) -> None:
    fl = Fairlead(settings=replace(settings, lease_seconds=600))
    begun, end = asyncio.Event(), asyncio.Event()

    @fl.job(key="patient", max_attempts=1)
    async def patient(ctx: Context, *, waits: bool) -> int:
        begun.set()
        if waits:
            await end.wait()
        return ctx.attempt_no

    async with fl:
        stop = asyncio.Event()
        jobs = [await patient.enqueue(tenant=TENANT, waits=waits) for waits in (True, False)]
        working = asyncio.create_task(fl.work(stop, concurrency=1))
        await begun.wait()
        with capture_logs() as logs:
            async with reading_only(server):
                # at which a worker sends a heartbeat
                await fl.database.single(lambda tx: tx.values("select pg_notify('fairlead', 'cancel')"))

                def told(event: str) -> bool:
                    return any(one["event"] == event for one in logs)

                await eventually(lambda: told("heartbeat_failed"), "a heartbeat that fails")
                end.set()
                await eventually(lambda: told("finish_postponed"), "an end that cannot be written")
        assert [await job.result(timeout=SECONDS) for job in jobs] == [1, 1]
        stop.set()
        async with asyncio.timeout(SECONDS):
            await working


@pytest.mark.usefixtures("new_database")  # an earlier session would have the same pid
@pytest.mark.parametrize("how", ["transact", "single"])
async def test_its_connections_are_made_anew(server: str, settings: Settings, how: str) -> None:
    """One that is left in the pool would lead to the old primary for ever."""
    write = "update fairlead.duties set due_at = due_at"
    async with Database(str(settings.database_url), replace(settings, pool_size=1)) as db:
        ask = getattr(db, how)
        async with db.transaction() as tx:
            [(before,)] = await tx.values("select pg_backend_pid()")
        async with reading_only(server):
            with pytest.raises(DatabaseUnreachable, match="read-only"):
                async with asyncio.timeout(SECONDS):
                    await ask(lambda tx: tx.run(write))
        async with db.transaction() as tx:
            [(after,)] = await tx.values("select pg_backend_pid()")

    assert before != after


async def test_a_worker_that_cannot_go_on_leaves_nothing_running(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    fl = Fairlead(settings=settings)
    begun, stopped = asyncio.Event(), asyncio.Event()

    @fl.job(key="long")
    async def long(ctx: Context) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    claim = StoreSource.claim

    async def broken(self: StoreSource, wanted: int) -> list[HeldJob]:
        if begun.is_set():
            raise ZeroDivisionError
        return await claim(self, wanted)

    monkeypatch.setattr(StoreSource, "claim", broken)
    async with fl:
        job = await long.enqueue(tenant=TENANT)
        with pytest.raises(ZeroDivisionError):
            async with asyncio.timeout(SECONDS):
                await fl.work(asyncio.Event())

        assert stopped.is_set()
        assert (await job.read()).status is JobStatus.QUEUED
