"""Figures of a worker process, for Prometheus: measured between the worker and its source, so neither knows."""

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily

from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Change
from fairlead.runtime.source import Held, WorkerSource
from fairlead.store.queue import Beat

log = structlog.get_logger(__name__)

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600)
SIZES = (1, 2, 5, 10, 25, 50, 100, 250, 500)
PORTS = 100
# Ends that never come (of lost leases) must not pile up.
MOST_BEGUN = 50_000


class Meter:
    """A source that counts what goes through it."""

    def __init__(self, source: WorkerSource) -> None:
        self._source = source
        self.crowded = False
        self._begun: dict[Lease, tuple[str, float]] = {}
        self.registry = CollectorRegistry()
        self.rescued: Callable[[], int] = lambda: 0
        self.claims = self._histogram("fairlead_claim_batch_size", "Jobs that a claim brought.", SIZES)
        self.finishes = self._histogram(
            "fairlead_finish_batch_size", "Ends that were written at once.", SIZES
        )
        self.queue_seconds = self._histogram(
            "fairlead_queue_seconds", "From when a job was due to its claim.", SECONDS
        )
        self.run_seconds = Histogram(
            "fairlead_run_seconds",
            "From a job's claim to when its end was written.",
            ["definition"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.attempts = Counter(
            "fairlead_attempts",
            "Attempts that ended, by how, and by what became of the job.",
            ["definition", "attempt_status", "status"],
            registry=self.registry,
        )
        self.refused = Counter(
            "fairlead_stale_writes_refused",
            "Ends that came after the lease was lost, and changed nothing.",
            registry=self.registry,
        )

    def count_rescues(self, rescued: Callable[[], int]) -> None:
        """Also tell how many leases this process's watchdog took back."""
        self.rescued = rescued
        self.registry.register(self)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """What is counted elsewhere, for the registry."""
        yield CounterMetricFamily(
            "fairlead_leases_lost",
            "Leases that had ended and were taken back by this process's watchdog.",
            self.rescued(),
        )

    def _histogram(self, name: str, about: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(name, about, buckets=buckets, registry=self.registry)

    async def claim(self, wanted: int) -> list[Held]:
        """Take up to this many jobs."""
        held = await self._source.claim(wanted)
        self.crowded = self._source.crowded
        return self._claimed(held)

    async def claim_suspect(self, *, idle: bool | None) -> list[Held]:
        """Take one job that is to be started by itself, or none."""
        return self._claimed(await self._source.claim_suspect(idle=idle))

    async def suspects_wait(self) -> bool:
        """Whether there would be such a job for this worker if it ran nothing."""
        return await self._source.suspects_wait()

    def _claimed(self, held: list[Held]) -> list[Held]:
        if held:
            now = time.monotonic()
            self.claims.observe(len(held))
            for one in held:
                self._begun[one.lease] = (one.job.definition_key, now)
                self.queue_seconds.observe(max(0.0, one.job.waited))
            while len(self._begun) > MOST_BEGUN:
                del self._begun[next(iter(self._begun))]
        return held

    async def heartbeat(self, leases: Sequence[Lease]) -> dict[Lease, Beat]:
        """Renew leases. Those that do not come back are lost."""
        return await self._source.heartbeat(leases)

    async def finish(self, ends: Sequence[tuple[Lease, Change]]) -> dict[UUID, JobStatus]:
        """Write how attempts ended; those that are missing were no longer ours."""
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


@contextmanager
def exposed(meter: Meter, host: str, port: int) -> Iterator[int]:
    """Answer at the port, or at the next free one: several processes of a worker share the setting."""
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
