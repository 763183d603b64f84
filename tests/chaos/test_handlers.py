"""The job functions, commands and the TypeScript worker of a chaos run, on real workers: what they record is what happened."""

import asyncio
import signal
from collections import defaultdict
from typing import Any
from uuid import UUID

import msgspec
import pytest

from fairlead.chaos import scenario
from fairlead.chaos.history import EndRecord, HistoryRecord, SecretRecord, StartRecord, StepRunRecord
from fairlead.chaos.load import typescript
from fairlead.chaos.load.durable_function import FunctionPlan
from fairlead.chaos.load.secret_values import MARK, name_secret, set_secret
from fairlead.chaos.site.leftovers import find_orphans
from fairlead.library.app import Fairlead
from fairlead.model.job import NewJob
from fairlead.settings import TOKEN_VARIABLE, Settings
from tests.chaos.live_run import LiveRun
from tests.processes import FAIRLEAD, until
from tests.typescript import require_build
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough

# The status of an attempt for each way in which a job function says that it ends.
STATUSES = {
    "succeeded": "succeeded",
    "failed": "failed",
    "fatal": "failed",
    "snoozed": "released",
    "suspended": "released",
    "canceled": "canceled",
}
PLANS: dict[str, dict[str, Any]] = {
    scenario.QUICK: {},
    scenario.SLOW: {"seconds": 0.2},
    scenario.NARROW: {"seconds": 0.1, "fail": 1},
    scenario.FLAKY: {"fail": 2, "snooze": 1},
    scenario.FATAL: {},
    scenario.ISOLATED: {"seconds": 0.2, "text": 1000},
    scenario.STEP: {"n": 7},
    scenario.COSTLY: {"cost": 4, "fail": 1},
    scenario.JOIN: {"outs": [1, 2, 3]},
    scenario.COMMAND: {"seconds": 0.05, "fail": 1, "snooze": 1, "text": 1_000_000},
}
FUNCTION = FunctionPlan(
    steps=2, failing_tries=1, sleep=0.1, parallel=2, child="fatal", late=True, broken=True
)
ATTEMPTS = "select job_id, attempt_no, status from fairlead.attempts"
OUTPUTS = """
select d.key, j.status::text, j.attempt_count, j.output from fairlead.jobs j
join fairlead.job_definitions d on d.id = j.definition_id
"""


@pytest.fixture
def run(live_run: LiveRun) -> LiveRun:
    live_run.install(unserved=[])
    return live_run


def enqueue(run: LiveRun, plans: dict[str, dict[str, Any]]) -> dict[str, UUID]:
    """A job for each plan."""

    async def send() -> dict[str, UUID]:
        key = f"file:{run.master_keys[0]}"
        async with Fairlead(settings=Settings(database_url=run.url, encryption_key=key)) as fl:
            new = [
                NewJob(definition=key, tenant=scenario.TENANTS[0], payload=plan)
                for key, plan in plans.items()
            ]
            return {of.definition: one.id for of, one in zip(new, await fl.enqueue_many(new), strict=True)}

    return asyncio.run(send())


def cancel(run: LiveRun, job_id: UUID) -> None:
    async def send() -> None:
        async with Fairlead(settings=Settings(database_url=run.url)) as fl:
            await fl.cancel(job_id)

    asyncio.run(send())


def attempts_of(records: list[HistoryRecord]) -> dict[tuple[UUID, int], list[str]]:
    """What was recorded of each attempt, in order."""
    found: dict[tuple[UUID, int], list[str]] = defaultdict(list)
    for record in records:
        if isinstance(record, StartRecord):
            found[record.job_id, record.attempt_no].append("start")
        elif isinstance(record, EndRecord):
            found[record.job_id, record.attempt_no].append(STATUSES[record.outcome])
    return found


def has_started(run: LiveRun, job_id: UUID) -> bool:
    return any(isinstance(record, StartRecord) and record.job_id == job_id for record in run.read())


def test_every_attempt_ends_as_planned_and_is_recorded(run: LiveRun) -> None:
    jobs = enqueue(run, PLANS)
    long = enqueue(run, {scenario.LONG: {}})[scenario.LONG]
    with run.worker() as worker:
        until(lambda: has_started(run, long), "the long job to start")
        cancel(run, long)
        until(run.has_drained, "the jobs to end")
        until(lambda: not find_orphans(run.mark, [worker.pid]), "the commands' processes to be killed")

    stored = {(job, number): ["start", status] for job, number, status in run.rows(ATTEMPTS)}
    assert attempts_of(run.read()) == stored
    ends = {key: (status, attempts, output) for key, status, attempts, output in run.rows(OUTPUTS)}
    assert set(ends) == {*jobs, scenario.LONG}
    assert ends == {
        scenario.QUICK: ("succeeded", 1, {"attempt": 1}),
        scenario.SLOW: ("succeeded", 1, {"attempt": 1}),
        scenario.NARROW: ("succeeded", 2, {"attempt": 2}),
        scenario.FLAKY: ("succeeded", 4, {"attempt": 4}),
        scenario.FATAL: ("failed", 1, None),
        scenario.ISOLATED: ("succeeded", 1, {"attempt": 1}),
        scenario.STEP: ("succeeded", 1, 7),
        scenario.JOIN: ("succeeded", 1, 6),
        scenario.COMMAND: ("succeeded", 3, {"attempt": 3}),
        scenario.COSTLY: ("succeeded", 2, {"attempt": 2}),
        scenario.LONG: ("canceled", 1, None),
    }
    assert run.rows("select cost_cents from fairlead.jobs where id = %s", jobs[scenario.COSTLY]) == [(8,)]


