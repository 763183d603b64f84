"""Running jobs over HTTP: claim, heartbeat, progress, logs, and how each ended. A worker in any language needs no more."""

from typing import Annotated, Any, Self
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from pydantic import Field

from fairlead.actions import leases
from fairlead.actions.leases import Ending
from fairlead.handlers.context import LONGEST_SNOOZE
from fairlead.model.access import Permission
from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import MOST_CENTS
from fairlead.runtime.source import Held
from fairlead.server.auth import Caller, Gatekeeper, Guarded, Requires
from fairlead.server.claims import Claims
from fairlead.server.views import DELAY, Body, Id, ListOf, Text, View
from fairlead.store.logs import LAST_SEQ, NewChunk

router = APIRouter(route_class=Guarded, prefix="/worker/jobs", tags=["worker"])

Runner = Annotated[Caller, Depends(Requires(Permission.RUN_JOBS))]

MOST_JOBS = 1000
LONGEST_WAIT_SECONDS = 30
MOST_DEFINITIONS = 1000
MOST_CHUNKS = 1000
LONGEST_CHUNK = 65_536
LONGEST_TEXT = 1_048_576


class ClaimBody(Body):
    """Which jobs to take: of these definitions, or (null) of any."""

    definitions: list[Text] | None = Field(min_length=1, max_length=MOST_DEFINITIONS)
    worker_id: Text | None = Field(None, min_length=1, max_length=200)
    version: Text | None = Field(
        None, max_length=100, description="Your own version, for the list of workers."
    )
    claim_id: Id | None = Field(
        None,
        description="A UUID of your choice. Send it again until an answer has items: "
        "if an earlier answer was lost, you are given the same jobs.",
    )
    limit: int = Field(1, ge=1, le=MOST_JOBS)
    wait: float = Field(0, ge=0, le=LONGEST_WAIT_SECONDS, description="Seconds to wait for the first one.")


class LeaseBody(Body):
    """The lease, as the claim gave it."""

    attempt_no: int = Field(ge=1, le=2_147_483_647)
    lease_token: Id

    def lease(self, job_id: UUID) -> Lease:
        """The lease of this job."""
        return Lease(job_id, self.attempt_no, self.lease_token)


class EndBody(LeaseBody):
    """What an attempt leaves behind, whichever way it ended."""

    cost_cents: int = Field(0, ge=0, le=MOST_CENTS)
    stdout_tail: str | None = Field(None, max_length=LONGEST_TEXT)
    stderr_tail: str | None = Field(None, max_length=LONGEST_TEXT)
    exit_code: int | None = Field(None, ge=-2_147_483_648, le=2_147_483_647)

    def ending(self) -> Ending:
        """The same as the actions know it."""
        return Ending(
            cost_cents=self.cost_cents,
            stdout_tail=self.stdout_tail,
            stderr_tail=self.stderr_tail,
            exit_code=self.exit_code,
        )


class CompleteBody(EndBody):
    """The work is done."""

    output: Any = None


class ErrorBody(Body):
    """What went wrong."""

    type: str = Field(min_length=1, max_length=1000)
    message: str = Field(max_length=LONGEST_TEXT)
    traceback: str | None = Field(None, max_length=LONGEST_TEXT)


class FailBody(EndBody):
    """The work failed."""

    error: ErrorBody
    retryable: bool = True
    timed_out: bool = False


class ReleaseBody(LeaseBody):
    """The job is given back."""

    delay_seconds: float = Field(0, ge=0, le=LONGEST_SNOOZE, validation_alias=DELAY)


class ProgressBody(LeaseBody):
    """How far the work is."""

    percent: float = Field(ge=0, le=100)
    message: str = Field("", max_length=LONGEST_TEXT)


class ChunkBody(Body):
    """Something that the attempt said, at its place among all that it says."""

    seq: int = Field(ge=0, lt=LAST_SEQ)
    stream: str = Field("stdout", pattern="^(stdout|stderr|log)$")
    text: str = Field(max_length=LONGEST_CHUNK)


class LogsBody(LeaseBody):
    """What the attempt said."""

    chunks: list[ChunkBody] = Field(min_length=1, max_length=MOST_CHUNKS)


