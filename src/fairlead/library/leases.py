"""Leases for applications with their own loop: they claim, renew and end jobs by the worker's rules."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self
from uuid import UUID

import msgspec
import structlog

from fairlead.actions import definitions
from fairlead.actions.leases import check_output
from fairlead.db.database import Database
from fairlead.db.joined import build_sender, drive, require_function, require_transaction, wrong_database
from fairlead.db.tx import Tx
from fairlead.errors import DatabaseBusy, FairleadError, Fault, InvalidInput, LeaseLost
from fairlead.handlers.attempt import failure_outcome
from fairlead.handlers.context import LONGEST_PROGRESS_MESSAGE, LONGEST_SNOOZE
from fairlead.handlers.log import clean_text
from fairlead.lease_clock import lease_clock
from fairlead.model.access import Principal
from fairlead.model.definition import KEY
from fairlead.model.job import JobStatus
from fairlead.model.outcome import LONGEST_MESSAGE, Failed, Outcome, Released, Snoozed, Succeeded, decide
from fairlead.model.request import unknown_definition
from fairlead.model.secrets.redact import Mask, build_mask
from fairlead.runtime.job_source import HeldJob, JobSource
from fairlead.runtime.maintenance import Caretaker
from fairlead.runtime.store_source import StoreSource, new_worker_id
from fairlead.settings import compile_patterns
from fairlead.store import queue
from fairlead.store.queue import JoinedEnd

log = structlog.get_logger(__name__)

MAX_CLAIM = 1000
ENDED_IN_TRANSACTION = "has ended: the transaction in which the job succeeded has committed"
MOST_SOURCES = 100


class KeyedFunction(Protocol):
    """A function that is also a job."""

    key: str


class JobLease:
    """A claimed job: renew its lease, and report its end once.

    After the lease is lost, every call raises LeaseLost and changes nothing. As a context manager, the job succeeds at
    the end of the block, fails if an exception leaves the block, and is released if the task is cancelled.
    """

    def __init__(
        self,
        database: Database,
        source: JobSource,
        held: HeldJob,
        *,
        asked_at: float,
        owner: "ClaimingProcess",
    ) -> None:
        job = held.job
        self.job_id: UUID = job.job_id
        self.tenant: str = job.tenant
        self.tenant_id: UUID = job.tenant_id
        self.definition_key: str = job.definition_key
        self.payload: Any = job.payload
        self.attempt_no: int = job.attempt_no
        self.max_attempts: int = job.max_attempts
        self.correlation_id: str | None = job.correlation_id
        self.parent_id: UUID | None = job.parent_id
        self.timeout_seconds: int = job.timeout_seconds
        self._cancel_requested = False
        self._database = database
        self._source = source
        self._lease = held.lease
        self._job = job
        self._mask = build_mask(
            job.payload, job.secret_paths, compile_patterns(database.settings.redact_patterns)
        )
        self._until = asked_at + database.settings.lease_seconds
        self._over: str | None = None
        self._owner = owner
        # its end was written in a transaction of the caller, which may not have committed
        self._is_joined = False

    @property
    def cancel_requested(self) -> bool:
        """Whether the last heartbeat reported that a cancel was requested."""
        return self._cancel_requested

    def remaining(self) -> float:
        """The remaining seconds of the lease, by a monotonic clock; 0 after its end."""
        return 0.0 if self._over else max(0.0, self._until - lease_clock())

    async def heartbeat(self) -> bool:
        """Renew the lease. Returns True if a cancel was requested: stop the work and release the job."""
        self._require_held()
        asked_at = lease_clock()
        alive = await self._source.heartbeat([self._lease])
        if self._lease not in alive:
            if self._is_joined and await self._read_joined_end() is JoinedEnd.ENDED:
                self._over = ENDED_IN_TRANSACTION
            raise self._mark_lost()
        beat = alive[self._lease]
        if beat.renewed:
            self._until = asked_at + self._database.settings.lease_seconds
        self._cancel_requested = beat.cancel
        return self._cancel_requested

    async def progress(self, percent: float, message: str = "") -> None:
        """Report the progress, 0 to 100."""
        self._require_held()
        if not _is_number(percent) or not 0 <= percent <= 100:
            raise _refusal("percent", "must be a number from 0 to 100")
        step = (self._lease, float(percent), clean_text(str(message), LONGEST_PROGRESS_MESSAGE, self._mask))
        if self.job_id not in await self._database.single(lambda tx: queue.store_progress(tx, [step])):
            raise self._mark_lost()

    async def succeed(self, output: Any = None, *, tx: Any = None) -> JobStatus:
        """Report success. Returns the job's new status. With `tx=` it joins that transaction, and ends the job when it commits.

        If the transaction rolls back, the lease goes on as if nothing had happened. LeaseLost: roll it back.
        """
        self._require_held()
        checked = check_output(output)
        if tx is not None:
            return await self._finish_in(tx, Succeeded(checked))
        return await self._finish(Succeeded(checked))

    async def fail(self, error: str | BaseException, *, retryable: bool = True) -> JobStatus:
        """Report a failure: the job is retried after its backoff, if it is retryable and attempts are left. Returns its status."""
        self._require_held()
        return await self._finish(_build_failure(error, self._mask, retryable=retryable))

    async def release(self, delay: float | timedelta = 0) -> JobStatus:
        """Release the job, to run again after `delay` (seconds); no attempt is charged. Returns its status."""
        self._require_held()
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        if not _is_number(seconds) or not 0 <= seconds <= LONGEST_SNOOZE:
            raise _refusal("delay", f"must be a timedelta or seconds, 0 to {LONGEST_SNOOZE:.0f}")
        return await self._finish(Snoozed(float(seconds)) if seconds else Released())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._over:
            return
        if self._is_joined:
            # a write would wait for a transaction around this block, which waits for this block
            state = await self._read_joined_end()
            if state is JoinedEnd.OPEN and error is not None:
                error.add_note(
                    "Fairlead did not record this failure: the transaction that ended the job is open."
                )
            if state is not JoinedEnd.HELD or error is None:
                return
        if error is None:
            await self.succeed()
            return
        try:
            await (self.fail(error) if isinstance(error, Exception) else self.release())
        except FairleadError as refusal:
            # the exception of the block is more important
            error.add_note(f"Fairlead could not record this failure: {refusal.message}")

    async def _finish_in(self, tx: Any, outcome: Outcome) -> JobStatus:
        """Write the end in the caller's transaction."""
        require_transaction(tx)
        send = build_sender(tx, f"{self._database.schema}.finish_joined")
        ends = [
            (self._lease, decide(self._job, outcome if self._mask is None else self._mask.outcome(outcome)))
        ]
        self._is_joined = True
        try:
            done = await drive(
                queue.finish_joined(ends, actor=self._owner.actor, database=self._owner.database), send
            )
        except Exception as error:
            require_function(error)
            raise
        if done is None:
            raise wrong_database()
        if self.job_id not in done:
            log.warning("stale_write_refused", job_id=str(self.job_id), attempt_no=self.attempt_no)
            raise self._mark_lost()
        return JobStatus.SUCCEEDED

    async def _read_joined_end(self) -> JoinedEnd:
        return await self._database.reach(lambda tx: queue.read_joined_end(tx, self._lease))

    async def _require_no_transaction(self) -> None:
        """Refuse to end a job whose end waits for the commit of a transaction."""
        state = await self._read_joined_end()
        if state is JoinedEnd.OPEN:
            raise DatabaseBusy(
                f"The end of job {self.job_id} was written in a transaction that is still open: commit it or roll it back first."
            )
        if state is JoinedEnd.ENDED:
            self._over = ENDED_IN_TRANSACTION
            raise self._mark_lost()

    async def _finish(self, outcome: Outcome) -> JobStatus:
        if self._is_joined:
            await self._require_no_transaction()
        if self._mask is not None:
            outcome = self._mask.outcome(outcome)
        done = await self._source.finish([(self._lease, decide(self._job, outcome))])
        if self.job_id not in done:
            log.warning("stale_write_refused", job_id=str(self.job_id), attempt_no=self.attempt_no)
            raise self._mark_lost()
        status = done[self.job_id]
        self._over = f"has ended: its end was reported, and the job became {status}"
        return status

    def __repr__(self) -> str:
        return f"<lease of job {self.job_id}, attempt {self.attempt_no}>"

    def _require_held(self) -> None:
        if self._over:
            raise self._mark_lost()

    def _mark_lost(self) -> LeaseLost:
        self._over = self._over or "is lost: it was not renewed in time, and another worker may run the job"
        return LeaseLost(
            f"The lease of job {self.job_id}, attempt {self.attempt_no}, {self._over}. Nothing was changed."
        )


