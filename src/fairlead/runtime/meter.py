"""Prometheus metrics: of the workers of a process, each measured in a JobSource that wraps its source, and of the health checks.

Every process reports the same results of the checks: one process runs them.
"""

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from uuid import UUID

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from fairlead.actions import checks
from fairlead.db.database import Database
from fairlead.model.finding import Finding
from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Change
from fairlead.runtime.job_source import HeldJob, WorkerSource
from fairlead.runtime.joined_ends import JoinedEnds
from fairlead.runtime.service import Service
from fairlead.runtime.watchdog import Watchdog
from fairlead.store.queue import HeartbeatResult

log = structlog.get_logger(__name__)

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600)
SIZES = (1, 2, 5, 10, 25, 50, 100, 250, 500)
PORTS = 100
# Attempts of lost leases have no outcome here: their start times must not accumulate.
MOST_BEGUN = 50_000
READ_SECONDS = 30.0


class WorkerMetrics:
    """The metrics of a process's workers, of all cells together, in one registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._watchdogs: list[Watchdog] = []
        # by watchdogs that have ended: a counter must not fall
        self._rescued_before = 0
        self._checks: list[tuple[Callable[[], str], CheckReader]] = []
        self.claims = self._histogram("fairlead_claim_batch_size", "Jobs per claim.", SIZES)
        self.finishes = self._histogram("fairlead_finish_batch_size", "Outcomes written per batch.", SIZES)
        self.queue_seconds = self._histogram(
            "fairlead_queue_seconds", "Seconds from a job's due time to its claim.", SECONDS
        )
        self.run_seconds = Histogram(
            "fairlead_run_seconds",
            "Seconds from a job's claim until its outcome was written.",
            ["definition"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.attempts = Counter(
            "fairlead_attempts",
            "Ended attempts, by the status of the attempt and of the job.",
            ["definition", "attempt_status", "status"],
            registry=self.registry,
        )
        self.refused = Counter(
            "fairlead_stale_writes_refused",
            "Outcomes refused because the lease was lost.",
            registry=self.registry,
        )
        self.registry.register(self)

    def _histogram(self, name: str, about: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(name, about, buckets=buckets, registry=self.registry)

    @contextmanager
    def measure(
        self,
        source: WorkerSource,
        database: Database,
        watchdog: Watchdog,
        ends: JoinedEnds,
        cell: Callable[[], str],
    ) -> Iterator[tuple["Meter", Service]]:
        """Measure the worker of a cell during the block: its source in a meter, and the service that reads the checks."""
        meter, reader = Meter(source, self), CheckReader(database)
        ends.count = meter.count_joined
        entry = (cell, reader)
        self._checks.append(entry)
        self._watchdogs.append(watchdog)
        try:
            yield meter, Service("checks", reader)
        finally:
            self._checks.remove(entry)
            self._watchdogs.remove(watchdog)
            self._rescued_before += watchdog.rescued

    def collect(self) -> Iterator[Metric]:
        """The rescued leases, and the findings of each cell, for the registry."""
        yield CounterMetricFamily(
            "fairlead_leases_lost",
            "Expired leases that this process's watchdog rescued.",
            self._rescued_before + sum(watchdog.rescued for watchdog in self._watchdogs),
        )
        yield from merge_cells((cell(), build_check_families(reader.found)) for cell, reader in self._checks)


class Meter:
    """A source that counts and times the jobs that pass through it."""

    def __init__(self, source: WorkerSource, metrics: WorkerMetrics) -> None:
        self._source = source
        self.metrics = metrics
        self.crowded = False
        self.opens_in: float | None = None
        self._begun: dict[Lease, tuple[str, float]] = {}

    def over(self, source: WorkerSource) -> "Meter":
        """The same counters around another source of the worker: that of its heartbeat thread."""
        beside = copy(self)
        beside._source = source  # noqa: SLF001 - a copy of this object
        return beside

    async def claim(self, wanted: int) -> list[HeldJob]:
        """Claim up to `wanted` jobs."""
        held = await self._source.claim(wanted)
        self.crowded, self.opens_in = self._source.crowded, self._source.opens_in
        return self._count_claimed(held)

    async def claim_suspect(self, *, idle: bool | None, free: int | None = None) -> list[HeldJob]:
        """Claim one suspect (a job that must start alone), or none."""
        return self._count_claimed(await self._source.claim_suspect(idle=idle, free=free))

    async def suspects_wait(self) -> bool:
        """Whether a suspect waits that this worker could claim if it were idle."""
        return await self._source.suspects_wait()

    def _count_claimed(self, held: list[HeldJob]) -> list[HeldJob]:
        if held:
            now = time.monotonic()
            self.metrics.claims.observe(len(held))
            for one in held:
                self._begun[one.lease] = (one.job.definition_key, now)
                self.metrics.queue_seconds.observe(max(0.0, one.job.waited))
            while len(self._begun) > MOST_BEGUN:
                del self._begun[next(iter(self._begun))]
        return held

    async def heartbeat(self, leases: Sequence[Lease]) -> dict[Lease, HeartbeatResult]:
        """Renew leases. Leases that are missing from the result are lost."""
        return await self._source.heartbeat(leases)

    async def give_back_unstarted(self, held: Sequence[HeldJob]) -> None:
        """Return jobs to the queue."""
        await self._source.give_back_unstarted(held)

    def count_joined(self, lease: Lease, change: Change) -> None:
        """Count an attempt that has ended in its handler's transaction."""
        now = time.monotonic()
        definition, begun = self._begun.pop(lease, ("", now))
        self.metrics.run_seconds.labels(definition).observe(now - begun)
        self.metrics.attempts.labels(definition, change.attempt_status, change.status).inc()

    async def finish(self, ends: Sequence[tuple[Lease, Change]]) -> dict[UUID, JobStatus]:
        """Write outcomes of attempts; jobs missing from the result were no longer ours."""
        done = await self._source.finish(ends)
        now = time.monotonic()
        self.metrics.finishes.observe(len(ends))
        tally: Tally[tuple[str, str, str]] = Tally()
        for lease, change in ends:
            definition, begun = self._begun.pop(lease, ("", now))
            if (status := done.get(lease.job_id)) is None:
                self.metrics.refused.inc()
                continue
            self.metrics.run_seconds.labels(definition).observe(now - begun)
            tally[definition, change.attempt_status, status] += 1
        for labels, number in tally.items():
            self.metrics.attempts.labels(*labels).inc(number)
        return done


