"""Agents: enrolment, and long polls for their host's jobs. Leases follow the same rules as a worker's."""

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from msgspec.structs import replace
from pydantic import Field, JsonValue

from fairlead.actions import agents, hosts, leases
from fairlead.actions.leases import AttemptDetails
from fairlead.errors import EnrolmentRefused
from fairlead.library.app import Fairlead
from fairlead.model.access import Permission
from fairlead.server.agent_polling import AgentPolls, PollQuery
from fairlead.server.auth import Caller, Gatekeeper, GuardedRoute, PublicAccess, Requires
from fairlead.server.problems import PREFIX
from fairlead.server.rest.leases import (
    LONGEST_TEXT,
    ClaimedView,
    EndedView,
    ErrorBody,
    FailureBody,
    HeartbeatBody,
    HeartbeatView,
    LeaseBody,
    RenewedView,
    create_lease_router,
)
from fairlead.server.views import Body, ReadableText, View
from fairlead.version import __version__

router = APIRouter(route_class=GuardedRoute, prefix=f"{PREFIX}/agent", tags=["agent"])

AGENT = Depends(Requires(Permission.RUN_HOST_JOBS))
AgentCaller = Annotated[Caller, AGENT]

LONGEST_MS = 2**53
DEFAULT_ERROR = "AgentFailure"
DEPRECATED: dict[str, JsonValue] = {"deprecated": True}


async def require_own_host(host_id: UUID, caller: AgentCaller) -> None:
    """Refuse every caller but the agent of the host in the path."""
    agents.require_own_host(caller.principal, host_id)


host_router = APIRouter(
    route_class=GuardedRoute, prefix="/hosts/{host_id}", dependencies=[Depends(require_own_host)]
)


class EnrolBody(Body):
    """The enrolment code that a tenant admin created for the host."""

    code: ReadableText = Field(min_length=1, max_length=200)


class EnrolledView(View):
    """The agent's own token, shown once. It is valid for this host only."""

    token: str
    host_id: UUID
    host: str
    tenant_id: UUID
    lease_seconds: float
    server_version: str


class SessionBody(Body):
    """An agent that starts."""

    version: ReadableText = Field(max_length=100)
    # keys of the definitions that it can run; null for all
    definitions: list[ReadableText] | None = Field(None, max_length=1000)


class SessionView(View):
    """The agent's session, which ends when another agent starts for the host."""

    session_id: UUID
    host_id: UUID
    host: str
    max_running: int
    lease_seconds: float
    paused: bool
    draining: bool


class AgentJobView(ClaimedView):
    """A job for this host. Every poll returns it again until the agent accepts it."""

    # the attempt's id
    job_run_id: UUID | None


class AgentPollView(View):
    """The answer to a poll: jobs to run, jobs to cancel, and the host's state."""

    items: list[AgentJobView]
    jobs: list[AgentJobView] = Field(
        description="The same as items: the name of earlier versions.", json_schema_extra=DEPRECATED
    )
    cancel: list[UUID]
    paused: bool
    draining: bool
    note: str | None
    lease_seconds: float


class ResultBody(FailureBody):
    """How an attempt ended."""

    status: Literal["succeeded", "failed"]
    output: Any = None
    error: ErrorBody | None = None
    # the names of earlier versions
    error_type: str = Field(DEFAULT_ERROR, min_length=1, max_length=1000, json_schema_extra=DEPRECATED)
    error_message: str | None = Field(None, max_length=LONGEST_TEXT, json_schema_extra=DEPRECATED)
    traceback: str | None = Field(None, max_length=LONGEST_TEXT, json_schema_extra=DEPRECATED)
    duration_ms: int | None = Field(None, ge=0, le=LONGEST_MS)

    def ending(self) -> AttemptDetails:
        """The ending with the attempt's duration."""
        return replace(super().ending(), duration_ms=self.duration_ms)

    def failure(self) -> ErrorBody:
        """The error, from `error` or from the deprecated fields."""
        message = self.error_message or "The agent reported a failure without a message."
        return self.error or ErrorBody(type=self.error_type, message=message, traceback=self.traceback)


@router.post("/enrol", status_code=201)
async def enrol(
    request: Request, body: EnrolBody, _: Annotated[None, Depends(PublicAccess())]
) -> EnrolledView:
    """Exchange an enrolment code, once, for the agent's own token."""
    gatekeeper: Gatekeeper = request.app.state.gatekeeper
    fl: Fairlead = request.app.state.fl
    try:
        async with fl.database.transaction() as tx:
            enrolled = await hosts.enrol(tx, body.code)
    except EnrolmentRefused:
        await gatekeeper.count_unknown_secret(request, body.code)
        raise
    return _enrolled_view(enrolled, fl.settings.lease_seconds)


