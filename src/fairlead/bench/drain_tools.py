"""Shared by the drain workloads: enqueues jobs, runs worker processes, measures the rate by the database's clock."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from fairlead.actions import definitions
from fairlead.bench.run import QUOTAS, TENANT
from fairlead.db.tx import Tx
from fairlead.library.app import Fairlead
from fairlead.model.job import NewJob
from fairlead.settings import Settings

WORKER = (sys.executable, "-m", "fairlead.cli", "worker", "fairlead.bench.app:fl")
CONCURRENCY = 2000
SECONDS = 300
START_SECONDS = 60
# The poll interval: each poll sums all counts, which would affect the figures if done more often.
LOOK_SECONDS = 0.2

# From the first claim to the last finish of the marked jobs, by the database's clock.
_RATE = """
select count(*) / extract(epoch from max(j.finished_at) - min(j.started_at))
from fairlead.job_records j where j.correlation_id = %s
"""
_LEFT = """
select coalesce(sum(queued) + sum(running), 0) from fairlead.counts
where definition_id = (select id from fairlead.job_definitions where key = 'noop')
"""


@asynccontextmanager
async def open_drain_bench(settings: Settings) -> AsyncIterator[Fairlead]:
    """A Fairlead with one tenant, on a database with the workers' definitions and one that they do not serve."""
    from fairlead.bench import app  # noqa: PLC0415 - its import reads the settings, and `--help` must work with invalid ones

    async with Fairlead(settings=settings, actor="bench") as fl:

        async def publish(tx: Tx) -> None:
            for key, function in app.fl.functions.items():
                await definitions.patch(tx, fl.principal, key, function.says)
            await definitions.patch(tx, fl.principal, "unserved", {})

        await fl.database.transact(publish)
        await fl.add_tenant(TENANT, quotas=QUOTAS, exist_ok=True)
        yield fl


@asynccontextmanager
async def run_server(settings: Settings, **env: str) -> AsyncIterator[tuple[Process, int]]:
    """Run the API in a separate process, started like a user would start it; the process and its port."""
    environment = {**os.environ, "FAIRLEAD_DATABASE_URL": str(settings.database_url), **env}
    environment["FAIRLEAD_SCHEMA"] = settings.schema
    argv = [sys.executable, "-m", "fairlead.cli", "serve", "--port", "0"]
    server = await asyncio.create_subprocess_exec(
        *argv, env=environment, stdout=PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        if server.stdout is None:
            raise RuntimeError("the server's output must be a pipe")
        async with asyncio.timeout(START_SECONDS):
            line = await server.stdout.readline()
        yield server, int(line.decode().partition("http://127.0.0.1:")[2].partition("/")[0])
    finally:
        if server.returncode is None:
            server.terminate()
        await server.wait()


@asynccontextmanager
async def run_workers(
    settings: Settings, processes: int = 1, *, concurrency: int | None = CONCURRENCY, **env: str
) -> AsyncIterator[list[Process]]:
    """Run worker processes, started like a user would start them. One that ends by itself fails the workload.

    Without `concurrency` they have the default of `fairlead worker`.
    """
    argv = list(WORKER)
    argv += [] if concurrency is None else ["--concurrency", str(concurrency)]
    environment = {**os.environ, "FAIRLEAD_DATABASE_URL": str(settings.database_url), **env}
    environment["FAIRLEAD_SCHEMA"] = settings.schema
    async with run_programs(argv, environment, processes) as started:
        yield started


@asynccontextmanager
async def run_programs(
    argv: Sequence[str], environment: Mapping[str, str], processes: int = 1
) -> AsyncIterator[list[Process]]:
    """Run worker programs. One that ends by itself fails the workload."""
    started = [
        await asyncio.create_subprocess_exec(*argv, env=environment, stderr=asyncio.subprocess.DEVNULL)
        for _ in range(processes)
    ]
    try:
        async with asyncio.TaskGroup() as group:
            watches = [group.create_task(_fail_on_exit(process, argv)) for process in started]
            yield started
            for watch in watches:
                watch.cancel()
    finally:
        for process in started:
            if process.returncode is None:
                process.terminate()
        for process in started:
            await process.wait()


async def _fail_on_exit(process: Process, argv: Sequence[str]) -> None:
    code = await process.wait()
    raise RuntimeError(f"a worker ended with {code}; this may show the error: {' '.join(argv)}")


async def enqueue_jobs(fl: Fairlead, count: int, mark: str, tenants: Sequence[str] = (TENANT,)) -> None:
    """Enqueue no-op jobs, for the tenants in turn."""
    await fl.enqueue_many(
        [
            NewJob(definition="noop", tenant=tenants[n % len(tenants)], correlation_id=mark)
            for n in range(count)
        ]
    )


async def poll_until(reached: Callable[[], Awaitable[bool]]) -> None:
    """Poll until the condition is true."""
    async with asyncio.timeout(SECONDS):
        while not await reached():  # noqa: ASYNC110 - other processes make it true
            await asyncio.sleep(LOOK_SECONDS)


async def count_left(fl: Fairlead) -> int:
    """How many no-op jobs are queued or running."""
    [(number,)] = await fl.database.transact(lambda tx: tx.values(_LEFT))
    return int(number)


async def wait_until_drained(fl: Fairlead, mark: str, *, but: int = 0) -> float:
    """Wait until at most `but` no-op jobs are queued or running; jobs per second."""

    async def is_drained() -> bool:
        return await count_left(fl) <= but

    await poll_until(is_drained)
    [(rate,)] = await fl.database.transact(lambda tx: tx.values(_RATE, [mark]))
    return float(rate)


async def drain_rate(
    fl: Fairlead,
    settings: Settings,
    count: int,
    mark: str,
    *,
    processes: int = 1,
    concurrency: int | None = CONCURRENCY,
    tenants: Sequence[str] = (TENANT,),
) -> float:
    """Enqueue `count` jobs, then start the workers; jobs per second."""
    there = await count_left(fl)
    await enqueue_jobs(fl, count, mark, tenants)
    async with run_workers(settings, processes, concurrency=concurrency):
        return await wait_until_drained(fl, mark, but=there)