class ClaimedView(View):
    """A job that is the caller's now, and all that is needed to run it."""

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
    def given(cls, held: Held, *, lease_seconds: float, **more: Any) -> Self:
        """The job as its new owner is told of it."""
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
    """For how long the lease holds now, and whether the job was canceled."""

    lease_seconds: float
    cancel_requested: bool


class EndedView(View):
    """How the job stands after this attempt."""

    job_id: UUID
    status: JobStatus


class ProgressedView(View):
    """It was taken down."""

    job_id: UUID


class AppendedView(View):
    """How many chunks were kept, and whether the attempt has said more than is."""

    kept: int
    truncated: bool


@router.post("/claim")
async def claim(request: Request, body: ClaimBody, caller: Runner) -> ListOf[ClaimedView]:
    """Take up to `limit` due jobs; with `wait`, the answer waits for the first one.

    A claim with a `claim_id` that has taken jobs before is answered with the same jobs again.
    """
    async with caller.transaction(as_system=True) as tx:
        served = await leases.served(tx, caller.principal, body.definitions)
    gatekeeper: Gatekeeper = request.app.state.gatekeeper
    claims: Claims = request.app.state.claims

    async def waits() -> bool:
        await gatekeeper.caller(request)  # whose token was revoked meanwhile gets nothing
        return not await request.is_disconnected()

    taken = await claims.claim(
        _worker(caller, body.worker_id),
        served,
        keys=body.definitions or list(caller.principal.definitions or ()) or None,
        limit=body.limit,
        wait=body.wait,
        waits=waits,
        version=body.version or "",
        claim_id=body.claim_id,
    )
    lease_seconds = caller.fl.settings.lease_seconds
    return ListOf(items=[ClaimedView.given(one, lease_seconds=lease_seconds) for one in taken])


@router.post("/{job_id}/heartbeat")
async def heartbeat(job_id: UUID, body: LeaseBody, caller: Runner) -> RenewedView:
    """Renew the lease: at least every third of `lease_seconds`."""
    seconds = caller.fl.settings.lease_seconds
    renewed = await caller.fl.database.single(
        lambda tx: leases.heartbeat(tx, caller.principal, body.lease(job_id), lease_seconds=seconds)
    )
    return RenewedView.of(renewed)


@router.post("/{job_id}/complete")
async def complete(job_id: UUID, body: CompleteBody, caller: Runner) -> EndedView:
    """The work is done."""
    async with caller.transaction(as_system=True) as tx:
        status = await leases.complete(
            tx, caller.principal, body.lease(job_id), output=body.output, ending=body.ending()
        )
    return EndedView(job_id=job_id, status=status)


@router.post("/{job_id}/fail")
async def fail(job_id: UUID, body: FailBody, caller: Runner) -> EndedView:
    """The work failed: it is tried again after its backoff, unless that is spent or useless."""
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
async def release(job_id: UUID, body: ReleaseBody, caller: Runner) -> EndedView:
    """Give the job back, to be run again; no attempt is charged. Whose cancel was requested is canceled."""
    async with caller.transaction(as_system=True) as tx:
        status = await leases.release(tx, caller.principal, body.lease(job_id), delay=body.delay_seconds)
    return EndedView(job_id=job_id, status=status)


@router.post("/{job_id}/progress")
async def progress(job_id: UUID, body: ProgressBody, caller: Runner) -> ProgressedView:
    """Say how far the work is."""
    async with caller.transaction(as_system=True) as tx:
        await leases.progress(
            tx, caller.principal, body.lease(job_id), percent=body.percent, message=body.message
        )
    return ProgressedView(job_id=job_id)


@router.post("/{job_id}/logs")
async def say(job_id: UUID, body: LogsBody, caller: Runner) -> AppendedView:
    """Keep what the attempt says. A chunk with a `seq` that is there already is not kept twice."""
    chunks = [NewChunk(one.seq, one.stream, one.text) for one in body.chunks]
    return AppendedView.of(
        await caller.fl.database.single(
            lambda tx: leases.say(tx, caller.principal, body.lease(job_id), chunks)
        )
    )


def _worker(caller: Caller, named: str | None) -> str:
    """The worker's name: below the token's, so that nobody can pass for another's worker."""
    whose = (
        caller.principal.actor if caller.token_id is None else f"{caller.principal.actor}:{caller.token_id}"
    )
    return whose if named is None else f"{whose}:{named}"
