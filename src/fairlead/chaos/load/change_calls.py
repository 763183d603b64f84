"""Calls about events, workflow runs, and jobs that exist: emit, run, edit, cancel and retry."""

import asyncio
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec.structs import replace
from uuid_utils.compat import uuid7

from fairlead.chaos import scenario
from fairlead.chaos.history import AnswerRecord, now
from fairlead.chaos.load.client_calls import CallResult, ClientSession, KnownJob, Via
from fairlead.chaos.load.client_jobs import LONGEST_DELAY
from fairlead.chaos.load.enqueue_calls import enqueue_jobs
from fairlead.library.workflows import Flow, FlowStep

REPEATS = 3
TASKS = (3, 30)
LAYERS = (1, 3, 2)
# Jobs that end without success are retried by hand after this.
RETRY_AFTER_SECONDS = 3.0
# The most edits of a job, and the share of those that also put it off.
EDITS = 3
POSTPONED = 0.3
# How far a backfill goes back.
BACKFILL_SECONDS = (3.0, 40.0)


async def emit(session: ClientSession, tenant: str) -> None:
    """Emit an event; with a key it is repeated while the answer is unknown, and sometimes after it."""
    via = session.choose_via()
    key = f"chaos-{uuid7()}" if via == "http" and session.chance.random() < 0.6 else None
    data = {"n": 0, "seconds": round(session.chance.uniform(0, 0.05), 3)}
    answer = await emit_event(session, tenant, via, name=scenario.EVENT_TYPE, data=data, key=key)
    first = answer.id
    for _ in range(REPEATS if key else 0):
        if answer.outcome != "unknown" and session.chance.random() < 0.7:
            break
        answer = await emit_event(
            session, tenant, via, name=scenario.EVENT_TYPE, data=data, key=key, repeat_of=first
        )


async def emit_event(
    session: ClientSession,
    tenant: str,
    via: Via,
    *,
    name: str,
    data: dict[str, Any],
    key: str | None,
    repeat_of: UUID | None = None,
) -> AnswerRecord:
    """Emit one event; its data carries the call."""
    what: dict[str, Any] = {"via": via, "name": name, "data": data}
    if key is not None:
        what["idempotency_key"] = key

    async def send(call: UUID) -> CallResult:
        carried = {**data, "call": str(call)}
        if via == "library":
            event = await session.fl.emit(name, tenant=tenant, data=carried, correlation_id=str(call))
            return CallResult([event], {})
        body = {"name": name, "data": carried, "correlation_id": str(call)}
        answer = await session.api.post(tenant, "/events", body, key=key)
        return CallResult([UUID(answer["id"])], {"replayed": True} if answer.get("replayed") else {})

    return await session.call("emit", tenant, what, send, repeat_of=repeat_of)


async def run_workflow(session: ClientSession, tenant: str) -> None:
    """Start a run; its key makes it safe to start it again while the answer is unknown."""
    is_graph = session.chance.random() < 0.5
    tasks = 0 if is_graph else session.chance.randint(*TASKS)
    number = sum(LAYERS) + 1 if is_graph else tasks + 1
    what: dict[str, Any] = {"via": "library", "jobs": number}
    what |= (
        {"shape": "graph", "steps": _describe_steps()} if is_graph else {"shape": "fan_out", "tasks": tasks}
    )

    async def send(call: UUID) -> CallResult:
        named: dict[str, Any] = {"tenant": tenant, "key": str(call), "correlation_id": str(call)}
        if is_graph:
            run = await session.fl.run_inline(_build_graph(call), **named)
        else:
            payloads = [{"call": str(call), "n": n} for n in range(tasks)]
            join = {"call": str(call), "n": tasks, "outs": "{{steps.tasks.output}}"}
            run = await session.fl.fan_out(scenario.STEP, payloads, join=scenario.JOIN, payload=join, **named)
        return CallResult([run.id], {})

    answer = await session.call("run", tenant, what, send)
    first = answer.id
    for _ in range(REPEATS):
        if answer.outcome != "unknown":
            break
        answer = await session.call("run", tenant, what, send, repeat_of=first)


def _list_steps() -> list[tuple[str, str, list[str]]]:
    """Each step of the graph: its name, its definition, and the steps before it."""
    steps: list[tuple[str, str, list[str]]] = []
    before: list[str] = []
    for layer, width in enumerate(LAYERS):
        names = [f"s{layer}_{place}" for place in range(width)]
        steps += [(name, scenario.STEP, before) for name in names]
        before = names
    return [*steps, ("join", scenario.JOIN, before)]


