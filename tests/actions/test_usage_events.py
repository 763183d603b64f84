"""`usage.recorded`: every hour is told once, whole, and only to those who listen."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from fairlead.actions import usage as actions
from fairlead.actions import usage_events
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.model.usage import USAGE_RECORDED, By
from fairlead.store import counts
from tests import given
from tests.acting import act
from tests.given import OTHER, TENANT, TESTER
from tests.waiting import SECONDS


async def listen(tx: Tx, /, hours_ago: int, **fields: Any) -> None:
    made = await given.trigger(tx, event_name=USAGE_RECORDED, **fields)
    await given.set_trigger(tx, made.id, created_at=datetime.now(UTC) - timedelta(hours=hours_ago))


async def ran(tx: Tx, /, hours_ago: int, status: str = "succeeded", **fields: Any) -> None:
    """A job whose only run ended so many hours ago."""
    await given.ended_job(tx, status, **fields)
    await tx.run(
        "update fairlead.counts set minute = date_trunc('hour', now()) - %s where runs is not null and ctid = "
        "(select max(ctid) from fairlead.counts)",
        [timedelta(hours=hours_ago)],
    )


async def told(tx: Tx, tenant: str = TENANT) -> list[dict[str, Any]]:
    rows = await tx.values(
        "select e.data from fairlead.events e join fairlead.events_waiting w on w.event_id = e.id "
        "join fairlead.tenants t on t.id = e.tenant_id where t.slug = %s and e.name = %s order by e.id",
        [tenant, USAGE_RECORDED],
    )
    return [data for (data,) in rows]


async def tell(tx: Tx) -> float:
    """All there is to tell now; seconds until there is more."""
    return await tell_noted(tx, await usage_events.note_hour(tx))


async def tell_noted(tx: Tx, note: str) -> float:
    async with asyncio.timeout(SECONDS):
        while not (done := await usage_events.emit_usage(tx, note)).done:
            # an hour is closed when the transactions before the note have ended: here, those of other tests, too
            await asyncio.sleep(0.02 if done.seconds else 0)
    return done.seconds


async def test_each_hour_is_told_once_with_every_definitions_part(db: Database) -> None:
    await act(db, listen, 200)
    await act(db, ran, 190)
    async with db.transaction() as tx:
        for status in ("succeeded", "failed"):
            await ran(tx, 2, status)
        await ran(tx, 2, definition="anything")
        await ran(tx, 2, tenant=OTHER)  # who does not listen
        await ran(tx, 201)  # before anybody listened
    async with db.transaction() as tx:
        await ran(tx, -1)  # in an hour that is not over, whatever the clock says
    await act(db, counts.fold_history)

    for _ in range(2):
        assert 0 < await db.transact(tell) <= 3601

    async with db.transaction() as tx:
        old, new = await told(tx)
        assert (await told(tx, OTHER), old["totals"]["runs"]) == ([], 1)
        assert [one["definition_key"] for one in new["definitions"]] == ["anything", "greet"]
        assert new["definitions"][1] == {
            "definition_key": "greet",
            "runs": 2,
            "succeeded": 1,
            "failed": 1,
            "dead_letter": 0,
            "canceled": 0,
            "retried": 0,
            "released": 0,
            "run_ms": 40,
            "queue_ms": 6,
            "cost_cents": 14,
        }
        assert new["totals"]["cost_cents"] == 21
        month = await actions.report_usage(tx, TESTER, tenant=TENANT, by=By.MONTH)
        # and one from before anybody listened
        assert month.totals.runs == old["totals"]["runs"] + new["totals"]["runs"] + 1
        assert await tx.values(
            "select distinct occurred_at - (data ->> 'hour')::timestamptz, created_by from fairlead.events"
        ) == [(timedelta(hours=1), "watchdog")]


async def test_who_stops_listening_for_a_while_is_told_what_he_missed(db: Database) -> None:
    await act(db, listen, 3)
    await db.transact(tell)
    async with db.transaction() as tx:
        await tx.run("update fairlead.job_triggers set is_enabled = false")
        await tx.run(
            "update fairlead.usage_told set until = until - interval '2 hours'"
        )  # as if that long ago
        await ran(tx, 1)
    await db.transact(tell)
    async with db.transaction() as tx:
        assert await told(tx) == []
        await tx.run("update fairlead.job_triggers set is_enabled = true")
    await db.transact(tell)
    assert len(await act(db, told)) == 1


async def test_an_hour_waits_for_whoever_is_still_ending_runs_in_it(db: Database) -> None:
    await act(db, listen, 5)
    async with db.transaction() as slow:
        await ran(slow, 1)
        note = await db.transact(usage_events.note_hour)
        assert await db.transact(lambda tx: usage_events.emit_usage(tx, note)) == (
            usage_events.AGAIN_SECONDS,
            False,
        )

    await db.transact(lambda tx: tell_noted(tx, note))

    assert [data["totals"]["runs"] for data in await act(db, told)] == [1]