def test_which_secret_an_attempt_got_is_recorded_and_shown_nowhere(run: LiveRun) -> None:
    [acme, *_] = scenario.TENANTS
    set_secret(run.secrets, acme, 7)
    jobs = enqueue(run, {scenario.SECRET: {"token": name_secret(acme), "fail": 1}, scenario.COMMAND: {}})
    with run.worker():
        until(run.has_drained, "the jobs to end")

    got = {
        (one.job_id, one.attempt_no): (one.owner, one.number)
        for one in run.read()
        if isinstance(one, SecretRecord)
    }
    assert got == {
        (jobs[scenario.SECRET], 1): (acme, 7),
        (jobs[scenario.SECRET], 2): (acme, 7),
        (jobs[scenario.COMMAND], 1): (scenario.COMMANDS_SECRET, 0),
    }
    ends = {key: (attempts, output) for key, _, attempts, output in run.rows(OUTPUTS)}
    assert ends[scenario.SECRET] == (2, {"attempt": 2, "used": "[redacted]"})
    [(error,)] = run.rows("select error_text from fairlead.job_attempts where status = 'failed'")
    assert "was refused, as planned" in error
    assert MARK not in error


def test_the_steps_of_a_durable_function_are_recorded(run: LiveRun) -> None:
    enqueue(run, {scenario.DURABLE: msgspec.to_builtins(FUNCTION)})
    with run.server(), run.worker():
        until(run.has_drained, "the function to end")

    stored = {(job, number): ["start", status] for job, number, status in run.rows(ATTEMPTS)}
    assert attempts_of(run.read()) == stored
    ends = {key: (status, output) for key, status, _, output in run.rows(OUTPUTS)}
    assert ends[scenario.FATAL] == ("failed", None)
    status, output = ends[scenario.DURABLE]
    assert status == "succeeded"
    assert (output["child"], output["late"], output["undone"]) == ("failed", None, True)
    ran = {one.value: one.name for one in run.read() if isinstance(one, StepRunRecord)}
    assert {ran[value] for value in output["steps"].values()} == set(output["steps"])
    assert len(output["steps"]) == FUNCTION.count_steps()
    # the first try of one step, and the one that is undone
    assert len(ran) == FUNCTION.count_steps() + 2


def test_a_poison_job_kills_its_worker(run: LiveRun) -> None:
    poison = enqueue(run, {scenario.POISON: {}})[scenario.POISON]
    with run.worker() as worker:
        assert worker.exit_code(seconds=SECONDS) == -signal.SIGKILL
    assert attempts_of(run.read()) == {(poison, 1): ["start"]}


def test_workers_over_http_record_the_same(run: LiveRun) -> None:
    node = require_build()
    argv = typescript.find_typescript_worker() or [node, str(typescript.PROGRAM), typescript.CLIENT.as_uri()]
    access = {TOKEN_VARIABLE: run.access.worker_token, "FAIRLEAD_URL": run.access.servers[0]}
    plan = {"seconds": 0.2, "fail": 1, "snooze": 1}
    enqueue(run, {scenario.HTTP: plan, scenario.TYPESCRIPT: plan})
    python = [FAIRLEAD, "worker", "fairlead.chaos.load.handlers:http_fl", "--server", run.access.servers[0]]
    with (
        run.server(),
        run.process(python, "Ctrl-C stops", **access),
        run.process(argv, "ready", **access),
    ):
        until(run.has_drained, "the jobs to end")
    stored = {(job, number): ["start", status] for job, number, status in run.rows(ATTEMPTS)}
    assert attempts_of(run.read()) == stored
    expected = ("succeeded", 3, {"attempt": 3})
    assert {key: tuple(rest) for key, *rest in run.rows(OUTPUTS)} == {
        scenario.HTTP: expected,
        scenario.TYPESCRIPT: expected,
    }
    # both clocks are CLOCK_MONOTONIC
    times = [record.at for record in run.read()]
    assert max(times) - min(times) < 600
