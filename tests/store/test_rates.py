"""Rates are exact: sixteen claimers start no more jobs than any window allows, and nearly as many."""

import asyncio
import json
import os
from functools import partial

import pytest
import structlog

from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.store import queue
from tests import given
from tests.given import OTHER, TENANT
from tests.store.test_claim_fairness import fill
from tests.store.test_flow_exact import Segment, find_excess
from tests.store.test_key_limits import FILL
from tests.thorough import mostly_thorough

log = structlog.get_logger(__name__)

CHURN_SECONDS = float(os.environ.get("CHURN_SECONDS", "0.6"))
CLAIMERS = 16


async def claim_until(db: Database, ends_at: float) -> None:
    cursor = queue.Cursor()
    while (now := asyncio.get_running_loop().time()) < ends_at:
        claim = await db.single(partial(queue.claim, worker="w", wanted=20, lease_seconds=600, cursor=cursor))
        cursor = claim.cursor
        if not claim.jobs:
            wait = 0.005 if claim.opens_in is None else max(0.0, claim.opens_in)
            await asyncio.sleep(min(wait, max(0.0, ends_at - now)))


async def read_starts(tx: Tx) -> list[float]:
    query = "select extract(epoch from started_at)::float8 from fairlead.leases order by started_at"
    return [at for (at,) in await tx.values(query)]


SLOW = {"limit": 10, "per_seconds": 1, "burst": 5}
FAST = {"limit": 500, "per_seconds": 1, "burst": 100}


@pytest.mark.parametrize("rate", mostly_thorough([SLOW, FAST]), ids=str)
async def test_no_window_has_more_starts_than_the_rate_allows(db: Database, rate: dict[str, int]) -> None:
    """The rate of the system; those of tenants, definitions and keys, while they change: test_flow_exact.py."""
    async with db.transaction() as tx:
        await fill(tx, TENANT, 3000)
        await tx.run("update fairlead.system set rate = %s", [json.dumps(rate)])
    loop = asyncio.get_running_loop()
    begins_at = loop.time()
    async with asyncio.TaskGroup() as group:
        for _ in range(CLAIMERS):
            group.create_task(claim_until(db, begins_at + CHURN_SECONDS))
    took = loop.time() - begins_at
    async with db.transaction() as tx:
        starts = await read_starts(tx)
    assert find_excess(starts, [Segment(rate, 0.0, float("inf"))]) is None
    log.info("starts", rate=rate, starts=len(starts), took=round(took, 1))


async def test_a_start_takes_the_tokens_that_its_payload_says(db: Database) -> None:
    async with db.transaction() as tx:
        rate = {"limit": 100, "per_seconds": 1, "burst": 50, "cost": "/customer"}
        await given.set_definition(tx, "greet", rate=rate)
        await tx.run(FILL, {"number": 200, "keys": 30, "tenant": TENANT})
    loop = asyncio.get_running_loop()
    begins_at = loop.time()
    async with asyncio.TaskGroup() as group:
        for _ in range(CLAIMERS):
            group.create_task(claim_until(db, begins_at + CHURN_SECONDS))
    async with db.transaction() as tx:
        rows = await tx.values("""
            select l.started_at, greatest(0, (j.payload ->> 'customer')::int) from fairlead.leases l
            join fairlead.job_records j on j.id = l.job_id order by 1""")
    total = sum(cost for _, cost in rows)
    log.info("spent", tokens=total)
    assert total <= 50 + 100 * (loop.time() - begins_at)


async def count_starts(tx: Tx) -> int:
    claim = await queue.claim(tx, worker="w", wanted=20, lease_seconds=600)
    return len(claim.jobs)


async def set_rate(tx: Tx, **rate: int | str) -> None:
    await given.set_definition(tx, "greet", rate=rate)


async def test_a_raised_rate_is_in_force_at_once(tx: Tx) -> None:
    await fill(tx, TENANT, 100)
    await set_rate(tx, limit=1, per_seconds=86_400, burst=1)
    assert [await count_starts(tx), await count_starts(tx)] == [1, 0]
    await set_rate(tx, limit=1_000_000, per_seconds=1, burst=1)
    assert await count_starts(tx) == 1


