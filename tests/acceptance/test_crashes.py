"""Kill -9 at the worst moments: what was acknowledged is there, and nothing is there twice."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from fairlead import Fairlead, FairleadError, NewJob, Settings
from fairlead.db import migrate
from fairlead.db.embedded import EmbeddedPostgres
from fairlead.db.tx import Tx
from fairlead.errors import DatabaseUnreachable
from fairlead.store import jobs, rescue
from tests import given
from tests.processes import started, until
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough


BULK = """
import asyncio, sys
from fairlead import Fairlead, NewJob

async def main():
    async with Fairlead() as fl:
        load = [NewJob(definition="anything", tenant="acme", dedupe_key=f"k{n}" if n % 2 else None) for n in range(4_000)]
        print("begin", flush=True)
        await fl.enqueue_many(load)
        print("acknowledged", flush=True)

asyncio.run(main())
"""


# The copy stops at its thousandth row for as long as the test holds the lock.
HOLD = """
create sequence public.copied;
create function public.hold() returns trigger language plpgsql as $$
begin
    if nextval('public.copied') = 1000 then
        perform pg_advisory_xact_lock(1);
    end if;
    return new;
end $$;
"""
WAITING = "select from pg_locks where locktype = 'advisory' and not granted"


@pytest.mark.usefixtures("new_database")
@pytest.mark.parametrize("moment", ["copying job_records", "copying ready"])
def test_a_process_killed_during_a_bulk_enqueue_leaves_all_or_nothing(database_url: str, moment: str) -> None:
    table = moment.split()[1]
    env = {"FAIRLEAD_DATABASE_URL": database_url, "FAIRLEAD_LOCK_TIMEOUT_SECONDS": "0"}
    with psycopg.connect(database_url, autocommit=True) as watcher:
        watcher.execute(HOLD)
        watcher.execute(
            f"create trigger hold before insert on fairlead.{table} for each row execute function public.hold()".encode()
        )
        watcher.execute("select pg_advisory_lock(1)")
        with started([sys.executable, "-c", BULK], env=env) as process:
            until(lambda: watcher.execute(WAITING).fetchall(), moment)
            process.send_signal(signal.SIGKILL)
            output, _ = process.communicate()
        watcher.execute("select pg_advisory_unlock(1)")
        assert output == "begin\n"
        until(lambda: _nobody_else(watcher), "the killed process's transaction to end")
        for hot in ("jobs", "ready", "active_keys", "counts"):
            assert watcher.execute(f"select count(*) from fairlead.{hot}".encode()).fetchone() == (0,), hot


def _nobody_else(watcher: psycopg.Connection[tuple[object, ...]]) -> bool:
    others = "select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    return not watcher.execute(others).fetchall()


async def test_postgresql_killed_during_single_enqueues_keeps_exactly_the_acknowledged(
    tmp_path: Path,
) -> None:
    """Two crashes under eight enqueuers; a last one with nobody to bring it back."""
    data = tmp_path / "data"
    server = EmbeddedPostgres(data)
    url = await asyncio.to_thread(server.start)
    try:
        await migrate.up(url, "fairlead")
        settings = Settings(database_url=url, connect_timeout_seconds=SECONDS)
        acknowledged: set[object] = set()
        async with Fairlead(settings=settings) as fl:
            async with fl.transaction() as tx:
                await given.tenants_and_definitions(tx)
            stop = asyncio.Event()

            async def enqueuer() -> None:
                while not stop.is_set():
                    acknowledged.add((await fl.enqueue("anything", tenant="acme")).id)

            enqueuers = [asyncio.create_task(enqueuer()) for _ in range(8)]
            for crash in range(1, 3):
                await _grown(acknowledged, crash * 40)
                os.kill(server.pid, signal.SIGKILL)
                await asyncio.to_thread(server.start)
            await _grown(acknowledged, 120)
            stop.set()
            await asyncio.gather(*enqueuers)  # they rode out every crash: none of them raised
            async with fl.transaction() as tx:
                there = {job_id for (job_id,) in await tx.values("select id from fairlead.jobs")}
            # ids are ours, so an enqueue repeated after a lost answer is the same job
            assert there == acknowledged
            await given.no_inconsistencies(fl.database)

        async with _impatient(settings) as fl:
            before = len(acknowledged)
            os.kill(server.pid, signal.SIGKILL)
            with pytest.raises(FairleadError) as refused:
                while True:
                    acknowledged.add((await fl.enqueue("anything", tenant="acme")).id)
            assert refused.value.code == "database_unreachable"
            await asyncio.to_thread(server.start)
        # with the time that it may take
        async with Fairlead(settings=settings) as fl, fl.transaction() as tx:
            there = {job_id for (job_id,) in await tx.values("select id from fairlead.jobs")}
        assert acknowledged <= there
        assert len(there) <= max(before, len(acknowledged)) + 1  # at most the one in flight
    finally:
        await asyncio.to_thread(server.stop)


@asynccontextmanager
async def _impatient(settings: Settings) -> AsyncIterator[Fairlead]:
    """One that soon gives up. A machine that stands still for as long lets it give up at its start, so it starts again."""
    async with AsyncExitStack() as stack:
        fl = None
        while fl is None:
            with suppress(DatabaseUnreachable):
                fl = await stack.enter_async_context(
                    Fairlead(settings=replace(settings, connect_timeout_seconds=1))
                )
        yield fl


async def _grown(acknowledged: set[object], size: int) -> None:
    async with asyncio.timeout(SECONDS):
        while len(acknowledged) < size:
            await asyncio.sleep(0.01)


WORK_AND_FOLD = """
import asyncio, random
from datetime import UTC, datetime, timedelta
from fairlead import Fairlead
from fairlead.model.outcome import Backoff, Failed, Released, RetryBudget, Succeeded, decide
from fairlead.store import counts, queue

