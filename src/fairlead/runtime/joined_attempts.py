"""Settles the attempts whose handlers wrote their ends in their own transactions."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import structlog

from fairlead.model.job import Lease
from fairlead.model.outcome import Change, Failed, Outcome, Succeeded
from fairlead.runtime.failure_log import job_log_fields
from fairlead.runtime.worker_attempt import WorkerAttempt
from fairlead.store.queue import JoinedEnd

log = structlog.get_logger(__name__)


class EndReader(Protocol):
    """Finds out what became of ends that handlers wrote in their own transactions."""

    count: Callable[[Lease, Change], None]

    async def wait_for_end(self, lease: Lease, gave_up: Callable[[], bool] = ...) -> JoinedEnd:
        """What became of such an end; waits while its transaction is open, until `gave_up`."""


class Holder(Protocol):
    """The worker that holds the attempts."""

    def write_outcome(self, attempt: WorkerAttempt, outcome: Outcome) -> None:
        """Write the outcome of an attempt that has not ended."""

    def record_written(self, leases: list[Lease]) -> None:
        """These attempts are done, and their ends are in the database."""

    def forget(self, leases: list[Lease]) -> None:
        """Hold these attempts no longer."""

    def lose(self, lease: Lease) -> None:
        """Stop the handler: its lease is lost."""

    def log_fields(self, lease: Lease) -> dict[str, Any]:
        """The log fields of a lease's attempt."""


def log_late_outcome(attempt: WorkerAttempt, outcome: Outcome) -> None:
    """Log an outcome that has no effect, since the job had ended in a transaction of its handler."""
    fields = job_log_fields(attempt.held.job, attempt.worker_id)
    if isinstance(outcome, Succeeded):
        written = None if attempt.joined is None else attempt.joined.output
        if outcome.output not in (None, written):
            why = "the job had ended in a transaction: give its output to ctx.succeed(output, tx=connection) within it"
            log.warning("output_dropped", **fields, why=why)
        return
    details = (
        {"error": outcome.kind, "message": outcome.message}
        if isinstance(outcome, Failed)
        else {"outcome": type(outcome).__name__.lower()}
    )
    why = "the job had ended in a transaction of its handler, so it stays succeeded"
    log.warning("failed_after_end", **fields, **details, why=why)


class JoinedAttempts:
    """The attempts of one worker whose handlers wrote their ends."""

    def __init__(self, ends: EndReader, holder: Holder) -> None:
        self._ends = ends
        self._holder = holder
        self._reading: set[asyncio.Task[None]] = set()

    def settle_soon(self, attempt: WorkerAttempt, outcome: Outcome) -> None:
        """The handler has ended with this outcome: find out whether its transaction has committed."""
        self._read_soon(self._settle(attempt, outcome))

    def check_soon(self, attempt: WorkerAttempt) -> None:
        """The lease is gone: the handler's transaction has committed, or another worker may run the job."""
        if not attempt.has_ended:
            self._read_soon(self._learn_end(attempt))

    async def wait_until_settled(self) -> None:
        """Wait for all that is being found out."""
        while self._reading:
            await asyncio.wait(self._reading)

    async def _settle(self, attempt: WorkerAttempt, outcome: Outcome) -> None:
        """Write the outcome only if the transaction was rolled back."""
        lease = attempt.held.lease
        if attempt.has_ended:
            state = JoinedEnd.ENDED
        else:
            state = await self._ends.wait_for_end(lease, lambda: attempt.lost)
        if state is JoinedEnd.ENDED:
            self._record(attempt, outcome)
        elif state is JoinedEnd.OPEN:
            # our lease has expired: a write would wait for the transaction, with all others behind it
            log.warning("transaction_left_open", **self._holder.log_fields(lease))
            self._holder.forget([lease])
        else:
            attempt.joined = None
            attempt.lost = attempt.lost or state is JoinedEnd.GONE
            if state is JoinedEnd.HELD and isinstance(outcome, Succeeded):
                why = "the transaction that ended the job was rolled back: what the handler returned counts"
                log.warning("end_rolled_back", **self._holder.log_fields(lease), why=why)
            self._holder.write_outcome(attempt, outcome)

    def _record(self, attempt: WorkerAttempt, outcome: Outcome) -> None:
        """The job has ended in its handler's transaction: nothing is left to write."""
        lease = attempt.held.lease
        log_late_outcome(attempt, outcome)
        if attempt.joined is not None:
            self._ends.count(lease, attempt.joined)
        self._holder.record_written([lease])

    async def _learn_end(self, attempt: WorkerAttempt) -> None:
        lease = attempt.held.lease
        if await self._ends.wait_for_end(lease) is JoinedEnd.ENDED:
            attempt.has_ended = True
        else:
            log.warning("lease_lost", **self._holder.log_fields(lease))
            self._holder.lose(lease)

    def _read_soon(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)
