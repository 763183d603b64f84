"""A process that is stopped (SIGSTOP) in the middle of its work delays other tenants' jobs by one lease at most.

Each test holds a process at one point, by a gate in the database, stops it there and opens the gate. PostgreSQL goes on with
the statement; the process never sends the next one, and its end of the connection stays open.
"""

import contextlib
import http.client
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from fairlead.actions import access
from fairlead.db.tx import Tx
from fairlead.model.access import Role
from fairlead.model.trigger import Trigger
from fairlead.store import queue
from tests import given
from tests.acceptance.fleet import QUICK, Fleet, WorkerUnderTest, running
from tests.processes import FAIRLEAD, free_port, until

pytestmark = pytest.mark.thorough

LEASE = 4.0
# One lease, and a generous margin for a busy machine: where nothing ended the transaction it would be hours.
DEADLINE = 30 * LEASE
SETTINGS = {"FAIRLEAD_LEASE_SECONDS": str(LEASE)}
# Whoever comes first waits here while the gate is closed. No lock is waited for, so no lock_timeout ends it.
GATE = """
create table public.gate (closed boolean);
create function public.wait_at_gate() returns trigger language plpgsql security definer as $$
begin
    if exists (select from public.gate) and pg_try_advisory_xact_lock(4711) then
        while exists (select from public.gate) loop
            perform pg_sleep(0.01);
        end loop;
    end if;
    return new;
end
$$;
"""


class Stage(Fleet):
    """Processes of all kinds, and a gate at which one of them is stopped."""

    def gate(self, table: str, when: str = "insert") -> None:
        """Have the next process wait that writes a row of this table."""
        self.rows(GATE)
        self.rows(
            f"create trigger gate before {when} on fairlead.{table} "
            "for each row execute function public.wait_at_gate()"
        )
        self.rows("insert into public.gate values (true)")

    def stop_at_gate(self, process: WorkerUnderTest, *, then: WorkerUnderTest, is_idle: bool = True) -> int:
        """Stop it when it has come to the gate, let the other go on, and open the gate; the backend of its session.

        `is_idle`: the process is in the middle of a transaction, and so leaves it idle.
        """
        at_gate = until(lambda: self.backends("wait_event = 'PgSleep'"), "the process to come to the gate")
        pid = int(at_gate[0][0])
        process.signal(signal.SIGSTOP)
        then.signal(signal.SIGCONT)
        self.rows("delete from public.gate")
        if is_idle:
            self.is_or_was(pid, "state = 'idle in transaction'")
        return pid

    def is_or_was(self, pid: int, what: str) -> None:
        """Wait until a backend is so, or has ended: it is soon ended for that, and we may look too late."""
        until(
            lambda: not self.backends(f"pid = {pid}") or self.backends(f"pid = {pid} and {what}"),
            f"{what} of its session",
        )

    def backends(self, what: str) -> list[tuple[Any, ...]]:
        """Sessions of Fairlead's processes that are so now."""
        return self.rows(
            "select pid from pg_stat_activity where datname = current_database() and "
            f"application_name = 'fairlead' and {what}"
        )

    @contextlib.contextmanager
    def two_workers(self, *flags: str) -> Iterator[tuple[WorkerUnderTest, WorkerUnderTest]]:
        """Two workers, of which the second is stopped for now, so that the first, with these flags, comes to the gate."""
        first, second = self.worker(*flags, **SETTINGS), self.worker(**SETTINGS)
        with self._two(first, second, self._has_two_workers) as both:
            yield both

    def _has_two_workers(self) -> bool:
        """Whether both are at work: they say that they serve a moment earlier."""
        return len(self.rows("select worker_id from fairlead.job_workers")) == 2

    @contextlib.contextmanager
    def two_schedulers(self) -> Iterator[tuple[WorkerUnderTest, WorkerUnderTest]]:
        """The same with schedulers."""
        first, second = (self.process("scheduler", says="firing schedules") for _ in range(2))
        with self._two(first, second) as both:
            yield both

    @contextlib.contextmanager
    def _two(
        self,
        one: contextlib.AbstractContextManager[WorkerUnderTest],
        other: contextlib.AbstractContextManager[WorkerUnderTest],
        are_ready: Callable[[], bool] = lambda: True,
    ) -> Iterator[tuple[WorkerUnderTest, WorkerUnderTest]]:
        with one as first, other as second:
            until(are_ready, "both to be at work")
            second.signal(signal.SIGSTOP)
            yield first, second

    @contextlib.contextmanager
    def process(self, *argv: str, says: str) -> Iterator[WorkerUnderTest]:
        """Another command of ours, ready for work."""
        env = {"FAIRLEAD_DATABASE_URL": self.url} | QUICK | SETTINGS
        with running([FAIRLEAD, *argv], env, says=says) as process:
            yield process

    def for_other(self, key: str, **payload: Any) -> UUID:
        """A job of the other tenant."""
        return self.fl.enqueue(key, tenant=given.OTHER, payload=payload).id

    def succeeds_in_time(self, job_id: UUID) -> None:
        until(lambda: self.fl.read(job_id).status == "succeeded", "the other tenant's job", seconds=DEADLINE)

    def limit(self, key: str) -> None:
        """Let all tenants together run five jobs of this definition: their claims lock one row."""
        self.rows("update fairlead.job_definitions set max_running = 5 where key = %s", key)

    def done(self, work: Callable[[Tx], Any]) -> Any:
        return self.fl.wait(self.fl.inner.database.transact(work))


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    with Stage(database_url, tmp_path) as opened:
        yield opened
        opened.is_consistent()


