"""Calls that enqueue: one job or many, with the options of jobs, with Idempotency-Keys, and floods of them."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from fairlead.chaos import scenario
from fairlead.chaos.history import AnswerRecord
from fairlead.chaos.load.client_calls import CallResult, ClientSession, Via
from fairlead.chaos.load.client_jobs import ClientJob

BULK = (10, 500)
# More than the burst that a run's servers allow a token.
FLOOD = 150
REPEATS = 3
# The share of expiring jobs that are due later.
EXPIRING_DELAYS = 0.3
# A definition that does not exist.
UNKNOWN = "chaos.unknown"


async def enqueue_one(session: ClientSession, tenant: str) -> None:
    via = session.choose_via()
    job = session.jobs.choose(tenant, id=_choose_id(via))
    await enqueue_jobs(session, tenant, [job], via)


async def enqueue_bulk(session: ClientSession, tenant: str) -> None:
    """Many jobs, more often few than many, all or none."""
    via = session.choose_via()
    least, most = BULK
    number = round(least * (most / least) ** session.chance.random())
    jobs = [session.jobs.choose(tenant, many=True, id=_choose_id(via)) for _ in range(number)]
    await enqueue_jobs(session, tenant, jobs, via)


async def enqueue_refused(session: ClientSession, tenant: str) -> None:
    """Some jobs and one of an unknown definition, in bulk: none of them may exist."""
    via = session.choose_via()
    number = session.chance.randint(1, 20)
    jobs = [session.jobs.choose(tenant, many=True, id=_choose_id(via)) for _ in range(number)]
    unknown = ClientJob(definition=UNKNOWN, plan={}, id=_choose_id(via))
    await enqueue_jobs(session, tenant, [*jobs, unknown], via)


async def enqueue_deduplicated(session: ClientSession, tenant: str) -> None:
    """One job with a key, or several in bulk."""
    via = session.choose_via()
    number = session.chance.choice((1, 1, 1, 4))
    jobs = [session.jobs.choose_deduplicated(id=_choose_id(via)) for _ in range(number)]
    await enqueue_jobs(session, tenant, jobs, via)


async def enqueue_delayed(session: ClientSession, tenant: str) -> None:
    via = session.choose_via()
    job = session.jobs.choose(tenant, id=_choose_id(via), delay=session.jobs.choose_delay())
    await enqueue_jobs(session, tenant, [job], via)


async def enqueue_unique(session: ClientSession, tenant: str) -> None:
    via = session.choose_via()
    await enqueue_jobs(session, tenant, [session.jobs.choose_unique(id=_choose_id(via))], via)


async def enqueue_debounced(session: ClientSession, tenant: str) -> None:
    via = session.choose_via()
    await enqueue_jobs(session, tenant, [session.jobs.choose_debounced(id=_choose_id(via))], via)


async def enqueue_expiring(session: ClientSession, tenant: str) -> None:
    """One job that must start in time, now or after a delay."""
    via = session.choose_via()
    delay = session.jobs.choose_delay() if session.chance.random() < EXPIRING_DELAYS else None
    job = session.jobs.choose(
        tenant, id=_choose_id(via), delay=delay, expires_in=session.jobs.choose_expiry()
    )
    await enqueue_jobs(session, tenant, [job], via)


async def enqueue_idempotent(session: ClientSession, tenant: str) -> None:
    """Repeated over other servers while the answer is unknown, and sometimes after it."""
    number = session.chance.choice((1, 1, 3))
    jobs = [session.jobs.choose(tenant, many=True) for _ in range(number)]
    key = f"chaos-{uuid7()}"
    answer = await enqueue_jobs(session, tenant, jobs, "http", key=key)
    first = answer.id
    for _ in range(REPEATS):
        if answer.outcome != "unknown" and session.chance.random() < 0.7:
            break
        answer = await enqueue_jobs(session, tenant, jobs, "http", key=key, repeat_of=first)


async def enqueue_flood(session: ClientSession, tenant: str) -> None:
    """More requests at once than the rate limit of the tenant's token allows."""
    jobs = [ClientJob(definition=scenario.QUICK, plan={}) for _ in range(FLOOD)]
    await asyncio.gather(*(enqueue_jobs(session, tenant, [job], "http") for job in jobs))


def _choose_id(via: Via) -> UUID | None:
    """The library takes the ids of jobs; the HTTP API does not."""
    return uuid7() if via == "library" else None


async def enqueue_jobs(
    session: ClientSession,
    tenant: str,
    jobs: Sequence[ClientJob],
    via: Via,
    *,
    key: str | None = None,
    repeat_of: UUID | None = None,
) -> AnswerRecord:
    """Enqueue jobs in one call."""
    what: dict[str, Any] = {"via": via, "jobs": [job.describe() for job in jobs]}
    if key is not None:
        what["idempotency_key"] = key

    async def send(call: UUID) -> CallResult:
        if via == "library":
            return await _send_to_library(session, tenant, jobs, call)
        return await _send_to_server(session, tenant, jobs, call, key)

    answer = await session.call("enqueue", tenant, what, send, repeat_of=repeat_of)
    session.remember(tenant, answer.ids, [job.definition for job in jobs][: len(answer.ids)])
    return answer


async def _send_to_library(
    session: ClientSession, tenant: str, jobs: Sequence[ClientJob], call: UUID
) -> CallResult:
    new = [job.to_new(tenant, call, n, session.access.host_id) for n, job in enumerate(jobs)]
    made = [await session.fl.submit(new[0])] if len(new) == 1 else await session.fl.enqueue_many(new)
    return build_result([one.id for one in made], [one.deduplicated for one in made])


async def _send_to_server(
    session: ClientSession, tenant: str, jobs: Sequence[ClientJob], call: UUID, key: str | None
) -> CallResult:
    bodies = [job.to_body(call, n, session.access.host_id) for n, job in enumerate(jobs)]
    if len(bodies) == 1:
        answer = await session.api.post(tenant, "/jobs", bodies[0], key=key)
        items = [answer]
    else:
        answer = await session.api.post(tenant, "/jobs/bulk", {"jobs": bodies}, key=key)
        items = answer["items"]
    result = build_result([UUID(one["id"]) for one in items], [one["deduplicated"] for one in items])
    return result if not answer.get("replayed") else result._replace(what={**result.what, "replayed": True})


def build_result(ids: list[UUID], deduplicated: list[bool]) -> CallResult:
    """The result of a call that enqueues."""
    return CallResult(ids, {"deduplicated": deduplicated} if any(deduplicated) else {})
