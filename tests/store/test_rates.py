"""Rates are exact: sixteen claimers start no more jobs than any window allows, and nearly as many."""

import asyncio
import json
import os
from collections.abc import Sequence
from datetime import datetime
from functools import partial

import pytest
import structlog

from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.store import queue
from tests.given import TENANT
from tests.store.test_claim_fairness import fill
from tests.store.test_key_limits import FILL

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


async def read_starts(tx: Tx) -> list[datetime]:
    return [at for (at,) in await tx.values("select started_at from fairlead.leases order by started_at")]


def find_fullest_window(starts: Sequence[datetime], seconds: float) -> int:
    """The largest number of starts in any window of these seconds, its end excluded."""
    most, first = 0, 0
    for last, at in enumerate(starts):
        while (at - starts[first]).total_seconds() >= seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


SLOW = {"limit": 10, "per_seconds": 1, "burst": 5}
FAST = {"limit": 500, "per_seconds": 1, "burst": 100}


@pytest.mark.parametrize(
    ("scope", "rate"),
    [
        ("system", SLOW),
        ("system", FAST),
        ("tenants", {"limit": 10, "per_seconds": 1, "burst": 1}),
        ("tenants", FAST),
        ("rate", {"limit": 1000, "per_seconds": 60, "burst": 20}),
        ("rate", FAST),
        ("rate_per_tenant", {"limit": 7, "per_seconds": 1, "burst": 3}),
    ],
    ids=str,
)
async def test_no_window_has_more_starts_than_the_rate_allows(
    db: Database, scope: str, rate: dict[str, int]
) -> None:
    table, column = {"system": ("system", "rate"), "tenants": ("tenants", "rate")}.get(
        scope, ("job_definitions", scope)
    )
    async with db.transaction() as tx:
        await fill(tx, TENANT, 3000)
        await tx.run(f"update fairlead.{table} set {column} = %s", [json.dumps(rate)])
    loop = asyncio.get_running_loop()
    begins_at = loop.time()
    async with asyncio.TaskGroup() as group:
        for _ in range(CLAIMERS):
            group.create_task(claim_until(db, begins_at + CHURN_SECONDS))
    took = loop.time() - begins_at
    async with db.transaction() as tx:
        starts = await read_starts(tx)
    for seconds in (0.1, 0.5, 1, rate["per_seconds"]):
        allowed = rate["burst"] - 1 + -(-rate["limit"] * seconds // rate["per_seconds"])
        assert find_fullest_window(starts, seconds) <= allowed, (seconds, len(starts))
    log.info("starts", scope=scope, rate=rate, starts=len(starts), took=round(took, 1))


@pytest.mark.parametrize(
    "rate",
    [{"limit": 10, "per_seconds": 1, "burst": 1}, {"limit": 20, "per_seconds": 1, "burst": 4}],
    ids=str,
)
async def test_no_window_of_a_key_has_more_starts_than_its_rate_allows(
    db: Database, rate: dict[str, int]
) -> None:
    keys = 3
    async with db.transaction() as tx:
        rule = {"pointer": "/customer", "rate": rate}
        await tx.run(
            "update fairlead.job_definitions set by_key = %s where key = 'greet'", [json.dumps(rule)]
        )
        await tx.run(FILL, {"number": 1000, "keys": keys, "tenant": TENANT})
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + CHURN_SECONDS

    async def stage() -> None:
        while loop.time() < ends_at:
            await db.single(queue.stage_due)
            until: float | None = await db.single(queue.seconds_until_due)
            await asyncio.sleep(min(0.05, max(0.0, 0.05 if until is None else until)))

    async with asyncio.TaskGroup() as group:
        group.create_task(stage())
        for _ in range(CLAIMERS):
            group.create_task(claim_until(db, ends_at))
    async with db.transaction() as tx:
        rows = await tx.values("select limit_key, started_at from fairlead.leases order by started_at")
    for key in {one for one, _ in rows}:
        starts = [at for one, at in rows if one == key]
        log.info("starts", rate=rate, starts=len(starts))
        for seconds in (0.1, 0.5, 1, rate["per_seconds"]):
            allowed = rate["burst"] - 1 + -(-rate["limit"] * seconds // rate["per_seconds"])
            assert find_fullest_window(starts, seconds) <= allowed, (seconds, len(starts))


async def test_a_start_takes_the_tokens_that_its_payload_says(db: Database) -> None:
    async with db.transaction() as tx:
        rate = {"limit": 100, "per_seconds": 1, "burst": 50, "cost": "/customer"}
        await tx.run("update fairlead.job_definitions set rate = %s where key = 'greet'", [json.dumps(rate)])
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


async def set_rate(tx: Tx, **rate: int) -> None:
    await tx.run("update fairlead.job_definitions set rate = %s where key = 'greet'", [json.dumps(rate)])


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


async def test_a_job_with_an_absurd_cost_starts_when_the_bucket_is_full(tx: Tx) -> None:
    rate = {"limit": 1, "per_seconds": 2_592_000, "burst": 3, "cost": "/customer"}
    await tx.run("update fairlead.job_definitions set rate = %s where key = 'greet'", [json.dumps(rate)])
    await tx.run(FILL, {"number": 2, "keys": 1, "tenant": TENANT})
    await tx.run("update fairlead.job_records set payload = '{\"customer\": 1e300}'")
    assert [await count_starts(tx), await count_starts(tx)] == [1, 0]


async def test_a_job_without_a_rate_in_the_same_claim_lifts_no_cost(tx: Tx) -> None:
    await tx.run(
        "insert into fairlead.job_definitions (id, key) values (fairlead.definition_id('plain'), 'plain')"
    )
    rate = {"limit": 1, "per_seconds": 86_400, "burst": 10, "cost": "/customer"}
    await tx.run("update fairlead.job_definitions set rate = %s where key = 'greet'", [json.dumps(rate)])
    await fill(tx, TENANT, 1, definition="plain")
    await tx.run(FILL, {"number": 20, "keys": 1, "tenant": TENANT})
    await tx.run("update fairlead.job_records set payload = '{\"customer\": 4}'")
    claim = await queue.claim(tx, worker="w", wanted=20, lease_seconds=600)
    assert sorted(job.definition_key for job in claim.jobs) == ["greet", "greet", "plain"]


async def test_tokens_go_to_the_first_jobs_of_a_claim(tx: Tx) -> None:
    await tx.run(
        "insert into fairlead.job_definitions (id, key) values (fairlead.definition_id('plain'), 'plain')"
    )
    rate = {"limit": 1, "per_seconds": 86_400, "burst": 10, "cost": "/customer"}
    await tx.run("update fairlead.job_definitions set rate = %s where key = 'greet'", [json.dumps(rate)])
    await tx.run(FILL, {"number": 20, "keys": 1, "tenant": TENANT})
    await fill(tx, TENANT, 1, definition="plain")
    await tx.run("update fairlead.job_records set payload = '{\"customer\": 4}'")
    first = await tx.values("select job_id from fairlead.ready order by scheduled_for, job_id limit 2")
    claim = await queue.claim(tx, worker="w", wanted=21, lease_seconds=600)
    assert [job.job_id for job in claim.jobs] == [job_id for (job_id,) in first]
