"""Replays what a durable function has recorded against its code, without a database: no step runs, nothing is stored."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NoReturn
from uuid import UUID

import msgspec

from fairlead.handlers.attempt import AttemptContext
from fairlead.handlers.context import Nondeterministic, Suspend
from fairlead.handlers.durable import Asked, DurableRun
from fairlead.handlers.function import run_attempt
from fairlead.handlers.registry import Handler
from fairlead.handlers.threads import Threads
from fairlead.model.durable import MOST_SECONDS, NewWait, Place, StepEnd, StepRecord, StepStatus
from fairlead.model.durable_history import JobHistory
from fairlead.model.job import JobStatus
from fairlead.model.outcome import Succeeded

NO_TOKEN = UUID(int=0)


class Replayed(msgspec.Struct, frozen=True):
    """How far the code went with what the job has recorded."""

    # whether the function returned
    ended: bool
    # what it returned
    output: Any = None
    # the calls at which the records end: the job goes on with these
    goes_on_with: tuple[str, ...] = ()
    # the exception, if the function raised one as the job did
    error: Exception | None = None


class _RecordedSteps:
    """The steps of a history."""

    def __init__(self, records: list[StepRecord]) -> None:
        self._records = records

    async def load(self) -> list[StepRecord]:
        return self._records

    async def require_key(self) -> None:
        """A replay stores nothing."""

    async def record(self, step: StepEnd) -> None:
        """Only versions come here: code that is new since the job ran asks for one after the last record."""

    async def begin_wait(self, wait: NewWait, *, lookback: float | None = None) -> NoReturn:  # noqa: ARG002
        raise RuntimeError(f"A replay cannot begin the wait {wait.name!r}.")

    async def give_up(self, place: Place) -> NoReturn:
        raise RuntimeError(f"A replay cannot end the wait at {place}.")

    async def give_up_event(self, place: Place, name: str, *, lookback: float | None) -> NoReturn:  # noqa: ARG002
        await self.give_up(place)


class ReplayRun(DurableRun):
    """Answers from the records only, and stops where they end."""

    def __init__(self, ctx: AttemptContext, history: JobHistory) -> None:
        job = history.job
        super().__init__(ctx, _RecordedSteps(history.list_records()), job.id, ctx.attempt_no, NO_TOKEN)
        self._seed = job.replay_of or self._seed
        self._has_ended = job.status is JobStatus.SUCCEEDED
        self.goes_on_with: list[str] = []

    def _find(self, asked: Asked) -> StepRecord | None:
        record = super()._find(asked)
        if record is None and self._has_ended:
            raise Nondeterministic(
                f"The code differs from what this job has recorded: the job succeeded without call {asked.place.position + 1}"
                f"{f' of branch {asked.place.branch}' if asked.place.branch else ''}, {asked.kind} {asked.name!r}. Put changed "
                "code behind `if await ctx.version(…)`."
            )
        if record is None or record.status in (StepStatus.WAITING, StepStatus.RETRY):
            self.goes_on_with.append(f"{asked.kind} {asked.name!r}")
            raise Suspend(MOST_SECONDS, [asked.place])
        return record


async def replay_history(function: Callable[..., Any], history: JobHistory) -> Replayed:
    """Run the function with what the job has recorded. Nondeterministic, with the first difference, if its code asks for other calls."""
    job = history.job
    ctx = AttemptContext(
        job_id=job.id,
        tenant=job.tenant,
        tenant_id=job.tenant_id,
        definition_key=job.definition_key,
        attempt_no=max(2, job.attempt_count + 1),
        max_attempts=job.max_attempts,
        payload=job.payload,
        correlation_id=job.correlation_id,
        parent_id=job.parent_id,
    )
    run = ctx.durable = ReplayRun(ctx, history)
    raised: list[Exception] = []

    @asynccontextmanager
    async def catch(_: object) -> AsyncIterator[None]:
        try:
            yield
        except Exception as error:
            raised.append(error)
            raise

    handler = Handler.of(job.definition_key, function, durable=True).within((catch, run.around))
    threads = Threads(1)
    try:
        outcome = await run_attempt(handler, ctx, timeout=None, threads=threads)
    finally:
        threads.close()
    if raised:
        expected = job.error.get("type") if isinstance(job.error, dict) else None
        if isinstance(raised[0], Nondeterministic) or type(raised[0]).__name__ != expected:
            raise raised[0]
        return Replayed(ended=False, error=raised[0])
    if isinstance(outcome, Succeeded):
        return Replayed(ended=True, output=outcome.output)
    return Replayed(ended=False, goes_on_with=tuple(run.goes_on_with))
