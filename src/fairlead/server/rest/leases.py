"""Leases over HTTP, of workers and agents alike: the bodies and views, and the routes that both have."""

from collections.abc import Mapping, Sequence
from typing import Any, Self
from uuid import UUID

from fastapi import APIRouter
from pydantic import Field

from fairlead.actions import agents, leases
from fairlead.actions.leases import AttemptDetails
from fairlead.db.tx import Tx
from fairlead.handlers.context import LONGEST_SNOOZE
from fairlead.model.access import Principal
from fairlead.model.job import JobStatus, Lease
from fairlead.model.log import LAST_SEQ, NewChunk
from fairlead.model.outcome import MOST_CENTS
from fairlead.runtime.job_source import HeldJob
from fairlead.server.auth import Caller, GuardedRoute
from fairlead.server.views import DELAY, Body, Id, View

MOST_JOBS = 1000
LONGEST_WAIT_SECONDS = 30
MOST_CHUNKS = 1000
LONGEST_CHUNK = 65_536
LONGEST_TEXT = 1_048_576


class LeaseBody(Body):
    """The lease that the claim returned."""

    attempt_no: int = Field(ge=1, le=2_147_483_647)
    lease_token: Id

    def lease(self, job_id: UUID) -> Lease:
        """The lease of this job."""
        return Lease(job_id, self.attempt_no, self.lease_token)


class HeldLeaseBody(LeaseBody):
    """One of the leases that an agent or worker holds."""

    job_id: Id


class HeartbeatBody(Body):
    """All leases that an agent or worker holds."""

    leases: list[HeldLeaseBody] = Field(max_length=MOST_JOBS)

    def list_leases(self) -> list[Lease]:
        """The leases, in the order of the request."""
        return [one.lease(one.job_id) for one in self.leases]


class LeaseStateView(View):
    """The state of a lease; `lost` if the caller no longer holds it."""

    job_id: UUID
    attempt_no: int
    lost: bool
    # false if a concurrent finish has locked the lease: it keeps its old expiry
    renewed: bool
    cancel_requested: bool


class HeartbeatView(View):
    """The state of each lease, in the order of the request."""

    leases: list[LeaseStateView]
    lease_seconds: float

    @classmethod
    def of_leases(cls, held: Sequence[Lease], alive: Mapping[Lease, Any], lease_seconds: float) -> Self:
        """The view of a heartbeat: leases that are not in `alive` are lost."""
        beats = [
            LeaseStateView(
                job_id=lease.job_id,
                attempt_no=lease.attempt_no,
                lost=lease not in alive,
                renewed=lease in alive and alive[lease].renewed,
                cancel_requested=lease in alive and alive[lease].cancel,
            )
            for lease in held
        ]
        return cls(leases=beats, lease_seconds=lease_seconds)


class EndBody(LeaseBody):
    """Facts about an attempt that ended, with any outcome."""

    cost_cents: int = Field(0, ge=0, le=MOST_CENTS)
    stdout_tail: str | None = Field(None, max_length=LONGEST_TEXT)
    stderr_tail: str | None = Field(None, max_length=LONGEST_TEXT)
    exit_code: int | None = Field(None, ge=-2_147_483_648, le=2_147_483_647)

    def ending(self) -> AttemptDetails:
        """The ending for the action."""
        return AttemptDetails(
            cost_cents=self.cost_cents,
            stdout_tail=self.stdout_tail,
            stderr_tail=self.stderr_tail,
            exit_code=self.exit_code,
        )


class ErrorBody(Body):
    """The attempt's error."""

    type: str = Field(min_length=1, max_length=1000)
    message: str = Field(max_length=LONGEST_TEXT)
    traceback: str | None = Field(None, max_length=LONGEST_TEXT)


class FailureBody(EndBody):
    """An attempt that may have failed."""

    retryable: bool = True
    timed_out: bool = False

    async def fail(self, tx: Tx, principal: Principal, lease: Lease, error: ErrorBody) -> JobStatus:
        """Report that the attempt failed with this error; the job's status."""
        return await leases.fail(
            tx,
            principal,
            lease,
            kind=error.type,
            message=error.message,
            traceback=error.traceback,
            retryable=self.retryable,
            timed_out=self.timed_out,
            ending=self.ending(),
        )