def _describe_steps() -> dict[str, Any]:
    return {name: {"definition": definition, "after": after} for name, definition, after in _list_steps()}


def _build_graph(call: UUID) -> Flow:
    """Layers of steps, each after all of the layer before; the last one adds up their outputs. A step may fail once."""
    flow = Flow("chaos")
    made: dict[str, FlowStep] = {}
    for n, (name, definition, after) in enumerate(_list_steps()):
        payload: dict[str, Any] = {"call": str(call), "n": n, "seconds": 0.01, "fail": n % 2}
        if definition == scenario.JOIN:
            payload["outs"] = [f"{{{{steps.{one}.output}}}}" for one in after]
        made[name] = flow.step(name, definition, payload, after=[made[one] for one in after])
    return flow


async def backfill(session: ClientSession, tenant: str) -> None:
    """Backfill a schedule's last times: those that have no job yet, since no scheduler ran or it is a moment too early."""
    schedule = session.chance.choice(scenario.SCHEDULES)
    since = datetime.now(UTC) - timedelta(seconds=session.chance.uniform(*BACKFILL_SECONDS))

    async def send(_: UUID) -> CallResult:
        done = await session.fl.backfill(schedule, since, tenant=tenant)
        return CallResult([], {"enqueued": done.enqueued})

    await session.call("backfill", tenant, {"via": "library", "schedule": schedule}, send)


async def edit(session: ClientSession, tenant: str) -> None:
    """Enqueue a job for later, and change its payload, and sometimes its time, until it may have started."""
    via = session.choose_via()
    job = session.jobs.choose_edited(id=uuid7() if via == "library" else None)
    answer = await enqueue_jobs(session, tenant, [job], via)
    call = answer.id
    for number in range(1, EDITS + 1):
        # a call without an answer may still take effect, also after the next one
        if answer.outcome != "ok":
            return
        await asyncio.sleep(session.chance.uniform(0, LONGEST_DELAY / EDITS))
        delay = session.jobs.choose_delay() if session.chance.random() < POSTPONED else None
        payload = replace(job, plan={**job.plan, "edit": number}).payload(call, 0)
        answer = await _edit(session, tenant, answer.ids[0], payload, delay)


async def _edit(
    session: ClientSession, tenant: str, job_id: UUID, payload: dict[str, Any], delay: float | None
) -> AnswerRecord:
    via = session.choose_via()

    async def send(_: UUID) -> CallResult:
        if via == "library":
            await session.fl.edit(job_id, payload=payload, delay=delay)
        else:
            body = {"payload": payload, **({} if delay is None else {"delay_seconds": delay})}
            await session.api.post(tenant, f"/jobs/{job_id}", body, method="PATCH")
        return CallResult([job_id], {})

    what = {"via": via, "job": job_id, "edit": payload["edit"]}
    return await session.call("edit", tenant, what, send)


async def cancel(session: ClientSession, _tenant: str) -> None:
    """Cancel a job: most often one that runs for long, else any that is known, queued or not."""
    job = _find(session, {scenario.LONG}) or _find(session, ())
    if job is not None:
        await _change(session, "cancel", job)


async def retry(session: ClientSession, _tenant: str) -> None:
    """Retry a job that has ended without success, or any: one that has not is refused."""
    job = _find(
        session, {scenario.FATAL, scenario.FLAKY, scenario.LONG, scenario.DURABLE}, after=RETRY_AFTER_SECONDS
    )
    if job is not None:
        await _change(session, "retry", job)


def _find(session: ClientSession, definitions: Collection[str], *, after: float = 0.0) -> KnownJob | None:
    """A known job of these definitions, or of any; it is forgotten."""
    limit = now() - after
    found = [
        job
        for job in session.known
        if (not definitions or job.definition in definitions) and job.known_at <= limit
    ]
    if not found:
        return None
    job = session.chance.choice(found)
    session.known.remove(job)
    return job


async def _change(session: ClientSession, kind: str, job: KnownJob) -> None:
    via = session.choose_via()

    async def send(_: UUID) -> CallResult:
        if via == "http":
            answer = await session.api.post(job.tenant, f"/jobs/{job.id}/{kind}")
            return CallResult([job.id], {"status": answer["status"]})
        change = session.fl.cancel if kind == "cancel" else session.fl.retry
        changed = await change(job.id)
        return CallResult([job.id], {"status": changed.status.value})

    answer = await session.call(kind, job.tenant, {"via": via, "job": job.id}, send)
    if answer.outcome == "ok":
        session.remember(job.tenant, [job.id], [job.definition])
