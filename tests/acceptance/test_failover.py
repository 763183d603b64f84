"""Primaries of a Patroni cluster are killed under load, one after the other.

`make test` kills one, with a synchronous standby; `make failover` kills ten, with a synchronous standby and without.
"""

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from fairlead import Settings
from fairlead.actions import doctor
from fairlead.db import migrate
from fairlead.model.finding import Finding, Verdict
from fairlead.sync import Fairlead
from tests import given
from tests.acceptance.failover_load import LIMIT, STOP, TENANT, read_lines, read_notes
from tests.acceptance.fleet import QUICK, ROOT, WorkerUnderTest
from tests.patroni import PatroniCluster, patroni_cluster, why_not
from tests.processes import FAIRLEAD, started, until
from tests.waiting import SECONDS

KILLS = int(os.environ.get("FAILOVER_KILLS", "1"))
TTL = int(os.environ.get("FAILOVER_TTL", "5"))
IS_LONG = KILLS > 1
PAUSE_SECONDS = 0.05 if IS_LONG else 0.1
LOAD_SECONDS = 3.0 if IS_LONG else 1.0
# The standbys hear nothing for so long before the primary dies: what is acknowledged then is on the primary only.
LAG_SECONDS = float(os.environ.get("FAILOVER_LAG_SECONDS", "0.5"))
# The notes and the deaths are timed by different processes, and a kill takes a moment.
TOLERANCE_SECONDS = 1.0
CLIENTS = 2
ENDED = ("succeeded", "failed", "canceled", "dead_letter")

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
    pytest.mark.timeout((5 + KILLS) * SECONDS),
]


@dataclass
class Load:
    """The clients and workers, what they noted, and when primaries died."""

    cluster: PatroniCluster
    folder: Path
    deaths: list[float] = field(default_factory=list)
    recoveries: list[float] = field(default_factory=list)
    # worker, client, worker, client
    processes: list[WorkerUnderTest] = field(default_factory=list)

    def acknowledged(self) -> dict[str, float]:
        """When each acknowledged job was acknowledged."""
        return {str(job): float(str(at)) for job, at in read_notes(self.folder, "acknowledged")}

    def runs(self) -> list[tuple[str, int, str]]:
        """(job, attempt number, the run's own name)"""
        return [(str(job), int(str(no)), str(run)) for job, no, run, _ in read_notes(self.folder, "runs")]

    def refusals(self) -> Counter[str]:
        return Counter(str(code) for code, _, _ in read_notes(self.folder, "refused"))

    def wait_for_acknowledgements(self, seconds: float) -> None:
        """Wait until each client was answered, for so many seconds."""
        begun = time.time()

        def all_answered() -> bool:
            answered = [read_last(file) for file in self.folder.glob("acknowledged.*")]
            return len(answered) == CLIENTS and min(answered) > begun + seconds

        until(all_answered, "clients to be answered")

    def pauses(self) -> list[float]:
        """For each death, the longest time without an answer to any client around it."""
        at = sorted(self.acknowledged().values())
        return [
            max(
                after - before
                for before, after in pairwise(at)
                if before < death + TOLERANCE_SECONDS and after > death - LAG_SECONDS - TOLERANCE_SECONDS
            )
            for death in self.deaths
        ]

    def fail_over(self) -> str:
        """Kill the primary, and take it back as a standby when another one has answered every client."""
        old, new, seconds = self.cluster.fail_over(lag_seconds=LAG_SECONDS)
        self.deaths.append(time.time() - seconds)
        self.recoveries.append(seconds)
        self.wait_for_acknowledgements(0)
        if IS_LONG:
            old.start()
            self.cluster.wait_until_whole()
        return f"{old.name} -> {new.name} after {seconds:.1f} s"


def read_last(file: Path) -> float:
    """When the last line of the notes was written; 0 if there is none."""
    lines = read_lines(file)
    return float(lines[-1].rsplit(",", 1)[-1].strip(" ]")) if lines else 0.0


@contextmanager
def running_load(cluster: PatroniCluster, folder: Path) -> Iterator[Load]:
    """Two clients and two workers: one of each has all servers in its address, and one goes through HAProxy."""
    load = Load(cluster, folder)
    with ExitStack() as stack:
        for url in (cluster.url, cluster.haproxy_url):
            env = {**QUICK, "FAIRLEAD_DATABASE_URL": url, "FAIRLEAD_CONNECT_TIMEOUT_SECONDS": str(SECONDS)}
            env |= {"PYTHONUNBUFFERED": "1", "FAIRLEAD_LEASE_SECONDS": "10"}
            for argv in (
                [FAIRLEAD, "--verbose", "worker", "tests.acceptance.failover_load:fl", "--concurrency", "20"],
                [sys.executable, "-m", "tests.acceptance.failover_load", str(folder), str(PAUSE_SECONDS)],
            ):
                process = WorkerUnderTest(stack.enter_context(started(argv, env=env, cwd=ROOT)))
                stack.callback(process.end)
                load.processes.append(process)
        try:
            for worker in load.processes[::2]:
                worker.says("serving")
            yield load
            (folder / STOP).touch()
            for client in load.processes[1::2]:
                assert client.exit_code(seconds=SECONDS) == 0
            _drain(cluster)
        except AssertionError as error:
            for process in load.processes:
                error.add_note(f"process {process.pid} said: {process.said[-3000:]}")
            raise


