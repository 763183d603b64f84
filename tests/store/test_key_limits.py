"""Limits by key are exact under churn, and are used."""

import asyncio
import json
import os
import random
from functools import partial

import pytest
import structlog

from fairlead.actions import definitions
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.model.outcome import Backoff, Failed, Outcome, Released, RetryBudget, Succeeded, decide
from fairlead.store import queue
from tests import given
from tests.given import TENANT, TESTER

log = structlog.get_logger(__name__)

SECONDS = float(os.environ.get("CHURN_SECONDS", "0.6"))
CLAIMERS = 16
OUTCOMES: list[Outcome] = [Succeeded(), Succeeded(), Succeeded(), Released(), Failed("E", "m")]
AT_ONCE = RetryBudget(1000, 0, 0, Backoff(base_seconds=0))

FILL = """
with new as (
    insert into fairlead.job_records (id, tenant_id, definition_id, priority, max_attempts, scheduled_for, payload, limit_key)
    select fairlead.uuid7(), t.id, d.id, 100, 3, clock_timestamp(), p.payload, fairlead.limit_key_of(d.by_key, p.payload)
    from fairlead.tenants t, fairlead.job_definitions d, generate_series(1, %(number)s) n,
        lateral (select jsonb_build_object('customer', n %% %(keys)s) as payload) p
    where t.slug = %(tenant)s and d.key = 'greet'
    returning id, tenant_id, definition_id, priority, scheduled_for, limit_key
), counted as (
    insert into fairlead.counts (tenant_id, definition_id, minute, queued)
    select tenant_id, definition_id, date_trunc('minute', clock_timestamp()), count(*) from new group by 1, 2
)
insert into fairlead.ready (job_id, tenant_id, definition_id, priority, scheduled_for, limit_key)
select id, tenant_id, definition_id, priority, scheduled_for, limit_key from new
"""
# The most attempts of one key that ran at the same time.
MOST_AT_ONCE = """
select max(running) from (
    select sum(step) over (partition by limit_key order by at, step) as running
    from (
        select j.limit_key, a.started_at as at, 1 as step from fairlead.attempts a join fairlead.job_records j on j.id = a.job_id
        union all
        select j.limit_key, a.finished_at, -1 from fairlead.attempts a join fairlead.job_records j on j.id = a.job_id
        where a.finished_at is not null) s) s
"""


@pytest.mark.parametrize(("keys", "most"), [(1, 1), (1, 3), (5, 1), (7, 3), (100, 1)])
async def test_no_more_jobs_of_a_key_run_than_it_allows(db: Database, keys: int, most: int) -> None:
    number = 1000
    async with db.transaction() as tx:
        rule = {"pointer": "/customer", "max_running": most}
        await tx.run(
            "update fairlead.job_definitions set by_key = %s where key = 'greet'", [json.dumps(rule)]
        )
        await tx.run(FILL, {"number": number, "keys": keys, "tenant": TENANT})
    chance = random.Random(3)  # noqa: S311
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + SECONDS
    done = 0

    async def work() -> None:
        nonlocal done
        cursor = queue.Cursor()
        while loop.time() < ends_at and done < number:
            claim = await db.single(
                partial(
                    queue.claim,
                    worker="w",
                    wanted=chance.choice([1, 5, 30]),
                    lease_seconds=600,
                    cursor=cursor,
                )
            )
            cursor = claim.cursor
            outcome: Outcome = chance.choice(OUTCOMES)
            ends = [(claim.lease(job), decide(AT_ONCE, outcome)) for job in claim.jobs]
            if ends:
                did = await db.single(partial(queue.finish, ends=ends, actor="w"))
                assert len(did) == len(ends)
                done += sum(one.value == "succeeded" for one in did.values())
            else:
                await asyncio.sleep(0.002)

    async with asyncio.TaskGroup() as group:
        for _ in range(CLAIMERS):
            group.create_task(work())
    async with db.transaction() as tx:
        [(at_once,)] = await tx.values(MOST_AT_ONCE)
        rest = await tx.values(
            "select (select count(*) from fairlead.ready), (select count(*) from fairlead.later), (select count(*) from fairlead.leases), (select count(*) from fairlead.key_locks)"
        )
    log.info("keys", keys=keys, most=most, done=done, at_once=at_once, rest=rest)
    assert at_once <= most
    assert done == number or SECONDS < 10


async def hold_back(tx: Tx, most: int, number: int) -> None:
    """Jobs of one key, of which `most` run, and the others are held back."""
    await definitions.patch(tx, TESTER, "greet", {"by_key": {"pointer": "/customer", "max_running": most}})
    await tx.run(FILL, {"number": number, "keys": 1, "tenant": TENANT})
    claim = await queue.claim(tx, worker="w", wanted=number, lease_seconds=600)
    assert len(claim.jobs) == most
    assert await given.count(tx, "ready") == 0


async def test_a_raised_limit_of_a_key_lets_waiting_jobs_go(tx: Tx) -> None:
    await hold_back(tx, 1, 10)
    await definitions.patch(tx, TESTER, "greet", {"by_key": {"pointer": "/customer", "max_running": 3}})
    await queue.stage_due(tx)
    claim = await queue.claim(tx, worker="w", wanted=10, lease_seconds=600)
    assert len(claim.jobs) == 2


async def test_all_jobs_may_go_when_the_limit_of_their_keys_is_removed(tx: Tx) -> None:
    await hold_back(tx, 1, 10)
    await definitions.patch(tx, TESTER, "greet", {"by_key": None})
    await queue.stage_due(tx)
    claim = await queue.claim(tx, worker="w", wanted=10, lease_seconds=600)
    assert len(claim.jobs) == 9
