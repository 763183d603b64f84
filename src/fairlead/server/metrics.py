"""`/metrics` for Prometheus, and a line in the log for every request."""

import asyncio
import time
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Annotated, Any

import msgspec
import structlog
from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.actions import checks, metrics, tenants
from fairlead.actions.metrics import QUANTILES, Fleet, RecentTimes, TenantLevels
from fairlead.db.tx import TransactionIdentity, Tx
from fairlead.library.app import Fairlead
from fairlead.model.access import Permission
from fairlead.model.finding import Finding
from fairlead.runtime.meter import build_check_families, merge_cells
from fairlead.server.all_cells import ask_cells
from fairlead.server.auth import GuardedRoute, Requires, refuse_unknown_query
from fairlead.server.body_limits import BodyTurns
from fairlead.server.handover import find_handover
from fairlead.server.live_sockets import LiveFeeds
from fairlead.server.problems import route_of
from fairlead.turns.connections import ConnectionTurns
from fairlead.turns.loop import LoopTurns

log = structlog.get_logger("fairlead.request")

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# The tenants with the longest queues have their own series; the others are summed.
MOST_TENANTS = 50
OTHERS = "_others"
ALL = "_all"
# Scrapes within this time get the same figures.
REMEMBER_SECONDS = 2.0
# Slow reads are repeated less often: at most 1/10 of the time is spent reading.
READ_REST_FACTOR = 10
STATUSES = ("queued", "running", "succeeded", "failed", "dead_letter", "canceled")
RUN_ENDS = ("succeeded", "failed", "dead_letter", "retried", "lost")
EVENTS = ("enqueued", "succeeded", "failed", "dead_letter", "canceled")
Family = CounterMetricFamily | GaugeMetricFamily
SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


# Counters of the turns at the event loop, at the database connections, and at the memory of bodies.
LOOP_TURNS: dict[str, tuple[str, Callable[[LoopTurns], float]]] = {
    "fairlead_loop_waits": (
        "Steps of requests that waited for their turn at the event loop, since their tenant used much of it.",
        attrgetter("waits"),
    ),
    "fairlead_loop_wait_seconds": (
        "How long steps of requests waited for their turn at the event loop, together.",
        attrgetter("waited_seconds"),
    ),
}
CONNECTION_TURNS: dict[str, tuple[str, Callable[[ConnectionTurns], float]]] = {
    "fairlead_connection_waits": (
        "Requests that waited for their turn at the database connections.",
        attrgetter("waits"),
    ),
    "fairlead_connection_wait_seconds": (
        "How long requests waited for their turn at the database connections, together.",
        attrgetter("waited_seconds"),
    ),
    "fairlead_connection_refusals": (
        "Requests that were refused since too many of their tenant waited, or for too long.",
        attrgetter("refusals"),
    ),
}


BODY_TURNS: dict[str, tuple[str, Callable[[BodyTurns], float]]] = {
    "fairlead_body_waits": (
        "Large request bodies that waited for their turn at the memory.",
        attrgetter("waits"),
    ),
    "fairlead_body_wait_seconds": (
        "How long large request bodies waited for their turn at the memory, together.",
        attrgetter("waited_seconds"),
    ),
    "fairlead_body_refusals": (
        "Requests that were refused since the bodies of their tenant, or of all others, took too much memory.",
        attrgetter("refusals"),
    ),
}


class Figures(msgspec.Struct, frozen=True):
    """Figures read from the database."""

    levels: list[TenantLevels]
    enqueued: dict[str, int]
    oldest: dict[str, float]
    fleet: Fleet
    checks: list[Finding]
    # runs since the beginning, by tenant and outcome
    runs: dict[str, dict[str, int]]
    recent: list[RecentTimes]


