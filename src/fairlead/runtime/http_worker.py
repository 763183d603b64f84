"""One worker process without a database connection: a worker over HTTP, from start until the last outcome is sent."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from fairlead.handlers.threads import Threads
from fairlead.model.job import Lease
from fairlead.runtime.claim_requests import CLAIM_ERRORS, ClaimRequests
from fairlead.runtime.execution import ExecutionServices
from fairlead.runtime.http_worker_source import CONCURRENT_REPORTS, HttpWorkerSource
from fairlead.runtime.job_source import HeartbeatSource
from fairlead.runtime.recycling import Recycling
from fairlead.runtime.server_client import ServerClient
from fairlead.runtime.service import Service, run_services
from fairlead.runtime.store_source import new_worker_id
from fairlead.runtime.unstarted import UnreadClaims
from fairlead.runtime.worker import Worker
from fairlead.runtime.worker_attempt import Start
from fairlead.runtime.worker_host import Transport, claim_then_drain, drain_and_report, host_worker

# Between two claims: the server's long poll does the waiting.
POLL_SECONDS = 0.01
# Each outcome is a request: a worker that claimed far ahead of them would hold leases of jobs that ended long ago.
MOST_UNWRITTEN = 2 * CONCURRENT_REPORTS


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpWorkerPlan:
    """The configuration of one worker process over HTTP."""

    server: str
    token: str = field(repr=False)
    start: Callable[[ExecutionServices], Start]
    threads: Threads
    keys: Sequence[str]
    concurrency: int
    labels: Mapping[str, str] = field(default_factory=dict)
    drain_seconds: float
    version: str
    # called with the number of running jobs when draining begins
    stopping: Callable[[int], object] = lambda _: None
    recycling: Recycling | None = None


class HttpWorker:
    """Runs until `stop` is set or the server refuses its token; then drains, and releases jobs that did not end in time."""

    def __init__(self, plan: HttpWorkerPlan) -> None:
        self._plan = plan
        self.worker_id = new_worker_id()
        self._ending: set[Lease] = set()
        self._unread = UnreadClaims()

    async def run(
        self, stop: asyncio.Event, abandon: asyncio.Event, begun: Callable[[], None] = lambda: None
    ) -> None:
        """Claim and run jobs until `stop` is set. Raises the server's error if it refused the token."""
        async with self._connect() as client:
            claims = self._build_claims(client, stop)
            is_reached = await claims.begin()
            source = HttpWorkerSource(client, claims, ending=self._ending)
            if is_reached:
                await self._work(source, claims, stop, abandon, begun)
            await source.give_back()
        if claims.refusal is not None:
            raise claims.refusal

    def _build_claims(self, client: ServerClient, stop: asyncio.Event) -> ClaimRequests:
        plan = self._plan
        return ClaimRequests(
            client,
            worker_id=self.worker_id,
            keys=plan.keys,
            version=plan.version,
            slots=plan.concurrency,
            labels=plan.labels,
            stop=stop,
            unread=self._unread,
        )

    async def _work(
        self,
        source: HttpWorkerSource,
        claims: ClaimRequests,
        stop: asyncio.Event,
        abandon: asyncio.Event,
        begun: Callable[[], None],
    ) -> None:
        plan, threads = self._plan, self._plan.threads

        @asynccontextmanager
        async def connect_heartbeat() -> AsyncIterator[HeartbeatSource]:
            async with self._connect() as client:
                others = self._build_claims(client, asyncio.Event())
                yield HttpWorkerSource(client, others, ending=self._ending)

        async def drain() -> None:
            plan.stopping(worker.running)
            seconds = plan.drain_seconds
            if claims.refusal is not None:  # it can neither renew leases nor report
                seconds = 0.0
                source.leave()
            await drain_and_report(worker, seconds, abandon, source.leave)

        async with host_worker(
            Transport(source, source.progress, source.append_output, connect_heartbeat),
            plan.start,
            worker_id=self.worker_id,
            concurrency=plan.concurrency,
            lease_seconds=claims.lease_seconds,
            poll_seconds=POLL_SECONDS,
            most_unwritten=MOST_UNWRITTEN,
        ) as (worker, _):
            begun()
            async with run_services(*self._build_watch(worker)):
                await claim_then_drain(
                    worker,
                    stop,
                    abandon,
                    drain,
                    worn_out=lambda: threads.stuck > threads.max_threads // 4,
                )

    def _build_watch(self, worker: Worker) -> list[Service]:
        """The service that compares this process with the limits of its recycling, if there are any."""
        recycling = self._plan.recycling
        if recycling is None:
            return []

        async def look() -> float:
            return recycling.look(worker.ended, serving=True)

        return [Service("recycling", look)]

    def _connect(self) -> ServerClient:
        plan = self._plan
        # one more for the claim
        return ServerClient(plan.server, plan.token, known=CLAIM_ERRORS, connections=CONCURRENT_REPORTS + 1)
