"""One agent process: a worker over HTTP, its heartbeat thread, and the long poll for jobs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import structlog

from fairlead.errors import FairleadError
from fairlead.model.job import Lease
from fairlead.runtime.agent_poller import AgentPoller
from fairlead.runtime.enrolment import Enrolment
from fairlead.runtime.execution import ExecutionServices
from fairlead.runtime.http_source import HttpSource
from fairlead.runtime.server_client import ServerClient, backoff
from fairlead.runtime.service import cancel_and_wait
from fairlead.runtime.spool import Spool
from fairlead.runtime.worker import Worker
from fairlead.runtime.worker_attempt import Start
from fairlead.runtime.worker_host import Transport, claim_then_drain, drain_and_report, host_worker

log = structlog.get_logger(__name__)

POLL_SECONDS = 1.0
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
        plan = self._plan
        async with self._connect() as source:
            poller = AgentPoller(source.line, source, plan.keys, slots=plan.concurrency)
            session = await poller.begin(plan.version, stop)
            if session is None:
                return
            async with host_worker(
                Transport(source, source.progress, source.append_output, self._connect),
                plan.start,
                worker_id=f"agent:{plan.enrolment.host_id}:{session.session_id}",
                concurrency=plan.concurrency,
                lease_seconds=session.lease_seconds,
                poll_seconds=POLL_SECONDS,
            ) as (worker, heartbeat):
                begun()
                listening = poller.listen(
                    session,
                    stop,
                    room=worker.count_free_slots,
                    come=worker.wake,
                    cancel=heartbeat.wake,  # the heartbeat's answer names the canceled jobs
                )
                async with _run_loops(stop, listening, _send_spooled_results(source, source.list_unsent())):
                    await claim_then_drain(
                        worker, stop, abandon, lambda: self._drain(worker, source, poller, abandon)
                    )
        if poller.refusal is not None:
            raise poller.refusal

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[HttpSource]:
        enrolment = self._plan.enrolment
        async with ServerClient(enrolment.server, enrolment.token) as line:
            yield HttpSource(line, Spool(self._plan.spool), enrolment.host_id)

    async def _drain(
        self, worker: Worker, source: HttpSource, poller: AgentPoller, abandon: asyncio.Event
    ) -> None:
        """Let running jobs end, or stop them; results that cannot be sent in time stay in the spool for the next start."""
        grace = UNHURRIED_SECONDS if poller.may_finish_jobs else self._plan.drain_seconds
        if poller.refusal is not None and not poller.may_finish_jobs:
            grace, source.leaving = 0.0, True
        await source.give_back()

        def leave() -> None:
            source.leaving = True

        await drain_and_report(worker, grace, abandon, leave)


@asynccontextmanager
async def _run_loops(stop: asyncio.Event, *loops: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run loops during the block; one that fails sets `stop`."""

    def stop_if_failed(task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and task.exception() is not None:
            log.error("agent_failed", why=repr(task.exception()))
            stop.set()

    tasks = [asyncio.create_task(one) for one in loops]
    for task in tasks:
        task.add_done_callback(stop_if_failed)
    try:
        yield
    finally:
        await cancel_and_wait(*tasks)


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
