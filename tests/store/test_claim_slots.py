"""Slots: the jobs of a claim fit into its free slots, and no job waits behind smaller ones for ever."""

from typing import Any

import pytest

from fairlead.db.tx import Tx
from fairlead.store import queue
from fairlead.store.queue import Claim, Cursor
from tests import given
from tests.given import OTHER, TENANT
from tests.store.test_claim_fairness import add_tenants, fill, weigh

BIG, SMALL = "anything", "greet"
CAPACITY = 8


class Worker:
    """Claims for free slots, with a cursor of its own."""

    def __init__(self, tx: Tx, **options: Any) -> None:
        self.tx = tx
        self.options = {"most_slots": CAPACITY, **options}
        self.cursor = Cursor()
        self.last: Claim

    async def take(self, free: int, **options: Any) -> list[str]:
        """The keys of the definitions of the claimed jobs, sorted."""
        self.last = await queue.claim(
            self.tx,
            worker="w",
            wanted=free,
            lease_seconds=600,
            cursor=self.cursor,
            **{**self.options, **options},
        )
        self.cursor = self.last.cursor
        return sorted(job.definition_key for job in self.last.jobs)


async def set_slots(tx: Tx, slots: int, key: str = BIG) -> None:
    await tx.run("update fairlead.job_definitions set slots = %s where key = %s", [slots, key])


async def test_a_claim_takes_no_more_slots_than_are_free(tx: Tx) -> None:
    await set_slots(tx, 3)
    await fill(tx, TENANT, 9, definition=BIG)
    worker = Worker(tx)
    assert await worker.take(8) == [BIG, BIG]
    assert worker.last.short_of == 3
    assert await worker.take(3) == [BIG]
    assert [job.slots for job in worker.last.jobs] == [3]


async def test_a_job_whose_turn_it_is_keeps_smaller_ones_from_the_free_slots(tx: Tx) -> None:
    await set_slots(tx, 4)
    await fill(tx, TENANT, 1, definition=BIG)
    await fill(tx, OTHER, 9, definition=SMALL)
    worker = Worker(tx)
    assert await worker.take(1) in ([], [SMALL])  # as the tenants' turns begin
    for free in (1, 2, 3):
        assert await worker.take(free) == []
        assert (worker.last.short_of, worker.last.crowded) == (4, True)
    assert await worker.take(4) == [BIG]
    assert await worker.take(4) == [SMALL] * 4


async def test_slots_that_are_not_kept_go_to_smaller_jobs(tx: Tx) -> None:
    await set_slots(tx, 4)
    await fill(tx, TENANT, 1, definition=BIG)
    await fill(tx, OTHER, 9, definition=SMALL)
    worker = Worker(tx)
    assert await worker.take(3, most_slots=3) == [SMALL] * 3
    assert await worker.take(8) == [BIG] + [SMALL] * 4


async def test_a_worker_with_too_few_slots_leaves_a_job_to_others(tx: Tx) -> None:
    await set_slots(tx, CAPACITY + 1)
    await fill(tx, TENANT, 1, definition=BIG)
    await fill(tx, TENANT, 1, definition=SMALL)
    worker = Worker(tx)
    assert await worker.take(8) == [SMALL]
    assert (await worker.take(8), worker.last.short_of) == ([], None)
    assert await worker.take(9, most_slots=9) == [BIG]


async def test_without_slots_each_job_takes_one(tx: Tx) -> None:
    await set_slots(tx, 4)
    await fill(tx, TENANT, 3, definition=BIG)
    assert await Worker(tx, most_slots=None).take(2) == [BIG, BIG]


@pytest.mark.parametrize("free", [4, 6, 8])
async def test_tenants_share_slots_by_weight_however_large_their_jobs_are(tx: Tx, free: int) -> None:
    await set_slots(tx, 4)
    await weigh(tx, TENANT, 3)
    for tenant in (TENANT, OTHER):
        await fill(tx, tenant, 40, definition=BIG)
    worker, taken = Worker(tx), list[str]()
    while len(taken) < 24:
        await worker.take(free)
        assert sum(job.slots for job in worker.last.jobs) <= free
        taken += [job.tenant for job in worker.last.jobs]
    assert abs(taken[:24].count(TENANT) - 18) <= 3


async def test_a_large_job_waits_for_no_more_than_a_turn_of_each_tenant(tx: Tx) -> None:
    await set_slots(tx, CAPACITY)
    slugs = await add_tenants(tx, 5)
    for slug in slugs:
        await fill(tx, slug, 20, definition=SMALL)
    await fill(tx, TENANT, 1, definition=BIG)
    worker, small = Worker(tx), 0
    while True:
        if (taken := await worker.take(2)) == [] and worker.last.short_of == CAPACITY:
            break
        small += len(taken)
    assert small <= len(slugs)
    assert await worker.take(CAPACITY) == [BIG]


async def test_jobs_of_a_host_take_its_agents_slots(tx: Tx) -> None:
    await set_slots(tx, 4)
    host = await given.host(tx, max_running=10)
    await fill(tx, TENANT, 3, definition=BIG, host=host)
    worker = Worker(tx, host=host)
    assert (await worker.take(3), worker.last.short_of) == ([], 4)
    assert await worker.take(8) == [BIG, BIG]
    assert await worker.take(8, most_slots=3) == []


async def test_a_suspect_needs_its_slots_too(tx: Tx) -> None:
    await set_slots(tx, 4)
    job_id = await given.queued_job(tx, definition=BIG, payload={})
    await given.wait_again(tx, alone=True)
    few = await queue.claim_suspect(tx, worker="w", lease_seconds=30, idle=False, most_slots=3)
    assert few.jobs == []
    [job] = (await queue.claim_suspect(tx, worker="w", lease_seconds=30, idle=False, most_slots=4)).jobs
    assert (job.job_id, job.slots) == (job_id, 4)
