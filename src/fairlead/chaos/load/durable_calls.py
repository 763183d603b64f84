"""Calls that start durable functions, and send them the events and signals that they wait for."""

import asyncio
from typing import Any
from uuid import UUID

import msgspec
from uuid_utils.compat import uuid7

from fairlead.chaos import scenario
from fairlead.chaos.load.approval_calls import answer_approval
from fairlead.chaos.load.change_calls import emit_event
from fairlead.chaos.load.client_calls import CallResult, ClientSession
from fairlead.chaos.load.client_jobs import ClientJob
from fairlead.chaos.load.durable_function import FunctionPlan
from fairlead.chaos.load.enqueue_calls import enqueue_jobs

FUNCTIONS = (1, 4)
# What a function waits for comes before it waits, or after.
LONGEST_PAUSE = 1.5
# What was not acknowledged is sent again.
SENDS = 6
RESEND_SECONDS = 0.5


async def start_functions(session: ClientSession, tenant: str) -> None:
    """Some functions in one call, and then what each of them waits for."""
    if scenario.DURABLE in session.access.unserved:
        return
    via = session.choose_via()
    plans = [choose_plan(session) for _ in range(session.chance.randint(*FUNCTIONS))]
    jobs = [
        ClientJob(
            definition=scenario.DURABLE,
            plan=msgspec.to_builtins(plan),
            id=uuid7() if via == "library" else None,
        )
        for plan in plans
    ]
    answer = await enqueue_jobs(session, tenant, jobs, via)
    if answer.outcome == "fail":
        return
    for n, (plan, job) in enumerate(zip(plans, jobs, strict=True)):
        # without an answer of the server, the id is not known
        job_id = answer.ids[n] if answer.ids else job.id
        await _send(session, tenant, msgspec.structs.replace(plan, call=str(answer.id), n=n), job_id)


def choose_plan(session: ClientSession) -> FunctionPlan:
    chance = session.chance

    def happens(share: float) -> bool:
        return chance.random() < share

    plan = FunctionPlan(
        steps=chance.randint(1, 6),
        seconds=round(chance.uniform(0.01, 0.2), 3) if happens(0.5) else 0.0,
        failing_tries=chance.randint(1, 2) if happens(0.2) else 0,
        unsure=happens(0.15),
        sleep=round(chance.uniform(0.1, 3), 3) if happens(0.4) else 0.0,
        parallel=chance.randint(2, 4) if happens(0.25) else 0,
        child=chance.choice(("function", "function", "fatal")) if happens(0.3) else "",
        event=happens(0.3),
        signal=happens(0.3),
        approval=happens(0.1),
        late=happens(0.1),
        broken=happens(0.2),
    )
    return msgspec.structs.replace(plan, total=plan.count_steps())


async def _send(session: ClientSession, tenant: str, plan: FunctionPlan, job_id: UUID | None) -> None:
    if plan.event:
        await asyncio.sleep(session.chance.uniform(0, LONGEST_PAUSE))
        await _emit(session, tenant, plan.key)
    if plan.signal and job_id is not None:
        await asyncio.sleep(session.chance.uniform(0, LONGEST_PAUSE))
        await _signal(session, tenant, job_id, plan.key)
    if plan.approval and job_id is not None:
        await answer_approval(session, tenant, job_id)


async def _emit(session: ClientSession, tenant: str, key: str) -> None:
    """Emit the event until it is acknowledged: one event, as the Idempotency-Key says."""
    idempotency_key = f"chaos-{uuid7()}"
    first: UUID | None = None
    for _ in range(SENDS):
        answer = await emit_event(
            session,
            tenant,
            "http",
            name=scenario.CONFIRMED,
            data={"key": key},
            key=idempotency_key,
            repeat_of=first,
        )
        if answer.outcome == "ok":
            return
        first = first or answer.id
        await asyncio.sleep(RESEND_SECONDS)


async def _signal(session: ClientSession, tenant: str, job_id: UUID, key: str) -> None:
    """Signal until it is acknowledged; a signal whose answer was lost may come twice, and the second one is not taken."""
    for _ in range(SENDS):
        via = session.choose_via()

        async def send(_: UUID, via: str = via) -> CallResult:
            if via == "library":
                return CallResult([await session.fl.signal(job_id, scenario.SIGNAL, key)], {})
            body = {"data": key}
            sent = await session.api.post(tenant, f"/jobs/{job_id}/signals/{scenario.SIGNAL}", body)
            return CallResult([UUID(sent["id"])], {})

        what: dict[str, Any] = {"via": via, "job": job_id, "name": scenario.SIGNAL}
        answer = await session.call("signal", tenant, what, send)
        if answer.outcome == "ok" or answer.code in ("job_unknown", "job_not_signalable"):
            return
        await asyncio.sleep(RESEND_SECONDS)