def build_check_families(found: Sequence[Finding]) -> Iterator[GaugeMetricFamily]:
    """The metric families: a verdict for each check, and its measured value if it has one."""
    verdicts = GaugeMetricFamily(
        "fairlead_check", "The verdict of a check: 0 is ok, 1 a warning, 2 a failure.", labels=["check"]
    )
    values = GaugeMetricFamily("fairlead_check_value", "The measured value of a check.", labels=["check"])
    for one in found:
        verdicts.add_metric([one.check], one.verdict.level)
        if one.value is not None:
            values.add_metric([one.check], one.value)
    yield from (verdicts, values)


class CheckReader:
    """Reads the stored findings twice a minute, since a Prometheus registry cannot wait for the database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.found: Sequence[Finding] = ()

    async def __call__(self) -> float:
        """Read the findings; seconds until the next read."""
        self.found = await self._database.transact(checks.list_stored)
        return READ_SECONDS


def merge_cells(families_by_cell: Iterable[tuple[str, Iterable[Metric]]]) -> Iterator[Metric]:
    """The families of several cells as one each. Their samples name the cell, unless it has no name: with one database."""
    merged: dict[str, Metric] = {}
    for cell, families in families_by_cell:
        for family in families:
            if cell:
                family.samples = [
                    sample._replace(labels={**sample.labels, "cell": cell}) for sample in family.samples
                ]
            if (known := merged.setdefault(family.name, family)) is not family:
                known.samples.extend(family.samples)
    yield from merged.values()


@contextmanager
def expose_metrics(metrics: WorkerMetrics, host: str, port: int) -> Iterator[int]:
    """Serve the metrics at the port, or at the next free one: several worker processes share the setting."""
    for candidate in range(port, port + PORTS):
        try:
            server, thread = start_http_server(candidate, addr=host, registry=metrics.registry)
        except OSError as error:
            log.debug("metrics_port_taken", port=candidate, why=error.strerror)
            continue
        log.info("metrics_exposed", port=candidate)
        try:
            yield candidate
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
        return
    log.warning("metrics_not_exposed", port=port, why=f"no free port in {port}..{port + PORTS - 1}")
    yield 0