def test_stopped_while_it_makes_due_jobs_ready(stage: Stage) -> None:
    with stage.two_workers() as (stopped, other):
        job_id = stage.fl.enqueue("on_the_loop", tenant=given.OTHER, delay=3600).id
        stage.gate("ready")
        stage.rows("update fairlead.later set due_at = now() where job_id = %s", job_id)
        # one statement, committed by PostgreSQL itself
        stage.stop_at_gate(stopped, then=other, is_idle=False)

        stage.succeeds_in_time(job_id)


def test_stopped_while_it_claims_under_a_limit_of_all_tenants(stage: Stage) -> None:
    with stage.two_workers() as (stopped, other):
        stage.limit("echo")
        stage.gate("leases")
        stage.enqueue("echo", n=1)
        stage.stop_at_gate(stopped, then=other, is_idle=False)

        stage.succeeds_in_time(stage.for_other("echo", n=2))


def test_stopped_while_a_large_claim_is_on_its_way_to_it(stage: Stage) -> None:
    """The answer does not fit into the socket: PostgreSQL waits for the process in the middle of the statement."""
    with stage.two_workers() as (stopped, other):
        stage.gate("leases")
        stage.limit("measure")
        stage.enqueue_many(*[("measure", {"text": "x" * 250_000})] * 3)
        pid = stage.stop_at_gate(stopped, then=other, is_idle=False)
        stage.is_or_was(pid, "wait_event = 'ClientWrite'")

        stage.succeeds_in_time(stage.for_other("measure", text="x"))


def test_stopped_while_it_ends_a_step_of_a_run(stage: Stage) -> None:
    """It holds the run. Another worker that ends a step of the same run still ends other jobs.

    That one has room for more than these steps: those of the stopped worker are rescued, and held again.
    """
    with stage.two_workers("--concurrency", "2") as (stopped, other):
        payloads = [{"folder": str(stage.folder)}] * 4
        stage.fl.fan_out("held", payloads, tenant=given.TENANT)
        first = until(lambda: _begun(stage, stopped), "a step to begin")[0]
        stage.gate("workflow_steps", "update")
        stage.let_go(first)
        stage.stop_at_gate(stopped, then=other)
        last = until(lambda: _begun(stage, other), "the other worker to begin a step")[0]
        stage.let_go(last)
        until((stage.folder / f"{last}.1.ended").exists, "that step to end")

        for _ in range(2):  # one may be written together with the step
            stage.succeeds_in_time(stage.for_other("on_the_loop"))


def _begun(stage: Stage, worker: WorkerUnderTest) -> list[UUID]:
    """The held jobs that this worker has begun."""
    files = [one for one in stage.folder.glob("*.1.begun") if int(one.read_text()) == worker.pid]
    return [UUID(one.name.split(".")[0]) for one in files]


def test_stopped_while_it_rescues_what_a_dead_worker_left(stage: Stage) -> None:
    job_id = stage.for_other("on_the_loop")
    stage.done(lambda tx: queue.claim(tx, worker="dead", wanted=1, lease_seconds=3600))
    with stage.two_workers() as (stopped, other):
        stage.gate("lost_workers")
        stage.rows("update fairlead.leases set expires_at = clock_timestamp()")
        stage.stop_at_gate(stopped, then=other)

        stage.succeeds_in_time(job_id)


def test_stopped_while_it_fires_schedules(stage: Stage) -> None:
    with stage.two_schedulers() as (stopped, other):
        stage.gate("trigger_firings")

        async def make_due(tx: Tx) -> list[Trigger]:
            return [await given.due_trigger(tx, tenant=tenant) for tenant in (given.TENANT, given.OTHER)]

        _, trigger = stage.done(make_due)
        stage.stop_at_gate(stopped, then=other)

        _fires_in_time(stage, trigger)


def test_stopped_while_it_dispatches_events(stage: Stage) -> None:
    async def make(tx: Tx) -> list[Trigger]:
        return [await given.trigger(tx, tenant=tenant) for tenant in (given.TENANT, given.OTHER)]

    async def emit(tx: Tx) -> None:
        for tenant in (given.TENANT, given.OTHER):
            await given.event(tx, tenant=tenant)

    _, trigger = stage.done(make)
    with stage.two_schedulers() as (stopped, other):
        stage.gate("trigger_firings")
        stage.done(emit)
        stage.stop_at_gate(stopped, then=other)

        _fires_in_time(stage, trigger)


def _fires_in_time(stage: Stage, trigger: Trigger) -> None:
    jobs = "select 1 from fairlead.jobs where created_by = %s and status = 'queued'"
    made = f"trigger:{trigger.id}"
    until(lambda: stage.rows(jobs, made), "the other tenant's job to be made", seconds=DEADLINE)


def test_a_server_stopped_while_it_claims_for_a_worker(stage: Stage) -> None:
    async def make_token(tx: Tx) -> str:
        made = await access.create_token(
            tx, stage.fl.inner.principal, name="worker", role=Role.WORKER, tenant_id=None
        )
        return made.secret

    token, port = stage.done(make_token), free_port()
    with (
        stage.process("serve", "--port", str(port), says="serving") as server,
        stage.worker(**SETTINGS) as other,
        contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as line,
    ):
        other.signal(signal.SIGSTOP)
        stage.limit("echo")
        stage.gate("worker_claims")
        stage.enqueue("echo", n=1)
        claim = {"definitions": ["echo"], "claim_id": str(uuid4())}
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        line.request("POST", "/api/v1/worker/jobs/claim", json.dumps(claim), headers)
        stage.stop_at_gate(server, then=other)

        stage.succeeds_in_time(stage.for_other("echo", n=2))