class Metrics:
    """The metrics of this process and of the database, in a separate registry."""

    def __init__(self, fl: Fairlead, live: LiveFeeds, loop_turns: LoopTurns, body_turns: BodyTurns) -> None:
        self._fl = fl
        self._loop_turns = loop_turns
        self._body_turns = body_turns
        # the feeds of all cells, and their databases
        self._feeds = [live]
        self._members = [fl]
        # by cell; without cells there is one, without a name
        self._figures: dict[str, Figures] = {}
        # the names of all cells that were asked, also of those that did not answer
        self._cells: list[str] = []
        self._fresh_until = 0.0
        self._reading = asyncio.Lock()
        self.registry = CollectorRegistry(auto_describe=False)
        self.requests = Histogram(
            "fairlead_http_request_duration_seconds",
            "How long requests took, by route and status.",
            ["method", "route", "status"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.refused = Counter(
            "fairlead_http_refusals_total",
            "Requests that were refused, by status.",
            ["status"],
            registry=self.registry,
        )
        self.registry.register(self)

    def add_cell(self, fl: Fairlead, live: LiveFeeds) -> None:
        """Count the sockets and the turns of another cell, too."""
        self._feeds.append(live)
        self._members.append(fl)

    def _collect_turns(self) -> Iterator[Family]:
        """How requests of this process waited for their turns."""
        counted = [member.database.connection_turns for member in self._members if member.is_open]
        for name, (about, count) in CONNECTION_TURNS.items():
            yield CounterMetricFamily(name, about, value=sum(map(count, counted)))
        for name, (about, read) in LOOP_TURNS.items():
            yield CounterMetricFamily(name, about, value=read(self._loop_turns))
        for name, (about, total) in BODY_TURNS.items():
            yield CounterMetricFamily(name, about, value=total(self._body_turns))
        yield GaugeMetricFamily(
            "fairlead_loop_longest_step_seconds",
            "The longest that one step of a request has held the event loop.",
            value=self._loop_turns.longest_step,
        )

    async def render_text(self) -> bytes:
        """All metrics in the Prometheus text format."""
        async with self._reading:
            begun = time.monotonic()
            if not self._figures or begun > self._fresh_until:
                self._figures = await self._read()
                now = time.monotonic()
                self._fresh_until = now + max(REMEMBER_SECONDS, (now - begun) * READ_REST_FACTOR)
        return generate_latest(self.registry)

    async def _read(self) -> dict[str, Figures]:
        """The figures of each cell that can be reached."""
        if not self._fl.cells:
            self._cells = []
            async with self._fl.database.transaction() as tx:
                return {"": await self._read_cell(tx, "")}
        answers = await ask_cells(self._fl, TransactionIdentity(), self._read_cell)
        self._cells = [answer.cell for answer in answers]
        return {answer.cell: answer.value for answer in answers if answer.value is not None}

    async def _read_cell(self, tx: Tx, cell: str) -> Figures:
        absent = await tenants.list_absent(tx) if cell else frozenset()
        levels = [one for one in await metrics.list_levels(tx) if one.tenant_id not in absent]
        shown = levels[:MOST_TENANTS]
        oldest = await metrics.measure_oldest(tx, [one.tenant_id for one in shown])
        fleet = await metrics.read_fleet(tx)
        found = await checks.list_stored(tx)
        recent = await metrics.list_recent_times(tx, by_tenant=not self._fl.settings.metrics_public)
        by_slug = {one.tenant: oldest.get(one.tenant_id, 0.0) for one in shown}
        # a sum over all tenants: a counter must not fall, and the set of other tenants changes
        enqueued = {ALL: sum(one.enqueued for one in levels)}
        runs = {one.tenant: _count_runs(one) for one in _sum_levels(levels, ALL)}
        if self._fl.settings.metrics_public:
            # public metrics must not name tenants
            oldest_of_all = {ALL: max(by_slug.values(), default=0.0)}
            return Figures(_sum_levels(levels, ALL), enqueued, oldest_of_all, fleet, found, runs, recent)
        enqueued |= {one.tenant: one.enqueued for one in shown}
        runs |= {one.tenant: _count_runs(one) for one in shown}
        named = [*shown, *_sum_levels(levels[MOST_TENANTS:], OTHERS)]
        return Figures(named, enqueued, by_slug, fleet, found, runs, recent)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics that are read from the database, for the registry."""
        sockets = GaugeMetricFamily("fairlead_live_connections", "Live sockets of this process.")
        sockets.add_metric([], sum(feed.connections for feed in self._feeds))
        yield sockets
        yield from self._collect_turns()
        if self._cells:
            up = GaugeMetricFamily(
                "fairlead_cell_up", "Whether the cell answered this server.", labels=["cell"]
            )
            for cell in self._cells:
                up.add_metric([cell], int(cell in self._figures))
            yield up
        yield from merge_cells(
            (cell, (*_build_families(figures), *build_check_families(figures.checks)))
            for cell, figures in self._figures.items()
        )


def _sum_levels(levels: list[TenantLevels], name: str) -> list[TenantLevels]:
    if not levels:
        return []
    numbers = [name for name in TenantLevels.__struct_fields__ if name not in ("tenant", "tenant_id")]
    total = {number: sum(getattr(one, number) for one in levels) for number in numbers}
    return [TenantLevels(tenant=name, tenant_id=levels[0].tenant_id, **total)]


def _count_runs(levels: TenantLevels) -> dict[str, int]:
    return {end: getattr(levels, f"runs_{end}") for end in RUN_ENDS}


def _build_run_families(figures: Figures) -> Iterator[Family]:
    ended = CounterMetricFamily(
        "fairlead_runs",
        "Attempts that ended, by what became of their jobs; lost attempts are also counted separately.",
        labels=["tenant", "outcome"],
    )
    for tenant, numbers in figures.runs.items():
        for outcome, number in numbers.items():
            ended.add_metric([tenant, outcome], number)
    yield ended
    for name, about in (("queue", "waited before their claim"), ("run", "ran")):
        family = GaugeMetricFamily(
            f"fairlead_recent_{name}_seconds",
            f"How long jobs {about}, of attempts that ended in the last five minutes.",
            labels=["tenant", "definition", "quantile"],
        )
        for one in figures.recent:
            for quantile, seconds in zip(QUANTILES, getattr(one, f"{name}_seconds"), strict=True):
                family.add_metric([one.tenant or ALL, one.definition, str(quantile)], seconds)
        yield family


def _build_families(figures: Figures) -> Iterator[Family]:
    jobs = GaugeMetricFamily(
        "fairlead_jobs",
        "Jobs by tenant and status; finished ones until retention.",
        labels=["tenant", "status"],
    )
    minute = GaugeMetricFamily(
        "fairlead_jobs_last_minute",
        "Jobs that were enqueued or ended in the last whole minute.",
        labels=["tenant", "event"],
    )
    for one in figures.levels:
        for status in STATUSES:
            jobs.add_metric([one.tenant, status], getattr(one, status))
        for event in EVENTS:
            minute.add_metric([one.tenant, event], getattr(one, f"minute_{event}"))
    oldest = GaugeMetricFamily(
        "fairlead_oldest_queued_seconds",
        "How long the oldest due job has waited, without jobs bound to hosts.",
        labels=["tenant"],
    )
    for tenant, seconds in figures.oldest.items():
        oldest.add_metric([tenant], max(0.0, seconds))
    enqueued = CounterMetricFamily(
        "fairlead_jobs_enqueued", "Jobs that were enqueued, by any process.", labels=["tenant"]
    )
    for tenant, number in figures.enqueued.items():
        enqueued.add_metric([tenant], number)
    yield from (jobs, minute, oldest, enqueued)
    yield from _build_run_families(figures)
    for name, about, value in (
        ("fairlead_workers", "Workers seen in the last minute.", figures.fleet.workers),
        ("fairlead_worker_slots", "Jobs that workers can run at once.", figures.fleet.slots),
        ("fairlead_online", "Whether the system's gate is open.", int(figures.fleet.online)),
    ):
        family = GaugeMetricFamily(name, about)
        family.add_metric([], value)
        yield family


# The route


class MayScrape(Requires):
    """A super admin, or anyone if FAIRLEAD_METRICS_PUBLIC is on."""

    def __init__(self) -> None:
        super().__init__(Permission.READ_QUEUE, everywhere=True)

    async def __call__(self, request: Request) -> Any:
        fl: Fairlead = request.app.state.fl
        if fl.settings.metrics_public:
            refuse_unknown_query(request)
            return None
        return await super().__call__(request)


router = APIRouter(route_class=GuardedRoute, tags=["health"])


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def scrape(request: Request, _: Annotated[Any, Depends(MayScrape())]) -> Response:
    """Metrics for Prometheus."""
    known: Metrics = request.app.state.metrics
    return Response(await known.render_text(), media_type=MEDIA_TYPE)


# Every request


class RequestMetrics:
    """Middleware that times and logs each request, without its query, body and headers."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()
        status = 500

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except asyncio.CancelledError:
            status = CLIENT_CLOSED
            raise
        finally:
            self._record(scope, status, time.perf_counter() - begun)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        if (handover := find_handover(scope)) is not None and handover.is_handed_on:
            return
        route = route_of(scope)
        method = scope["method"] if scope["method"] in METHODS else "OTHER"
        self._metrics.requests.labels(method, route, str(status)).observe(seconds)
        if status in (401, 403, 429):
            self._metrics.refused.labels(str(status)).inc()
        caller = scope.get("state", {}).get("caller")
        log.info(
            "request",
            method=method,
            route=route,
            status=status,
            duration_ms=round(seconds * 1000, 1),
            actor=caller.principal.actor if caller else None,
            tenant_id=str(caller.tenant_id) if caller and caller.tenant_id else None,
        )


# Without a response: the client has disconnected, or the server ends.
CLIENT_CLOSED = 499
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
