"""What happens in the played run."""

import os
from datetime import timedelta
from uuid import UUID

from uuid_utils.compat import uuid7

from fairlead.actions import encryption, hosts
from fairlead.chaos import scenario
from fairlead.chaos.history import (
    AnswerRecord,
    BatchRecord,
    CallRecord,
    EndRecord,
    FaultRecord,
    PhaseRecord,
    ProcessRecord,
    StartRecord,
    now,
)
from fairlead.chaos.load.commits import create_commits_table
from fairlead.chaos.load.secret_values import name_secret
from fairlead.db.tx import Tx
from fairlead.model.job import Debounce, JobStatus, Lease
from fairlead.model.log import NewChunk
from fairlead.model.outcome import Change
from fairlead.store import logs, queue
from fairlead.store import triggers as stored_triggers
from fairlead.testing import run_due
from tests import given
from tests.chaos.checks.played_run import ACME, CREATE_ORDERS, GLOBEX, KILLED, PLAN, REPLACED, PlayedRun


async def install(run: PlayedRun) -> None:
    """Tenants, definitions, triggers, a host, and the table of the client's own."""
    fl = run.fl
    await fl.database.transact(lambda tx: encryption.enable(tx, given.TESTER))
    await fl.add_tenant(GLOBEX, max_running=PLAN.tenant_limits[GLOBEX])
    async with fl.database.transaction() as tx:
        await tx.run(CREATE_ORDERS)
        await create_commits_table(tx)
        [(acme,)] = await tx.values("select id from fairlead.tenants where slug = %s", [ACME])
        host = await hosts.add(tx, given.TESTER, tenant_id=acme, name=PLAN.host, max_running=PLAN.host_limit)
        run.ids["host"] = host.id
        start = await stored_triggers.read_clock(tx) - timedelta(seconds=5 * PLAN.clock_seconds)
        for tenant in PLAN.tenants:
            for label in PLAN.schedules:
                schedule = await given.trigger(
                    tx,
                    tenant=tenant,
                    label=label,
                    every_seconds=PLAN.clock_seconds,
                    start_at=start,
                    catch_up="all",
                    definition_key=scenario.ON_TIME,
                )
                await given.behind(tx, schedule, start)
            await given.trigger(
                tx,
                tenant=tenant,
                label=PLAN.event_trigger,
                event_name=PLAN.event_type,
                dedupe_window_seconds=0,
                payload_template={"call": "{{event.call}}", "n": "{{event.n}}"},
                definition_key=scenario.ON_EVENT,
            )


async def play(run: PlayedRun) -> None:
    """The run itself."""
    started_at = now()
    run.write(PhaseRecord(started_at, "load"))
    run.write(
        ProcessRecord(started_at, "worker-1", "worker", REPLACED),
        ProcessRecord(started_at, "worker-2", "worker", os.getpid()),
    )
    [first] = await run.enqueue("poison", {"definition": scenario.POISON})
    for n in range(3):
        lost = await run.lose(worker=f"here:{KILLED + n}:boot", pid=KILLED + n, wanted=1, alone=n == 2)
        assert lost == [first]
    await run.enqueue("beside", {"definition": scenario.QUICK}, {"definition": scenario.QUICK})
    assert len(await run.lose(worker=f"here:{REPLACED}:again", pid=REPLACED, wanted=2)) == 2
    run.write(ProcessRecord(now(), "worker-1", "worker", REPLACED + 1))
    await run.enqueue("single", {"definition": scenario.QUICK})
    await run.enqueue("bulk", *({"definition": scenario.QUICK} for _ in range(3)))
    await run.enqueue("flaky", {"definition": scenario.FLAKY, "plan": {"fail": 1}})
    await run.enqueue("exhausted", {"definition": scenario.FLAKY, "plan": {"fail": 9}})
    await run.enqueue("unanswered", {"definition": scenario.QUICK}, lose_answer=True)
    await run.enqueue("keyed", {"definition": scenario.QUICK, "dedupe_key": "k"})
    await run.enqueue("duplicate", {"definition": scenario.QUICK, "dedupe_key": "k"})
    await run.enqueue(
        "mixed", {"definition": scenario.QUICK, "dedupe_key": "m"}, {"definition": scenario.QUICK}
    )
    await run.enqueue("narrow", *({"definition": scenario.NARROW} for _ in range(3)))
    await run.enqueue("slow", *({"definition": scenario.SLOW} for _ in range(4)))
    await run.enqueue("other", *({"definition": scenario.QUICK} for _ in range(5)), tenant=GLOBEX)
    await run.enqueue(
        "host", *({"definition": scenario.HOST_COMMAND, "host": run.ids["host"]} for _ in range(2))
    )
    await run.order("order")
    await run.order("rolled back", rollback=True)
    await run.emit("emit")
    await run.run_workflow()
    await run.run_workflow("run again", repeat_of=run.ids["call run"])
    [fatal] = await run.enqueue("fatal", {"definition": scenario.FATAL})
    [canceled] = await run.enqueue("canceled", {"definition": scenario.QUICK})
    await run.change("cancel", "cancel", canceled)
    await run.run_on_host()
    await run.backfill()
    await run_due(run.fl, until_idle=True)
    await run.change("retry", "retry", fatal)
    await run_due(run.fl, until_idle=True)
    await run_limited(run)
    await stop_for_younger(run)
    await run_timed(run)
    await run_placed(run)
    await run_secret(run)
    await run.enqueue("after", {"definition": scenario.QUICK, "dedupe_key": "k"})
    await run_due(run.fl, until_idle=True)
    await run.run_functions()
    attack = UUID(str(uuid7()))
    run.ids["call attack"] = attack
    run.write(
        CallRecord(now(), attack, "attack", scenario.HOSTILE, {"attack": "another tenant's job"}),
        AnswerRecord(now(), attack, "fail", code="job_unknown"),
    )
    run.write(FaultRecord(now(), now(), "upgrade", "all processes", [REPLACED]))
    run.write(PhaseRecord(now(), "faults"), PhaseRecord(now(), "drain"), PhaseRecord(now(), "check"))


