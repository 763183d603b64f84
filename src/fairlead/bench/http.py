"""Workers over HTTP: how fast the worker in TypeScript drains the queue, compared with the worker in Python."""

import asyncio
import os
import shutil
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from fairlead.actions import access
from fairlead.bench.drain_tools import (
    WORKER,
    enqueue_jobs,
    open_drain_bench,
    run_programs,
    run_server,
    wait_until_drained,
)
from fairlead.bench.run import TENANT, Measure, Progress, compare
from fairlead.library.app import Fairlead
from fairlead.model.access import Principal, Role
from fairlead.settings import Settings

ROUNDS = 3
JOBS = 3000
LOOKS = 100
CONCURRENCY = 100
IDLE_SECONDS = 0.01
# In the source tree only: the package for Node is not a part of this one.
PROGRAM = Path(__file__).parents[3] / "clients" / "typescript" / "bench" / "worker.mjs"
# The limit of requests of a token would be measured.
UNLIMITED = {"FAIRLEAD_RATE_LIMIT_PER_SECOND": "1000000", "FAIRLEAD_RATE_LIMIT_BURST": "1000000"}


class HttpRound(msgspec.Struct, frozen=True):
    """A worker's jobs per second, and seconds from enqueues to the starts of their handlers."""

    rate: float
    delays: list[float]


async def measure(url: str, settings: Settings, progress: Progress) -> Measure:  # noqa: ARG001 - the same for all workloads
    """Jobs per second of the worker in TypeScript; without Node, of the worker in Python alone."""
    node = os.environ.get("NODE") or shutil.which("node")
    is_built = (PROGRAM.parents[1] / "dist" / "esm").is_dir()
    async with open_drain_bench(settings) as fl, run_server(settings, **UNLIMITED) as (_, port):
        workers = _Workers(fl, f"http://127.0.0.1:{port}", await _create_token(fl))
        await workers.measure(WORKER, "warm-up", progress)
        python, node_rounds = [], []
        for number in range(ROUNDS):
            python.append(await workers.measure(WORKER, f"python {number}", progress))
            if node and is_built:
                node_rounds.append(
                    await workers.measure([node, str(PROGRAM)], f"typescript {number}", progress)
                )
    if not node_rounds:
        rate = statistics.median(one.rate for one in python)
        note = f"Python alone, {_describe(python)}; for TypeScript: Node, and make typescript"
        return Measure("http", round(rate, 1), "jobs/s", note=note)
    return compare(
        "http",
        [one.rate for one in node_rounds],
        [one.rate for one in python],
        unit="jobs/s",
        note=f"TypeScript, {_describe(node_rounds)}; limit: Python, {_describe(python)}, in turns, {CONCURRENCY} jobs at once",
    )


def _describe(rounds: Sequence[HttpRound]) -> str:
    delays = [delay for one in rounds for delay in one.delays]
    return f"started after {1000 * statistics.median(delays):.1f} ms (p50)"


async def _create_token(fl: Fairlead) -> str:
    principal = Principal("bench", Role.SUPER_ADMIN)
    made = await fl.database.transact(
        lambda tx: access.create_token(tx, principal, name="bench", role=Role.WORKER, tenant_id=None)
    )
    return made.secret


class _Workers:
    """Runs one worker program at a time, and measures it."""

    def __init__(self, fl: Fairlead, url: str, token: str) -> None:
        self._fl = fl
        self._url = url
        self._token = token

    async def measure(self, argv: Sequence[str], mark: str, progress: Progress) -> HttpRound:
        """Let the program drain jobs that wait for it, then enqueue some one by one."""
        await enqueue_jobs(self._fl, JOBS, mark)
        progress(f"{mark}: {JOBS} jobs")
        async with self._run(argv):
            rate = await wait_until_drained(self._fl, mark)
            progress(f"{mark}: {LOOKS} jobs, one by one")
            return HttpRound(rate, [await self._delay() for _ in range(LOOKS)])

    async def _delay(self) -> float:
        await asyncio.sleep(IDLE_SECONDS)
        begun = time.time()
        job = await self._fl.enqueue("stamp", tenant=TENANT)
        return float(await job.result(timeout=60)) - begun

    @asynccontextmanager
    async def _run(self, argv: Sequence[str]) -> AsyncIterator[None]:
        told = {
            "FAIRLEAD_URL": self._url,
            "FAIRLEAD_TOKEN": self._token,
            "WORKER_CONCURRENCY": str(CONCURRENCY),
        }
        if argv is WORKER:
            argv = [*WORKER, "--server", self._url, "--concurrency", str(CONCURRENCY)]
        async with run_programs(argv, {**os.environ, **told}):
            yield