@router.post("/hosts/{host_id}/token")
async def rotate(host_id: UUID, caller: AgentCaller) -> EnrolledView:
    """Replace the agent's token. The old one stays valid for ten minutes."""
    async with caller.transaction() as tx:
        await agents.get_own_host(tx, caller.principal, host_id)
        enrolled = await hosts.rotate_token(tx, caller.principal, _require_token_id(caller))
    return _enrolled_view(enrolled, caller.fl.settings.lease_seconds)


@router.post("/hosts/{host_id}/session", status_code=201)
async def begin(host_id: UUID, body: SessionBody, caller: AgentCaller) -> SessionView:
    """Begin a session as the host's agent. The session before it ends."""
    async with caller.transaction(as_system=True) as tx:
        session = await agents.begin_session(tx, caller.principal, host_id, version=body.version)
    host = session.host
    return SessionView(
        session_id=session.id,
        host_id=host.id,
        host=host.name,
        max_running=host.max_running,
        lease_seconds=caller.fl.settings.lease_seconds,
        paused=host.paused_at is not None,
        draining=host.draining,
    )


@host_router.get("/jobs")
async def poll(
    request: Request, host_id: UUID, query: Annotated[PollQuery, Query()], caller: AgentCaller
) -> AgentPollView:
    """Wait for a job, a cancel or a change of the host. The poll is the agent's heartbeat, too."""
    agent_polls: AgentPolls = request.app.state.agent_polls

    async def waits() -> bool:
        return not await request.is_disconnected()

    answer = await agent_polls.wait(
        host_id, _require_token_id(caller), caller.tenant_id, query, waits, ip=caller.ip
    )
    lease_seconds = caller.fl.settings.lease_seconds
    given = [
        AgentJobView.of_held(one, lease_seconds=lease_seconds, job_run_id=one.job.run_id)
        for one in answer.jobs
    ]
    return AgentPollView(
        items=given,
        jobs=given,
        cancel=answer.cancel,
        paused=answer.state.paused,
        draining=answer.state.draining,
        note=answer.state.pause_note,
        lease_seconds=lease_seconds,
    )


@host_router.post("/heartbeat")
async def heartbeat(body: HeartbeatBody, caller: AgentCaller) -> HeartbeatView:
    """Renew all leases that the agent holds: at least every third of `lease_seconds`."""
    seconds = caller.fl.settings.lease_seconds
    alive = await caller.fl.database.single(
        lambda tx: agents.renew(tx, caller.principal, body.list_leases(), lease_seconds=seconds)
    )
    return HeartbeatView.of_leases(body.list_leases(), alive, seconds)


@host_router.post("/jobs/{job_id}/accept")
async def accept(job_id: UUID, body: LeaseBody, caller: AgentCaller) -> RenewedView:
    """Accept a job, and begin to run it. Until then every poll returns it again."""
    seconds = caller.fl.settings.lease_seconds
    renewed = await caller.fl.database.single(
        lambda tx: agents.accept(tx, caller.principal, body.lease(job_id), lease_seconds=seconds)
    )
    return RenewedView.of(renewed)


@host_router.post("/jobs/{job_id}/result")
async def result(job_id: UUID, body: ResultBody, caller: AgentCaller) -> EndedView:
    """Report how the attempt ended. Safe to repeat."""
    lease = body.lease(job_id)
    async with caller.transaction(as_system=True) as tx:
        if body.status == "succeeded":
            status = await leases.complete(
                tx, caller.principal, lease, output=body.output, ending=body.ending()
            )
        else:
            status = await body.fail(tx, caller.principal, lease, body.failure())
        await agents.notify_if_work_waits(tx, caller.principal)
    return EndedView(job_id=job_id, status=status)


host_router.include_router(create_lease_router(AGENT), prefix="/jobs")
router.include_router(host_router)


def _require_token_id(caller: Caller) -> UUID:
    if caller.token_id is None:  # only tokens can have the agent role
        raise RuntimeError("an agent must authenticate with a token")
    return caller.token_id


def _enrolled_view(enrolled: hosts.EnrolledAgent, lease_seconds: float) -> EnrolledView:
    return EnrolledView(
        token=enrolled.secret,
        host_id=enrolled.host.id,
        host=enrolled.host.name,
        tenant_id=enrolled.host.tenant_id,
        lease_seconds=lease_seconds,
        server_version=__version__,
    )
