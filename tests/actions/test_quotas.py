"""Quotas: every way in meets them, and what does not fit is refused whole, with the quota's name."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest

from fairlead import Fairlead, Flow, JobStatus
from fairlead.actions import access, bulk_jobs, definitions, quotas, tenants, triggers
from fairlead.actions.dispatch import dispatch
from fairlead.actions.jobs import JobFilter
from fairlead.db.tx import Tx
from fairlead.errors import InvalidInput, QueueFull, QuotaExceeded
from fairlead.model.access import Role
from fairlead.model.quota import Quota
from fairlead.model.trigger import FiringOutcome
from fairlead.store import firings, queue
from fairlead.store import quotas as stored
from tests import given
from tests.given import OTHER, TENANT, TESTER
from tests.runs import ANY, begun, claimed, published, states, step_of, succeeded


async def allow(fl: Fairlead, **numbers: int | None) -> None:
    await fl.database.transact(lambda tx: tenants.change(tx, TESTER, TENANT, {"quotas": numbers}))


async def queued(fl: Fairlead) -> int:
    [(number,)] = await fl.database.transact(
        lambda tx: tx.values("select count(*) from fairlead.jobs where status = 'queued'")
    )
    return int(number)


async def enqueue(fl: Fairlead, number: int = 1, **options: Any) -> None:
    for _ in range(number):
        await fl.enqueue(ANY, tenant=TENANT, **options)


# Queued jobs


async def test_one_by_one_no_more_jobs_wait_than_may(fl: Fairlead) -> None:
    await enqueue(fl)  # an earlier count, which says that there is a lot of room, is not relied on
    await allow(fl, queued_jobs=3)
    await enqueue(fl, 2)

    with pytest.raises(QueueFull) as refusal:
        await enqueue(fl)

    assert "has 3 queued jobs; the quota queued_jobs is 3" in refusal.value.message
    assert refusal.value.faults[0].path == "queued_jobs"
    await fl.enqueue(ANY, tenant=OTHER)
    [lease] = await fl.claim(1)
    await lease.succeed()
    await enqueue(fl)  # whoever has run leaves room


async def test_a_load_fits_or_nothing_of_it_is_enqueued(fl: Fairlead) -> None:
    await enqueue(fl)
    await allow(fl, queued_jobs=5)
    load = [given.request(definition=ANY) for _ in range(5)]

    with pytest.raises(QueueFull, match="and 5 more were requested"):
        await fl.enqueue_many(load)

    assert await queued(fl) == 1
    await fl.enqueue_many(load[:4])
    assert await queued(fl) == 5


async def test_a_load_that_fills_the_queue_ends_the_trust_in_an_earlier_count(fl: Fairlead) -> None:
    await allow(fl, queued_jobs=5000)
    await enqueue(
        fl
    )  # from now on single jobs are let in without counting, for as long as there is a lot of room

    await fl.enqueue_many([given.request(definition=ANY) for _ in range(4999)])

    with pytest.raises(QueueFull):
        await enqueue(fl)


async def test_a_job_that_another_stands_for_takes_no_room(fl: Fairlead) -> None:
    await allow(fl, queued_jobs=1)
    first = await fl.enqueue(ANY, tenant=TENANT, dedupe_key="k")

    again = await fl.enqueue(ANY, tenant=TENANT, dedupe_key="k")

    assert (again.id, again.deduplicated) == (first.id, True)


async def test_the_callers_transaction_is_refused_whole(fl: Fairlead, database_url: str) -> None:
    await allow(fl, queued_jobs=2)
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        with pytest.raises(QueueFull):
            await fl.enqueue_many([given.request(definition=ANY) for _ in range(3)], tx=connection)
        await fl.enqueue(ANY, tenant=TENANT, tx=connection)
        await connection.commit()

    assert await queued(fl) == 1


async def test_jobs_that_a_limit_holds_back_count_as_queued(tx: Tx) -> None:
    await definitions.patch(tx, given.TESTER, "greet", {"by_key": {"pointer": "/name", "max_running": 1}})
    await tenants.change(tx, given.TESTER, given.TENANT, {"quotas": {"queued_jobs": 2}})
    for _ in range(3):  # one runs, two are held back
        await given.queued_job(tx)
        await queue.claim(tx, worker="w", wanted=10, lease_seconds=600)
    assert await given.count(tx, "ready") == 0
    with pytest.raises(QueueFull):
        await given.queued_job(tx)


async def test_a_step_for_each_item_that_does_not_fit_fails_and_makes_no_job(fl: Fairlead) -> None:
    flow = Flow("wide")
    first = flow.step("first", ANY)
    flow.step("many", ANY, {"n": "{{item}}"}, for_each="{{input.items}}", after=[first])
    run = await begun(fl, flow, input={"items": list(range(500))})
    await allow(fl, queued_jobs=50)

    await (await claimed(fl))["first"].succeed()

    assert await states(run) == {"first": "succeeded", "many": "failed"}
    assert (await step_of(run, "many")).error["code"] == "queue_full"
    assert "500 more were requested" in (await run.read()).run.error["message"]
    assert await queued(fl) == 0
    await allow(fl, queued_jobs=500)
    await run.retry()
    assert await queued(fl) == 500


async def test_of_steps_that_are_free_together_those_begin_that_fit(fl: Fairlead) -> None:
    flow = Flow("beside")
    flow.step("one", ANY, on_failure="continue")
    flow.step("many", ANY, for_each=list(range(5)), on_failure="continue")
    flow.step("other", ANY, on_failure="continue")
    await allow(fl, queued_jobs=3)

    run = await begun(fl, flow)

    assert await states(run) == {"one": "running", "many": "failed", "other": "running"}


async def test_a_trigger_that_meets_a_full_queue_records_why_and_holds_up_nobody(tx: Tx) -> None:
    full = await given.trigger(tx)
    other = await given.trigger(tx, tenant=OTHER)
    await tenants.change(tx, TESTER, TENANT, {"quotas": {"queued_jobs": 1}})
    await given.queued_job(tx)
    for tenant in (TENANT, OTHER):
        await given.event(tx, tenant=tenant, data={"id": 1})

    assert await dispatch(tx, given.catalog(), limit=10) == 2

    [refused] = await firings.list_page(tx, full.id, outcome=None, before=None, limit=10)
    [fired] = await firings.list_page(tx, other.id, outcome=None, before=None, limit=10)
    assert (refused.outcome, refused.reason, refused.job_id) == (FiringOutcome.FAILED, "queue_full", None)
    assert "the quota queued_jobs is 1" in str(refused.detail)
    assert fired.outcome is FiringOutcome.ENQUEUED


# Jobs of a run


@pytest.mark.thorough
async def test_a_workflow_that_runs_itself_stops_at_its_quota(fl: Fairlead) -> None:
    flow = fl.workflow("itself")
    flow.step("again", "ENGINE_RUN", {"workflow": "itself"}, for_each=list(range(10)))
    await published(fl)
    await allow(fl, run_jobs=100)
    run = await fl.start("itself", tenant=TENANT)

    while (await fl.tick()).ran:
        pass

    assert (
        100 <= await given.count(fl, "jobs") < 200
    )  # runs that start at the same moment do not see each other's jobs
    assert (await run.read()).run.status == "failed"
    [(refused,)] = await fl.database.transact(
        lambda tx: tx.values(
            "select count(*) from fairlead.workflow_steps where error ->> 'code' = 'quota_exceeded'"
        )
    )
    assert refused > 0


@pytest.mark.parametrize("together", [False, True])
async def test_jobs_that_a_step_enqueues_count_for_its_run_and_so_do_theirs(
    fl: Fairlead, *, together: bool
) -> None:
    flow = Flow("w")
    flow.step("a", ANY)
    await allow(fl, run_jobs=3)
    await begun(fl, flow)
    parent = (await claimed(fl))["a"].job_id
    for _ in range(2):  # a child, and the child's
        parent = await child_of(fl, parent, together=together)

    with pytest.raises(QuotaExceeded, match="has 3 jobs"):
        await child_of(fl, parent, together=together)


async def child_of(fl: Fairlead, parent: UUID, *, together: bool) -> UUID:
    new = given.request(definition=ANY, parent_id=parent)
    if together:
        await fl.enqueue_many([new])
    else:
        await fl.submit(new)
    return new.id


async def test_the_counts_of_a_run_are_folded(fl: Fairlead) -> None:
    flow = Flow("w")
    flow.step("a", ANY)
    run = await begun(fl, flow)
    parent = (await claimed(fl))["a"].job_id

    for _ in range(120):
        await child_of(fl, parent, together=False)

    [(rows, jobs)] = await fl.database.transact(
        lambda tx: tx.values(
            "select count(*), sum(jobs) from fairlead.run_jobs where root_run_id = %s", [run.id]
        )
    )
    assert jobs == 121
    assert rows < 101


# Triggers, tokens, bytes


async def test_one_trigger_more_than_may_be_is_refused(tx: Tx) -> None:
    await tenants.change(tx, TESTER, TENANT, {"quotas": {"triggers": 1}})
    first = await given.trigger(tx)

    with pytest.raises(QuotaExceeded, match="has 1 triggers; the quota triggers is 1"):
        await given.trigger(tx)

    await given.trigger(tx, tenant=OTHER)
    await triggers.remove(tx, TESTER, first.id)
    await given.trigger(tx)


async def test_one_token_more_than_may_be_valid_is_refused(tx: Tx) -> None:
    tenant = await tenants.change(tx, TESTER, TENANT, {"quotas": {"tokens": 1}})

    async def make() -> UUID:
        made = await access.create_token(tx, TESTER, name="t", role=Role.VIEWER, tenant_id=tenant.id)
        return made.token.id

    first = await make()
    with pytest.raises(QuotaExceeded, match="quota tokens is 1"):
        await make()
    await access.revoke_token(tx, TESTER, first)
    await make()


async def measured(fl: Fairlead) -> None:
    await fl.database.transact(lambda tx: stored.measure_bytes(tx, place=None, limit=100))


async def test_a_tenant_whose_jobs_take_too_many_bytes_enqueues_no_more(fl: Fairlead) -> None:
    noise = "".join(str(hash((n, "noise"))) for n in range(1000))
    await enqueue(fl, 10, payload={"text": noise})
    await measured(fl)
    [use] = [one for one in await uses(fl) if one.quota is Quota.STORED_BYTES]
    assert use.used is not None
    assert 20_000 < use.used < 400_000

    await allow(fl, stored_bytes=use.used)

    with pytest.raises(QuotaExceeded, match="quota stored_bytes"):
        await enqueue(fl)
    await fl.enqueue(ANY, tenant=OTHER)


async def test_what_is_measured_ends_the_trust_in_an_earlier_count(fl: Fairlead) -> None:
    await allow(fl, stored_bytes=1)
    await enqueue(fl)
    await measured(fl)

    with pytest.raises(QuotaExceeded):
        await enqueue(fl)


# What is used, and what is allowed


async def uses(fl: Fairlead) -> Sequence[Any]:
    async with fl.transaction() as tx:
        tenant = await tenants.find(tx, TESTER, TENANT)
        assert tenant is not None
        return await quotas.list_uses(tx, TESTER, tenant.id)


async def test_quotas_are_the_settings_until_a_tenant_has_its_own(fl: Fairlead) -> None:
    await enqueue(fl, 2)
    await allow(fl, queued_jobs=7, tokens=0)

    found = {one.quota: one for one in await uses(fl)}

    assert (found[Quota.QUEUED_JOBS].used, found[Quota.QUEUED_JOBS].allowed) == (2, 7)
    assert found[Quota.QUEUED_JOBS].is_own
    assert found[Quota.TOKENS].allowed is None
    assert found[Quota.TRIGGERS].allowed == fl.settings.max_triggers_per_tenant
    await allow(fl, queued_jobs=None)
    assert (await uses(fl))[0].allowed == fl.settings.max_queued_per_tenant


@pytest.mark.parametrize("quotas", [{"jobs": 1}, {"tokens": -1}, {"tokens": 1.5}, {"tokens": True}])
async def test_what_is_no_quota_is_refused(tx: Tx, quotas: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"Invalid quota: quotas\."):
        await tenants.change(tx, TESTER, TENANT, {"quotas": quotas})


async def test_jobs_run_on_in_a_full_queue(fl: Fairlead) -> None:
    await enqueue(fl, 2)
    await allow(fl, queued_jobs=1)

    [lease] = await fl.claim(1)
    await lease.fail("again", retryable=True)  # goes back to the queue, which is none of the quota's business

    assert (await fl.read(lease.job_id)).status is JobStatus.QUEUED
    await succeeded(fl)


# Retries


async def failed(fl: Fairlead, number: int, *, tenant: str = TENANT) -> list[UUID]:
    """Jobs that failed for good."""
    made = []
    for _ in range(number):
        await fl.enqueue(ANY, tenant=tenant)
        [lease] = await fl.claim(1)
        await lease.fail("no", retryable=False)
        made.append(lease.job_id)
    return made


async def test_a_retry_that_does_not_fit_is_refused_and_leaves_the_job_as_it_was(fl: Fairlead) -> None:
    [job_id] = await failed(fl, 1)
    await enqueue(fl, 2)
    await allow(fl, queued_jobs=2)

    with pytest.raises(QueueFull) as refusal:
        await fl.retry(job_id)

    assert "has 2 queued jobs; the quota queued_jobs is 2" in refusal.value.message
    assert (await fl.read(job_id)).status is JobStatus.FAILED
    await allow(fl, queued_jobs=3)
    assert (await fl.retry(job_id)).status is JobStatus.QUEUED


async def test_a_retry_of_many_fits_or_none_of_them_is_queued(fl: Fairlead) -> None:
    ids = await failed(fl, 3)
    wanted = JobFilter(tenant=TENANT, status=[JobStatus.FAILED])
    await allow(fl, queued_jobs=2)

    for work in (
        lambda tx: bulk_jobs.retry(tx, TESTER, wanted),
        lambda tx: bulk_jobs.retry_chosen(tx, TESTER, ids, told={}),
    ):
        with pytest.raises(QueueFull, match="and 3 more were requested; the quota queued_jobs is 2"):
            await fl.database.transact(work)

    assert await queued(fl) == 0
    some = await fl.database.transact(lambda tx: bulk_jobs.retry(tx, TESTER, wanted, limit=2))
    assert (some.count, await queued(fl)) == (2, 2)


async def test_a_retry_over_all_tenants_passes_by_those_that_are_full(fl: Fairlead) -> None:
    await failed(fl, 2)
    await failed(fl, 1, tenant=OTHER)
    await allow(fl, queued_jobs=1)

    did = await fl.database.transact(
        lambda tx: bulk_jobs.retry(tx, TESTER, JobFilter(status=[JobStatus.FAILED]))
    )

    assert (did.count, did.skipped, did.reasons) == (1, 2, {"quota_full": 2})


async def test_a_retry_of_a_run_that_does_not_fit_is_refused(fl: Fairlead) -> None:
    flow = Flow("one")
    flow.step("a", ANY, {})
    run = await begun(fl, flow)
    [lease] = await fl.claim(1)
    await lease.fail("no", retryable=False)
    await enqueue(fl)
    await allow(fl, queued_jobs=1)

    with pytest.raises(QueueFull):
        await fl.retry_run(run.id)

    assert await queued(fl) == 1
    await allow(fl, queued_jobs=2)
    await fl.retry_run(run.id)
    assert await queued(fl) == 2


# Schedules from code


async def test_a_schedule_that_is_registered_is_held_to_the_quota_and_one_in_code_is_not(
    fl: Fairlead,
) -> None:
    async def tick() -> None: ...

    start = datetime(2030, 1, 1, tzinfo=UTC)
    first = await fl.register(TENANT, "first", start, 60, tick)
    await allow(fl, triggers=1)

    with pytest.raises(QuotaExceeded, match="the quota triggers is 1"):
        await fl.register(TENANT, "second", start, 60, tick)
    async with Fairlead(settings=fl.settings) as restarted:
        assert (await restarted.register(TENANT, "first", start, 60, tick)).id == first.id

    @fl.every(60, tenant=TENANT)
    async def in_code() -> None: ...

    await published(fl)
    [kept] = await fl.sync_schedules()
    assert kept.definition_key == in_code.key