class ClaimingProcess(NamedTuple):
    """Who ends jobs in its own transactions, and in which database."""

    actor: str
    database: str


class JobClaimer:
    """Claims jobs for one process, tenant by tenant in turn, as a worker does."""

    def __init__(self, database: Database, principal: Principal) -> None:
        self._database = database
        self._principal = principal
        self._worker = new_worker_id()
        self._source = lru_cache(MOST_SOURCES)(self._create_source)
        self._caretaker = Caretaker()
        self._owner: ClaimingProcess | None = None

    async def claim(self, n: Any, wanted: Sequence[str | KeyedFunction] | None) -> list[JobLease]:
        """Claim up to `n` due jobs, of the definitions with these keys or (None) of any."""
        if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= MAX_CLAIM:
            raise _refusal("n", f"must be 1 to {MAX_CLAIM}")
        keys = None if wanted is None else _read_keys(wanted)
        served = None
        if keys is not None:
            served = await self._database.transact(lambda tx: self._find_served(tx, keys))
        await self._caretaker(self._database)  # staged jobs may have other definitions, too
        if self._owner is None:
            identity = await self._database.reach(queue.read_identity)
            self._owner = ClaimingProcess(f"worker:{self._worker}", identity)
        owner = self._owner
        source = self._source(served)
        asked_at = lease_clock()
        taken = await _claim_or_release(source, n)
        return [JobLease(self._database, source, held, asked_at=asked_at, owner=owner) for held in taken]

    async def _find_served(self, tx: Tx, keys: Sequence[str]) -> tuple[UUID, ...]:
        known = await definitions.get_by_keys(
            tx, self._principal, [key for key in keys if KEY.fullmatch(key)]
        )
        for key in keys:
            if key not in known:
                raise unknown_definition(key)
        return tuple(sorted(one.id for one in known.values()))

    def _create_source(self, served: tuple[UUID, ...] | None) -> StoreSource:
        seconds = self._database.settings.lease_seconds
        return StoreSource(self._database, worker=self._worker, lease_seconds=seconds, served=served)


