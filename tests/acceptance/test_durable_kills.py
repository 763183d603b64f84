"""Workers killed, stopped and cut off at random while durable functions run: no recorded step runs again, and every function ends.

`make test` does it with some functions, `make durable` with 500 of 20 steps (DURABLE_FUNCTIONS). The steps write a line for each run
to a file: what ran is counted there, and not by the engine.
"""

import itertools
import os
import random
import signal
import sys
import threading
from collections import Counter, defaultdict
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Self
from uuid import UUID

import psycopg
import pytest

from fairlead import NewJob
from fairlead.errors import DatabaseUnreachable, JobNotSignalable
from tests.acceptance import durable_under_test
from tests.acceptance.fleet import LEASE, Fleet, WorkerUnderTest
from tests.given import TENANT
from tests.processes import until
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough

FUNCTIONS = int(os.environ.get("DURABLE_FUNCTIONS", "10"))
SEED = int(os.environ.get("DURABLE_SEED", "26"))
STEPS = 20
WORKERS = 3 if FUNCTIONS > 100 else 2
# Between two faults; a worker needs most of that to begin.
FAULT_SECONDS = (0.3, 1.0)
# The short version has as many faults as it has time for; the long one about one for every eight functions at least.
LEAST_KILLS = max(3, FUNCTIONS // 8)
LONGEST_RUN = 2 * SECONDS + FUNCTIONS * 2
FLAGS = ("--concurrency", "20", "--scheduler")

# The steps, as recorded: the attempt that recorded each, and its result.
_RECORDED = """
select s.job_id, s.name, s.branch, s.attempt_no, s.status, s.result #>> '{}' from fairlead.job_steps s where s.kind = 'step'
"""
_CHILDREN = "select parent_id, count(*) from fairlead.jobs where parent_id is not null group by 1"
_FUNCTIONS = "select id, status::text, output from fairlead.jobs where parent_id is null"
_LEFT = "select count(*) from fairlead.jobs where parent_id is null and status in ('queued', 'running')"
_CUT_OFF = """
select pg_terminate_backend(pid) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and application_name = 'fairlead'
order by random() limit 3
"""


class Faults:
    """Kills workers at random, and starts others; stops some for longer than a lease; cuts some connections."""

    def __init__(self, fleet: Fleet, stack: ExitStack) -> None:
        self.done: Counter[str] = Counter()
        self._fleet = fleet
        self._stack = stack
        self._chance = random.Random(SEED)  # noqa: S311
        self._over = threading.Event()
        self._workers = [self._start() for _ in range(WORKERS)]
        self._thread = threading.Thread(target=self._run)
        self.failed: BaseException | None = None

    def _start(self) -> WorkerUnderTest:
        return self._stack.enter_context(self._fleet.worker(*FLAGS))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with psycopg.connect(self._fleet.url, autocommit=True) as connection:
                for number in itertools.count():
                    self._over.wait(self._chance.uniform(*FAULT_SECONDS))
                    if self._over.is_set():
                        return
                    self._do_harm(connection, number)
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.failed = error

    def _do_harm(self, connection: psycopg.Connection[Any], number: int) -> None:
        # deaths are not counted against jobs: a job that was alone in three killed workers is taken for the cause
        connection.execute("update fairlead.job_records set lost_count = 0 where lost_count > 0")
        victim = self._chance.randrange(WORKERS)
        kind = "stop" if number % 8 == 3 else "cut" if number % 4 == 1 else "kill"
        self.done[kind] += 1
        if kind == "cut":
            connection.execute(_CUT_OFF)
        elif kind == "stop":
            self._workers[victim].signal(signal.SIGSTOP)
            self._over.wait(LEASE * 1.5)
            self._workers[victim].signal(signal.SIGCONT)
        else:
            self._workers[victim].signal(signal.SIGKILL)
            self._workers[victim] = self._start()


@pytest.mark.timeout(LONGEST_RUN + 2 * SECONDS)
def test_no_recorded_step_runs_again_though_workers_are_killed(database_url: str, tmp_path: Path) -> None:
    chance = random.Random(SEED)  # noqa: S311
    numbers = dict[UUID, int]()
    with (
        Fleet(database_url, tmp_path, durable_under_test) as fleet,
        ExitStack() as stack,
        ExitStack() as ends,
    ):
        faults = ends.enter_context(Faults(fleet, stack))

        def add_functions(count: int) -> None:
            first = len(numbers)
            new = [
                NewJob(
                    definition="crossing" if n % 4 == 3 else "voyage",
                    tenant=TENANT,
                    payload={"n": n, "folder": str(tmp_path)},
                )
                for n in range(first, first + count)
            ]
            jobs = [one.id for one in fleet.fl.enqueue_many(new)]
            numbers.update(zip(jobs, range(first, first + count), strict=True))
            # some come before the wait for them, some after
            tell_all(fleet, list(zip(jobs, range(first, first + count), strict=True)), chance)
            until(
                lambda: fleet.rows(_LEFT) == [(0,)] or faults.failed,
                "every function to end",
                seconds=LONGEST_RUN,
            )
            if faults.failed is not None:
                raise faults.failed

        add_functions(FUNCTIONS)
        while faults.done["kill"] < LEAST_KILLS or not count_lost(fleet):
            add_functions(FUNCTIONS)
        ends.close()
        wasted = check(fleet, numbers, tmp_path)
        fleet.is_consistent()
        sys.stderr.write(
            f"{len(numbers)} functions, {dict(faults.done)}, {count_lost(fleet)} attempts lost, {wasted} runs of steps repeated\n"
        )


def tell_all(fleet: Fleet, jobs: list[tuple[UUID, int]], chance: random.Random) -> None:
    """Emit the event and send the signal of each function, in a random order."""
    told = [(job_id, n, what) for job_id, n in jobs for what in ("event", "signal")]
    chance.shuffle(told)
    for job_id, n, what in told:
        until(partial(_tell, fleet, job_id, n, what), f"function {n} to get its {what}")


def _tell(fleet: Fleet, job_id: UUID, n: int, what: str) -> bool:
    """Whether it was told. If the answer is lost it is told twice: the function waits for one, and may have ended by then."""
    try:
        if what == "event":
            fleet.fl.emit("arrived", data={"n": n, "word": f"event {n}"}, tenant=TENANT)
        else:
            fleet.fl.signal(job_id, "go", f"signal {n}")
    except DatabaseUnreachable:
        return False
    except JobNotSignalable:
        pass
    return True


def count_lost(fleet: Fleet) -> int:
    [(number,)] = fleet.rows("select count(*) from fairlead.attempts where status = 'lost'")
    return int(number)


def check(fleet: Fleet, numbers: dict[UUID, int], folder: Path) -> int:
    """Compare the records and the results with the lines of the runs. How many runs were in vain."""
    runs = defaultdict[tuple[UUID, str], list[tuple[int, str]]](list)
    for line in (folder / "runs").read_text(encoding="utf-8").splitlines():
        job_id, attempt_no, name, mark = line.split()
        runs[UUID(job_id), name].append((int(attempt_no), mark))
    lost = Counter[tuple[UUID, int, str]]()
    marks = defaultdict[UUID, dict[str, str]](dict)
    for job_id, name, branch, attempt_no, status, result in fleet.rows(_RECORDED):
        ran = runs.pop((job_id, name))
        by_attempt = Counter(attempt for attempt, _ in ran)
        assert max(by_attempt.values()) == 1, f"{job_id} ran {name} twice in one attempt: {ran}"
        assert max(by_attempt) <= attempt_no, (
            f"{job_id} ran {name} again after attempt {attempt_no} recorded it: {ran}"
        )
        if status == "succeeded":
            assert dict(ran)[attempt_no] == result, (
                f"the record of {name} of {job_id} is of no run of its attempt"
            )
            marks[job_id][name] = result
        lost.update((job_id, attempt, branch) for attempt in by_attempt if attempt != attempt_no)
    assert not runs, f"steps ran that are not recorded: {runs}"
    # an attempt that was killed had not recorded the step that it ran, and no other
    assert not lost or max(lost.values()) == 1, lost.most_common(3)
    children = dict(fleet.rows(_CHILDREN))
    functions = fleet.rows(_FUNCTIONS)
    assert len(functions) == len(numbers)
    for job_id, status, output in functions:
        assert status == "succeeded", f"{job_id} is {status}: {output}"
        _check_output(output, numbers[job_id], marks[job_id], children[job_id])
    return lost.total()


def _check_output(output: dict[str, Any], n: int, marks: dict[str, str], children: int) -> None:
    told = output["marks"]
    is_voyage = told.pop("refused", None) == "not today"
    if is_voyage:
        assert told.pop("error") == "declined"
    assert told == marks
    assert len(marks) == STEPS - is_voyage  # without the step that failed
    assert output["children"] == ([2 * n, 2 * n + 2] if is_voyage else [2 * n])
    assert children == (3 if is_voyage else 1)
    assert (output["event"], output["signal"]) == ({"n": n, "word": f"event {n}"}, f"signal {n}")
