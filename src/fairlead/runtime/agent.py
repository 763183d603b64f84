"""One agent process: a worker over HTTP, its heartbeat thread, and the long poll for jobs."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Self

import msgspec
import structlog

from fairlead.errors import FairleadError
from fairlead.handlers.context import Progress
from fairlead.handlers.supervised import Supervised
from fairlead.model.job import Lease
from fairlead.runtime.agent_client import AgentClient, backoff
from fairlead.runtime.agent_poller import AgentPoller
from fairlead.runtime.enrolment import Enrolment
from fairlead.runtime.execution import ExecutionServices
from fairlead.runtime.heartbeat import Heartbeat
from fairlead.runtime.http_source import HttpSource
from fairlead.runtime.job_source import HeldJob
from fairlead.runtime.log_writer import LogWriter
from fairlead.runtime.progress_writer import Reporter
from fairlead.runtime.service import Service, wait_any
from fairlead.runtime.spool import Spool
from fairlead.runtime.worker import Start, Worker
from fairlead.runtime.worker_process import drain

log = structlog.get_logger(__name__)

POLL_SECONDS = 1.0
# After draining, how long the agent tries to send the results to the server.
REPORT_SECONDS = 5.0
# An agent whose host drains, or that another agent replaces, may finish its running jobs.
UNHURRIED_SECONDS = 7 * 86_400.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one agent process."""

    enrolment: Enrolment
    spool: Path
    start: Callable[[ExecutionServices], Start]
    keys: Sequence[str]
    concurrency: int
    drain_seconds: float
    version: str


class Agent:
    """Runs until `stop` is set or the server refuses it; then drains, and releases jobs that did not end in time."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    async def run(
        self, stop: asyncio.Event, abandon: asyncio.Event, begun: Callable[[], None] = lambda: None
    ) -> None:
        """Run the host's jobs until `stop` is set. Raises the server's error if the server refused the agent."""
        plan, enrolment = self._plan, self._plan.enrolment
        async with AsyncExitStack() as stack:
            line = await stack.enter_async_context(AgentClient(enrolment.server, enrolment.token))
            spool = Spool(plan.spool)
            source = HttpSource(line, spool, enrolment.host_id)
            ear = AgentPoller(line, source, plan.keys)
            session = await ear.begin(plan.version, stop)
            if session is None:
                return
            reporter, log_writer = Reporter(source.progress), LogWriter(source.say)
            reporting, writing_logs = Service("reporter", reporter), Service("log_writer", log_writer)

            def report(lease: Lease, progress: Progress) -> None:
                reporter.add(lease, progress)
                reporting.wake()

            def say(held: HeldJob, stream: str, text: str, max_bytes: int) -> None:
                log_writer.add(held, stream, text, max_bytes=max_bytes)
                writing_logs.wake()

            supervised = Supervised(session.lease_seconds)
            stack.callback(supervised.close)
            worker = Worker(
                source,
                plan.start(ExecutionServices(report, say, log_writer.settle, supervised)),
                concurrency=plan.concurrency,
                lease_seconds=session.lease_seconds,
                poll_seconds=POLL_SECONDS,
                worker_id=f"agent:{enrolment.host_id}:{session.session_id}",
            )
            heart = stack.enter_context(AgentHeartbeatThread(plan, worker.heart))
            begun()
            listening = ear.listen(
                session,
                stop,
                room=lambda: plan.concurrency - worker.running,
                come=worker.wake,
                cancel=heart.wake,  # the heartbeat's answer names the canceled jobs
            )
            enough = asyncio.Event()
            helpers = [asyncio.create_task(one.run(enough)) for one in (reporting, writing_logs)]
            loops = [
                asyncio.create_task(one)
                for one in (worker.finisher.run(), _send_spooled_results(source, spool.leases()), listening)
            ]
            for one in loops:
                one.add_done_callback(lambda done: stop.set() if _log_failed_loop(done) else None)
            try:
                await worker.claim_until(stop)
                await self._drain(worker, source, ear, abandon)
            finally:
                enough.set()
                for one in loops:
                    one.cancel()
                await asyncio.wait([*helpers, *loops])
        if ear.refusal is not None:
            raise ear.refusal

    async def _drain(
        self, worker: Worker, source: HttpSource, ear: AgentPoller, abandon: asyncio.Event
    ) -> None:
        """Let running jobs end, or stop them; results that cannot be sent in time stay in the spool for the next start."""
        grace = UNHURRIED_SECONDS if ear.may_finish_jobs else self._plan.drain_seconds
        if ear.refusal is not None and not ear.may_finish_jobs:
            grace, source.leaving = 0.0, True
        await source.give_back()
        draining = asyncio.create_task(drain(worker, grace, abandon))
        hurried = asyncio.create_task(abandon.wait())
        await asyncio.wait((draining, hurried), timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        await asyncio.wait((draining,), timeout=REPORT_SECONDS)
        source.leaving = True
        await draining


def _log_failed_loop(task: "asyncio.Task[None]") -> bool:
    """Whether a loop ended with an error; logs the error."""
    if task.cancelled() or task.exception() is None:
        return False
    log.error("agent_failed", why=repr(task.exception()))
    return True


async def _send_spooled_results(source: HttpSource, left: list[Lease]) -> None:
    """Send the results that an earlier agent process could not send."""
    failures = 0
    while left:
        try:
            status = await source.tell(left[0])
            log.info("told_what_was_left", job_id=str(left[0].job_id), status=status)
            left, failures = left[1:], 0
        except FairleadError as error:
            failures += 1
            log.warning("not_yet_told", jobs=len(left), why=error.message)
            await asyncio.sleep(backoff(failures))


class AgentHeartbeatThread(threading.Thread):
    """Runs the heartbeat in its own thread, with its own event loop and HTTP client: a busy handler cannot delay it."""

    def __init__(self, plan: Plan, heart: Heartbeat) -> None:
        super().__init__(name="fairlead-heart", daemon=True)
        self._plan = plan
        self._heart = heart
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._begun = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        self._begun.wait()
        return self

    def __exit__(self, *exc: object) -> None:
        self._set_event(self._stopping)
        self.join()

    def run(self) -> None:
        """Send heartbeats until stopped."""
        asyncio.run(self._run_heartbeat())

    def wake(self) -> None:
        """Send the next heartbeat now."""
        self._set_event(self._wake)

    def _set_event(self, event: asyncio.Event) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: the thread has ended
                self._loop.call_soon_threadsafe(event.set)

    async def _run_heartbeat(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._begun.set()
        enrolment = self._plan.enrolment
        async with AgentClient(enrolment.server, enrolment.token) as line:
            source = HttpSource(line, Spool(self._plan.spool), enrolment.host_id)
            stopping = asyncio.create_task(self._stopping.wait())
            # runs even while the server is unreachable: it needs only the clock
            fencing = asyncio.create_task(self._heart.fence())
            while not stopping.done():
                beating = asyncio.create_task(self._heart.run(source, self._wake))
                await asyncio.wait((stopping, beating), return_when=asyncio.FIRST_COMPLETED)
                if beating.done():  # the loop ends only by an error
                    log.error("heart_failed", why=repr(beating.exception()))
                    await wait_any(self._stopping, seconds=POLL_SECONDS)
                beating.cancel()
            fencing.cancel()
            await asyncio.wait((fencing, beating))
