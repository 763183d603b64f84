"""One worker process: the worker and its loops, from start until the last outcome is written."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from uuid import UUID

import structlog

from fairlead.db.listen import POLL, Listener
from fairlead.db.tx import Database
from fairlead.errors import FairleadError
from fairlead.handlers.context import Progress
from fairlead.handlers.supervised import Supervised
from fairlead.handlers.threads import Threads
from fairlead.model.job import Lease
from fairlead.runtime import loop_watch
from fairlead.runtime.execution import ExecutionServices
from fairlead.runtime.heartbeat import Heartbeat
from fairlead.runtime.job_source import HeldJob, WorkerSource
from fairlead.runtime.log_writer import LogWriter, append_to_database
from fairlead.runtime.maintenance import make_watchdog
from fairlead.runtime.progress_writer import Reporter
from fairlead.runtime.service import Service, wait_any
from fairlead.runtime.stager import Stager
from fairlead.runtime.store_source import PLANNER, StoreSource, new_worker_id
from fairlead.runtime.watchdog import Watchdog
from fairlead.runtime.worker import Start, Worker
from fairlead.settings import Settings
from fairlead.store import queue, workers

log = structlog.get_logger(__name__)

RECONNECT_SECONDS = 0.5
CANCEL_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    """The configuration of one worker process."""

    url: str = field(repr=False)  # a password may be in it
    settings: Settings
    start: Callable[[ExecutionServices], Start]
    threads: Threads
    served: Sequence[UUID] | None
    # also these (definition, tenant) pairs; the list may change while the worker runs
    served_pairs: Sequence[tuple[UUID, UUID]] = ()
    keys: Sequence[str]
    concurrency: int
    version: str
    # called with the number of running jobs when draining begins
    stopping: Callable[[int], object] = lambda _: None


class WorkerProcess:
    """Runs until `stop` is set, drains, and releases jobs that did not end in time; `abandon` ends the draining."""

    def __init__(self, plan: WorkerPlan) -> None:
        self._plan = plan
        self.worker_id = new_worker_id()
        self.worker: Worker | None = None

    async def run(self, stop: asyncio.Event, abandon: asyncio.Event | None = None) -> None:
        """Claim and run jobs until `stop` is set."""
        plan, settings = self._plan, self._plan.settings
        direct = settings.direct_url or plan.url
        async with AsyncExitStack() as stack:
            stack.enter_context(structlog.contextvars.bound_contextvars(worker_id=self.worker_id))
            database = await stack.enter_async_context(Database(plan.url, settings, session=PLANNER))
            stored_source = StoreSource(
                database,
                worker=self.worker_id,
                lease_seconds=settings.lease_seconds,
                served=plan.served,
                served_pairs=plan.served_pairs,
                waits=bool(settings.metrics_port),
                patient=False,  # the finisher tries again
            )
            source: WorkerSource = stored_source
            sweeping = make_watchdog(database)
            services = []
            if settings.metrics_port:
                source, reading = stack.enter_context(_open_meter(source, database, sweeping))
                services.append(reading)
            reporter = Reporter(lambda steps: database.single(lambda tx: queue.store_progress(tx, steps)))
            reporting = Service("reporter", reporter)

            def report(lease: Lease, progress: Progress) -> None:
                reporter.add(lease, progress)
                reporting.wake()

            log_writer = LogWriter(append_to_database(database))
            writing_logs = Service("log_writer", log_writer)

            def say(held: HeldJob, stream: str, text: str, max_bytes: int) -> None:
                log_writer.add(held, stream, text, max_bytes=max_bytes)
                writing_logs.wake()

            supervised = Supervised(settings.lease_seconds)
            stack.callback(supervised.close)
            stager = Service("stager", Stager(database, settings.poll_seconds * 5))
            worker = self.worker = Worker(
                source,
                plan.start(ExecutionServices(report, say, log_writer.settle, supervised)),
                concurrency=plan.concurrency,
                lease_seconds=settings.lease_seconds,
                poll_seconds=settings.poll_seconds,
                later=stager.wake,
                suspects=source,
                worker_id=self.worker_id,
            )
            watchdog = Service("watchdog", sweeping)
            beating = WorkerHeartbeatThread(plan, self.worker_id, worker)
            stack.enter_context(_RunningThread(beating))
            listener = await stack.enter_async_context(Listener(direct, settings.schema))

            def hear(payload: str) -> None:
                if payload in ("ready", "gate", POLL):
                    worker.wake()
                if payload in ("later", POLL):
                    stager.wake()
                if payload in ("cancel", POLL):
                    beating.wake()

            stack.enter_context(listener.subscribe(hear))
            helpers = [
                asyncio.create_task(one.run(stop), name=one.name)
                for one in (stager, watchdog, reporting, writing_logs, *services)
            ]
            finishing = asyncio.create_task(worker.finisher.run(), name="finisher")
            try:
                await self._work(worker, stop, abandon)
                with suppress(FairleadError):  # the database is unreachable: the leases expire
                    await stored_source.release_unanswered()
            finally:
                stop.set()
                await asyncio.gather(*helpers)
                await _cancel_and_wait(finishing)

    async def _work(self, worker: Worker, stop: asyncio.Event, abandon: asyncio.Event | None) -> None:
        """Claim until `stop` is set, then drain."""
        threads = self._plan.threads
        try:
            await worker.claim_until(stop, worn_out=lambda: threads.stuck > threads.max_threads // 4)
        except Exception as error:
            log.error("worker_failed", why=repr(error))  # noqa: TRY400 - the caller logs the traceback
            # without heartbeats another worker would run the same jobs
            await drain(worker, 0, abandon)
            raise
        self._plan.stopping(worker.running)
        await drain(worker, self._plan.settings.drain_seconds, abandon)


async def drain(worker: Worker, seconds: float, abandon: asyncio.Event | None) -> None:
    """Let running jobs end within `seconds`, then release the rest; at once when `abandon` is set."""
    draining = asyncio.create_task(worker.drain(seconds))
    if abandon is None:
        await draining
        return
    hurried = asyncio.create_task(abandon.wait())
    await asyncio.wait((draining, hurried), return_when=asyncio.FIRST_COMPLETED)
    hurried.cancel()
    if not draining.done():
        worker.hurry()
    await draining


@contextmanager
def _open_meter(
    source: WorkerSource, database: Database, watchdog: Watchdog
) -> Iterator[tuple[WorkerSource, Service]]:
    """Wrap the source in a meter and serve its metrics during the block; also the service that reads the checks."""
    # imported only if used: prometheus_client slows the start
    from fairlead.runtime.check_metrics import CheckReader  # noqa: PLC0415
    from fairlead.runtime.meter import Meter, expose_metrics  # noqa: PLC0415

    meter = Meter(source)
    meter.count_rescues(lambda: watchdog.rescued)
    reader = CheckReader(database)
    meter.registry.register(reader)
    with expose_metrics(meter, database.settings.metrics_host, database.settings.metrics_port):
        yield meter, Service("checks", reader)


class WorkerHeartbeatThread(threading.Thread):
    """Runs the heartbeat in its own thread, with its own event loop and connection: a busy handler cannot delay it."""

    def __init__(self, plan: WorkerPlan, worker: str, of: Worker) -> None:
        super().__init__(name="fairlead-heart", daemon=True)
        self._plan = plan
        self._worker_id = worker
        self._worker = of
        self._heart: Heartbeat = of.heart
        self._watched = asyncio.get_running_loop()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._begun = threading.Event()

    def run(self) -> None:
        """Send heartbeats until stopped."""
        asyncio.run(self._run_heartbeat())

    def wake(self) -> None:
        """Send the next heartbeat now."""
        self._set_event(self._wake)

    def stop(self) -> None:
        """End the thread."""
        self._begun.wait()
        self._set_event(self._stopping)
        self.join()

    def _set_event(self, event: asyncio.Event) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: the thread has ended
                self._loop.call_soon_threadsafe(event.set)

    async def _run_heartbeat(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._begun.set()
        settings = replace(self._plan.settings, pool_size=1)
        # runs even while the database is unreachable: it needs only the clock
        fencing = asyncio.create_task(self._heart.fence())
        watching = asyncio.create_task(loop_watch.watch(self._watched))
        try:
            while not self._stopping.is_set():
                try:
                    async with Database(self._plan.url, settings, session=PLANNER) as database:
                        await self._run_connected(database)
                except Exception as error:  # noqa: BLE001 - without heartbeats this worker would lose every job
                    why = error.message if isinstance(error, FairleadError) else repr(error)
                    log.warning("heart_not_connected", why=why)
                    await wait_any(self._stopping, seconds=RECONNECT_SECONDS)
        finally:
            await _cancel_and_wait(fencing)
            await _cancel_and_wait(watching)

    async def _run_connected(self, database: Database) -> None:
        source = StoreSource(
            database, worker=self._worker_id, lease_seconds=self._plan.settings.lease_seconds
        )
        loops = [
            asyncio.create_task(loop)
            for loop in (self._heart.run(source, self._wake), self._report_worker(database))
        ]
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((stopping, *loops), return_when=asyncio.FIRST_COMPLETED)
            for loop in loops:
                if loop.done():  # a loop ends only by an error: start again with a new connection
                    log.error("heart_failed", why=repr(loop.exception()))
        finally:
            stopping.cancel()
            for loop in loops:
                await _cancel_and_wait(loop)
            with suppress(FairleadError):
                await database.single(lambda tx: workers.remove(tx, self._worker_id))

    async def _report_worker(self, database: Database) -> None:
        while True:
            try:
                await database.single(
                    lambda tx: workers.register(
                        tx,
                        worker_id=self._worker_id,
                        hostname=socket.gethostname(),
                        version=self._plan.version,
                        keys=self._plan.keys,
                        running=self._worker.running,
                        concurrency=self._plan.concurrency,
                    )
                )
            except FairleadError as error:
                log.warning("worker_not_seen", why=error.message)
            await asyncio.sleep(self._plan.settings.lease_seconds / 3)


class _RunningThread:
    def __init__(self, thread: WorkerHeartbeatThread) -> None:
        self._thread = thread

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        self._thread.stop()


async def _cancel_and_wait(task: "asyncio.Task[None]") -> None:
    """Cancel a task repeatedly until it ends: asyncio.wait_for in Python 3.11 can swallow a cancel."""
    while not task.done():
        task.cancel()
        await asyncio.wait((task,), timeout=CANCEL_SECONDS)
