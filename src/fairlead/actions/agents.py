"""Actions of agents: begin a session, receive and accept their host's jobs, and renew their leases."""

from collections.abc import Sequence
from uuid import UUID

import msgspec
from uuid_utils.compat import uuid7

from fairlead.actions import leases as owners
from fairlead.actions import workflow_progress
from fairlead.actions.hosts import unknown_host_error
from fairlead.db.tx import Tx
from fairlead.errors import AgentSuperseded
from fairlead.model.access import Permission, Principal
from fairlead.model.host import Host, HostState
from fairlead.model.job import Lease
from fairlead.model.outcome import Backoff, Released, RetryBudget, decide
from fairlead.store import audit, bulk, hosts, queue
from fairlead.store.queue import Claim, Claimed

LONGEST_VERSION = 100
MOST_TAKEN_BACK = 1000


class AgentSession(msgspec.Struct, frozen=True):
    """An agent's session with its host, until another agent starts."""

    id: UUID
    host: Host


async def list_host_states(tx: Tx, ids: Sequence[UUID]) -> list[HostState]:
    """The states of hosts whose agents poll. Each poll was permitted by its token."""
    return await hosts.list_states(tx, ids)


async def list_hosts_with_work(tx: Tx) -> list[UUID]:
    """Hosts with waiting jobs and room for them."""
    return await hosts.list_with_work(tx)


async def mark_hosts_seen(tx: Tx, ids: Sequence[UUID]) -> None:
    """Record that the agents of these hosts are online."""
    await hosts.mark_seen(tx, ids)


async def begin_session(tx: Tx, principal: Principal, host_id: UUID, *, version: str) -> AgentSession:
    """Start a session: the caller becomes the host's agent, and an older agent is refused at its next request."""
    host = await get_own_host(tx, principal, host_id)
    session_id = uuid7()
    await hosts.begin_session(tx, host.id, session_id=session_id, version=version[:LONGEST_VERSION])
    await _release_undelivered(tx, principal, host.id, session_id)
    await bulk.notify(tx, "host")
    await audit.write(
        tx,
        actor=principal.actor,
        action="agent_started",
        resource_type="host",
        resource_id=host.id,
        tenant_id=host.tenant_id,
        details={"name": host.name, "version": version[:LONGEST_VERSION]},
    )
    return AgentSession(session_id, host)


async def _release_undelivered(tx: Tx, principal: Principal, host_id: UUID, session_id: UUID) -> None:
    """Release, uncharged, the jobs that an older agent has not accepted: two agents could run them under one lease."""
    waiting = await hosts.list_undelivered(tx, host_id, session_id, limit=MOST_TAKEN_BACK)
    if waiting:
        change = decide(RetryBudget(1, 0, 0, Backoff()), Released())
        await workflow_progress.finish_attempts(
            tx, [(lease, change) for lease in waiting], actor=principal.actor
        )
        await bulk.notify(tx, "ready")


def require_own_host(principal: Principal, host_id: UUID) -> None:
    """Refuse every caller but the agent of this host, as if the host did not exist."""
    if principal.host_id != host_id:
        raise unknown_host_error(host_id)


async def get_own_host(tx: Tx, principal: Principal, host_id: UUID) -> Host:
    """The agent's own host; refuses any other as unknown."""
    principal.require(Permission.RUN_HOST_JOBS, principal.tenant_id)
    require_own_host(principal, host_id)
    host = await hosts.get(tx, host_id, tenant_id=principal.tenant_id)
    if host is None:
        raise unknown_host_error(host_id)
    return host


def check_session(state: HostState, session_id: UUID) -> None:
    """Refuse a session that is no longer the host's."""
    if state.session_id != session_id:
        raise _superseded_error()


def _superseded_error() -> AgentSuperseded:
    return AgentSuperseded(
        "Another agent was started for this host and has replaced this one: stop polling. "
        "This one may finish and report what it still runs."
    )


async def claim_for_agent(
    tx: Tx,
    host_id: UUID,
    session_id: UUID,
    *,
    served: Sequence[UUID] | None,
    limit: int,
    lease_seconds: float,
    most_slots: int | None = None,
) -> Claim:
    """Claim jobs of a host for its agent: they count as undelivered until it accepts them."""
    taken = await queue.claim(
        tx,
        worker=f"agent:{host_id}:{session_id}",
        wanted=limit,
        lease_seconds=lease_seconds,
        served=served,
        host=host_id,
        most_slots=most_slots,
    )
    if taken.jobs:
        runs = await hosts.deliver(tx, host_id, session_id, token=taken.token)
        if not runs:  # another agent was started in between: the transaction rolls back
            raise _superseded_error()
        for job in taken.jobs:
            job.run_id = runs[job.job_id]
    if ends := [
        (taken.lease(job), end) for job in taken.jobs if (end := queue.end_unreadable(job)) is not None
    ]:
        await workflow_progress.finish_attempts(tx, ends, actor=f"agent:{host_id}")
        taken = msgspec.structs.replace(taken, jobs=[job for job in taken.jobs if job.trouble is None])
    return taken


async def list_undelivered(
    tx: Tx, host_id: UUID, session_id: UUID, *, limit: int, lease_seconds: float
) -> list[tuple[Lease, Claimed]]:
    """The jobs that the agent has not accepted: the answer may have been lost, so they are delivered again."""
    waiting = await hosts.list_undelivered(tx, host_id, session_id, limit=limit)
    if not waiting:
        return []
    alive = await queue.heartbeat(tx, waiting, lease_seconds=lease_seconds)
    jobs = await queue.repeat_claim(tx, [lease for lease in waiting if lease in alive])
    # those whose keys are missing now are delivered with a later answer, or their leases expire
    return [
        (lease, jobs[lease.job_id])
        for lease in waiting
        if lease.job_id in jobs and jobs[lease.job_id].trouble is None
    ]


async def accept(tx: Tx, principal: Principal, lease: Lease, *, lease_seconds: float) -> owners.RenewedLease:
    """Note that the agent has received a job and starts it, in one statement."""
    principal.require(Permission.RUN_HOST_JOBS, principal.tenant_id)
    canceled = await hosts.accept(tx, lease, host_id=principal.host_id, lease_seconds=lease_seconds)
    if canceled is None:
        raise owners.lost_error(lease)
    return owners.RenewedLease(lease_seconds, canceled)


async def renew(
    tx: Tx, principal: Principal, held: Sequence[Lease], *, lease_seconds: float
) -> dict[Lease, queue.HeartbeatResult]:
    """Renew all leases of an agent at once; those that are missing from the result are lost."""
    principal.require(Permission.RUN_HOST_JOBS, principal.tenant_id)
    mine = await hosts.filter_leases(tx, principal.host_id, held)
    return await queue.heartbeat(tx, mine, lease_seconds=lease_seconds) if mine else {}


async def notify_if_work_waits(tx: Tx, principal: Principal) -> None:
    """After the end of an attempt: wake the waiting polls if more jobs wait for the host."""
    if principal.host_id is not None and await hosts.has_work(tx, principal.host_id):
        await bulk.notify(tx, "room")
