"""Hosts a worker over any transport: its heartbeat thread, its finisher, and the writers of progress and output."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from typing import NamedTuple

import structlog

from fairlead.handlers.supervised import Supervised
from fairlead.runtime.durable_steps import DurableSteps
from fairlead.runtime.execution import ExecutionServices
from fairlead.runtime.function_logs import FunctionLogs
from fairlead.runtime.heartbeat import Connect, HeartbeatThread
from fairlead.runtime.job_source import JobSource, SuspectSource
from fairlead.runtime.joined_ends import JoinedEnds
from fairlead.runtime.log_writer import Append, LogWriter, ProgressUpdate, Reporter
from fairlead.runtime.service import cancel_and_wait, run_services
from fairlead.runtime.worker import Worker
from fairlead.runtime.worker_attempt import Start

log = structlog.get_logger(__name__)

# After draining, how long a process tries to send the outcomes to its server.
REPORT_SECONDS = 5.0


class Transport(NamedTuple):
    """How a worker reaches the queue: over a database connection, or over HTTP."""

    source: JobSource
    write_progress: Callable[[list[ProgressUpdate]], Awaitable[object]]
    append_output: Append
    connect_heartbeat: Connect


class HostedWorker(NamedTuple):
    """A worker and the thread that renews its leases."""

    worker: Worker
    heartbeat: HeartbeatThread


@asynccontextmanager
async def host_worker(
    transport: Transport,
    start: Callable[[ExecutionServices], Start],
    *,
    worker_id: str,
    concurrency: int,
    lease_seconds: float,
    poll_seconds: float,
    later: Callable[[], None] = lambda: None,
    suspects: SuspectSource | None = None,
    most_unwritten: int | None = None,
    ends: JoinedEnds | None = None,
    steps: DurableSteps | None = None,
) -> AsyncIterator[HostedWorker]:
    """Host a worker during the block, which claims and drains."""
    reporter, log_writer = Reporter(transport.write_progress), LogWriter(transport.append_output)
    with (
        structlog.contextvars.bound_contextvars(worker_id=worker_id),
        closing(Supervised(lease_seconds)) as supervised,
    ):
        drain_callbacks: list[Callable[[], None]] = []
        means = ExecutionServices(
            reporter.add,
            log_writer.add,
            log_writer.settle,
            supervised,
            slots=concurrency,
            on_drain=drain_callbacks.append,
            ends=ends,
            steps=steps,
        )
        worker = Worker(
            transport.source,
            start(means),
            concurrency=concurrency,
            lease_seconds=lease_seconds,
            poll_seconds=poll_seconds,
            later=later,
            suspects=suspects,
            worker_id=worker_id,
            most_unwritten=most_unwritten,
            drain_callbacks=drain_callbacks,
            ends=ends,
        )
        function_logs = FunctionLogs(worker.list_logging, log_writer)
        if ends is not None:
            ends.write_log = function_logs.flush
        with HeartbeatThread(worker.heart, transport.connect_heartbeat) as heartbeat:
            finishing = asyncio.create_task(worker.finisher.run(), name="fairlead-finisher")
            try:
                async with run_services(reporter, log_writer, function_logs):
                    yield HostedWorker(worker, heartbeat)
            finally:
                await cancel_and_wait(finishing)


async def claim_then_drain(
    worker: Worker,
    stop: asyncio.Event,
    abandon: asyncio.Event,
    drain: Callable[[], Awaitable[None]],
    worn_out: Callable[[], bool] = lambda: False,
) -> None:
    """Claim until `stop` is set, then drain. If claiming fails, release the running jobs before the error is raised."""
    try:
        await worker.claim_until(stop, worn_out)
    except Exception as error:
        log.error("worker_failed", why=repr(error))  # noqa: TRY400 - the caller logs the traceback
        # without heartbeats another worker would run the same jobs
        await worker.drain(0, abandon)
        raise
    await drain()


async def drain_and_report(
    worker: Worker, seconds: float, abandon: asyncio.Event, leave: Callable[[], None]
) -> None:
    """Drain a worker over HTTP. `leave` is called when the time to send the outcomes is over: do not try again then."""
    draining = asyncio.create_task(worker.drain(seconds, abandon))
    hurried = asyncio.create_task(abandon.wait())
    await asyncio.wait((draining, hurried), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    hurried.cancel()
    await asyncio.wait((draining,), timeout=REPORT_SECONDS)
    leave()
    await draining
