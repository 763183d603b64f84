"""What a worker over HTTP must do, tested from outside: against a real server, as a process of its own.

The workers in Python and TypeScript are tested. To test your own program:

    HTTP_WORKER_COMMAND="node my-worker.js" pytest tests/conformance/test_http_worker.py

See "Test your own worker" in docs/how-to/run-workers-over-http.md for the functions that it must have.
"""

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest

from fairlead.actions import definitions
from fairlead.store import testing
from tests import given
from tests.acceptance.http_faults import FaultyProxy
from tests.conformance.worker_programs import Program, RunningProgram, list_programs, start_program
from tests.processes import FAIRLEAD, free_port, started
from tests.server.world import World, listening, world_on
from tests.waiting import SECONDS, eventually

pytestmark = pytest.mark.thorough

KEYS = [f"conformance.{name}" for name in ("echo", "fail", "fatal", "report", "hold", "sleep", "snooze")]
QUICK = {"base_seconds": 0.05, "factor": 1, "cap_seconds": 0.05, "jitter": 0}
LATER = {"base_seconds": 3600, "factor": 1, "cap_seconds": 3600, "jitter": 0}
DRAIN_SECONDS = 1.0
# between two looks, each of which is a request
PAUSE = 0.1


@pytest.fixture(params=list_programs(), ids=lambda program: program.name)
def program(request: pytest.FixtureRequest) -> Program:
    """The program under test."""
    tested: Program = request.param
    tested.prepare()
    return tested


@pytest.fixture
async def world(program: Program, database_url: str) -> AsyncIterator[World]:
    """A database with the suite's definitions; skipped programs make none."""
    changes: dict[str, Any] = {"sweep_seconds": 0.3, "poll_seconds": 0.3, "maintenance": True}
    async with world_on(database_url, **changes) as made:
        async with made.fl.database.transaction() as tx:
            for key in KEYS:
                await definitions.patch(tx, given.TESTER, key, {"backoff": QUICK, "max_attempts": 2})
        yield made


@pytest.fixture
async def url(world: World) -> AsyncIterator[str]:
    """A server for the world, in this process."""
    async with listening(world) as port:
        yield f"http://127.0.0.1:{port}"


class Suite:
    """Jobs of one tenant, and the worker programs that run them."""

    def __init__(self, world: World, program: Program, folder: Path) -> None:
        self.world = world
        self.folder = folder
        self._program = program

    @asynccontextmanager
    async def worker(
        self, url: str, *, concurrency: int = 4, drain_seconds: float = DRAIN_SECONDS
    ) -> AsyncIterator[RunningProgram]:
        """A worker that claims jobs."""
        token = self.world.secrets[given.TENANT, "worker"]
        with start_program(
            self._program, url=url, token=token, concurrency=concurrency, drain_seconds=drain_seconds
        ) as running:
            await running.until_ready()
            try:
                yield running
            except BaseException as error:
                error.add_note(f"The worker printed: {running.printed[-4000:]}")
                raise

    async def enqueue(self, name: str, **payload: Any) -> str:
        body = {"definition_key": f"conformance.{name}", "payload": payload}
        return str((await self._call("POST", "/jobs", json=body))["id"])

    async def enqueue_hold(self, name: str) -> tuple[str, Path]:
        """A job that runs until its file exists; the file."""
        path = self.folder / name
        return await self.enqueue("hold", path=str(path)), path

    async def job(self, job_id: str) -> Any:
        return await self._call("GET", f"/jobs/{job_id}")

    async def attempts(self, job_id: str) -> list[str]:
        """The statuses of the attempts that have ended, oldest first."""
        items = (await self._call("GET", f"/jobs/{job_id}/attempts"))["items"]
        return [one["status"] for one in sorted(items, key=lambda one: one["attempt_no"])]

    async def lease_end(self, job_id: str) -> datetime:
        """When the lease of a running job expires unless it is renewed."""
        end = (await given.read_job(self.world, UUID(job_id))).lease_expires_at
        assert end is not None
        return end

    async def until(self, job_id: str, *statuses: str) -> Any:
        """The job, when it has one of these statuses."""
        async with asyncio.timeout(SECONDS):
            while (job := await self.job(job_id))["status"] not in statuses:
                await asyncio.sleep(PAUSE)
        return job

    async def until_ended(self, *jobs: str) -> list[Any]:
        return [await self.until(one, "succeeded", "failed", "dead_letter", "canceled") for one in jobs]

    async def until_attempts(self, job_id: str, *statuses: str) -> None:
        """Wait until the first attempts of a job have ended so."""
        async with asyncio.timeout(SECONDS):
            while (await self.attempts(job_id))[: len(statuses)] != list(statuses):
                await asyncio.sleep(PAUSE)

    async def cancel(self, job_id: str) -> None:
        await self._call("POST", f"/jobs/{job_id}/cancel")

    async def log(self, job_id: str) -> str:
        items = (await self._call("GET", f"/jobs/{job_id}/logs"))["items"]
        return "".join(one["text"] for one in items)

    async def change(self, name: str, **fields: Any) -> None:
        """Change one of the suite's definitions."""
        async with self.world.fl.database.transaction() as tx:
            await definitions.patch(tx, given.TESTER, f"conformance.{name}", fields)

    async def _call(self, method: str, path: str, **more: Any) -> Any:
        answer = await self.world.call(method, path, **more)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()


