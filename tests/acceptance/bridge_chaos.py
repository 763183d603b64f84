"""Jobs through a delivery engine while its bridge, its workers and its broker are killed; counted from outside.

An engine's test brings its parts and reads what its workers noted; this module enqueues, kills, and compares.
"""

import os
import random
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fairlead import NewJob
from fairlead.actions import definitions, tenants
from fairlead.db.tx import Tx
from tests import given
from tests.acceptance.fleet import ROOT, Fleet
from tests.processes import FAIRLEAD, started, until
from tests.waiting import SECONDS

JOBS = int(os.environ.get("CHAOS_BRIDGE_JOBS", "40"))
KILLS = int(os.environ.get("CHAOS_BRIDGE_KILLS", "3"))
SEED = int(os.environ.get("CHAOS_SEED", "9"))
# A long one has more of everything: then each part may take its time.
IS_LONG = JOBS > 1000
LONGEST_RUN = 2 * SECONDS + JOBS / 10
TENANTS = (given.TENANT, given.OTHER, "initech", "hooli")
PER_TENANT = 5
KEY = "carried"
# For how long a killed part is away.
AWAY_SECONDS = (0.05, 0.5)
MOST_WORK_MS = 100


class Part(Protocol):
    """A process that is killed and started again."""

    def start(self) -> None: ...

    def kill(self) -> None: ...


class Line(NamedTuple):
    """What a worker noted: that a job begins or ends. `at` is in milliseconds; `run` differs for each delivery."""

    begins: bool
    job_id: str
    tenant: str
    run: str
    pid: int
    at: float


