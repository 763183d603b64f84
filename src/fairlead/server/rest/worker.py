"""Workers over HTTP, in any language: claim, heartbeat, progress, logs, and the end of each attempt."""

from typing import Annotated, Any, Self
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from pydantic import Field

from fairlead.actions import leases
from fairlead.actions.leases import AttemptDetails
from fairlead.handlers.context import LONGEST_SNOOZE
from fairlead.model.access import Permission
from fairlead.model.job import JobStatus, Lease
from fairlead.model.log import LAST_SEQ, NewChunk
from fairlead.model.outcome import MOST_CENTS
from fairlead.runtime.job_source import HeldJob
from fairlead.server.auth import Caller, Gatekeeper, GuardedRoute, Requires
from fairlead.server.http_claims import HttpClaims
from fairlead.server.views import DELAY, Body, Id, ListOf, ReadableText, View

router = APIRouter(route_class=GuardedRoute, prefix="/worker/jobs", tags=["worker"])

WorkerCaller = Annotated[Caller, Depends(Requires(Permission.RUN_JOBS))]

MOST_JOBS = 1000
LONGEST_WAIT_SECONDS = 30
MOST_DEFINITIONS = 1000
MOST_CHUNKS = 1000
LONGEST_CHUNK = 65_536
LONGEST_TEXT = 1_048_576


class ClaimBody(Body):
    """The jobs to claim: of these definitions, or (null) of any."""

    definitions: list[ReadableText] | None = Field(min_length=1, max_length=MOST_DEFINITIONS)
    worker_id: ReadableText | None = Field(None, min_length=1, max_length=200)
    version: ReadableText | None = Field(
        None, max_length=100, description="Your own version, for the list of workers."
    )
    claim_id: Id | None = Field(
        None,
        description="A UUID of your choice. Send it again until an answer has items: "
        "if an earlier answer was lost, you get the same jobs.",
    )
    limit: int = Field(1, ge=1, le=MOST_JOBS)
    wait: float = Field(0, ge=0, le=LONGEST_WAIT_SECONDS, description="Seconds to wait for the first job.")


class LeaseBody(Body):
    """The lease that the claim returned."""

    attempt_no: int = Field(ge=1, le=2_147_483_647)
    lease_token: Id

    def lease(self, job_id: UUID) -> Lease:
        """The lease of this job."""
        return Lease(job_id, self.attempt_no, self.lease_token)


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


class CompleteBody(EndBody):
    """The attempt succeeded."""

    output: Any = None


class ErrorBody(Body):
    """The attempt's error."""

    type: str = Field(min_length=1, max_length=1000)
    message: str = Field(max_length=LONGEST_TEXT)
    traceback: str | None = Field(None, max_length=LONGEST_TEXT)


