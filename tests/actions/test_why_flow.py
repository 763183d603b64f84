"""Why a job waits for a rate or for its key."""

import json
from typing import Any

from fairlead.actions.why import explain_job
from fairlead.db.tx import Tx
from fairlead.model.reason import ReasonCode
from fairlead.store import queue
from tests import given
from tests.given import TESTER


async def set_rule(tx: Tx, table: str, column: str, rule: dict[str, Any]) -> None:
    where = "where key = 'greet'" if table == "job_definitions" else ""
    await tx.run(f"update fairlead.{table} set {column} = %s {where}", [json.dumps(rule)])


async def claim(tx: Tx) -> None:
    again = True
    while again:
        got = await queue.claim(tx, worker="w", wanted=10, lease_seconds=600)
        again = got.again and not got.jobs


async def test_a_rate_tells_when_the_next_start_is_possible(tx: Tx) -> None:
    rate = {"limit": 1, "per_seconds": 60, "burst": 1}
    for table, column in (
        ("system", "rate"),
        ("tenants", "rate"),
        ("job_definitions", "rate"),
        ("job_definitions", "rate_per_tenant"),
    ):
        await set_rule(tx, table, column, rate)
    await given.queued_job(tx)
    second = await given.queued_job(tx)
    await claim(tx)
    why = await explain_job(tx, TESTER, second)
    told = {reason.code: reason for reason in why.reasons}
    assert {
        ReasonCode.SYSTEM_RATE,
        ReasonCode.TENANT_RATE,
        ReasonCode.DEFINITION_RATE,
        ReasonCode.DEFINITION_TENANT_RATE,
    } <= told.keys()
    assert 0 < told[ReasonCode.TENANT_RATE].facts["in_seconds"] <= 60


async def test_a_key_tells_who_holds_it(tx: Tx) -> None:
    await set_rule(tx, "job_definitions", "by_key", {"pointer": "/name", "max_running": 1, "fifo": True})
    first = await given.queued_job(tx)
    second = await given.queued_job(tx)
    third = await given.queued_job(tx)
    await claim(tx)
    [limit, *_] = (await explain_job(tx, TESTER, second)).reasons
    assert (limit.code, limit.facts["held_by"]) == (ReasonCode.KEY_LIMIT, [first])
    codes = {reason.code: reason.facts for reason in (await explain_job(tx, TESTER, third)).reasons}
    assert codes[ReasonCode.KEY_ORDER]["before"] == second


async def test_the_rate_of_a_key_tells_when_the_next_start_is_possible(tx: Tx) -> None:
    rate = {"limit": 1, "per_seconds": 60, "burst": 1}
    await set_rule(tx, "job_definitions", "by_key", {"pointer": "/name", "rate": rate})
    await given.queued_job(tx)
    second = await given.queued_job(tx)
    await claim(tx)
    [reason, *_] = (await explain_job(tx, TESTER, second)).reasons
    assert reason.code is ReasonCode.KEY_RATE
    assert 0 < reason.facts["in_seconds"] <= 60
