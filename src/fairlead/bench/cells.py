"""Three cells on one machine, served by one worker process, against one cell.

Processor time per job, shares of tenants in different cells, and the latency of other tenants when one cell's PostgreSQL
is killed. Each cell has a PostgreSQL of its own.
"""

import asyncio
import os
import signal
import statistics
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from fairlead.actions import cells as directory
from fairlead.bench.drain_tools import enqueue_jobs, open_drain_bench, run_workers
from fairlead.bench.run import QUOTAS, Measure, Progress
from fairlead.db import migrate
from fairlead.db.embedded import EmbeddedPostgres
from fairlead.db.scratch import replace_database, scratch_database, scratch_folder, settle_server
from fairlead.library.app import Fairlead
from fairlead.library.cell_rounds import CellRounds
from fairlead.library.cell_setup import prepare_cell
from fairlead.settings import Settings

ROUNDS = 3
JOBS = 20_000
TICKS = os.sysconf("SC_CLK_TCK")
WARM_UP = 3000
LATENCY_SECONDS = 10.0
PAUSE_SECONDS = 0.02
LIMIT = 1.15
DRAIN_SECONDS = 300
# A worker hears of the gate and of new cells in this time.
SETTLE_SECONDS = 3.0
HOME, SECOND, THIRD = "home", "second", "third"
CELLS = (HOME, SECOND, THIRD)
LIGHT, HEAVY = "light", "heavy"

_STARTED = """
select j.started_at, t.slug from fairlead.job_records j join fairlead.tenants t on t.id = j.tenant_id
where j.correlation_id = %s and j.started_at is not null
"""
_LEFT = "select (select count(*) from fairlead.ready) + (select count(*) from fairlead.leases)"


class Servers(NamedTuple):
    """The PostgreSQL servers of the cells, in the order of CELLS."""

    urls: list[str]
    pids: list[int]


async def measure(url: str, settings: Settings, progress: Progress) -> Measure:
    """The processor time per job with three cells, compared with one."""
    del url  # each cell has a server of its own
    ratios, costs, limits = [], [], []
    with _run_servers() as servers:
        single = replace_database(servers.urls[0], "single")
        async with (
            scratch_database(servers.urls[0], "single"),
            _open(settings, single) as alone,
            _open(settings, servers.urls[0]) as home,
        ):
            await _add_cells(home, servers.urls[1:])
            for cell in CELLS:
                await alone.add_tenant(cell, quotas=QUOTAS)
                await home.add_tenant(cell, quotas=QUOTAS, cell=cell)
            for number in range(1, ROUNDS + 1):
                progress(f"round {number} of {ROUNDS}")
                limits.append(await _measure_cost(alone, servers))
                costs.append(await _measure_cost(home, servers))
                ratios.append(costs[-1] / limits[-1])
            progress("draining two tenants of different weight")
            shared = await _measure_shares(home)
            progress("killing one cell's PostgreSQL")
            before, after = await _measure_latency(home, servers)
    note = (
        f"limit: one cell; our bound is {LIMIT} ×; weights 1:3 in different cells shared 1:{shared:.2f}; p99 of other cells' tenants "
        f"{before * 1000:.1f} ms before and {after * 1000:.1f} ms after kill -9 of one PostgreSQL ({after / before:.2f} ×)"
    )
    median = statistics.median
    value, limit = median(costs) * 1000, median(limits) * 1000
    return Measure("cells", round(value, 3), "CPU ms/job", round(limit, 3), round(median(ratios), 3), note)


@contextmanager
def _run_servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        folders = [stack.enter_context(scratch_folder()) for _ in CELLS]
        servers = [EmbeddedPostgres(folder / "data") for folder in folders]
        for server in servers:
            server.start()
            stack.callback(server.stop)
        yield Servers([one.url for one in servers], [one.pid for one in servers])


@asynccontextmanager
async def _open(settings: Settings, url: str) -> AsyncIterator[Fairlead]:
    await migrate.up(url, settings.schema)
    async with open_drain_bench(replace(settings, database_url=url, direct_url=None)) as fl:
        yield fl


async def _add_cells(home: Fairlead, urls: Sequence[str]) -> None:
    for name, url in zip(CELLS[1:], urls, strict=True):
        cell_id = await prepare_cell(url, home.settings.schema)
        async with home.transaction() as tx:
            await directory.add(
                tx, home.principal, name=name, cell_id=cell_id, url=url, schema=home.settings.schema
            )
    await home.cells.refresh()
    await CellRounds(home.cells).run_now()  # copies the definitions


