"""A played run with every kind of call, played in one process, and its history: clean until a test changes something."""

import os
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import msgspec
from uuid_utils.compat import uuid7

from fairlead import Fairlead, Fatal, NewJob, Secret
from fairlead.chaos import scenario
from fairlead.chaos.checks.limit_samples import SAMPLE
from fairlead.chaos.history import (
    AnswerRecord,
    CallRecord,
    EndRecord,
    FaultRecord,
    HistoryRecord,
    HistoryWriter,
    SampleRecord,
    SecretRecord,
    StartRecord,
    now,
)
from fairlead.chaos.load.commits import commit_attempt
from fairlead.chaos.load.durable_function import FunctionPlan, run_function
from fairlead.chaos.load.secret_values import (
    build_secret,
    create_secrets,
    describe_secrets,
    parse_secret,
    set_secret,
)
from fairlead.chaos.run_plan import RunPlan
from fairlead.chaos.scenario import DefinitionPlan
from fairlead.db.tx import Tx
from fairlead.errors import Refused
from fairlead.handlers.context import Context, Suspend
from fairlead.model.job import JobStatus
from fairlead.model.outcome import Backoff, Change
from fairlead.store import queue, rescue
from fairlead.store.queue import Claim
from fairlead.store.testing import make_all_due
from fairlead.testing import run_due

ACME, GLOBEX = "acme", "globex"
# They differ from others by their limits only.
LIMITED = (
    scenario.LINE,
    scenario.PAIRED,
    scenario.PACED,
    scenario.DROP_NEW,
    scenario.REPLACE_QUEUED,
    scenario.CANCEL_RUNNING,
    scenario.RATED,
    scenario.COSTLY,
    scenario.SETTLED,
    scenario.BATCHED,
    scenario.WIDE,
    scenario.LABELED,
)
PLAN = RunPlan(
    tenants=(ACME, GLOBEX),
    definitions=(
        DefinitionPlan(scenario.QUICK),
        DefinitionPlan(scenario.SLOW, max_running=3),
        DefinitionPlan(scenario.NARROW, max_running_per_tenant=2),
        DefinitionPlan(scenario.FLAKY),
        DefinitionPlan(scenario.FATAL),
        DefinitionPlan(scenario.POISON),
        DefinitionPlan(scenario.STEP),
        DefinitionPlan(scenario.JOIN),
        DefinitionPlan(scenario.ON_EVENT),
        DefinitionPlan(scenario.ON_TIME),
        DefinitionPlan(scenario.HOST_COMMAND, runner="agent"),
        DefinitionPlan(scenario.DURABLE),
        DefinitionPlan(scenario.COMMITTED),
        DefinitionPlan(scenario.SECRET),
        *(one for one in scenario.DEFINITIONS if one.key in LIMITED),
    ),
    tenant_limits={GLOBEX: 4},
    host_limit=1,
    labeled_worker="worker-2",
)
# processes that never existed: no pid is that large
KILLED, REPLACED = 5_000_001, 5_000_011
CREATE_ORDERS = """
create table public.chaos_orders (
    id uuid primary key, call_id uuid not null, tenant text not null, at timestamptz not null default now())
"""
# every part that a durable function of a run can have
WHOLE = FunctionPlan(
    steps=2,
    failing_tries=1,
    sleep=1.0,
    parallel=2,
    child="function",
    event=True,
    signal=True,
    approval=True,
    patient=True,
    late=True,
    broken=True,
)
SOON = Backoff(base_seconds=0.01, factor=1, cap_seconds=1, jitter=0)


class RolledBack(Exception):
    """The client did not commit."""


