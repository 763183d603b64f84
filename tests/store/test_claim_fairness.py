"""Tenants take turns, by weight, whatever the batch."""

from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from fairlead.db.tx import Tx
from fairlead.store import jobs, queue
from fairlead.store.queue import Claimed, Cursor
from tests.given import OTHER, TENANT


class Worker:
    """Claims with a cursor of its own."""

    def __init__(self, tx: Tx, **options: Any) -> None:
        self.tx = tx
        self.options = options
        self.cursor = Cursor()

    async def take(self, wanted: int) -> list[Claimed]:
        claim = await queue.claim(
            self.tx, worker="w", wanted=wanted, lease_seconds=30, cursor=self.cursor, **self.options
        )
        self.cursor = claim.cursor
        return claim.jobs


async def add_tenants(tx: Tx, number: int) -> list[str]:
    slugs = [f"small-{n}" for n in range(number)]
    await tx.run("insert into fairlead.tenants (slug, name) select s, s from unnest(%s::text[]) s", [slugs])
    return slugs


async def fill(
    tx: Tx,
    tenant: str,
    number: int,
    *,
    definition: str = "greet",
    place: str = "ready",
    host: UUID | None = None,
) -> None:
    """Many jobs at once, as an enqueue would leave them: in ready, in later, or over."""
    moment = "clock_timestamp()" + (" + interval '1 day'" if place == "later" else "")
    ended = "clock_timestamp()" if place == "ended" else "null"
    status = "succeeded" if place == "ended" else "queued"
    await tx.run(
        f"""
        with new as (
            insert into fairlead.job_records (
                id, tenant_id, definition_id, priority, max_attempts, scheduled_for, payload, status, finished_at,
                host_id)
            select fairlead.uuid7(), t.id, d.id, 100, 3, {moment}, '{{}}', '{status}', {ended}, %(host)s
            from fairlead.tenants t, fairlead.job_definitions d, generate_series(1, %(number)s)
            where t.slug = %(tenant)s and d.key = %(definition)s
            returning id, tenant_id, definition_id, priority, scheduled_for, host_id
        ), into_ready as (
            insert into fairlead.ready (job_id, tenant_id, definition_id, priority, scheduled_for, host_id)
            select * from new where %(place)s = 'ready'
        ), into_later as (
            insert into fairlead.later (job_id, tenant_id, definition_id, priority, due_at, host_id)
            select * from new where %(place)s = 'later'
        )
        insert into fairlead.counts (tenant_id, definition_id, minute, queued, succeeded)
        select tenant_id, definition_id, date_trunc('minute', now()),
            count(*) filter (where %(place)s <> 'ended'), count(*) filter (where %(place)s = 'ended')
        from new group by 1, 2
        """,
        {"tenant": tenant, "number": number, "definition": definition, "place": place, "host": host},
    )


async def weigh(tx: Tx, tenant: str, weight: int) -> None:
    await tx.run("update fairlead.tenants set weight = %s where slug = %s", [weight, tenant])


@pytest.mark.parametrize(("batch", "workers"), [(1, 1), (1, 3), (10, 1), (100, 2)])
async def test_a_flood_delays_fifty_small_tenants_by_two_rounds_at_most(
    tx: Tx, batch: int, workers: int
) -> None:
    await fill(tx, TENANT, 3000)
    crew = [Worker(tx) for _ in range(workers)]
    for worker in crew:
        assert len(await worker.take(batch)) == batch
    small = await add_tenants(tx, 50)
    for slug in small:
        await fill(tx, slug, 1)

    taken = Counter[str]()
    while not taken.keys() >= set(small):
        for worker in crew:
            taken.update(job.tenant for job in await worker.take(batch))
        # two rounds' worth of the flood for each worker, whether a round is a claim or a turn
        assert taken[TENANT] <= 2 * workers * batch
    assert await jobs.list_inconsistencies(tx) == []


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("batch", [1, 7, 100])
async def test_shares_follow_the_weights(tx: Tx, batch: int, workers: int) -> None:
    for tenant in (TENANT, OTHER):
        await fill(tx, tenant, 2000)
    await weigh(tx, OTHER, 3)
    crew = [Worker(tx) for _ in range(workers)]

    taken = Counter[str]()
    while sum(taken.values()) < 400:
        for worker in crew:
            claimed = await worker.take(batch)
            assert len(claimed) == batch
            taken.update(job.tenant for job in claimed)

    assert taken[TENANT] / sum(taken.values()) == pytest.approx(1 / 4, rel=0.1)
    assert await jobs.list_inconsistencies(tx) == []