class FailBody(EndBody):
    """The attempt failed."""

    error: ErrorBody
    retryable: bool = True
    timed_out: bool = False


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

    @classmethod
    def of_held(cls, held: HeldJob, *, lease_seconds: float, **more: Any) -> Self:
        """The view of a claimed job."""
        lease, job = held.lease, held.job
        return cls(
            job_id=job.job_id,
            attempt_no=job.attempt_no,
            lease_token=lease.token,
            tenant=job.tenant,
            tenant_id=job.tenant_id,
            definition_key=job.definition_key,
            payload=job.payload,
            max_attempts=job.max_attempts,
            timeout_seconds=job.timeout_seconds,
            lease_seconds=lease_seconds,
            correlation_id=job.correlation_id,
            parent_id=job.parent_id,
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


@router.post("/claim")
async def claim(request: Request, body: ClaimBody, caller: WorkerCaller) -> ListOf[ClaimedView]:
    """Claim up to `limit` due jobs; with `wait`, the response waits for the first one.

    A repeated `claim_id` returns the same jobs again.
    """
    async with caller.transaction(as_system=True) as tx:
        served = await leases.resolve_scope(tx, caller.principal, body.definitions)
    gatekeeper: Gatekeeper = request.app.state.gatekeeper
    claims: HttpClaims = request.app.state.claims

    async def waits() -> bool:
        await gatekeeper.caller(request)  # the token may have been revoked meanwhile
        return not await request.is_disconnected()

    taken = await claims.claim(
        _worker_name(caller, body.worker_id),
        served,
        keys=body.definitions or list(caller.principal.definitions or ()) or None,
        limit=body.limit,
        wait=body.wait,
        waits=waits,
        version=body.version or "",
        claim_id=body.claim_id,
    )
    lease_seconds = caller.fl.settings.lease_seconds
    return ListOf(items=[ClaimedView.of_held(one, lease_seconds=lease_seconds) for one in taken])


@router.post("/{job_id}/heartbeat")
async def heartbeat(job_id: UUID, body: LeaseBody, caller: WorkerCaller) -> RenewedView:
    """Renew the lease: at least every third of `lease_seconds`."""
    seconds = caller.fl.settings.lease_seconds
    renewed = await caller.fl.database.single(
        lambda tx: leases.heartbeat(tx, caller.principal, body.lease(job_id), lease_seconds=seconds)
    )
    return RenewedView.of(renewed)


@router.post("/{job_id}/complete")
async def complete(job_id: UUID, body: CompleteBody, caller: WorkerCaller) -> EndedView:
    """Report that the attempt succeeded."""
    async with caller.transaction(as_system=True) as tx:
        status = await leases.complete(
            tx, caller.principal, body.lease(job_id), output=body.output, ending=body.ending()
        )
    return EndedView(job_id=job_id, status=status)


@router.post("/{job_id}/fail")
async def fail(job_id: UUID, body: FailBody, caller: WorkerCaller) -> EndedView:
    """Report that the attempt failed. The job is retried after its backoff, if it is retryable and has attempts left."""
    async with caller.transaction(as_system=True) as tx:
        status = await leases.fail(
            tx,
            caller.principal,
            body.lease(job_id),
            kind=body.error.type,
            message=body.error.message,
            traceback=body.error.traceback,
            retryable=body.retryable,
            timed_out=body.timed_out,
            ending=body.ending(),
        )
    return EndedView(job_id=job_id, status=status)


@router.post("/{job_id}/release")
async def release(job_id: UUID, body: ReleaseBody, caller: WorkerCaller) -> EndedView:
    """Give the job back without charging an attempt. If a cancel was requested, the job is canceled."""
    async with caller.transaction(as_system=True) as tx:
        status = await leases.release(tx, caller.principal, body.lease(job_id), delay=body.delay_seconds)
    return EndedView(job_id=job_id, status=status)


@router.post("/{job_id}/progress")
async def progress(job_id: UUID, body: ProgressBody, caller: WorkerCaller) -> ProgressedView:
    """Report the job's progress."""
    async with caller.transaction(as_system=True) as tx:
        await leases.progress(
            tx, caller.principal, body.lease(job_id), percent=body.percent, message=body.message
        )
    return ProgressedView(job_id=job_id)


@router.post("/{job_id}/logs")
async def append_logs(job_id: UUID, body: LogsBody, caller: WorkerCaller) -> AppendedView:
    """Append to the attempt's log. A chunk whose `seq` is stored already is ignored."""
    chunks = [NewChunk(one.seq, one.stream, one.text) for one in body.chunks]
    return AppendedView.of(
        await caller.fl.database.single(
            lambda tx: leases.append_log(tx, caller.principal, body.lease(job_id), chunks)
        )
    )


def _worker_name(caller: Caller, named: str | None) -> str:
    """The worker's name, prefixed with its token, so that a worker cannot use the name of another token's worker."""
    whose = (
        caller.principal.actor if caller.token_id is None else f"{caller.principal.actor}:{caller.token_id}"
    )
    return whose if named is None else f"{whose}:{named}"