BUDGET = RetryBudget(5, 0, 0, Backoff(base_seconds=0))
ENDS = [Succeeded(cost_cents=7), Failed("ValueError", "it broke", cost_cents=3), Released()]
# minutes are folded when they are over
AGED = '''update fairlead.counts set minute = minute - %s where ctid = any(array(
    select ctid from fairlead.counts where minute > now() - interval '1 minute' for update skip locked))'''

async def main():
    async with Fairlead() as fl:
        print("begun", flush=True)
        while True:
            claim = await fl.database.transact(lambda tx: queue.claim(tx, worker="w", wanted=5, lease_seconds=30))
            ends = [(claim.lease(job), decide(BUDGET, random.choice(ENDS))) for job in claim.jobs]
            await fl.database.transact(lambda tx: queue.finish(tx, ends, actor="w"))
            age = timedelta(minutes=random.choice([2, 3, 2000]))
            await fl.database.transact(lambda tx: tx.run(AGED, [age]))
            await fl.database.transact(
                lambda tx: counts.fold_minutes(tx, place=datetime.now(UTC) - timedelta(minutes=9), limit=20))
            await fl.database.transact(counts.fold_history)

asyncio.run(main())
"""


async def test_usage_equals_attempts_to_the_cent_whoever_dies_while_ending_runs_and_folding_them(
    tmp_path: Path,
) -> None:
    """Processes that end runs and fold them are killed one after the other, and PostgreSQL with the last."""
    server = EmbeddedPostgres(tmp_path / "data")
    url = await asyncio.to_thread(server.start)
    try:
        await migrate.up(url, "fairlead")
        async with Fairlead(settings=Settings(database_url=url, connect_timeout_seconds=SECONDS)) as fl:
            async with fl.transaction() as tx:
                await given.tenants_and_definitions(tx)
            await fl.enqueue_many(
                [NewJob(definition="anything", tenant=(given.TENANT, given.OTHER)[n % 2]) for n in range(400)]
            )
            run = [sys.executable, "-c", WORK_AND_FOLD]
            env = {"FAIRLEAD_DATABASE_URL": url}
            ended = folded = 0
            for death in (1, 2, 3):
                with started(run, env=env) as one, started(run, env=env) as other:
                    async with asyncio.timeout(SECONDS):
                        while ended < 40 * death:
                            await asyncio.sleep(0.05)
                            ended, folded = await fl.database.transact(_used)
                    if death == 3:
                        os.kill(server.pid, signal.SIGKILL)
                    one.kill()
                    other.kill()
                if death == 3:
                    await asyncio.to_thread(server.start)
                assert await fl.database.reach(jobs.list_inconsistencies) == []
            async with fl.transaction() as tx:
                await given.end_leases(tx)
                await rescue.rescue(tx)
                assert await jobs.list_inconsistencies(tx) == []
            assert folded > 0
    finally:
        await asyncio.to_thread(server.stop)


async def _used(tx: Tx) -> tuple[int, int]:
    """How many runs have ended, and how many of them are folded."""
    [found] = await tx.values(
        "select (select count(*) from fairlead.attempts where finished_at is not null), "
        "coalesce((select sum(runs) from fairlead.usage_hourly), 0)"
    )
    return int(found[0]), int(found[1])