@pytest.mark.parametrize("batch", [1, 3, 50])
async def test_shares_follow_the_weights_with_several_definitions_each(tx: Tx, batch: int) -> None:
    for tenant in (TENANT, OTHER):
        for definition in ("greet", "anything"):
            await fill(tx, tenant, 500, definition=definition)
    await weigh(tx, TENANT, 2)
    worker = Worker(tx)

    taken = Counter[str]()
    while sum(taken.values()) < 300:
        taken.update(job.tenant for job in await worker.take(batch))

    assert taken[TENANT] / sum(taken.values()) == pytest.approx(2 / 3, rel=0.1)


async def test_a_lone_tenant_gets_everything(tx: Tx) -> None:
    await weigh(tx, TENANT, 2)
    await fill(tx, TENANT, 250)
    worker = Worker(tx)
    assert [len(await worker.take(100)) for _ in range(4)] == [100, 100, 50, 0]


async def test_what_small_tenants_leave_goes_to_the_others(tx: Tx) -> None:
    for slug in await add_tenants(tx, 5):
        await fill(tx, slug, 1)
    await fill(tx, TENANT, 100)
    worker = Worker(tx)
    taken = 0
    for _ in range(3):
        taken += len(await worker.take(50))
    assert taken == 105


async def test_nobody_gets_a_second_turn_before_all_had_one(tx: Tx) -> None:
    slugs = [TENANT, OTHER, *await add_tenants(tx, 10)]
    for slug in slugs:
        await fill(tx, slug, 3)
    worker = Worker(tx)

    order = [(await worker.take(1))[0].tenant for _ in range(36)]

    for turn in (order[:12], order[12:24], order[24:]):
        assert sorted(turn) == sorted(slugs)
    assert await worker.take(1) == []


async def test_a_turn_goes_on_across_claims_of_one(tx: Tx) -> None:
    await weigh(tx, OTHER, 3)
    for tenant in (TENANT, OTHER):
        await fill(tx, tenant, 20)
    worker = Worker(tx)

    order = [(await worker.take(1))[0].tenant for _ in range(16)]

    assert order[:4].count(OTHER) == 3
    assert order == order[:4] * 4
    assert order[:4] in ([TENANT] + [OTHER] * 3, [OTHER] * 3 + [TENANT])


async def test_a_weight_that_was_lowered_ends_a_turn_that_is_longer(tx: Tx) -> None:
    await weigh(tx, OTHER, 1000)
    for tenant in (TENANT, OTHER):
        await fill(tx, tenant, 20)
    worker = Worker(tx)
    while (await worker.take(1))[0].tenant != OTHER:
        pass
    await weigh(tx, OTHER, 1)
    assert TENANT in {(await worker.take(1))[0].tenant for _ in range(2)}


async def test_tenants_take_turns_in_a_definition_that_is_limited(tx: Tx) -> None:
    """Age counts within a tenant: the older backlog of one must not own the definition."""
    await fill(tx, TENANT, 50)
    await fill(tx, OTHER, 50)
    await tx.run("update fairlead.job_definitions set max_running = 2 where key = 'greet'")
    worker = Worker(tx)

    taken = Counter[str]()
    for _ in range(10):
        for job in await worker.take(10):
            taken[job.tenant] += 1
        await tx.run("delete from fairlead.leases")

    assert taken == {TENANT: 10, OTHER: 10}


async def test_a_full_tenant_does_not_stand_in_the_way(tx: Tx) -> None:
    slugs = await add_tenants(tx, 20)
    await tx.run("update fairlead.tenants set max_running = 1")
    for slug in slugs:
        await fill(tx, slug, 2)
    worker = Worker(tx)
    assert [len(await worker.take(1)) for _ in range(21)] == [1] * 20 + [0]
    # also for one who begins anew, where all are full but the last
    [(last, job_id)] = await tx.values(
        "select tenant_id, job_id from fairlead.leases order by tenant_id desc limit 1"
    )
    await tx.run("delete from fairlead.leases where job_id = %s", [job_id])
    assert [job.tenant_id for job in await Worker(tx).take(1)] == [last]


@pytest.mark.parametrize("batch", [1, 4])
async def test_tenants_take_turns_beside_many_that_are_not_served(tx: Tx, batch: int) -> None:
    """The walk goes another way when it has passed some pairs in vain, and stays fair."""
    for slug in await add_tenants(tx, 30):
        await fill(tx, slug, 1, definition="anything")
    shared = {TENANT: 1, OTHER: 3, "small-7": 1}
    for tenant, weight in shared.items():
        await fill(tx, tenant, 50)
        await weigh(tx, tenant, weight)
    [(served,)] = await tx.values("select id from fairlead.job_definitions where key = 'greet'")
    worker = Worker(tx, served=[served])

    taken = Counter[str]()
    for _ in range(40 // batch):
        taken.update(job.tenant for job in await worker.take(batch))

    assert taken == {tenant: 8 * weight for tenant, weight in shared.items()}