async def _claim_or_release(source: StoreSource, n: int) -> list[HeldJob]:
    """Claim jobs. If cancelled meanwhile, release them, since their leases would be held until they expire."""
    claiming = asyncio.ensure_future(source.claim_some(n))
    try:
        return await asyncio.shield(claiming)
    except asyncio.CancelledError:
        with suppress(FairleadError):
            if taken := await claiming:
                await source.finish([(one.lease, decide(one.job, Released())) for one in taken])
        raise


def _read_keys(wanted: Any) -> list[str]:
    keys = None if isinstance(wanted, str) else [getattr(one, "key", one) for one in wanted]
    if keys is None or not all(isinstance(key, str) for key in keys):
        raise _refusal("definitions", "must be a list of keys, or of functions made with @fl.job")
    return keys


def _build_failure(error: Any, mask: Mask | None, *, retryable: bool) -> Outcome:
    if isinstance(error, str):
        return Failed("Failed", clean_text(error, LONGEST_MESSAGE, mask), retryable)
    if not isinstance(error, BaseException):
        raise _refusal("error", "must be a text or an exception")
    outcome = failure_outcome(error, mask)
    if isinstance(outcome, Failed) and not retryable:
        return msgspec.structs.replace(outcome, retryable=False)
    return outcome


def _refusal(name: str, advice: str) -> InvalidInput:
    return InvalidInput(f"{name} {advice}.", [Fault(name, advice)])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
