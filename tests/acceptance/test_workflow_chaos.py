"""Workers killed at random while runs go on: every run ends, each step succeeds once, and no join is early or twice.

`make test` does it with some runs, `make chaos` with two hundred of them, and ten thousand sub-tasks.
"""

import itertools
import os
import random
import signal
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from fairlead import Flow
from fairlead.library.workflows import FlowStep
from tests.acceptance.fleet import Fleet, WorkerUnderTest
from tests.given import TENANT
from tests.processes import until
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough

RUNS = int(os.environ.get("CHAOS_RUNS", "5"))
TASKS = int(os.environ.get("CHAOS_TASKS", "500"))
SEED = int(os.environ.get("CHAOS_SEED", "9"))
WORKERS = 3
LAYERS = (1, 4, 5, 5, 4, 1)
# Between two kills; a worker needs most of that to begin.
KILL_SECONDS = (0.3, 1.5)

# What each step's job did, and what it must not have done.
_STEPS = """
select r.status, s.state, count(*) from fairlead.workflow_steps s
join fairlead.workflow_runs r on r.id = s.run_id group by r.status, s.state
"""
_TWICE = """
select j.workflow_run_id, j.source_ref from fairlead.jobs j where j.workflow_run_id is not null
group by 1, 2 having count(*) <> 1 or count(*) filter (where j.status = 'succeeded') <> 1
"""
_EARLY = """
select s.name, b.name from fairlead.workflow_steps s
join fairlead.workflow_steps b on b.run_id = s.run_id and b.place = any(s.before)
join fairlead.jobs j on j.workflow_run_id = s.run_id and j.workflow_step = s.place
join fairlead.jobs k on k.workflow_run_id = b.run_id and k.workflow_step = b.place
where j.queued_at < k.finished_at
"""


def graph() -> Flow:
    """Twenty steps in layers, each after all of the layer before."""
    flow = Flow("graph")
    before: list[FlowStep] = []
    for layer, width in enumerate(LAYERS):
        before = [
            flow.step(f"s{layer}_{n}", "costly", {"cents": layer + n + 1}, after=before) for n in range(width)
        ]
    return flow


def test_runs_end_as_they_should_though_workers_are_killed(database_url: str, tmp_path: Path) -> None:
    chance = random.Random(SEED)  # noqa: S311
    over = threading.Event()
    with Fleet(database_url, tmp_path) as fleet, ExitStack() as stack:
        workers = [stack.enter_context(fleet.worker("--concurrency", "20")) for _ in range(WORKERS)]
        killer = threading.Thread(target=_kill, args=(fleet, stack, workers, chance, over))
        killer.start()
        try:
            for _ in range(RUNS):
                fleet.fl.wait(fleet.fl.inner.run_inline(graph(), tenant=TENANT))
            until(lambda: _running(fleet) == 0, "every run to end", seconds=2 * SECONDS)
            runs = RUNS
            while not _lost(fleet):  # nobody was killed at a bad moment
                fleet.fl.wait(fleet.fl.inner.run_inline(graph(), tenant=TENANT))
                until(lambda: _running(fleet) == 0, "another run to end", seconds=2 * SECONDS)
                runs += 1
        finally:
            over.set()
            killer.join()

        steps = sum(LAYERS)
        assert fleet.rows(_STEPS) == [("succeeded", "succeeded", runs * steps)]
        assert fleet.rows(_TWICE) == []
        assert fleet.rows(_EARLY) == []
        _usage_equals_attempts(fleet)
        fleet.is_consistent()


def test_thousands_of_sub_tasks_are_joined_once(database_url: str, tmp_path: Path) -> None:
    with Fleet(database_url, tmp_path) as fleet, fleet.worker("--concurrency", "500"):
        payloads = [{"n": n} for n in range(TASKS)]
        run = fleet.fl.fan_out(
            "echo", payloads, tenant=TENANT, join="total", payload={"outs": "{{steps.tasks.output}}"}
        )

        assert run.result(2 * SECONDS) == {"join": sum(range(TASKS))}

        assert fleet.rows("select count(*) from fairlead.jobs where source_ref = 'join'") == [(1,)]
        fleet.is_consistent()


def _running(fleet: Fleet) -> int:
    [(number,)] = fleet.rows("select count(*) from fairlead.workflow_runs where status = 'running'")
    return int(number)


def _lost(fleet: Fleet) -> int:
    [(number,)] = fleet.rows("select count(*) from fairlead.attempts where status = 'lost'")
    return int(number)


def _kill(
    fleet: Fleet,
    stack: ExitStack,
    workers: list[WorkerUnderTest],
    chance: random.Random,
    over: threading.Event,
) -> None:
    """Kill one that holds jobs, then one after the other, and put another in its place.

    Not many more than there are runs: a job that was alone in three killed workers is taken for the cause.
    """
    holding = until(lambda: fleet.rows("select worker_id from fairlead.leases limit 1"), "a step to run")
    pid = int(holding[0][0].split(":")[1])
    victim = next(n for n, worker in enumerate(workers) if worker.pid == pid)
    for number in itertools.count():
        if over.is_set() or (number >= RUNS and _lost(fleet)):
            return
        workers[victim].signal(signal.SIGKILL)
        workers[victim] = stack.enter_context(fleet.worker("--concurrency", "20"))
        over.wait(chance.uniform(*KILL_SECONDS))
        victim = chance.randrange(WORKERS)


def _usage_equals_attempts(fleet: Fleet) -> None:
    """To the cent: what is recorded of use is what the attempts say."""
    [(runs, cents)] = fleet.rows("select count(*), sum(cost_cents) from fairlead.attempts")
    [(used_runs, used_cents)] = fleet.rows(
        "select sum(runs), sum(cost_cents) from ("
        "select runs, cost_cents from fairlead.counts union all select runs, cost_cents from fairlead.usage_hourly) u"
    )
    assert (used_runs, used_cents) == (runs, cents)
