"""One worker process: the worker and its loops, from start until the last outcome is written."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from uuid import UUID

from fairlead.db.database import Database
from fairlead.db.listen import POLL, Listener
from fairlead.errors import FairleadError
from fairlead.handlers.threads import Threads
from fairlead.model.labels import parse_labels
from fairlead.runtime.durable_steps import DurableSteps
from fairlead.runtime.execution import ExecutionServices
from fairlead.runtime.job_source import HeartbeatSource, MeteredSource, WorkerSource
from fairlead.runtime.joined_ends import JoinedEnds
from fairlead.runtime.log_writer import append_to_database
from fairlead.runtime.maintenance import Maintenance
from fairlead.runtime.moved_leases import CellConnections, Directory, FollowingSource, MovedLeases
from fairlead.runtime.service import Service, cancel_and_wait, run_services
from fairlead.runtime.shared_capacity import Share, SharedCapacity
from fairlead.runtime.store_source import PLANNER, StoreSource, new_worker_id
from fairlead.runtime.watchdog import Watchdog
from fairlead.runtime.worker import Worker
from fairlead.runtime.worker_attempt import Start
from fairlead.runtime.worker_host import HostedWorker, Transport, claim_then_drain, host_worker
from fairlead.settings import Settings
from fairlead.store import queue, workers

# How often a worker that shares its slots with other cells looks whether tenants wait, and then reads their weight.
LOOK_SECONDS = 0.1
WEIGH_SECONDS = 1.0


class Metering(Protocol):
    """Counts and times what workers do: `WorkerMetrics`, whose module is imported only if it is used."""

    def measure(
        self,
        source: WorkerSource,
        database: Database,
        watchdog: Watchdog,
        ends: JoinedEnds,
        cell: Callable[[], str],
    ) -> AbstractContextManager[tuple[MeteredSource, Service]]:
        """During the block, the source to use in place of `source`, and a service to run."""
        ...


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
    # None: those of the settings
    labels: Mapping[str, str] | None = None
    version: str
    # called with the number of running jobs when draining begins
    stopping: Callable[[int], object] = lambda _: None
    # the same in all cells that a process serves: None makes a new one
    worker_id: str | None = None
    # the slots that the cells of this process share
    capacity: SharedCapacity | None = None
    # where the directory of cells is; None: leases are not followed to other cells
    directory: Directory | None = None
    # the metrics of all workers of this process; None: this one has its own, if the settings ask for them
    metering: Metering | None = None
    # the name of its cell in the metrics; empty while there is only one database
    cell: Callable[[], str] = str
    # called with each notification
    hear: Callable[[str], object] = lambda _: None
    # what the list of workers shows beside the usual
    describe: Callable[[], Mapping[str, Any]] = dict


class WorkerProcess:
    """Runs until `stop` is set, drains, and releases jobs that did not end in time; `abandon` ends the draining."""

    def __init__(self, plan: WorkerPlan) -> None:
        self._plan = plan
        self.worker_id = plan.worker_id or new_worker_id()
        self._labels = parse_labels(plan.settings.labels) if plan.labels is None else plan.labels
        self.worker: Worker | None = None
        self._capacity = plan.capacity
        self._share: Share | None = None
        self._source: StoreSource | None = None
        self._hosted: HostedWorker | None = None
        self._weighing: asyncio.Task[None] | None = None
        self._is_draining = False
        self._is_retired = False
        self._moved = MovedLeases()
        self._measure: Callable[[WorkerSource], WorkerSource] = lambda source: source

    @property
    def running(self) -> int:
        """How many jobs it holds."""
        return 0 if self.worker is None else self.worker.running

    @property
    def ended(self) -> int:
        """How many attempts have ended here."""
        return 0 if self.worker is None else self.worker.ended

    def share_slots(self, capacity: SharedCapacity) -> None:
        """Share the slots with the workers of other cells, from now on."""
        self._capacity = capacity
        if self.worker is None or self._share is not None:
            return
        self._share = self.worker.share_slots(capacity)
        self._weighing = asyncio.create_task(
            Service("weighing", self._weigh).run(asyncio.Event()), name="fairlead-weighing"
        )

    def retire(self) -> None:
        """Claim nothing more: the cell was removed. Running jobs go on."""
        self._is_retired = True
        if self.worker is not None:
            self.worker.set_draining(draining=True)

    def wake_heartbeat(self) -> None:
        """Send a heartbeat now if leases are in other cells: a cancel was requested in one of them."""
        if self._hosted is not None and self._moved:
            self._hosted.heartbeat.wake()

    async def _weigh(self) -> float:
        """Learn the weight of the tenants that wait; seconds until the next time."""
        share, source = self._share, self._source
        if share is None or source is None or not (share.is_hungry or share.missing):
            return LOOK_SECONDS
        share.weight = max(1.0, await source.read_waiting_weight())
        return WEIGH_SECONDS

    async def run(self, stop: asyncio.Event, abandon: asyncio.Event | None = None) -> None:
        """Claim and run jobs until `stop` is set."""
        plan = self._plan
        async with AsyncExitStack() as stack:
            database = await stack.enter_async_context(Database(plan.url, plan.settings, session=PLANNER))
            stored_source = self._source = self._open_source(database)
            following = await stack.enter_async_context(self._follow(stored_source, database))
            source: WorkerSource = following or stored_source
            maintenance, metrics = Maintenance(database), []
            ends = JoinedEnds(database, worker=self.worker_id)
            stack.push_async_callback(ends.close)
            metering = plan.metering or stack.enter_context(open_metrics(plan.settings))
            if metering is not None:
                meter, reading = stack.enter_context(
                    metering.measure(source, database, maintenance.watchdog, ends, plan.cell)
                )
                source, self._measure = meter, meter.over
                metrics.append(reading)
            transport = self._build_transport(database, source, following)
            steps = DurableSteps(database, following)
            hosted = await stack.enter_async_context(
                self._host(transport, source, maintenance.stager, ends, steps)
            )
            self.worker, self._hosted = hosted.worker, hosted
            stack.push_async_callback(self._leave)
            if self._capacity is not None:
                self.share_slots(self._capacity)
            await stack.enter_async_context(self._listen(hosted, maintenance))
            async with run_services(*maintenance.services, *metrics, stop=stop):
                await self._work(hosted.worker, stop, abandon or asyncio.Event())
                with suppress(FairleadError):  # the database is unreachable: the leases expire
                    await stored_source.release_unanswered()

    async def _leave(self) -> None:
        self._hosted = None
        if self._share is not None:
            self._share.leave()
        if self._weighing is not None:
            await cancel_and_wait(self._weighing)

    def _open_source(self, database: Database) -> StoreSource:
        plan = self._plan
        return StoreSource(
            database,
            worker=self.worker_id,
            lease_seconds=plan.settings.lease_seconds,
            served=plan.served,
            served_pairs=plan.served_pairs,
            waits=bool(plan.settings.metrics_port),
            patient=False,  # the finisher tries again
            labels=self._labels,
            slots=plan.concurrency,
        )

    @asynccontextmanager
    async def _follow(self, source: StoreSource, database: Database) -> AsyncIterator[FollowingSource | None]:
        """During the block, a source that follows leases to other cells; None if there can be no other cells."""
        place = self._plan.directory
        if place is None:
            yield None
            return
        connections = CellConnections(place)
        try:
            yield FollowingSource(
                source,
                database,
                connections,
                self._moved,
                worker=self.worker_id,
                place=place,
                tenant_of=lambda lease: None if self.worker is None else self.worker.tenant_of(lease),
            )
        finally:
            await connections.close()

    def _build_transport(
        self, database: Database, source: WorkerSource, following: FollowingSource | None
    ) -> Transport:
        if following is not None:
            return Transport(source, following.store_progress, following.append, self._connect_heartbeat)
        return Transport(
            source,
            write_progress=lambda steps: database.single(lambda tx: queue.store_progress(tx, steps)),
            append_output=append_to_database(database),
            connect_heartbeat=self._connect_heartbeat,
        )

    def _host(
        self,
        transport: Transport,
        source: WorkerSource,
        stager: Service,
        ends: JoinedEnds,
        steps: DurableSteps,
    ) -> AbstractAsyncContextManager[HostedWorker]:
        plan, settings = self._plan, self._plan.settings
        return host_worker(
            transport,
            plan.start,
            worker_id=self.worker_id,
            concurrency=plan.concurrency,
            lease_seconds=settings.lease_seconds,
            poll_seconds=settings.poll_seconds,
            later=stager.wake,
            suspects=source,
            ends=ends,
            steps=steps,
        )

    @asynccontextmanager
    async def _listen(self, hosted: HostedWorker, maintenance: Maintenance) -> AsyncIterator[None]:
        """Wake the loops at notifications, during the block."""

        def hear(payload: str) -> None:
            if payload in ("ready", "gate", POLL):
                hosted.worker.wake()
            if payload in ("later", POLL):
                maintenance.stager.wake()
            if payload in ("step", POLL):
                maintenance.steps.wake()
            if payload in ("cancel", POLL):
                hosted.heartbeat.wake()
            self._plan.hear(payload)

        settings = self._plan.settings
        async with Listener(
            settings.direct_url or self._plan.url, settings.schema, citus=settings.citus
        ) as listener:
            with listener.subscribe(hear):
                yield

    async def _work(self, worker: Worker, stop: asyncio.Event, abandon: asyncio.Event) -> None:
        """Claim until `stop` is set, then drain."""
        plan, threads = self._plan, self._plan.threads

        async def drain() -> None:
            plan.stopping(worker.running)
            await worker.drain(plan.settings.drain_seconds, abandon)

        await claim_then_drain(
            worker, stop, abandon, drain, worn_out=lambda: threads.stuck > threads.max_threads // 4
        )

    @asynccontextmanager
    async def _connect_heartbeat(self) -> AsyncIterator[HeartbeatSource]:
        """A connection for the heartbeat; while it is open, the worker is in the list of workers."""
        plan = self._plan
        async with Database(plan.url, replace(plan.settings, pool_size=1), session=PLANNER) as database:
            registering = asyncio.create_task(
                Service("registration", lambda: self._register(database)).run(asyncio.Event())
            )
            source = StoreSource(
                database,
                worker=self.worker_id,
                lease_seconds=plan.settings.lease_seconds,
                patient=False,
                beside=self._source,
            )
            try:
                async with self._follow(source, database) as following:
                    yield self._measure(following or source)
            finally:
                await cancel_and_wait(registering)
                with suppress(FairleadError):
                    await database.single(lambda tx: workers.remove(tx, self.worker_id))

    async def _register(self, database: Database) -> float:
        """Record that the worker is there, and learn whether it must drain; seconds until the next time."""
        plan = self._plan
        self._is_draining = await database.single(
            lambda tx: workers.register(
                tx,
                worker_id=self.worker_id,
                hostname=socket.gethostname(),
                version=plan.version,
                keys=plan.keys,
                running=0 if self.worker is None else self.worker.running,
                concurrency=plan.concurrency,
                labels=self._labels,
                metadata=plan.describe(),
                # the row was removed if this connection is a new one
                draining=self._is_draining,
            )
        )
        if self.worker is not None:
            self.worker.set_draining(draining=self._is_draining or self._is_retired)
        return plan.settings.lease_seconds / 3


@contextmanager
def open_metrics(settings: Settings) -> Iterator[Metering | None]:
    """Serve the metrics of this process's workers during the block; None if the settings have no port for them."""
    if not settings.metrics_port:
        yield None
        return
    # imported only if used: prometheus_client slows the start
    from fairlead.runtime.meter import WorkerMetrics, expose_metrics  # noqa: PLC0415

    metrics = WorkerMetrics()
    with expose_metrics(metrics, settings.metrics_host, settings.metrics_port):
        yield metrics
