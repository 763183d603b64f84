"""Records the steps of durable functions in batches: steps that end during one write are in the next batch."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, NoReturn, TypeVar

import structlog

from fairlead.actions import approvals
from fairlead.actions import durable as durable_waits
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.errors import KEY_ERRORS, DatabaseBusy, DatabaseUnreachable, FairleadError, TransactionIdle
from fairlead.handlers.attempt import AttemptContext
from fairlead.handlers.context import Fatal, Stopped
from fairlead.handlers.durable import DurableRun
from fairlead.model.durable import NewWait, Place, StepEnd, StepKind, StepRecord
from fairlead.model.job import Lease
from fairlead.runtime.failure_log import job_log_fields
from fairlead.runtime.moved_leases import FollowingSource
from fairlead.runtime.worker_attempt import WorkerAttempt
from fairlead.store import durable, sealed_steps, sealing
from fairlead.store.queue import wait_for_key

log = structlog.get_logger(__name__)

T = TypeVar("T")

# Errors that say nothing about the function. The write may have been committed or not: only the next attempt can know.
AWAY = (DatabaseUnreachable, DatabaseBusy, TransactionIdle)

BATCH = 500
# The most bytes of results in one statement, if it has more than one.
BATCH_BYTES = 8_388_608


class _WaitingStep(NamedTuple):
    """A step that waits to be written, as it is and as JSON."""

    step: StepEnd
    document: bytes
    written: asyncio.Future[bool]


class DurableSteps:
    """The steps of all durable functions of a worker: in its database, or where their leases are after a move."""

    def __init__(self, database: Database, following: FollowingSource | None = None) -> None:
        self.database = database
        self._following = following
        self._waiting: deque[_WaitingStep] = deque()
        self._writing: asyncio.Task[None] | None = None

    def attach(self, ctx: AttemptContext, attempt: WorkerAttempt) -> DurableRun:
        """Let the function of this context have steps."""
        lease = attempt.held.lease
        run = ctx.durable = DurableRun(
            ctx, AttemptSteps(self, ctx, attempt), lease.job_id, lease.attempt_no, lease.token
        )
        return run

    async def record(self, step: StepEnd) -> bool:
        """Record a step with the next batch; False if its attempt has lost its lease."""
        written: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(_WaitingStep(step, durable.encode_step(step), written))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all(), name="fairlead-steps")
        return await written

    async def reach(self, lease: Lease, work: Callable[[Tx], Awaitable[T | None]]) -> T | None:
        """Do `work` where the lease is; None if it is lost."""
        if self._following is None:
            return await self.database.reach(work)
        return await self._following.reach(lease, work)

    async def record_elsewhere(self, lease: Lease, step: StepEnd) -> bool:
        """Record a step whose lease is not in this database: its tenant may have moved. False if the lease is lost."""
        if self._following is None:
            return False

        async def record(tx: Tx) -> bool | None:
            return bool(await durable.record_steps(tx, [durable.encode_step(step)])) or None

        return bool(await self._following.reach(lease, record))

    async def _write_all(self) -> None:
        """Write until nothing waits."""
        try:
            # functions that run on in this turn of the loop are in the first batch, too
            await asyncio.sleep(0)
            while self._waiting:
                await self._write(self._take_batch())
        finally:
            self._writing = None

    def _take_batch(self) -> list[_WaitingStep]:
        """The next steps to write: at least one, and no more than fit into one statement."""
        batch, room = list[_WaitingStep](), BATCH_BYTES
        while self._waiting and len(batch) < BATCH:
            room -= len(self._waiting[0].document)
            if batch and room < 0:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _write(self, batch: Sequence[_WaitingStep]) -> None:
        documents = [one.document for one in batch]
        try:
            kept = await self.database.reach(lambda tx: durable.record_steps(tx, documents))
        except Exception as error:  # noqa: BLE001 - each step's own function gets it
            if len(batch) > 1 and not isinstance(error, AWAY):
                # one result that the database refuses must not fail the others
                for one in batch:
                    await self._write([one])
                return
            for one in batch:
                if not one.written.done():
                    one.written.set_exception(error)
            return
        for step, _, written in batch:
            if not written.done():
                written.set_result((step.job_id, step.branch, step.position) in kept)


class AttemptSteps:
    """The steps of one attempt."""

    def __init__(self, steps: DurableSteps, ctx: AttemptContext, attempt: WorkerAttempt) -> None:
        self._steps = steps
        self._ctx = ctx
        self._attempt = attempt
        self._lease = attempt.held.lease

    async def load(self) -> list[StepRecord]:
        """All steps of earlier attempts."""
        found = await self._reach(lambda tx: durable.load_steps(tx, self._lease))
        return self._lose() if found is None else found

    async def require_key(self) -> None:
        """Stop the attempt, without a charge, if a secret result could not be stored."""
        if self._steps.database.keyring.is_known_off:
            return
        tenant_id = self._attempt.held.job.tenant_id
        await self._reach(lambda tx: sealed_steps.require_key(tx, tenant_id))

    async def record(self, step: StepEnd) -> None:
        """Record a step."""
        if self._shows_secret(step.name):
            await self._refuse_secret("name", step.name)
        if step.result is not None and (step.secret or self._has_secret(step)):
            step = await self._seal(step)
        try:
            is_kept = await self._steps.record(step) or await self._steps.record_elsewhere(self._lease, step)
        except AWAY as error:
            self._stop(error)
        if not is_kept:
            self._lose()

    def _has_secret(self, step: StepEnd) -> bool:
        """Whether a result that is not said to be secret has a secret of the payload."""
        mask = self._ctx.mask
        return mask is not None and bool(mask.leaves) and mask.value(step.result) != step.result

    async def _seal(self, step: StepEnd) -> StepEnd:
        if self._steps.database.keyring.is_known_off:
            return step
        tenant_id = self._attempt.held.job.tenant_id
        return await self._reach(lambda tx: sealed_steps.seal_step(tx, tenant_id, step)) or self._lose()

    async def begin_wait(self, wait: NewWait, *, lookback: float | None = None) -> StepRecord:
        """Record a wait; complete if what it waits for has come before."""
        if self._shows_secret(wait.name):
            await self._refuse_secret("name", wait.name)
        if wait.kind is StepKind.EVENT and self._shows_secret(wait.request):
            await self._refuse_secret("where", wait.name)
        if wait.kind is StepKind.EVENT or wait.approval is not None:
            return await self._reach(lambda tx: self._begin_checked(tx, wait, lookback)) or self._lose()
        return await self._reach(lambda tx: durable.begin_wait(tx, self._lease, wait)) or self._lose()

    async def _begin_checked(self, tx: Tx, wait: NewWait, lookback: float | None) -> StepRecord | None:
        """Record a wait that takes several statements."""
        async with tx.whole():
            if wait.approval is not None:
                return await approvals.begin_approval(tx, self._lease, wait, wait.approval)
            tenant_id = self._attempt.held.job.tenant_id
            return await durable_waits.begin_event_wait(tx, self._lease, tenant_id, wait, lookback=lookback)

    def _shows_secret(self, value: Any) -> bool:
        """Whether a secret would be stored in plain form with this value, if the database encrypts."""
        mask = self._ctx.mask
        # asked for every step: most jobs have no secrets
        if mask is None or not mask.leaves or self._steps.database.keyring.is_known_off:
            return False
        return mask.finds_long(value)

    async def _refuse_secret(self, what: str, name: str) -> None:
        """Fail for good in a database that encrypts: what the function gave as `what` shows a secret."""
        if await self._reach(sealing.is_on):
            shown = name if self._ctx.mask is None else self._ctx.mask.text(name)
            raise Fatal(
                f"The {what} of {shown!r} holds a secret, and would be stored in plain form. Use an id instead."
            )

    async def give_up(self, place: Place) -> StepRecord:
        """End a wait whose time is over."""
        return await self._reach(lambda tx: durable.give_up_wait(tx, self._lease, place)) or self._lose()

    async def give_up_event(self, place: Place, name: str, *, lookback: float | None) -> StepRecord:
        """End a wait for an event whose time is over, unless one was stored in time."""
        tenant_id = self._attempt.held.job.tenant_id

        async def give_up(tx: Tx) -> StepRecord | None:
            async with tx.whole():
                return await durable_waits.give_up_event_wait(
                    tx, self._lease, tenant_id, place, name, lookback=lookback
                )

        return await self._reach(give_up) or self._lose()

    async def _reach(self, work: Callable[[Tx], Awaitable[T | None]]) -> T | None:
        try:
            return await self._steps.reach(self._lease, work)
        except AWAY as error:
            self._stop(error)
        except KEY_ERRORS as error:
            self._wait_for_key(error)

    def _wait_for_key(self, error: FairleadError) -> NoReturn:
        """End the attempt without a charge: a worker that has the key goes on after what was recorded."""
        fields = job_log_fields(self._attempt.held.job, self._attempt.worker_id)
        log.warning("steps_not_opened", why=error.message, **fields)
        self._ctx.stop(wait_for_key(error))
        raise Stopped from error

    def _stop(self, error: Exception) -> NoReturn:
        """End the attempt without a charge: the next one goes on after what was recorded."""
        fields = job_log_fields(self._attempt.held.job, self._attempt.worker_id)
        log.warning("steps_not_reached", why=str(error), **fields)
        self._ctx.release()
        raise Stopped from error

    def _lose(self) -> NoReturn:
        log.warning("stale_write_refused", **job_log_fields(self._attempt.held.job, self._attempt.worker_id))
        self._ctx.release()
        raise Stopped