class ProcessPart:
    """A process that says when it is ready."""

    def __init__(
        self, stack: ExitStack, argv: list[str], env: Mapping[str, str], log: Path, ready: str
    ) -> None:
        self._stack = stack
        self._argv = argv
        self._env = env
        self._log = log
        self._ready = ready
        self._process: subprocess.Popen[str] | None = None
        # when each of its processes was killed, by pid
        self.killed: dict[int, float] = {}

    def start(self) -> None:
        begun = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("a") as log:
            self._process = self._stack.enter_context(
                started(self._argv, env=self._env, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
            )

        def is_ready() -> bool:
            with self._log.open() as said:
                said.seek(begun)
                return self._ready in said.read()

        until(is_ready, f"{self._argv[:2]} to be ready; see {self._log}")

    def kill(self) -> None:
        assert self._process is not None
        # before the signal: others may begin its jobs again before we have seen its end
        self.killed[self._process.pid] = time.time() * 1000
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()


def build_bridge(stack: ExitStack, fleet: Fleet, engine: str) -> ProcessPart:
    """A `fairlead bridge` with this table [engines.chaos] of fairlead.toml."""
    config = fleet.folder / "fairlead.toml"
    config.write_text(f"[engines.chaos]\nmax_in_flight = 60\n{engine}\n")
    env = {
        "FAIRLEAD_CONFIG": str(config),
        "FAIRLEAD_DATABASE_URL": fleet.url,
        "FAIRLEAD_POLL_SECONDS": "0.2",
        "PYTHONUNBUFFERED": "1",
    }
    return ProcessPart(
        stack, [FAIRLEAD, "bridge"], env, fleet.folder / "bridge.log", "delivering through chaos"
    )


def set_up(fleet: Fleet, *, kind: str, queue: str) -> None:
    """Tenants, and the definition whose jobs the engine carries."""

    async def publish(tx: Tx) -> None:
        for slug in TENANTS[2:]:
            await tenants.add(tx, given.TESTER, slug=slug)
        values = {
            "kind": kind,
            "engine": "chaos",
            "queue": queue,
            "max_running_per_tenant": PER_TENANT,
            "max_attempts": 20,
            "timeout_seconds": 3600,
            "backoff": {"base_seconds": 0, "factor": 1, "cap_seconds": 0, "jitter": 0},
        }
        await definitions.patch(tx, given.TESTER, KEY, values)

    fleet.fl.wait(fleet.fl.inner.database.transact(publish))


def run(
    fleet: Fleet,
    parts: Sequence[Part],
    read_lines: Callable[[], Iterable[Line]],
    *,
    workers: Sequence[ProcessPart],
    build_payload: Callable[[int, int], Any],
) -> None:
    """Enqueue, kill the parts in turn, and compare what the database and the workers say.

    `build_payload` gets a number, which the output must have as {"echo": number}, and milliseconds of work.
    """
    chance = random.Random(SEED)  # noqa: S311
    new = [
        NewJob(
            definition=KEY,
            tenant=TENANTS[number % len(TENANTS)],
            payload=build_payload(number, chance.randrange(MOST_WORK_MS)),
        )
        for number in range(JOBS)
    ]
    fleet.fl.enqueue_many(new)
    for number in range(KILLS):
        _until_ended(fleet, JOBS * (number + 1) // (KILLS + 1))
        part = parts[number % len(parts)]
        part.kill()
        time.sleep(chance.uniform(*AWAY_SECONDS))  # it is away for a while
        part.start()
    _until_ended(fleet, JOBS)

    lines = list(read_lines())
    _check_outcomes(fleet)
    _check_work(lines)
    _check_limits(lines, {pid: at for worker in workers for pid, at in worker.killed.items()})
    fleet.is_consistent()


def _until_ended(fleet: Fleet, number: int) -> None:
    def have() -> bool:
        [(ended,)] = fleet.rows(
            "select count(*) from fairlead.jobs where status not in ('queued', 'running')"
        )
        return bool(ended >= number)

    until(have, f"{number} of {JOBS} jobs to end", seconds=LONGEST_RUN)


def _check_outcomes(fleet: Fleet) -> None:
    assert fleet.tally() == {"succeeded": JOBS}
    wrong = fleet.rows("select id from fairlead.jobs where output->'echo' is distinct from payload->'value'")
    assert wrong == []
    twice = fleet.rows(
        "select job_id from fairlead.attempts group by 1 having count(*) filter (where status = 'succeeded') <> 1"
    )
    assert twice == []
    assert fleet.rows("select job_id from fairlead.handovers h join fairlead.leases l using (job_id)") == []


def _check_work(lines: Sequence[Line]) -> None:
    """Every job ran to its end, and nothing was handed over twice. The broker itself delivers the job of a worker that
    was killed again, and one whose end was not stored when the broker was killed.
    """
    begun, ended = [line for line in lines if line.begins], [line for line in lines if not line.begins]
    assert len({line.job_id for line in ended}) == JOBS
    twice = [run for run, number in Counter(line.run for line in begun).items() if number > 1]
    assert twice == []
    cut, again = len(begun) - len(ended), len(begun) - JOBS
    print(f"{JOBS} jobs, {KILLS} kills, {cut} runs cut off, {again} delivered again by the broker")  # noqa: T201
    assert cut > 0 or not IS_LONG  # else no worker was killed at a bad moment


def _check_limits(lines: Sequence[Line], killed: Mapping[int, float]) -> None:
    """No tenant had more running than it may, at any moment. A killed worker's runs ended with it."""
    ends = {(line.run, line.pid): line.at for line in lines if not line.begins}
    changes = defaultdict[str, list[tuple[float, int]]](list)
    for line in lines:
        if line.begins:
            end = ends.get((line.run, line.pid), killed.get(line.pid))
            assert end is not None, f"a run without an end, of a worker that was not killed: {line}"
            changes[line.tenant] += [(line.at, 1), (end, -1)]
    assert set(changes) == set(TENANTS)
    for tenant, moments in changes.items():
        running = most = 0
        for _, change in sorted(moments):
            running += change
            most = max(most, running)
        assert most <= PER_TENANT, f"{tenant} had {most} running"