async def run_limited(run: PlayedRun) -> None:
    """Jobs within rates, and jobs of the same and of other keys; each strategy has something to do."""
    for number, customer in enumerate(("c1", "c1", "c2")):
        await run.enqueue_for(f"line {number}", scenario.LINE, customer)
        await run.enqueue_for(f"paired {number}", scenario.PAIRED, "c1")
    await run.enqueue_for("paced", scenario.PACED, "c1")
    await run.enqueue("rated", *({"definition": scenario.RATED} for _ in range(2)))
    await run.enqueue("costly", {"definition": scenario.COSTLY, "plan": {"cost": 20}})
    kept = await run.enqueue_for("kept", scenario.DROP_NEW, "c1")
    assert await run.enqueue_for("dropped", scenario.DROP_NEW, "c1") == kept
    await run.enqueue_for("replaced", scenario.REPLACE_QUEUED, "c1")
    await run.enqueue_for("replacing", scenario.REPLACE_QUEUED, "c1")
    await run_due(run.fl, until_idle=True)
    assert await run.enqueue_for("kept later", scenario.DROP_NEW, "c1") != kept
    await run_due(run.fl, until_idle=True)


async def stop_for_younger(run: PlayedRun) -> None:
    """A worker is asked to stop a job, since a younger one of its key has come, and does so."""
    stopped = await run.enqueue_for("stopped", scenario.CANCEL_RUNNING, "c1")
    taken = await run.fl.database.transact(
        lambda tx: queue.claim(tx, worker="here:1:stopping", wanted=5, lease_seconds=60)
    )
    [job] = taken.jobs
    assert job.job_id == stopped
    run.write(StartRecord(now(), job.job_id, job.attempt_no, job.terms.key, os.getpid()))
    await run.enqueue_for("stopping", scenario.CANCEL_RUNNING, "c1")
    await run.fl.database.transact(lambda tx: _report(tx, taken.lease(job), job.tenant_id))
    run.write(EndRecord(now(), job.job_id, job.attempt_no, "canceled"))
    change = Change(status=JobStatus.CANCELED, attempt_status="canceled")
    await run.fl.database.transact(lambda tx: queue.finish(tx, [(taken.lease(job), change)], actor="worker"))
    await run_due(run.fl, until_idle=True)


async def _report(tx: Tx, lease: Lease, tenant_id: UUID) -> None:
    """What an attempt that lasts stores before its end."""
    await queue.store_progress(tx, [(lease, 50, f"attempt {lease.attempt_no}")])
    await logs.append(tx, lease, tenant_id, [NewChunk(1, "stdout", "a line")])


async def run_placed(run: PlayedRun) -> None:
    """Jobs of a batch, jobs for certain workers, jobs that end in a transaction, and edited ones."""
    await run.enqueue("labeled", {"definition": scenario.LABELED})
    await run.run_labeled()
    await run.enqueue("committed", {"definition": scenario.COMMITTED})
    await run.enqueue("wide", *({"definition": scenario.WIDE} for _ in range(3)))
    batch = await run.enqueue("batched", *({"definition": scenario.BATCHED} for _ in range(2)))
    run.write(BatchRecord(now(), batch))
    [edited] = await run.enqueue("edited", {"definition": scenario.QUICK, "plan": {"edit": 0}})
    await run.edit("edit", edited, 1)
    await run_due(run.fl, until_idle=True)
    await run.edit("late edit", edited, 2)


async def run_secret(run: PlayedRun) -> None:
    """Jobs with a secret of their own, and jobs that refer to one, which is changed between them."""
    await run.enqueue("secret", {"definition": scenario.SECRET})
    for number in (1, 2):
        await run.set_secret(f"set {number}", number)
        refers = {"definition": scenario.SECRET, "plan": {"token": name_secret(ACME)}}
        await run.enqueue(f"refers {number}", refers)
        await run_due(run.fl, until_idle=True)


async def run_timed(run: PlayedRun) -> None:
    """Jobs that are put off, that have to start in time, and whose keys stay taken."""
    debounced = {"definition": scenario.SETTLED, "debounce": Debounce(key="d", seconds=0.2, max_seconds=2.0)}
    [settled] = await run.enqueue("settled", debounced)
    assert await run.enqueue("put off", debounced) == [settled]
    unique = {"definition": scenario.QUICK, "dedupe_key": "u", "unique_for": 3600.0}
    taken = await run.enqueue("unique", unique)
    await run.enqueue("in time", {"definition": scenario.QUICK, "expires_in": 3600.0})
    await run_due(run.fl, until_idle=True)
    assert await run.enqueue("settled later", debounced) != [settled]
    assert await run.enqueue("unique again", unique) == taken
    await run.enqueue("expired", {"definition": scenario.QUICK, "expires_in": 0.3})
    await given.expire_jobs(run.fl.database)
    await run_due(run.fl, until_idle=True)
