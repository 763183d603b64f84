"""Workers over HTTP, in any language: claim, heartbeat, and the end of each attempt."""

import random
import time
from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from pydantic import Field

from fairlead.actions import leases
from fairlead.model.access import Permission
from fairlead.model.definition import MAX_SLOTS
from fairlead.model.labels import check_labels
from fairlead.runtime.job_source import HeldJob
from fairlead.server.all_cells import unreachable_error
from fairlead.server.auth import Caller, Gatekeeper, GuardedRoute, Requires
from fairlead.server.http_claims import HttpClaims
from fairlead.server.problems import PREFIX
from fairlead.server.rest.leases import (
    LONGEST_WAIT_SECONDS,
    MOST_JOBS,
    ClaimedView,
    EndBody,
    EndedView,
    ErrorBody,
    FailureBody,
    HeartbeatBody,
    HeartbeatView,
    LeaseBody,
    RenewedView,
    create_lease_router,
)
from fairlead.server.views import Body, Id, ListOf, ReadableText

router = APIRouter(route_class=GuardedRoute, prefix=f"{PREFIX}/worker/jobs", tags=["worker"])

WORKER = Depends(Requires(Permission.RUN_JOBS))
WorkerCaller = Annotated[Caller, WORKER]

MOST_DEFINITIONS = 1000
# How long a claim waits in one cell before it asks the others again.
TURN_SECONDS = 0.5


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
    limit: int = Field(
        1, ge=1, le=MOST_JOBS, description="The most jobs; with `slots`, the number of free slots."
    )
    slots: int | None = Field(
        None,
        ge=1,
        le=MAX_SLOTS,
        description="How many slots you have, free or not: each job then takes the `slots` of its definition, and jobs that "
        "need more are left to others. Without it, each job takes one.",
    )
    labels: dict[str, str] | None = Field(None, description="Your labels, such as `gpu: true`.")
    wait: float = Field(0, ge=0, le=LONGEST_WAIT_SECONDS, description="Seconds to wait for the first job.")


class ClaimsView(ListOf[ClaimedView]):
    """The claimed jobs, and how long a lease lasts unless it is renewed."""

    lease_seconds: float


class CompleteBody(EndBody):
    """The attempt succeeded."""

    output: Any = None


class FailBody(FailureBody):
    """The attempt failed."""

    error: ErrorBody


@router.post("/claim")
async def claim(request: Request, body: ClaimBody, caller: WorkerCaller) -> ClaimsView:
    """Claim up to `limit` due jobs; with `wait`, the response waits for the first one.

    A repeated `claim_id` returns the same jobs again.
    """
    taken = await (_claim_in_turns if caller.is_for_all_cells else _claim)(request, body, caller)
    lease_seconds = caller.fl.settings.lease_seconds
    items = [ClaimedView.of_held(one, lease_seconds=lease_seconds) for one in taken]
    return ClaimsView(items=items, lease_seconds=lease_seconds)


async def _claim(request: Request, body: ClaimBody, caller: Caller) -> Sequence[HeldJob]:
    """Claim jobs in the caller's cell."""
    async with caller.transaction(as_system=True) as tx:
        served = await leases.resolve_scope(tx, caller.principal, body.definitions)
    gatekeeper: Gatekeeper = request.app.state.gatekeeper
    is_here = request.app.state.fl is caller.fl
    app = request.app if is_here else request.app.state.cells.find(caller.fl)
    claims: HttpClaims = app.state.claims

    async def waits() -> bool:
        await gatekeeper.caller(request)  # the token may have been revoked meanwhile
        return not await request.is_disconnected()

    check_labels(body.labels or {})
    return await claims.claim(
        _worker_name(caller, body.worker_id),
        served,
        keys=body.definitions or list(caller.principal.definitions or ()) or None,
        limit=body.limit,
        wait=body.wait,
        waits=waits,
        version=body.version or "",
        claim_id=body.claim_id,
        slots=body.slots,
        labels=body.labels,
    )


async def _claim_in_turns(request: Request, body: ClaimBody, caller: Caller) -> Sequence[HeldJob]:
    """Claim jobs of all tenants in one cell: ask all of them, beginning with a random one, until one has jobs."""
    until = time.monotonic() + body.wait
    cells = [member async for member in caller.visit_cells()]
    first = random.randrange(len(cells))  # noqa: S311 - not a secret
    while True:
        for member in cells[first:] + cells[:first]:
            if taken := await _claim(request, body.model_copy(update={"wait": 0.0}), member):
                return taken
        left = until - time.monotonic()
        if left <= 0:
            return ()
        # jobs of the other cells wait for this long at most
        wait = min(left, TURN_SECONDS)
        if taken := await _claim(request, body.model_copy(update={"wait": wait}), cells[first]):
            return taken


@router.post("/heartbeat")
async def heartbeat_all(body: HeartbeatBody, caller: WorkerCaller) -> HeartbeatView:
    """Renew many leases at once: at least every third of `lease_seconds`."""
    seconds = caller.fl.settings.lease_seconds
    held = body.list_leases()
    if not caller.is_for_all_cells:
        alive = await caller.fl.database.single(
            lambda tx: leases.renew(tx, caller.principal, held, lease_seconds=seconds)
        )
        return HeartbeatView.of_leases(held, alive, seconds)
    answers = await caller.ask_cells(
        lambda tx, _: leases.renew(tx, caller.principal, held, lease_seconds=seconds)
    )
    if caller.missing:  # a lease that cannot be seen is not lost
        raise unreachable_error(caller.missing)
    renewed = {lease: state for answer in answers for lease, state in (answer.value or {}).items()}
    return HeartbeatView.of_leases(held, renewed, seconds)


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
        status = await body.fail(tx, caller.principal, body.lease(job_id), body.error)
    return EndedView(job_id=job_id, status=status)


router.include_router(create_lease_router(WORKER))


def _worker_name(caller: Caller, named: str | None) -> str:
    """The worker's name, prefixed with its token, so that a worker cannot use the name of another token's worker."""
    whose = (
        caller.principal.actor if caller.token_id is None else f"{caller.principal.actor}:{caller.token_id}"
    )
    return whose if named is None else f"{whose}:{named}"
