"""Folding of counts: fewer rows, and never another sum."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.store import counts, jobs, metrics, stats
from tests import given
from tests.acting import act
from tests.given import OTHER
from tests.waiting import until_somebody_waits

STATUSES = "queued, running, succeeded, failed, dead_letter, canceled"
SUMS = ", ".join(f"sum({status})" for status in STATUSES.split(", "))
BASE = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
async def _consistent(tx: Tx) -> AsyncIterator[None]:
    yield
    assert await jobs.list_inconsistencies(tx) == []


async def minutes_ago(tx: Tx, /, minutes: int, jobs_in_it: int = 1, **fields: Any) -> None:
    """Jobs that ran in that minute, as the counts tell it: three rows each."""
    await tx.run("create temp table if not exists before (spot tid) on commit drop")
    await tx.run("insert into before select ctid from fairlead.counts")
    for _ in range(jobs_in_it):
        await given.ended_job(tx, "succeeded", **fields)
    await tx.run(
        "update fairlead.counts set minute = date_trunc('minute', clock_timestamp()) - %s "
        "where ctid not in (select spot from before)",
        [timedelta(minutes=minutes)],
    )


async def levels(tx: Tx) -> list[Any]:
    return await tx.values(
        f"select tenant_id, definition_id, {SUMS} from fairlead.counts group by 1, 2 order by 1, 2"
    )


async def flows(tx: Tx) -> list[Any]:
    return await tx.values(
        f"select tenant_id, definition_id, minute, {SUMS} from fairlead.counts group by 1, 2, 3 order by 1, 2, 3"
    )


async def rows(tx: Tx) -> list[Any]:
    return await tx.values("select ctid::text, c::text from fairlead.counts c order by 2")


async def fold_all(tx: Tx, limit: int = 1000) -> int:
    place, folded = None, 0
    while True:
        fold = await counts.fold_minutes(tx, place=place, limit=limit)
        assert fold.rows <= limit
        folded += fold.rows
        if not fold.more:
            return folded
        assert fold.rows == limit or (fold.place is not None and (place is None or fold.place > place))
        place = fold.place


async def test_a_minute_that_is_over_becomes_one_row_a_tenant_and_definition(tx: Tx) -> None:
    await minutes_ago(tx, 3, 4)
    await minutes_ago(tx, 4, 2)
    await minutes_ago(tx, 3, 2, tenant=OTHER)
    await minutes_ago(tx, 3, 2, definition="anything")
    before = (await levels(tx), await flows(tx))

    assert await fold_all(tx) == 30

    assert (await levels(tx), await flows(tx)) == before
    assert await given.count(tx, "counts") == len(before[1]) == 4


async def test_this_minute_and_the_last_are_left_alone(tx: Tx) -> None:
    await minutes_ago(tx, 0, 2)
    await minutes_ago(tx, 1, 2)
    before = await rows(tx)

    assert await fold_all(tx) == 0
    assert await rows(tx) == before


async def test_what_is_folded_is_not_written_again(tx: Tx) -> None:
    await minutes_ago(tx, 3, 4)
    await fold_all(tx)
    before = await rows(tx)

    assert await fold_all(tx) == 0
    assert await rows(tx) == before


@pytest.mark.parametrize("limit", [2, 3, 7])
async def test_a_round_folds_no_more_rows_than_its_limit_and_in_the_end_all(tx: Tx, limit: int) -> None:
    await minutes_ago(tx, 3, 3)
    await minutes_ago(tx, 3, 3, tenant=OTHER)
    before = await flows(tx)

    await fold_all(tx, limit)

    assert await flows(tx) == before
    assert await given.count(tx, "counts") == 2


async def test_a_backlog_of_a_day_is_folded_from_its_beginning(tx: Tx) -> None:
    for minutes in (2, 11, 200, 1439, 1499):
        await minutes_ago(tx, minutes)
    before = await flows(tx)

    assert await fold_all(tx) == 15
    assert await flows(tx) == before


async def test_a_row_that_comes_late_is_folded_next_time(tx: Tx) -> None:
    await minutes_ago(tx, 3)
    place = None
    while (fold := await counts.fold_minutes(tx, place=place)).more:
        place = fold.place
    await minutes_ago(tx, 3)

    assert (await counts.fold_minutes(tx, place=fold.place)).rows == 4
    assert await given.count(tx, "counts") == 1


async def test_what_is_older_than_a_day_becomes_one_level(tx: Tx) -> None:
    await minutes_ago(tx, 1499)
    recent = await flows(tx)
    for days in (2, 2, 3, 400):
        await minutes_ago(tx, days * 1440, 2)
        await minutes_ago(tx, days * 1440, 1, tenant=OTHER)
    await given.queued_job(tx)
    before = await levels(tx)

    assert not (await counts.fold_history(tx)).more

    assert await levels(tx) == before
    assert [flow for flow in await flows(tx) if flow in recent] == recent
    assert await tx.values("select succeeded from fairlead.counts where minute = %s order by 1", [BASE]) == [
        (4,),
        (8,),
    ]
    assert (await counts.fold_history(tx)).rows == 0


async def test_later_days_join_the_level_that_is_there(tx: Tx) -> None:
    for _ in range(2):
        await minutes_ago(tx, 2000)
        before = await levels(tx)
        await counts.fold_history(tx)
        assert await levels(tx) == before
        assert await given.count(tx, "counts") == 1


async def test_history_is_folded_in_bounded_rounds(tx: Tx) -> None:
    await minutes_ago(tx, 2000, 3)
    await minutes_ago(tx, 2001, 3, tenant=OTHER)
    before = await levels(tx)

    rounds = [await counts.fold_history(tx, limit=4) for _ in range(5)]

    assert [fold.more for fold in rounds] == [True] * 4 + [False]
    assert max(fold.rows for fold in rounds) <= 4 + 2  # and the levels that they join
    assert await levels(tx) == before
    assert await given.count(tx, "counts") == 2


# Beside others


async def test_what_is_appended_during_a_fold_stays(db: Database) -> None:
    await act(db, minutes_ago, 3, 2)
    async with db.transaction() as folder:
        assert (await counts.fold_minutes(folder, place=datetime.now(UTC) - timedelta(minutes=9))).rows == 6
        async with db.transaction() as tx:
            await minutes_ago(tx, 3, 1)
            assert await tx.values("select sum(succeeded) from fairlead.counts") == [(3,)]

    assert await act(db, Tx.values, "select sum(succeeded), count(*) from fairlead.counts") == [(3, 4)]


@pytest.mark.parametrize("minutes", [3, 2000])
async def test_two_that_fold_at_once_count_nothing_twice(db: Database, minutes: int) -> None:
    async def fold(tx: Tx) -> int:
        place = datetime.now(UTC) - timedelta(minutes=9)
        done = await (counts.fold_minutes(tx, place=place) if minutes == 3 else counts.fold_history(tx))
        return done.rows

    await act(db, minutes_ago, minutes, 2)
    async with db.transaction() as one:
        assert await fold(one) == 6
        two = asyncio.create_task(db.transact(fold))
        await until_somebody_waits(one)
    assert await two == 0

    assert await act(db, Tx.values, "select sum(succeeded), count(*) from fairlead.counts") == [(2, 1)]


@pytest.mark.thorough
async def test_folders_appenders_and_readers_in_parallel_never_disagree(db: Database) -> None:
    async with db.transaction() as tx:
        await minutes_ago(tx, 3, 5)
        await minutes_ago(tx, 2000, 5)
        [(tenant, definition)] = await tx.values(
            "select distinct tenant_id, definition_id from fairlead.counts"
        )
    appending = asyncio.Event()

    async def append(minutes: int) -> None:
        for step in range(60):  # what one takes away another brings: the sums stay what they are
            async with db.transaction() as tx:
                await tx.run(
                    "insert into fairlead.counts (tenant_id, definition_id, minute, queued, running) "
                    "select %s, %s, date_trunc('minute', clock_timestamp()) - %s, n, -n from (values (%s), (%s)) v(n)",
                    [tenant, definition, timedelta(minutes=minutes), step, -step],
                )

    async def fold() -> None:
        while not appending.is_set():
            await db.transact(
                lambda tx: counts.fold_minutes(tx, place=datetime.now(UTC) - timedelta(minutes=9), limit=7)
            )
            await db.transact(lambda tx: counts.fold_history(tx, limit=7))

    async def look() -> None:
        while not appending.is_set():
            assert await act(db, Tx.values, f"select {SUMS} from fairlead.counts") == [(0, 0, 10, 0, 0, 0)]

    async def appenders() -> None:
        try:
            await asyncio.gather(*(append(minutes) for minutes in (3, 4, 2000, 3000)))
        finally:
            appending.set()

    async with asyncio.TaskGroup() as group:
        for work in (appenders, fold, fold, fold, look, look):
            group.create_task(work())

    async with db.transaction() as tx:
        await fold_all(tx)
        await counts.fold_history(tx)
        assert await given.count(tx, "counts") <= 6  # base, and the minutes that the test took


# Levels


async def test_more_jobs_of_a_pair_than_an_integer_holds_can_be_folded(tx: Tx) -> None:
    await given.ended_job(tx, "succeeded")
    for _ in range(2):
        await tx.run(
            "insert into fairlead.counts (tenant_id, definition_id, minute, succeeded) "
            "select tenant_id, definition_id, date_trunc('minute', clock_timestamp()) - interval '5 minutes', 2000000000 "
            "from fairlead.jobs limit 1"
        )
    await fold_all(tx)
    found = await stats.count_jobs(tx, tenant_id=None)
    await tx.run("update fairlead.counts set succeeded = succeeded - 4000000000 where succeeded > 2147483647")
    await tx.run("update fairlead.count_levels set succeeded = succeeded - 4000000000")

    assert found.succeeded == 4_000_000_001


async def test_a_level_is_the_same_before_a_fold_and_after_it(tx: Tx) -> None:
    await minutes_ago(tx, 2000)
    await minutes_ago(tx, 5, 3)
    await given.running_job(tx)
    await given.queued_job(tx, tenant=OTHER)
    status, levels_before = (
        (await stats.count_jobs(tx, tenant_id=None)).by_status,
        await metrics.list_levels(tx),
    )

    await fold_all(tx)
    await counts.fold_history(tx)

    assert (await stats.count_jobs(tx, tenant_id=None)).by_status == status
    assert await metrics.list_levels(tx) == levels_before
    assert await tx.values("select from fairlead.counts where leveled") != []


async def test_reading_levels_costs_the_same_with_a_day_of_minutes_as_with_one(db: Database) -> None:
    """Measured in pages, of 500 pairs: as a scrape and as a summary of all tenants read them."""
    # in the order of the index too: a row beside the last one read costs no page
    pairs = "select lpad(pair::text, 32, '0')::uuid, md5('d')::uuid"
    minutes = (
        "insert into fairlead.counts (tenant_id, definition_id, minute, queued, leveled) "
        f"{pairs}, date_trunc('minute', clock_timestamp()) - make_interval(mins => n), 1, n > 1 "
        "from generate_series(1, 500) pair, generate_series(%s::int, %s::int) n"
    )

    async def pages(tx: Tx, query: str) -> int:
        await tx.run("analyze fairlead.counts, fairlead.count_levels")
        [(plan,)] = await tx.values(f"explain (analyze, buffers, format json) {query}", {"tenant_id": None})
        top = plan[0]["Plan"]
        return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])

    queries = [stats.sql.counts, metrics.sql.levels]
    # a database of its own: entries that others have rolled back would be read too
    async with db.transaction() as tx, tx.connection.transaction(force_rollback=True):
        await tx.run(f"insert into fairlead.count_levels {pairs}, 1 from generate_series(1, 500) pair")
        # those that are not leveled lie together, as those of the last minute do
        await tx.run(minutes, [1, 1])
        await tx.run(minutes, [2, 18])
        few = [await pages(tx, query) for query in queries]
        await tx.run(minutes, [19, 182])
        many = [await pages(tx, query) for query in queries]

    assert all(after < 3 * before for before, after in zip(few, many, strict=True)), (few, many)
