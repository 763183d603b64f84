"""The benchmarks run and say what they measured; how fast is not a test's business."""

import asyncio
import json
import os
import pkgutil
import signal
from functools import partial
from importlib import import_module
from typing import Any

import pytest
from click.testing import CliRunner

from fairlead import Settings
from fairlead import bench as workloads
from fairlead.bench import WORKLOADS, backlog, durable
from fairlead.bench.drain_tools import open_drain_bench, run_workers
from fairlead.bench.run import TENANT
from fairlead.cli import main
from fairlead.db.database import Database
from tests import given, typescript
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough

UNITS = {
    "workflows": "steps/s",
    "durable": "steps/s",
    "sleepers": "ms",
    "agents": "ms",
    "cells": "CPU ms/job",
    "console": "ms",
    "latency": "ms",
    "live": "ms",
    "schedules": "ms",
    "summary": "ms",
    "events": "events/s",
    "fair": "jobs",
    "idle": "transactions/s",
    "held": "transactions/s",
}
FIELDS = {"workload", "value", "unit", "limit", "ratio", "note"}


# How much there is in a short run: of all workloads, and of one.
SIZES = {"ROUNDS": 1, "JOBS": 50, "ROWS": 200, "TENANTS": 5, "FEW": 40, "LOOKS": 2, "FLOOD": 300}
OWN_SIZES: dict[str, dict[str, Any]] = {
    "agents": {"AGENTS": 5, "JOBS": 5, "SECONDS": 3.0, "TOLD_SECONDS": 1.0},
    "backlog": {"BATCH": 400},
    "cells": {"LATENCY_SECONDS": 0.5, "SETTLE_SECONDS": 0.5, "WARM_UP": 30},
    "console": {"DEEP": 20},
    "drain_tools": {"LOOK_SECONDS": 0.02},
    "durable": {"JOBS": 2, "STEPS": 20, "LONG_STEPS": durable.PAGE + 10},
    "flow": {"KEYS": 50},
    "http": {"JOBS": 20},
    "idle": {"SECONDS": 3.0, "ROWS": 1000, "TOLD_SECONDS": 1.0},
    "latency": {"JOBS": 20},
    "limited": {"WHOSE": {"own": TENANT}},
    "live": {"SOCKETS": 20, "TOLD": 2},
    "sleepers": {
        "SHORTEST_SECONDS": 0.1,
        "MORE_SECONDS": 0.5,
        "SLEEPERS": 10,
        "IDLE_SECONDS": 1.0,
        "TOLD_SECONDS": 1.0,
    },
    "summary": {"LOOKS": 1},  # of the console, too
    "workflows": {"WIDTH": 4, "LAYERS": 3},
}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for found in pkgutil.iter_modules(workloads.__path__):
        module = import_module(f"fairlead.bench.{found.name}")
        common = {name: size for name, size in SIZES.items() if hasattr(module, name)}
        for name, size in (common | OWN_SIZES.get(found.name, {})).items():
            monkeypatch.setattr(module, name, size)


@pytest.fixture(autouse=True)
def migrated_databases(monkeypatch: pytest.MonkeyPatch, migrated: str) -> None:
    """Give each workload a copy of a migrated database: to migrate takes longer than most of what it measures here."""
    run = import_module("fairlead.bench.run")  # the package has a function of that name
    monkeypatch.setattr(run, "scratch_database", partial(run.scratch_database, template=migrated))


def bench(server: str, *args: str) -> str:
    result = CliRunner().invoke(main, ["bench", *args], env={"FAIRLEAD_DATABASE_URL": server})
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


@pytest.mark.parametrize(
    "workload",
    list(WORKLOADS),
)
def test_a_workload_prints_its_figure_beside_the_limit(server: str, workload: str) -> None:
    if workload == "http":
        typescript.require_build()
    [measure] = map(json.loads, bench(server, workload, "--json").splitlines())

    assert measure.keys() == FIELDS
    assert measure["workload"] == workload
    assert measure["unit"] == UNITS.get(workload, "jobs/s")
    assert measure["limit"] > 0
    # a single job may begin before any other of the flood
    assert measure["value"] >= 0 if workload == "fair" else measure["value"] > 0
    assert measure["ratio"] == pytest.approx(measure["value"] / measure["limit"], rel=0.02, abs=0.001)


def test_people_get_a_table_and_what_it_means(server: str) -> None:
    shown = bench(server, "enqueue")

    assert "ratio" in shown
    assert "enqueue: limit: bare psycopg INSERT loop" in shown


async def sizes(database: Database) -> dict[str, int]:
    async with database.transaction() as tx:
        return {
            table: await given.count(tx, table)
            for table in ("jobs", "attempts", "job_attempts", "ready", "later")
        }


async def test_filled_tables_agree_and_can_be_emptied(settings: Settings) -> None:
    async with open_drain_bench(settings) as fl:
        hosts = await backlog.add_hosts(fl, 3, tenant=given.TENANT)
        await backlog.add_finished(fl, 1000, print)
        await backlog.add_later(fl, 500, print)
        await backlog.add_queued(fl, 600, print, tenant=given.TENANT, hosts=hosts)
        await backlog.add_queued(fl, 50, print, definition="unserved")

        assert await sizes(fl.database) == {
            "jobs": 2150,
            "attempts": 1000,
            "job_attempts": 10,
            "ready": 650,
            "later": 500,
        }
        await backlog.remove_jobs(fl)  # which looks whether they agree
        assert set((await sizes(fl.database)).values()) == {0}


async def test_the_figures_of_tables_that_disagree_are_refused(settings: Settings) -> None:
    async with open_drain_bench(settings) as fl:
        await backlog.add_queued(fl, 10, print)
        async with fl.transaction() as tx:
            # one row of them: there are two where a minute ends meanwhile
            await tx.run(
                "update fairlead.counts set queued = queued + 1 where ctid in (select ctid from fairlead.counts limit 1)"
            )

        with pytest.raises(RuntimeError, match="counts of queued say 11 where there are 10"):
            await backlog.remove_jobs(fl)


async def test_a_worker_that_dies_ends_the_workload(settings: Settings) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="a worker ended with -9")):
        async with open_drain_bench(settings), run_workers(settings) as [worker]:
            os.kill(worker.pid, signal.SIGKILL)
            # not a job's result: asyncio.wait_for of Python 3.11, in the driver, can swallow the one cancel
            async with asyncio.timeout(SECONDS):
                await asyncio.Event().wait()