async def _measure_cost(fl: Fairlead, servers: Servers) -> float:
    """The processor seconds of a job: of the worker and of all servers."""
    async with run_workers(fl.settings, concurrency=None) as [worker]:
        # each connection plans its first statements, which takes as long as thousands of jobs
        await enqueue_jobs(fl, WARM_UP, uuid4().hex, CELLS)
        await _drain(fl)
        members = await _open_members(fl)
        for one in members:  # also in the other cells: a round copies the gate of home only after a second
            await one.pause()
        await enqueue_jobs(fl, JOBS, uuid4().hex, CELLS)
        for url in servers.urls:
            await settle_server(url)
        await asyncio.sleep(SETTLE_SECONDS)
        if (queued := sum(await _count_left(fl))) != JOBS:
            raise RuntimeError(f"{JOBS - queued} of {JOBS} jobs ran before the measurement")
        before = _sum_cpu(worker.pid, servers)
        for one in members:  # home first: a round must not close the others again
            await one.resume()
        await _drain(fl)
        # the clock of processes shows no less than a tick
        return max(_sum_cpu(worker.pid, servers) - before, 1 / TICKS) / JOBS


async def _drain(fl: Fairlead) -> None:
    """Wait until no job is queued or running in any cell."""
    async with asyncio.timeout(DRAIN_SECONDS):
        while any(await _count_left(fl)):  # noqa: ASYNC110 - another process runs them
            await asyncio.sleep(0.2)


async def _open_members(fl: Fairlead) -> list[Fairlead]:
    """The members of all cells, home first."""
    return [fl] + [await fl.cells.member(name) for name, cell in fl.cells.by_name.items() if not cell.is_home]


async def _count_left(fl: Fairlead) -> list[int]:
    members = await _open_members(fl)
    return [int((await one.database.single(lambda tx: tx.values(_LEFT)))[0][0]) for one in members]


async def _measure_shares(home: Fairlead) -> float:
    """How many jobs of the heavy tenant start for one of the light tenant, which lives in another cell."""
    await home.add_tenant(LIGHT, quotas=QUOTAS)
    await home.add_tenant(HEAVY, quotas=QUOTAS, weight=3, cell=SECOND)
    mark = uuid4().hex
    await enqueue_jobs(home, JOBS, mark, (LIGHT, HEAVY))
    async with run_workers(home.settings, concurrency=None):
        await _drain(home)
    started: list[tuple[datetime, str]] = []
    for name in (HOME, SECOND):
        member = await home.cells.member(name)
        rows = await member.database.single(lambda tx: tx.values(_STARTED, [mark]))
        started += [(row[0], row[1]) for row in rows]
    order = [slug for _, slug in sorted(started)]
    # while both have queued jobs, and after the worker has opened both cells and has seen the weights
    begin, end = (_find_nth(order, HEAVY, number) for number in (JOBS // 20, JOBS // 2))
    part = order[begin:end]
    return part.count(HEAVY) / max(1, part.count(LIGHT))


def _find_nth(order: Sequence[str], slug: str, number: int) -> int:
    """The place of a tenant's nth job."""
    places = [at for at, one in enumerate(order) if one == slug]
    return places[number - 1]


async def _measure_latency(home: Fairlead, servers: Servers) -> tuple[float, float]:
    """The 99th percentile from an enqueue to the handler's start in other cells, before and after a kill."""
    async with run_workers(home.settings, concurrency=None):
        for cell in CELLS:
            await (await home.enqueue("stamp", tenant=cell)).result(timeout=60)
        await _measure_starts(home)  # the first starts are slower, and would make the kill look harmless
        before = await _measure_starts(home)
        _kill(servers.pids[1])
        return before, await _measure_starts(home)


async def _measure_starts(home: Fairlead) -> float:
    took, until = [], time.monotonic() + LATENCY_SECONDS
    while time.monotonic() < until:
        for cell in (HOME, THIRD):
            await asyncio.sleep(PAUSE_SECONDS)
            begun = time.time()
            job = await home.enqueue("stamp", tenant=cell)
            took.append(await job.result(timeout=60) - begun)
    return float(statistics.quantiles(took, n=100)[98])


def _kill(pid: int) -> None:
    """Kill a server and all its processes, as if its machine had died."""
    for one in [pid, *_list_children(pid)]:
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def _sum_cpu(worker: int, servers: Servers) -> float:
    """The processor seconds of a worker, and of all servers with their processes, also of those that have ended."""
    total = _cpu_seconds(worker)
    for pid in servers.pids:
        total += _cpu_seconds(pid, with_ended=True) + sum(map(_cpu_seconds, _list_children(pid)))
    return total


def _list_children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    return [int(one) for one in found]


def _cpu_seconds(pid: int, *, with_ended: bool = False) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11 : 15 if with_ended else 13])) / TICKS
