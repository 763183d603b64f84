"""Retention: what is over goes, in small rounds; nothing else does, whatever its id says."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from uuid_utils.compat import uuid7

from fairlead.actions import definitions
from fairlead.actions import jobs as actions
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.model.job import JobStatus
from fairlead.store import audit, counts, jobs, retention
from tests import given
from tests.given import OTHER, TESTER
from tests.plans import read_scans
from tests.waiting import until_somebody_waits

TERMINAL = ["succeeded", "failed", "dead_letter", "canceled"]


@pytest.fixture(autouse=True)
async def _consistent(tx: Tx) -> AsyncIterator[None]:
    yield
    assert await jobs.list_inconsistencies(tx) == []


def id_of(days: float) -> UUID:
    """An id such as a job had that was enqueued so many days ago."""
    then = datetime.now(UTC) - timedelta(days=days)
    return UUID(int=int(then.timestamp() * 1000) << 80 | uuid7().int % 2**80)


async def ended(tx: Tx, days: float, status: str = "succeeded", **fields: Any) -> UUID:
    """A job that was enqueued and ended so many days ago."""
    job_id = await given.ended_job(tx, status, **{"id": id_of(days), **fields})
    await end_was(tx, job_id, days)
    return job_id


async def end_was(tx: Tx, job_id: UUID, days: float) -> None:
    await tx.run(
        "update fairlead.job_records set finished_at = clock_timestamp() - %s where id = %s",
        [timedelta(days=days), job_id],
    )


async def keep(tx: Tx, key: str, days: int | None) -> None:
    await definitions.patch(tx, TESTER, key, {"retention_days": days})


async def left(tx: Tx) -> set[UUID]:
    return {job_id for (job_id,) in await tx.values("select id from fairlead.jobs")}


async def lap(tx: Tx, *, days: int = 30, **bounds: int) -> list[int]:
    """How many were removed in each round, all the way round."""
    place, removed = None, []
    while True:
        done = await retention.remove(tx, days=days, place=place, **bounds)
        removed.append(done.removed)
        if done.place is None:
            return removed
        assert place is None or done.place > place
        place = done.place


@pytest.mark.parametrize("status", TERMINAL)
async def test_a_finished_job_goes_when_its_time_is_over_and_its_attempts_with_it(
    tx: Tx, status: str
) -> None:
    await ended(tx, 30.01, status)
    young = await ended(tx, 29.99, status)

    assert await lap(tx) == [1]

    assert await left(tx) == {young}
    assert await tx.values("select job_id from fairlead.attempts") == [(young,)]


async def test_what_a_round_counts_can_be_folded_at_once(tx: Tx) -> None:
    """Also where jobs are kept for a day only: the minutes of 25 hours are not folded into history."""
    await ended(tx, 1.01)
    assert await lap(tx, days=1) == [1]

    assert (await counts.fold_history(tx)).rows == 1


async def test_what_is_queued_or_running_never_goes_however_old(tx: Tx) -> None:
    waiting = await given.queued_job(tx, id=id_of(400))
    later = await given.queued_job(tx, id=id_of(400), scheduled_for=datetime.now(UTC) + timedelta(days=1))
    running = await given.running_job(tx, id=id_of(400))
    await tx.run("update fairlead.job_records set queued_at = '2001-01-01'")

    assert await lap(tx, days=1) == [0]
    assert await left(tx) == {waiting, later, running}


async def test_a_job_that_waited_long_is_kept_from_its_end_on(tx: Tx) -> None:
    job_id = await ended(tx, 400)
    await end_was(tx, job_id, 1.5)

    assert await lap(tx, days=2) == [0]
    assert await lap(tx, days=1) == [1]


async def test_a_definition_decides_for_its_own_jobs(tx: Tx) -> None:
    await keep(tx, "greet", 5)
    await keep(tx, "anything", 100)
    gone = {await ended(tx, 6), await ended(tx, 99)}
    kept = {await ended(tx, 4), await ended(tx, 99, definition="anything")}
    gone.add(await ended(tx, 101, definition="anything"))

    assert sum(await lap(tx, days=30)) == len(gone)
    assert await left(tx) == kept


async def test_zero_keeps_for_ever_but_not_what_a_definition_lets_go(tx: Tx) -> None:
    ancient = await ended(tx, 9000)
    await keep(tx, "anything", 1)
    await ended(tx, 2, definition="anything")

    assert await lap(tx, days=0) == [1]
    assert await left(tx) == {ancient}
    await keep(tx, "anything", None)
    await ended(tx, 9000, definition="anything")
    assert await lap(tx, days=0) == [0]


async def test_a_retention_longer_than_time_itself_is_for_ever(tx: Tx) -> None:
    # more than a definition admits now: the sweep must not stumble over what somebody wrote by hand
    longest = "update fairlead.job_definitions set retention_days = 2000000000 where key = %s"
    await tx.run(longest, ["greet"])
    await ended(tx, 9000)
    await ended(tx, 31, definition="anything")

    assert await lap(tx) == [1]
    await tx.run(longest, ["anything"])
    assert await lap(tx, days=0) == [0]


async def test_a_round_removes_no_more_than_its_limit_and_the_next_goes_on(tx: Tx) -> None:
    for _ in range(5):
        await ended(tx, 40)

    assert await lap(tx, limit=2) == [2, 2, 1]


async def test_jobs_that_are_kept_do_not_stop_the_walk_and_are_not_walked_again(tx: Tx) -> None:
    await keep(tx, "anything", 1000)
    held = {await given.queued_job(tx, id=id_of(90)), await given.running_job(tx, id=id_of(80))}
    held |= {await ended(tx, 70, definition="anything") for _ in range(3)}
    await ended(tx, 60)
    young = {await ended(tx, 10) for _ in range(20)}

    assert await lap(tx, look=2) == [0, 0, 1, 0]  # the young ones are not even looked at
    assert await left(tx) == held | young


async def test_ids_that_somebody_gave_are_not_forgotten(tx: Tx) -> None:
    for job_id in (UUID(int=1), uuid4(), uuid4(), UUID(int=2**128 - 1)):
        await ended(tx, 31, id=job_id)
    young = await ended(tx, 29, id=uuid4())

    assert sum(await lap(tx, look=2)) == 4
    assert await left(tx) == {young}


async def test_a_child_outlives_its_parent(tx: Tx) -> None:
    parent = await ended(tx, 31)
    child = await ended(tx, 1, parent_id=parent)

    assert await lap(tx) == [1]
    assert await left(tx) == {child}


async def test_counts_follow_and_the_flows_of_the_last_day_are_not_touched(tx: Tx) -> None:
    for status in TERMINAL:
        await ended(tx, 1.1, status)
        await ended(tx, 1.2, status, tenant=OTHER, definition="anything")
    await ended(tx, 0.5)
    flow = "select minute, sum(succeeded), sum(failed) from fairlead.counts where minute > now() - interval '1 day' group by 1"
    before = await tx.values(flow)

    assert sum(await lap(tx, days=1)) == 8

    assert await tx.values(flow) == before
    assert await tx.values(
        "select sum(succeeded), sum(failed + dead_letter + canceled) from fairlead.counts"
    ) == [(1, 0)]


async def test_a_round_reads_no_more_than_it_looks_at(tx: Tx) -> None:
    await keep(tx, "anything", 1000)
    for _ in range(40):
        await ended(tx, 50, definition="anything")
    await ended(tx, 60)
    # as `remove` does it: what the planner guesses depends on when somebody looked at the tables last
    await tx.prefer_indexes()
    values = {"days": 30, "place": UUID(int=0), "look": 5, "limit": 3, "most_days": 1000}

    read = await read_scans(tx, retention.sql.remove, values, "job_records", "job_attempts")

    assert not [node for node in read if node["Node Type"] == "Seq Scan"]
    assert [node for node in read if node["Actual Rows"] * node["Actual Loops"] > 5] == []


# Beside others


async def test_a_job_that_somebody_retries_is_left_to_him_and_not_waited_for(db: Database) -> None:
    async with db.transaction() as tx:
        mine, other = [await ended(tx, 40, "failed") for _ in range(2)]

    async with db.transaction() as person:
        await actions.retry(person, TESTER, given.catalog(), mine)
        async with db.transaction() as tx:
            done = await retention.remove(tx, days=30)
            assert (done.removed, await jobs.get(tx, other)) == (1, None)

    async with db.transaction() as tx:
        assert (await retention.remove(tx, days=30)).removed == 0
        assert (await given.read_job(tx, mine)).status is JobStatus.QUEUED


async def test_two_rounds_at_once_remove_each_job_once(db: Database) -> None:
    async with db.transaction() as tx:
        for _ in range(4):
            await ended(tx, 40)

    async with db.transaction() as one:
        assert (await retention.remove(one, days=30, limit=3)).removed == 3
        async with db.transaction() as two:
            assert (await retention.remove(two, days=30)).removed == 1

    assert await given.count(db, "jobs") == 0  # and the fixture compares the counts


# The audit log's days


async def add_day(tx: Tx, days_ago: int) -> str:
    [(day, name)] = await tx.values(
        "select d, 'audit_log_' || to_char(d, 'YYYYMMDD') from "
        "(select (clock_timestamp() at time zone 'UTC')::date - %s as d) x",
        [days_ago],
    )
    await tx.run(
        f"create table fairlead.{name} partition of fairlead.audit_log "
        f"for values from ('{day} 00:00+00') to ('{day + timedelta(days=1)} 00:00+00')"
    )
    await tx.run(
        "insert into fairlead.audit_log (at, actor, action, resource_type) values (%s, 'a', 'b', 'c')",
        [datetime(day.year, day.month, day.day, 12, tzinfo=UTC)],
    )
    return str(name)


async def days(tx: Tx) -> set[str]:
    return {
        name
        for (name,) in await tx.values(
            "select relname from pg_class where relnamespace = 'fairlead'::regnamespace and relname ~ '^audit_log_' "
            "and relkind = 'r'"
        )
    }


@pytest.mark.postgres_only("its coordinator drops the days of the audit log")
async def test_days_of_the_audit_log_are_dropped_one_by_one_the_oldest_first(tx: Tx) -> None:
    there = await days(tx)
    old, oldest, last_kept = [await add_day(tx, ago) for ago in (11, 500, 10)]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        async with tx.connection.transaction():
            await tx.run(f"delete from fairlead.{oldest}")

    dropped = [await retention.drop_audit_day(tx, keep_days=10) for _ in range(3)]

    assert dropped == [oldest, old, None]
    assert await days(tx) == there | {last_kept}
    assert "audit_log_rest" in there


@pytest.mark.postgres_only("its coordinator drops the days of the audit log")
async def test_another_role_prepares_days_but_drops_none(tx: Tx) -> None:
    old = await add_day(tx, 500)
    await tx.run("create role runner")
    await tx.run("grant usage on schema fairlead to runner")
    await tx.run("grant execute on all functions in schema fairlead to runner")
    await tx.run("set local role runner")

    assert await retention.drop_audit_day(tx, keep_days=10) is None
    assert await retention.prepare_audit_days(tx, days=9) > 0
    assert old in await days(tx)
    await tx.run("reset role")


async def test_a_day_is_prepared_while_others_write_to_the_log(db: Database) -> None:
    async with db.transaction() as tx:
        there = await days(tx)

    async with db.transaction() as writer:
        await audit.write(writer, actor="a", action="b", resource_type="c")
        made = await db.transact(lambda tx: retention.prepare_audit_days(tx, days=9))
        await audit.write(writer, actor="a", action="d", resource_type="c")

    async with db.transaction() as tx:
        assert made == 2
        assert len(await days(tx) - there) == made
        [(rest,)] = await tx.values("select count(*) from fairlead.audit_log_rest")
        assert rest == 0


async def test_who_writes_does_not_wait_for_a_day_that_waits_for_a_reader(db: Database) -> None:
    async def patiently(tx: Tx) -> int:
        await tx.run("select set_config('lock_timeout', '0', true)")
        [(made,)] = await tx.values("select fairlead.prepare_audit_days(9)")
        return int(made)

    async with db.transaction() as reader:
        await reader.values("select from fairlead.audit_entries limit 1")
        preparing = asyncio.create_task(db.transact(patiently, unhurried=True))
        await until_somebody_waits(reader)
        async with db.transaction() as writer:
            await writer.run("select set_config('lock_timeout', '60s', true)")
            await audit.write(writer, actor="a", action="b", resource_type="c")
        assert not preparing.done()

    assert await preparing == 2


@pytest.mark.postgres_only("its coordinator drops the days of the audit log")
async def test_a_prepared_day_is_as_good_as_the_others(tx: Tx) -> None:
    await retention.prepare_audit_days(tx, days=9)

    [(name, day)] = await tx.values(
        "select 'audit_log_' || to_char(d, 'YYYYMMDD'), d from "
        "(select (clock_timestamp() at time zone 'UTC')::date + 9 as d) x"
    )
    at = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    await tx.run(
        "insert into fairlead.audit_log (at, actor, action, resource_type) values (%s, 'a', 'b', 'c')", [at]
    )
    assert await tx.values(f"select details, ip from fairlead.{name}") == [({}, None)]
    for change in ("update fairlead.{} set actor = 'x'", "delete from fairlead.{}", "truncate fairlead.{}"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            async with tx.connection.transaction():
                await tx.run(change.format(name))
    indexes = "select count(*) from pg_indexes where schemaname = 'fairlead' and tablename = %s"
    assert await tx.values(indexes, [name]) == await tx.values(indexes, ["audit_log_rest"])
    constraints = "select count(*) from pg_constraint where conrelid = %s::regclass and contype = 'c'"
    assert await tx.values(constraints, [f"fairlead.{name}"]) == [(0,)]


async def drop_today(tx: Tx) -> None:
    """As if nothing had prepared today or any day after."""
    for name in await days(tx) - {"audit_log_rest"}:
        await tx.run(f"drop table fairlead.{name}")


@pytest.mark.postgres_only("its coordinator drops the days of the audit log")
async def test_a_day_that_was_prepared_too_late_has_a_partition_from_the_next_hour_on(tx: Tx) -> None:
    await drop_today(tx)
    await audit.write(tx, actor="a", action="b", resource_type="c")

    await retention.prepare_audit_days(tx, days=1)

    next_hour = "date_trunc('hour', clock_timestamp()) + interval '1 hour'"
    await tx.run(
        f"insert into fairlead.audit_log (at, actor, action, resource_type) values ({next_hour}, 'a', 'b', 'c')"
    )
    [(rest,)] = await tx.values("select count(*) from fairlead.audit_log_rest")
    assert rest == 1


@pytest.mark.postgres_only("its coordinator drops the days of the audit log")
async def test_entries_without_a_partition_go_when_their_time_is_over(tx: Tx) -> None:
    await tx.run(
        "insert into fairlead.audit_log (at, actor, action, resource_type) "
        "select clock_timestamp() - make_interval(days => n), 'a', n::text, 'c' from unnest(array[9, 11, 12, 13]) n"
    )

    gone = [await retention.drop_audit_rest(tx, keep_days=10, most=2) for _ in range(3)]

    assert gone == [2, 1, 0]
    assert await tx.values("select action from fairlead.audit_log_rest") == [("9",)]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        async with tx.connection.transaction():
            await tx.run("delete from fairlead.audit_log_rest")


@pytest.mark.postgres_only("its coordinator drops the days of the audit log")
async def test_another_role_drops_no_entries(tx: Tx) -> None:
    await tx.run(
        "insert into fairlead.audit_log (at, actor, action, resource_type) values ('2001-01-01', 'a', 'b', 'c')"
    )
    await tx.run("create role runner")
    await tx.run("grant fairlead_system to runner")
    await tx.run("set local role runner")

    assert await retention.drop_audit_rest(tx, keep_days=10, most=2) == 0
    await tx.run("reset role")