def _rows(cluster: PatroniCluster, query: LiteralString, *params: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(f"{cluster.url}?target_session_attrs=read-write", autocommit=True) as connection:
        return connection.execute(query, params).fetchall()


def _drain(cluster: PatroniCluster) -> None:
    left = "select count(*) from fairlead.jobs where status::text <> all(%s)"
    until(
        lambda: _rows(cluster, left, list(ENDED)) == [(0,)],
        "every job to end",
        longest_pause=0.5,
    )


def _prepare(cluster: PatroniCluster) -> None:
    asyncio.run(migrate.up(cluster.url, "fairlead"))
    with Fairlead(settings=Settings(database_url=cluster.url), actor="tester") as fl:
        fl.add_tenant(TENANT)


def _check_record(load: Load) -> dict[str, int]:
    """What holds in either mode, of all jobs that are there. (counts)"""
    cluster = load.cluster
    jobs = _rows(
        cluster,
        """
        select j.id::text, j.status::text, j.output, array(select a.attempt_no from fairlead.attempts a
            where a.job_id = j.id order by a.attempt_no), array(select a.status from fairlead.attempts a
            where a.job_id = j.id order by a.attempt_no)
        from fairlead.jobs j
        """,
    )
    runs = {run: (job, attempt_no) for job, attempt_no, run in load.runs()}
    for job, status, output, numbers, ends in jobs:
        assert status == "succeeded", (job, status, ends)
        assert numbers == list(range(1, len(numbers) + 1)), (job, numbers)
        assert [end for end in ends if end == "succeeded"] == ["succeeded"] == ends[-1:], (job, ends)
        # the outcome is that of the attempt's own run, and of no other
        assert runs[output] == (job, numbers[-1]), (job, output)
    [(most,)] = _rows(
        cluster,
        """
        select max(running) from (
            select sum(step) over (order by at, step) as running from fairlead.attempts a
            join fairlead.jobs j on j.id = a.job_id join fairlead.job_definitions d on d.id = j.definition_id,
            lateral (values (a.started_at, 1), (a.finished_at, -1)) as edge(at, step)
            where d.key = 'limited') of_moment
        """,
    )
    assert 0 < most <= LIMIT
    with Fairlead(settings=Settings(database_url=cluster.url)) as fl:
        fl.wait(given.no_inconsistencies(fl.inner.database))
    return {
        "jobs": len(jobs),
        "attempts": sum(len(numbers) for *_, numbers, _ in jobs),
        "runs": len(runs),
        "jobs that ran more than once": _count_repeated(load, {job for job, *_ in jobs}),
    }


def _count_repeated(load: Load, jobs: set[str]) -> int:
    times = Counter(job for job, *_ in load.runs())
    return sum(times[job] > 1 for job in jobs)


def _lost(load: Load) -> dict[str, float]:
    """The jobs that were acknowledged and are not there, and when they were acknowledged."""
    there = {job for (job,) in _rows(load.cluster, "select id::text from fairlead.jobs")}
    return {job: at for job, at in load.acknowledged().items() if job not in there}


def _examine(cluster: PatroniCluster, check: str) -> Finding:
    async def look() -> Finding:
        found = [one async for one in doctor.examine(cluster.url, Settings(database_url=cluster.url))]
        return next(one for one in found if one.check == check)

    return asyncio.run(look())


def _kill_primaries(load: Load) -> None:
    for number in range(1, KILLS + 1):
        load.wait_for_acknowledgements(LOAD_SECONDS)
        told = load.fail_over()
        print(f"  {number}: {told}, {len(load.acknowledged())} acknowledged", flush=True)  # noqa: T201


def _report(mode: str, load: Load, counts: dict[str, int], lost: Sequence[str]) -> None:
    pauses = load.pauses()
    print(  # noqa: T201
        f"  {mode}: {len(load.deaths)} kills, {len(load.acknowledged())} acknowledged, {len(lost)} of them lost, "
        f"{counts}, refused {dict(load.refusals())}; the new primary accepted writes after "
        f"{min(load.recoveries):.1f} to {max(load.recoveries):.1f} s, clients were answered again after "
        f"{min(pauses):.1f} to {max(pauses):.1f} s",
        flush=True,
    )


def test_with_a_synchronous_standby_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    with patroni_cluster(synchronous=True, ttl=TTL) as cluster:
        _prepare(cluster)
        assert _examine(cluster, "standby").verdict is Verdict.OK
        with running_load(cluster, tmp_path) as load:
            _kill_primaries(load)
        counts = _check_record(load)
        lost = _lost(load)
        _report("synchronous", load, counts, list(lost))
        assert lost == {}
        # a claim that was acknowledged is on the standby, too: no attempt ran twice
        twice = [one for one, times in Counter((job, no) for job, no, _ in load.runs()).items() if times > 1]
        assert twice == []
        assert load.refusals() == Counter()  # the clients waited for the new primary


@pytest.mark.skipif(not IS_LONG, reason="takes minutes: make failover")
def test_with_asynchronous_standbys_only_the_last_moments_are_lost(tmp_path: Path) -> None:
    with patroni_cluster(synchronous=False, ttl=TTL) as cluster:
        _prepare(cluster)
        warned = _examine(cluster, "standby")
        assert warned.verdict is Verdict.WARN
        assert "acknowledged" in warned.advice
        with running_load(cluster, tmp_path) as load:
            _kill_primaries(load)
        counts = _check_record(load)
        lost = _lost(load)
        _report("asynchronous", load, counts, list(lost))
        # otherwise the test with a synchronous standby would not notice a loss either
        assert lost or not LAG_SECONDS
        for job, at in lost.items():
            # not longer before a death than the standbys lagged
            assert any(
                death - LAG_SECONDS - TOLERANCE_SECONDS < at < death + TOLERANCE_SECONDS
                for death in load.deaths
            ), (job, at)
