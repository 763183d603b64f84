"""Prometheus metrics: of a worker, measured in a JobSource that wraps its source, and of the health checks.

Every process reports the same results of the checks: one process runs them.
"""

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from fairlead.actions import checks
from fairlead.db.database import Database
from fairlead.model.finding import Finding
from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Change
from fairlead.runtime.job_source import HeldJob, WorkerSource
from fairlead.store.queue import HeartbeatResult

log = structlog.get_logger(__name__)

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600)
SIZES = (1, 2, 5, 10, 25, 50, 100, 250, 500)
PORTS = 100
# Attempts of lost leases have no outcome here: their start times must not accumulate.
MOST_BEGUN = 50_000
READ_SECONDS = 30.0


class Meter:
    """A source that counts and times the jobs that pass through it."""

    def __init__(self, source: WorkerSource) -> None:
        self._source = source
        self.crowded = False
        self.opens_in: float | None = None
        self._begun: dict[Lease, tuple[str, float]] = {}
        self.registry = CollectorRegistry()
        self.rescued: Callable[[], int] = lambda: 0
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

    def count_rescues(self, rescued: Callable[[], int]) -> None:
        """Also report how many leases this process's watchdog rescued."""
        self.rescued = rescued
        self.registry.register(self)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """The watchdog's count of rescued leases, for the registry."""
        yield CounterMetricFamily(
            "fairlead_leases_lost",
            "Expired leases that this process's watchdog rescued.",
            self.rescued(),
        )

    def _histogram(self, name: str, about: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(name, about, buckets=buckets, registry=self.registry)

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
            self.claims.observe(len(held))
            for one in held:
                self._begun[one.lease] = (one.job.definition_key, now)
                self.queue_seconds.observe(max(0.0, one.job.waited))
            while len(self._begun) > MOST_BEGUN:
                del self._begun[next(iter(self._begun))]
        return held

    async def heartbeat(self, leases: Sequence[Lease]) -> dict[Lease, HeartbeatResult]:
        """Renew leases. Leases that are missing from the result are lost."""
        return await self._source.heartbeat(leases)

    def count_joined(self, lease: Lease, change: Change) -> None:
        """Count an attempt that has ended in its handler's transaction."""
        now = time.monotonic()
        definition, begun = self._begun.pop(lease, ("", now))
        self.run_seconds.labels(definition).observe(now - begun)
        self.attempts.labels(definition, change.attempt_status, change.status).inc()

    async def finish(self, ends: Sequence[tuple[Lease, Change]]) -> dict[UUID, JobStatus]:
        """Write outcomes of attempts; jobs missing from the result were no longer ours."""
        done = await self._source.finish(ends)
        now = time.monotonic()
        self.finishes.observe(len(ends))
        tally: Tally[tuple[str, str, str]] = Tally()
        for lease, change in ends:
            definition, begun = self._begun.pop(lease, ("", now))
            if (status := done.get(lease.job_id)) is None:
                self.refused.inc()
                continue
            self.run_seconds.labels(definition).observe(now - begun)
            tally[definition, change.attempt_status, status] += 1
        for labels, number in tally.items():
            self.attempts.labels(*labels).inc(number)
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
        self._found: Sequence[Finding] = ()

    async def __call__(self) -> float:
        """Read the findings; seconds until the next read."""
        self._found = await self._database.transact(checks.list_stored)
        return READ_SECONDS

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The findings that were read last, for the registry."""
        yield from build_check_families(self._found)


@contextmanager
def expose_metrics(meter: Meter, host: str, port: int) -> Iterator[int]:
    """Serve the metrics at the port, or at the next free one: several worker processes share the setting."""
    for candidate in range(port, port + PORTS):
        try:
            server, thread = start_http_server(candidate, addr=host, registry=meter.registry)
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