@pytest.fixture
def suite(world: World, program: Program, tmp_path: Path) -> Suite:
    return Suite(world, program, tmp_path)


def mark(path: Path, what: str) -> Path:
    """A file that `conformance.hold` makes: `began`, or `stopped`."""
    return path.with_name(f"{path.name}.{what}")


async def until_held(*paths: Path) -> None:
    await eventually(lambda: all(mark(one, "began").exists() for one in paths), "the jobs to begin")


# Outcomes


async def test_jobs_end_as_their_functions_say_and_an_idle_worker_stops_at_once(
    suite: Suite, url: str
) -> None:
    async with suite.worker(url, drain_seconds=10 * SECONDS) as worker:
        await check_output(suite)
        await check_failure(suite)
        await check_fatal_failure(suite)
        await check_progress_and_logs(suite)
        await check_snooze(suite)
        worker.signal(signal.SIGTERM)
        assert await worker.exit_code(seconds=SECONDS) == 0


async def check_output(suite: Suite) -> None:
    """A job has the output of its function."""
    text = 'Grüße 你好 🎈 \u2028 \\ " ' * 5000
    payload = {"text": text, "n": 2**53 - 1, "list": [None, True, 1.5, {"": []}]}
    job_id = await suite.enqueue("echo", **payload)
    job = await suite.until(job_id, "succeeded")

    assert job["output"] == payload
    assert await suite.attempts(job_id) == ["succeeded"]


async def check_failure(suite: Suite) -> None:
    """A failure is retried until the job is a dead letter."""
    job_id = await suite.enqueue("fail", message="no disk")
    job = await suite.until(job_id, "dead_letter")

    assert await suite.attempts(job_id) == ["failed", "failed"]
    assert "no disk" in job["last_error"]


async def check_fatal_failure(suite: Suite) -> None:
    """A fatal failure is not retried."""
    job_id = await suite.enqueue("fatal", message="no such account")
    job = await suite.until(job_id, "failed")

    assert await suite.attempts(job_id) == ["failed"]
    assert "no such account" in job["last_error"]


async def check_progress_and_logs(suite: Suite) -> None:
    """Progress and logs arrive, in order."""
    path = suite.folder / "reported"
    job_id = await suite.enqueue("report", path=str(path))
    async with asyncio.timeout(SECONDS):
        while (await suite.job(job_id))["progress"] != {"percent": 50, "message": "half"}:
            await asyncio.sleep(PAUSE)
    path.touch()
    job = await suite.until(job_id, "succeeded")

    assert job["output"] == {"done": True}
    assert job["progress"] == {"percent": 50, "message": "half"}
    lines = (await suite.log(job_id)).splitlines()
    assert [word for line in lines for word in ("one", "two") if word in line] == ["one", "two"]


async def check_snooze(suite: Suite) -> None:
    """A snoozed job runs again, and its attempt is not charged."""
    await suite.change("snooze", max_attempts=1)
    job_id = await suite.enqueue("snooze", path=str(suite.folder / "snoozed"), seconds=0.2)
    job = await suite.until(job_id, "succeeded")

    assert job["output"] == {"again": True}
    assert await suite.attempts(job_id) == ["released", "succeeded"]


# Stopping a job


async def test_a_canceled_job_is_stopped_within_its_lease_and_a_long_one_keeps_its_own(
    suite: Suite, url: str
) -> None:
    (canceled, path), (long, end) = [await suite.enqueue_hold(name) for name in ("canceled", "long")]
    async with suite.worker(url):
        await until_held(path, end)
        lease_end = await suite.lease_end(long)
        await suite.cancel(canceled)
        await eventually(mark(path, "stopped").exists, "the function to stop")
        await suite.until(canceled, "canceled")
        async with asyncio.timeout(SECONDS):
            while await suite.lease_end(long) <= lease_end:
                await asyncio.sleep(PAUSE)
        end.touch()
        await suite.until(long, "succeeded")

    assert await suite.attempts(canceled) == ["canceled"]
    assert await suite.attempts(long) == ["succeeded"]