async def test_a_lowered_rate_does_not_fill_the_bucket(tx: Tx) -> None:
    await fill(tx, TENANT, 100)
    await set_rate(tx, limit=1, per_seconds=60, burst=9)
    assert await count_starts(tx) == 9
    await set_rate(tx, limit=1, per_seconds=86_400, burst=9)
    assert await count_starts(tx) == 0


async def test_a_claim_says_when_a_rate_opens(tx: Tx) -> None:
    await fill(tx, TENANT, 100)
    await set_rate(tx, limit=1, per_seconds=86_400, burst=1)
    await count_starts(tx)
    claim = await queue.claim(tx, worker="w", wanted=20, lease_seconds=600)
    assert claim.jobs == []
    assert claim.opens_in is not None
    assert 80_000 < claim.opens_in <= 86_400


@pytest.mark.parametrize(
    "column", ["tenants.rate", "job_definitions.rate", "job_definitions.rate_per_tenant"]
)
async def test_a_walk_passes_a_pair_whose_rate_is_used_up(tx: Tx, column: str) -> None:
    """It would select the pair again and again: each claim finds out under the lock that nothing may start."""
    table, name = column.split(".")
    rate = json.dumps({"limit": 1, "per_seconds": 86_400, "burst": 1})
    await tx.run(f"update fairlead.{table} set {name} = %s", [rate])
    await fill(tx, TENANT, 3)
    assert await count_starts(tx) == 1
    closed = """
        select fairlead.closed_until(t.id, t.max_running, t.rate, d.id, d.max_running, d.rate, d.max_running_per_tenant,
            d.rate_per_tenant, clock_timestamp()) > clock_timestamp()
        from fairlead.tenants t, fairlead.job_definitions d where t.slug = %s and d.key = 'greet'
    """
    assert await tx.values(closed, [TENANT]) == [(True,)]
    of_all = column == "job_definitions.rate"
    assert await tx.values(closed, [OTHER]) == [(True if of_all else None,)]


async def test_a_job_with_an_absurd_cost_starts_when_the_bucket_is_full(tx: Tx) -> None:
    await set_rate(tx, limit=1, per_seconds=2_592_000, burst=3, cost="/customer")
    await tx.run(FILL, {"number": 2, "keys": 1, "tenant": TENANT})
    await tx.run("update fairlead.job_records set payload = '{\"customer\": 1e300}'")
    assert [await count_starts(tx), await count_starts(tx)] == [1, 0]


async def add_costly_and_plain(tx: Tx) -> None:
    """Two definitions: the starts of one cost what their payloads say, those of the other nothing."""
    await tx.run(
        "insert into fairlead.job_definitions (id, key) values (fairlead.definition_id('plain'), 'plain')"
    )
    await set_rate(tx, limit=1, per_seconds=86_400, burst=10, cost="/customer")


async def test_a_job_without_a_rate_in_the_same_claim_lifts_no_cost(tx: Tx) -> None:
    await add_costly_and_plain(tx)
    await fill(tx, TENANT, 1, definition="plain")
    await tx.run(FILL, {"number": 20, "keys": 1, "tenant": TENANT})
    await tx.run("update fairlead.job_records set payload = '{\"customer\": 4}'")
    claim = await queue.claim(tx, worker="w", wanted=20, lease_seconds=600)
    assert sorted(job.definition_key for job in claim.jobs) == ["greet", "greet", "plain"]


async def test_tokens_go_to_the_first_jobs_of_a_claim(tx: Tx) -> None:
    await add_costly_and_plain(tx)
    await tx.run(FILL, {"number": 20, "keys": 1, "tenant": TENANT})
    await fill(tx, TENANT, 1, definition="plain")
    await tx.run("update fairlead.job_records set payload = '{\"customer\": 4}'")
    first = await tx.values("select job_id from fairlead.ready order by scheduled_for, job_id limit 2")
    claim = await queue.claim(tx, worker="w", wanted=21, lease_seconds=600)
    assert [job.job_id for job in claim.jobs] == [job_id for (job_id,) in first]
