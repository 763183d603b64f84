"""Streams the logs of functions while they run. A function that ends sooner has its log stored with its outcome only."""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from fairlead.errors import FairleadError
from fairlead.model.job import Lease
from fairlead.model.outcome import Outcome
from fairlead.runtime.failure_log import job_log_fields
from fairlead.runtime.log_writer import LogWriter
from fairlead.runtime.service import Service
from fairlead.runtime.worker_attempt import WorkerAttempt
from fairlead.store import logs

log = structlog.get_logger(__name__)

# A line waits one to two rounds if it is the attempt's first, and at most one round otherwise.
ROUND_SECONDS = 0.5
# The rest of the log's bytes is for the last lines, which are stored when the attempt ends.
MOST_STREAMED = logs.MAX_BYTES - 131_072
# After this many failed writes of the last lines, the outcome no longer waits for them.
SETTLE_TRIES = 5
# The stream that the log of an ended function has.
STREAM = "stdout"


class FunctionLogs(Service):
    """Reads the new lines of running functions twice a second. The log writer stores those of all attempts together."""

    def __init__(self, list_logging: Callable[[], Sequence[WorkerAttempt]], writer: LogWriter) -> None:
        super().__init__("function_logs", self)
        self._list_logging = list_logging
        self._writer = writer
        # the attempts that had logged at the last round
        self._logging: set[Lease] = set()
        # the bytes of each attempt that was read before its end
        self._streamed: dict[Lease, int] = {}
        self._ending: set[asyncio.Task[None]] = set()

    async def __call__(self) -> float:
        """Read the attempts that had logged at the last round, too: most attempts end before that and cost nothing."""
        attempts = self._list_logging()
        for attempt in attempts:
            if attempt.held.lease in self._logging:
                self._read(attempt)
        self._logging = {attempt.held.lease for attempt in attempts}
        return ROUND_SECONDS

    def _read(self, attempt: WorkerAttempt) -> None:
        lease = attempt.held.lease
        if lease not in self._streamed:
            self._streamed[lease] = 0
            attempt.then = self._write_lines_first(attempt.then)
        # lines that are not read yet wait in the attempt's own log, which drops the middle of too many
        if self._streamed[lease] <= MOST_STREAMED and not self._writer.has_queued(lease):
            self._streamed[lease] += self._queue_lines(attempt)
            if self._streamed[lease] > MOST_STREAMED:
                self._writer.add(attempt.held, "log", "… the next lines follow when the attempt ends …\n")

    def _queue_lines(self, attempt: WorkerAttempt) -> int:
        """Queue the new lines for writing; their size in bytes."""
        size = 0
        for line in [] if attempt.run is None else attempt.run.take_new_lines():
            self._writer.add(attempt.held, STREAM, f"{line}\n")
            size += len(line.encode()) + 1
        return size

    async def flush(self, attempt: WorkerAttempt) -> None:
        """Write the lines of an attempt whose log is streamed, before its handler ends it."""
        lease = attempt.held.lease
        if lease not in self._streamed:
            return
        self._streamed[lease] += self._queue_lines(attempt)
        try:
            await self._writer.flush(lease)
        except FairleadError as error:
            log.warning(
                "output_not_kept", **job_log_fields(attempt.held.job, attempt.worker_id), why=error.message
            )

    def _write_lines_first(
        self, then: Callable[[WorkerAttempt, Outcome], None]
    ) -> Callable[[WorkerAttempt, Outcome], None]:
        """Write the attempt's last lines before its outcome: no line is accepted after that."""

        async def write_lines(attempt: WorkerAttempt, outcome: Outcome) -> None:
            try:
                await self._settle(attempt)
            finally:
                then(attempt, outcome)

        def end(attempt: WorkerAttempt, outcome: Outcome) -> None:
            task = asyncio.ensure_future(write_lines(attempt, outcome))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

        return end

    async def _settle(self, attempt: WorkerAttempt) -> None:
        lease = attempt.held.lease
        del self._streamed[lease]
        self._queue_lines(attempt)
        try:
            await self._writer.settle(lease, tries=1 if attempt.lost else SETTLE_TRIES)
        except FairleadError as error:
            log.warning(
                "output_not_kept", **job_log_fields(attempt.held.job, attempt.worker_id), why=error.message
            )