class ReleaseBody(LeaseBody):
    """The worker gives the job back."""

    delay_seconds: float = Field(0, ge=0, le=LONGEST_SNOOZE, validation_alias=DELAY)


class ProgressBody(LeaseBody):
    """The job's progress."""

    percent: float = Field(ge=0, le=100)
    message: str = Field("", max_length=LONGEST_TEXT)


class ChunkBody(Body):
    """A chunk of the attempt's log, and its sequence number."""

    seq: int = Field(ge=0, lt=LAST_SEQ)
    stream: str = Field("stdout", pattern="^(stdout|stderr|log)$")
    text: str = Field(max_length=LONGEST_CHUNK)


class LogsBody(LeaseBody):
    """Chunks of the attempt's log."""

    chunks: list[ChunkBody] = Field(min_length=1, max_length=MOST_CHUNKS)


class ClaimedView(View):
    """A claimed job with its lease."""

    job_id: UUID
    attempt_no: int
    lease_token: UUID
    tenant: str
    tenant_id: UUID
    definition_key: str
    payload: Any
    max_attempts: int
    timeout_seconds: int
    lease_seconds: float
    correlation_id: str | None
    parent_id: UUID | None
    slots: int

    @classmethod
    def of_held(cls, held: HeldJob, *, lease_seconds: float, **more: Any) -> Self:
        """The view of a claimed job."""
        job = held.job
        return cls(
            job_id=job.job_id,
            attempt_no=job.attempt_no,
            lease_token=held.lease.token,
            tenant=job.tenant,
            tenant_id=job.tenant_id,
            definition_key=job.definition_key,
            payload=job.payload,
            max_attempts=job.max_attempts,
            timeout_seconds=job.timeout_seconds,
            lease_seconds=lease_seconds,
            correlation_id=job.correlation_id,
            parent_id=job.parent_id,
            slots=job.slots,
            **more,
        )


class RenewedView(View):
    """The renewed lease's duration, and whether a cancel was requested."""

    lease_seconds: float
    cancel_requested: bool


class EndedView(View):
    """The job's status after this attempt."""

    job_id: UUID
    status: JobStatus


class ProgressedView(View):
    """The progress was stored."""

    job_id: UUID


class AppendedView(View):
    """How many chunks were stored, and whether the log has reached its size limit."""

    kept: int
    truncated: bool


def create_lease_router(caller_of: Any) -> APIRouter:
    """The routes below `/{job_id}` for the callers of a dependency: release, progress and logs."""
    router = APIRouter(route_class=GuardedRoute)

    @router.post("/{job_id}/release")
    async def release(job_id: UUID, body: ReleaseBody, caller: Caller = caller_of) -> EndedView:
        """Give the job back without charging an attempt. If a cancel was requested, the job is canceled."""
        async with caller.transaction(as_system=True) as tx:
            status = await leases.release(tx, caller.principal, body.lease(job_id), delay=body.delay_seconds)
            await agents.notify_if_work_waits(tx, caller.principal)
        return EndedView(job_id=job_id, status=status)

    @router.post("/{job_id}/progress")
    async def progress(job_id: UUID, body: ProgressBody, caller: Caller = caller_of) -> ProgressedView:
        """Report the job's progress."""
        async with caller.transaction(as_system=True) as tx:
            await leases.progress(
                tx, caller.principal, body.lease(job_id), percent=body.percent, message=body.message
            )
        return ProgressedView(job_id=job_id)

    @router.post("/{job_id}/logs")
    async def append_logs(job_id: UUID, body: LogsBody, caller: Caller = caller_of) -> AppendedView:
        """Append to the attempt's log. A chunk whose `seq` is stored already is ignored."""
        chunks = [NewChunk(one.seq, one.stream, one.text) for one in body.chunks]
        return AppendedView.of(
            await caller.fl.database.single(
                lambda tx: leases.append_log(tx, caller.principal, body.lease(job_id), chunks)
            )
        )

    return router