async def test_an_attempt_that_takes_too_long_is_reported_in_time_and_retried(suite: Suite, url: str) -> None:
    # the next attempt begins when this test says so, and finds the file
    await suite.change("hold", timeout_seconds=1, backoff=LATER)
    await suite.change("sleep", timeout_seconds=1, max_attempts=1)
    job_id, path = await suite.enqueue_hold("late")
    async with suite.worker(url):
        await until_held(path)
        await eventually(mark(path, "stopped").exists, "the function to stop")
        await suite.until_attempts(job_id, "timeout")
        await suite.change("hold", timeout_seconds=600)
        path.touch()
        await suite.world.fl.database.transact(testing.make_all_due)
        await suite.until(job_id, "succeeded")
        deaf = await suite.enqueue("sleep", seconds=20)  # its function ignores the timeout
        await suite.until(deaf, "dead_letter")
        echoed = await suite.enqueue("echo")
        await suite.until(echoed, "succeeded")

    assert await suite.attempts(job_id) == ["timeout", "succeeded"]
    assert await suite.attempts(deaf) == ["timeout"]


# Leases


async def test_a_worker_that_was_stopped_changes_nothing_after_its_lease(suite: Suite, url: str) -> None:
    ended, late = await suite.enqueue_hold("ended")
    running, held = await suite.enqueue_hold("running")
    # it has no free slot: otherwise the server would give the jobs to the long poll of the stopped process
    async with suite.worker(url, concurrency=2) as first:
        await until_held(late, held)
        first.signal(signal.SIGSTOP)
        for path in (late, held):
            mark(path, "began").unlink()
        async with suite.worker(url) as second:
            await until_held(late, held)
            late.touch()
            await suite.until(ended, "succeeded")
            first.signal(signal.SIGCONT)  # its function ends now, and its outcome comes too late
            await eventually(mark(held, "stopped").exists, "the first worker to stop its function")
            held.touch()
            await suite.until(running, "succeeded")
            second.signal(signal.SIGTERM)
            await second.exit_code(seconds=SECONDS)
        echoed = await suite.enqueue("echo")
        await suite.until(echoed, "succeeded")  # the first worker works again

    # on a busy machine the answer to a claim may come late in the lease: then the worker gives its jobs back
    for job_id in (ended, running):
        ran = [one for one in await suite.attempts(job_id) if one != "released"]
        assert ran == ["lost", "succeeded"]


async def test_the_jobs_of_a_killed_worker_run_again(suite: Suite, url: str) -> None:
    jobs = dict([await suite.enqueue_hold(f"killed-{number}") for number in range(2)])
    # it has no free slot: otherwise the server could still give the jobs to its long poll
    async with suite.worker(url, concurrency=2) as first:
        await until_held(*jobs.values())
        first.signal(signal.SIGKILL)
    for path in jobs.values():
        path.touch()
    await given.end_leases(suite.world)
    async with suite.worker(url):
        for job_id in jobs:
            await suite.until(job_id, "succeeded")

    for job_id in jobs:
        assert await suite.attempts(job_id) == ["lost", "succeeded"]


# Stopping the worker


async def test_a_stopping_worker_lets_jobs_end_and_releases_the_rest(suite: Suite, url: str) -> None:
    await suite.change("hold", max_attempts=1)
    (ending, soon), (endless, never) = [await suite.enqueue_hold(name) for name in ("soon", "never")]
    async with suite.worker(url, drain_seconds=20) as worker:
        await until_held(soon, never)
        worker.signal(signal.SIGTERM)
        soon.touch()
        later = await suite.enqueue("echo")
        await suite.until(ending, "succeeded")
        assert await worker.exit_code(seconds=SECONDS) == 0

    assert mark(never, "stopped").exists()
    assert (await suite.job(endless))["status"] == "queued"
    assert set(await suite.attempts(endless)) == {"released"}
    assert set(await suite.attempts(later)) <= {"released"}


# Outages


@contextmanager
def start_server(world: World, port: int) -> Iterator[Any]:
    """`fairlead serve` on the world's database, in a process of its own."""
    env = {
        "FAIRLEAD_DATABASE_URL": str(world.fl.settings.database_url),
        "FAIRLEAD_LEASE_SECONDS": str(world.fl.settings.lease_seconds),
    }
    with started([FAIRLEAD, "serve", "--port", str(port)], env=env) as process:
        yield process


async def until_served(url: str) -> None:
    async with asyncio.timeout(SECONDS), httpx2.AsyncClient() as client:
        while True:
            try:
                if (await client.get(f"{url}/readyz")).is_success:
                    return
            except httpx2.RequestError:
                await asyncio.sleep(PAUSE)