class PlayedRun:
    """Plays the clients, the workers and the watchdog, and writes what each of them would."""

    def __init__(self, fl: Fairlead, folder: Path) -> None:
        self.fl = fl
        self.folder = folder
        self._history = HistoryWriter(folder / "all.history")
        # what tests look for: jobs, calls and others by name
        self.ids: dict[str, UUID] = {}

    def write(self, *records: HistoryRecord) -> None:
        for record in records:
            self._history.write(record)

    # the job functions

    def add_functions(self) -> None:
        plans = {one.key: one for one in PLAN.definitions}
        for key in (scenario.QUICK, scenario.SLOW, scenario.NARROW, scenario.FLAKY, scenario.STEP):
            self._add(plans[key], self._work)
        for key in (scenario.JOIN, scenario.ON_EVENT, scenario.ON_TIME, scenario.HOST_COMMAND, *LIMITED):
            self._add(plans[key], self._work)
        self._add(plans[scenario.FATAL], self._fail)
        self._add(plans[scenario.POISON], self._work)
        self._add(plans[scenario.COMMITTED], self._commit)
        self._add(plans[scenario.DURABLE], self._run_function, durable=True)
        self.fl.job(key=scenario.SECRET, max_attempts=1)(self._use_secret)
        self.secrets = create_secrets(self.folder)
        config = self.folder / "fairlead.toml"
        config.write_text(describe_secrets(self.secrets))
        self.fl.allow_secrets(config)

    def _add(
        self, plan: DefinitionPlan, work: Callable[..., Awaitable[Any]], *, durable: bool = False
    ) -> None:
        async def run(ctx: Context, **payload: Any) -> Any:
            return await work(ctx, payload)

        options: dict[str, Any] = {"max_attempts": plan.max_attempts, "backoff": SOON, **plan.limits()}
        self.fl.job(key=plan.key, durable=durable, **options)(run)

    async def _work(self, ctx: Context, payload: dict[str, Any]) -> Any:
        self.write(StartRecord(now(), ctx.job_id, ctx.attempt_no, ctx.definition_key, os.getpid()))
        ctx.log.info("a line")
        if ctx.definition_key == scenario.SLOW:
            await self.sample()
        if ctx.attempt_no <= payload.get("fail", 0):
            self.write(EndRecord(now(), ctx.job_id, ctx.attempt_no, "failed"))
            raise RuntimeError("as planned")
        ctx.add_cost(3)
        ctx.progress(50, f"attempt {ctx.attempt_no}")
        self.write(EndRecord(now(), ctx.job_id, ctx.attempt_no, "succeeded"))
        if ctx.definition_key == scenario.JOIN:
            return sum(payload["outs"])
        if "edit" in payload:
            return {"attempt": ctx.attempt_no, "edit": payload["edit"]}
        return payload["n"] if ctx.definition_key == scenario.STEP else {"attempt": ctx.attempt_no}

    async def _commit(self, ctx: Context, _payload: dict[str, Any]) -> None:
        self.write(StartRecord(now(), ctx.job_id, ctx.attempt_no, ctx.definition_key, os.getpid()))
        await commit_attempt(ctx, 0.0, {"attempt": ctx.attempt_no}, self.write)
        self.write(EndRecord(now(), ctx.job_id, ctx.attempt_no, "succeeded"))

    async def _use_secret(
        self, ctx: Context, token: Annotated[str, Secret()], **_payload: Any
    ) -> dict[str, Any]:
        self.write(StartRecord(now(), ctx.job_id, ctx.attempt_no, ctx.definition_key, os.getpid()))
        self.write(SecretRecord(now(), ctx.job_id, ctx.attempt_no, *parse_secret(token)))
        self.write(EndRecord(now(), ctx.job_id, ctx.attempt_no, "succeeded"))
        return {"attempt": ctx.attempt_no, "used": token}

    async def _fail(self, ctx: Context, _payload: dict[str, Any]) -> None:
        self.write(StartRecord(now(), ctx.job_id, ctx.attempt_no, ctx.definition_key, os.getpid()))
        self.write(EndRecord(now(), ctx.job_id, ctx.attempt_no, "fatal"))
        raise Fatal("as planned")

    async def _run_function(self, ctx: Context, payload: dict[str, Any]) -> dict[str, Any]:
        self.write(StartRecord(now(), ctx.job_id, ctx.attempt_no, ctx.definition_key, os.getpid()))
        try:
            result = await run_function(ctx, msgspec.convert(payload, FunctionPlan), self.write)
        except Suspend:
            self.write(EndRecord(now(), ctx.job_id, ctx.attempt_no, "suspended"))
            raise
        self.write(EndRecord(now(), ctx.job_id, ctx.attempt_no, "succeeded"))
        return result

    # the clients

    async def _call(
        self,
        kind: str,
        what: dict[str, Any],
        act: Callable[[UUID], Awaitable[Any]],
        *,
        name: str = "",
        tenant: str = ACME,
        lose_answer: bool = False,
        repeat_of: UUID | None = None,
    ) -> Any:
        call = UUID(str(uuid7()))
        self.ids[f"call {name or kind}"] = call
        repeated = {} if repeat_of is None else {"repeat_of": repeat_of}
        self.write(CallRecord(now(), call, kind, tenant, {"via": "library", **what, **repeated}))
        try:
            ids, answer = await act(repeat_of or call)
        except (RolledBack, Refused) as error:
            self.write(AnswerRecord(now(), call, "fail", code=type(error).__name__))
            return []
        if not lose_answer:
            self.write(AnswerRecord(now(), call, "ok", ids, what=answer))
        for n, one in enumerate(ids):
            self.ids[f"{name or kind} {n}"] = one
        return ids

    async def enqueue(
        self, name: str, *jobs: dict[str, Any], tenant: str = ACME, **options: Any
    ) -> list[UUID]:
        """Enqueue jobs in one call; each is described as a client describes it."""
        asked = [{"id": UUID(str(uuid7())), "plan": {}, **job} for job in jobs]

        async def send(call: UUID) -> tuple[list[UUID], dict[str, Any]]:
            made = await self.fl.enqueue_many(_requests(asked, tenant, call))
            duplicates = [one.deduplicated for one in made]
            return [one.id for one in made], {"deduplicated": duplicates} if any(duplicates) else {}

        return list(await self._call("enqueue", {"jobs": asked}, send, name=name, tenant=tenant, **options))

    async def order(self, name: str, *, rollback: bool = False) -> None:
        order = UUID(str(uuid7()))
        asked = [{"id": UUID(str(uuid7())), "definition": scenario.QUICK, "plan": {}} for _ in range(2)]

        async def send(call: UUID) -> tuple[list[UUID], dict[str, Any]]:
            async with self.fl.database.transaction() as tx:
                connection: Any = tx.connection
                await tx.run(
                    "insert into public.chaos_orders (id, call_id, tenant) values (%s, %s, %s)",
                    [order, call, ACME],
                )
                made = await self.fl.enqueue_many(_requests(asked, ACME, call), tx=connection)
                await self.fl.emit(
                    scenario.EVENT_TYPE,
                    tenant=ACME,
                    data={"call": str(call), "n": 2},
                    correlation_id=str(call),
                    tx=connection,
                )
                if rollback:
                    raise RolledBack
            return [one.id for one in made], {}

        what = {"order": order, "jobs": asked, "rollback": rollback, "event": True}
        await self._call("order", what, send, name=name)

    async def emit(self, name: str, *, event: str = scenario.EVENT_TYPE, **data: Any) -> None:
        async def send(call: UUID) -> tuple[list[UUID], dict[str, Any]]:
            carried = {"call": str(call), "n": 0, **data}
            made = await self.fl.emit(event, tenant=ACME, data=carried, correlation_id=str(call))
            return [made], {}

        await self._call("emit", {"name": event, "data": data}, send, name=name)

    async def signal(self, name: str, job_id: UUID, data: str) -> None:
        async def send(_call: UUID) -> tuple[list[UUID], dict[str, Any]]:
            return [await self.fl.signal(job_id, scenario.SIGNAL, data)], {}

        await self._call("signal", {"job": job_id, "name": scenario.SIGNAL}, send, name=name)

    async def answer(self, job_id: UUID, answer: str) -> None:
        """Answer the approval that a function asks for, or has asked for."""
        [approval] = (await self.fl.list_approvals(tenant=ACME, status=None, job_id=job_id)).items
        act = self.fl.approve if answer == "approve" else self.fl.reject

        async def send(call: UUID) -> tuple[list[UUID], dict[str, Any]]:
            await act(approval.id, comment=str(call))
            return [approval.id], {}

        what = {"job": job_id, "approval": approval.id, "answer": answer}
        await self._call("answer", what, send, name=answer)

    async def run_functions(self) -> None:
        """A function that gets what it waits for, and one that waits for an event that never comes."""
        plan = msgspec.to_builtins(msgspec.structs.replace(WHOLE, total=WHOLE.count_steps()))
        [whole] = await self.enqueue("durable", {"definition": scenario.DURABLE, "plan": plan})
        await self.enqueue("vain", {"definition": scenario.DURABLE, "plan": {"event": True}})
        await run_due(self.fl, until_idle=True)
        key = f"{self.ids['call durable']}/0"
        await self.emit("confirm", event=scenario.CONFIRMED, key=key)
        await self.signal("signal", whole, key)
        await run_due(self.fl, until_idle=True)
        for answer in ("approve", "reject"):
            await self.answer(whole, answer)
        await run_due(self.fl, until_idle=True)

    async def run_workflow(self, name: str = "run", *, repeat_of: UUID | None = None) -> None:
        async def send(call: UUID) -> tuple[list[UUID], dict[str, Any]]:
            run = await self.fl.fan_out(
                scenario.STEP,
                [{"call": str(call), "n": n} for n in (1, 2, 3)],
                tenant=ACME,
                join=scenario.JOIN,
                payload={"call": str(call), "n": 0, "outs": "{{steps.tasks.output}}"},
                key=str(call),
                correlation_id=str(call),
            )
            return [run.id], {}

        what = {"shape": "fan_out", "tasks": 3, "jobs": 4}
        await self._call("run", what, send, name=name, repeat_of=repeat_of)

    async def change(self, kind: str, name: str, job_id: UUID) -> None:
        """Cancel or retry a job."""

        async def send(_call: UUID) -> tuple[list[UUID], dict[str, Any]]:
            act = self.fl.cancel if kind == "cancel" else self.fl.retry
            job = await act(job_id)
            return [job_id], {"status": job.status}

        await self._call(kind, {"job": job_id}, send, name=name)

    async def set_secret(self, name: str, number: int) -> None:
        """Give the secret of a tenant another value."""

        async def send(_call: UUID) -> tuple[list[UUID], dict[str, Any]]:
            set_secret(self.secrets, ACME, number)
            return [], {}

        await self._call("secret", {"owner": ACME, "number": number}, send, name=name)

    async def edit(self, name: str, job_id: UUID, number: int) -> None:
        """Edit a waiting job."""
        job = await self.fl.read(job_id)

        async def send(_call: UUID) -> tuple[list[UUID], dict[str, Any]]:
            await self.fl.edit(job_id, payload={**job.payload, "edit": number})
            return [job_id], {}

        await self._call("edit", {"job": job_id, "edit": number}, send, name=name)

    async def backfill(self) -> None:
        """Backfill a schedule that has fired nothing yet."""
        since = datetime.now(UTC) - timedelta(seconds=5 * PLAN.clock_seconds)

        async def send(_call: UUID) -> tuple[list[UUID], dict[str, Any]]:
            done = await self.fl.backfill(PLAN.schedules[0], since, tenant=ACME)
            return [], {"enqueued": done.enqueued}

        await self._call("backfill", {"schedule": PLAN.schedules[0]}, send)

    async def enqueue_for(self, name: str, definition: str, customer: str) -> UUID:
        """Enqueue a job that its key limits."""
        [job_id] = await self.enqueue(name, {"definition": definition, "plan": {"customer": customer}})
        return job_id

    # the workers and the watchdog

    async def lose(self, *, worker: str, pid: int, wanted: int, alone: bool = False) -> list[UUID]:
        """A worker takes jobs, and is killed before it ends them; the watchdog finds them."""

        async def claim(tx: Tx) -> Claim:
            if alone:
                return await queue.claim_suspect(tx, worker=worker, lease_seconds=5)
            return await queue.claim(tx, worker=worker, wanted=wanted, lease_seconds=5)

        await self.fl.database.transact(make_all_due)
        await self.fl.database.transact(queue.stage_due)
        taken = await self.fl.database.transact(claim)
        for job in taken.jobs:
            self.write(StartRecord(now(), job.job_id, job.attempt_no, job.terms.key, pid))
        killed_at = now()
        await self.fl.database.transact(_expire)
        await self.fl.database.transact(lambda tx: rescue.rescue(tx, lease_seconds=5))
        self.write(FaultRecord(killed_at, now(), "kill_worker", worker, [pid]))
        return [job.job_id for job in taken.jobs]

    async def run_on_host(self) -> None:
        """The agent's jobs, one after the other."""
        for _ in range(2):
            async with self.fl.database.transaction() as tx:
                taken = await queue.claim(
                    tx, worker=f"agent:{self.ids['host']}:1", wanted=5, lease_seconds=5, host=self.ids["host"]
                )
                [job] = taken.jobs
                self.write(StartRecord(now(), job.job_id, job.attempt_no, job.terms.key, 1))
                self.write(EndRecord(now(), job.job_id, job.attempt_no, "succeeded"))
                change = Change(status=JobStatus.SUCCEEDED, attempt_status="succeeded", cost_cents=1)
                await queue.finish(tx, [(taken.lease(job), change)], actor="agent")

    async def run_labeled(self) -> None:
        """The worker with the label takes the job that needs it."""
        taken = await self.fl.database.transact(
            lambda tx: queue.claim(
                tx, worker=f"here:{os.getpid()}:labeled", wanted=1, lease_seconds=60, labels=scenario.LABEL
            )
        )
        [job] = taken.jobs
        self.write(StartRecord(now(), job.job_id, job.attempt_no, job.terms.key, os.getpid()))
        self.write(EndRecord(now(), job.job_id, job.attempt_no, "succeeded"))
        change = Change(status=JobStatus.SUCCEEDED, attempt_status="succeeded")
        await self.fl.database.transact(
            lambda tx: queue.finish(tx, [(taken.lease(job), change)], actor="worker")
        )

    async def sample(self) -> None:
        rows = await self.fl.database.transact(lambda tx: tx.values(SAMPLE))
        self.write(SampleRecord(now(), dict(rows)))


def _requests(asked: Iterable[dict[str, Any]], tenant: str, call: UUID) -> list[NewJob]:
    return [
        NewJob(
            id=job["id"],
            definition=job["definition"],
            tenant=tenant,
            payload=_build_payload(call, n, job),
            dedupe_key=job.get("dedupe_key"),
            correlation_id=str(call),
            host_id=job.get("host"),
            expires_in=job.get("expires_in"),
            unique_for=job.get("unique_for"),
            debounce=job.get("debounce"),
        )
        for n, job in enumerate(asked)
    ]


def _build_payload(call: UUID, n: int, job: dict[str, Any]) -> dict[str, Any]:
    own = {"token": build_secret(f"{call}/{n}", 0)} if job["definition"] == scenario.SECRET else {}
    return {"call": str(call), "n": n, **own, **job["plan"]}


async def _expire(tx: Tx) -> None:
    await tx.run("update fairlead.leases set expires_at = clock_timestamp() - interval '1 s'")