async def test_jobs_outlive_a_server_that_is_killed(suite: Suite, world: World) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    jobs = dict([await suite.enqueue_hold(name) for name in ("during", "after")])
    during, after = jobs.values()
    with start_server(world, port) as first:
        await until_served(url)
        async with suite.worker(url) as worker:
            await until_held(*jobs.values())
            first.send_signal(signal.SIGKILL)
            first.wait()
            during.touch()
            with start_server(world, port):
                await until_served(url)
                after.touch()
                later = await suite.enqueue("echo", n=1)
                await suite.until_ended(*jobs, later)
                worker.signal(signal.SIGTERM)
                assert await worker.exit_code(seconds=SECONDS) == 0

    for job_id in (*jobs, later):
        assert await suite.attempts(job_id) == ["succeeded"]


class ForgetfulProxy(FaultyProxy):
    """Forwards requests, and loses the first answers to each kind of request. Of claims, those with jobs."""

    def __init__(self, port: int, losses: dict[str, int]) -> None:
        super().__init__(port)
        self._losses = Counter(losses)
        # the claim ids of the answers with jobs that were lost, and of those that arrived
        self.lost_claims: list[str] = []
        self.answered_claims: list[str] = []
        self.lost: Counter[str] = Counter()
        self._open: set[asyncio.Task[Any]] = set()

    async def __aexit__(self, *exc: object) -> None:
        for one in self._open:  # long polls: the server would wait for them before it stops
            one.cancel()
        await super().__aexit__(*exc)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(super()._meet(reader, writer))
        self._open.add(task)
        with suppress(asyncio.CancelledError):
            await task
        self._open.discard(task)
        writer.close()

    async def _suffer(self, fault: str, request: bytes) -> bytes | None:
        head, _, body = request.partition(b"\r\n\r\n")
        what = head.split(b" ")[1].rpartition(b"/")[2].decode()
        answer = await super()._suffer(fault, request)
        has_jobs = what != "claim" or bool(json.loads((answer or b"").partition(b"\r\n\r\n")[2])["items"])
        is_lost = has_jobs and self.lost[what] < self._losses[what]
        self.lost[what] += is_lost
        if what == "claim" and has_jobs:
            (self.lost_claims if is_lost else self.answered_claims).append(json.loads(body)["claim_id"])
        return None if is_lost else answer


async def test_lost_answers_are_asked_for_again_and_nothing_runs_twice(suite: Suite, url: str) -> None:
    losses = {"claim": 2, "complete": 2, "fail": 1, "progress": 1, "logs": 1, "heartbeat": 1}
    echoed = [await suite.enqueue("echo", n=number) for number in range(3)]
    failed, reported = await suite.enqueue("fatal", message="no"), await suite.enqueue("report")
    async with ForgetfulProxy(int(url.rpartition(":")[2]), losses) as proxy, suite.worker(proxy.url):
        await suite.until_ended(*echoed, failed, reported)
        again = await suite.enqueue("echo", n=4)
        await suite.until(again, "succeeded")

    assert proxy.lost_claims[0] == proxy.lost_claims[1] == proxy.answered_claims[0]
    assert proxy.lost["complete"] == 2
    for job_id in (*echoed, reported, again):
        assert await suite.attempts(job_id) == ["succeeded"]
    assert await suite.attempts(failed) == ["failed"]


# Concurrency


async def test_a_worker_runs_as_many_jobs_as_it_has_slots(suite: Suite, url: str) -> None:
    jobs = dict([await suite.enqueue_hold(f"slot-{number}") for number in range(5)])
    async with suite.worker(url, concurrency=3):
        await eventually(lambda: len(list(suite.folder.glob("*.began"))) >= 3, "three jobs to begin")
        statuses = Counter([(await suite.job(one))["status"] for one in jobs])
        for path in jobs.values():
            path.touch()
        await suite.until_ended(*jobs)

    assert statuses == {"running": 3, "queued": 2}


async def test_two_workers_share_the_jobs(suite: Suite, url: str) -> None:
    jobs = dict([await suite.enqueue_hold(f"shared-{number}") for number in range(4)])
    async with suite.worker(url, concurrency=2), suite.worker(url, concurrency=2):
        await until_held(*jobs.values())
        owners = Counter([(await suite.job(one))["claimed_by_worker"] for one in jobs])
        for path in jobs.values():
            path.touch()
        await suite.until_ended(*jobs)

    assert sorted(owners.values()) == [2, 2]
    for job_id in jobs:
        assert await suite.attempts(job_id) == ["succeeded"]
