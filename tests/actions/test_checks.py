"""The checks that run all the time: each names what is wrong, and a healthy database has nothing."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from fairlead import Settings
from fairlead.actions import checks, server_checks
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.model.finding import Finding, Verdict
from fairlead.runtime.duties import Duties
from fairlead.store import checks as stored
from fairlead.store.checks import ServerState, XminHolder
from tests import broken, given
from tests.tables import each_case
from tests.waiting import SECONDS


@pytest.fixture(autouse=True)
async def _duties_are_done(tx: Tx) -> None:
    await given.rest_from_duties(tx)


async def named(tx: Tx, check: str) -> Finding:
    return next(one for one in await checks.examine_hot(tx) if one.check == check)


async def test_a_healthy_database_has_nothing_wrong(tx: Tx) -> None:
    await given.queued_job(tx)
    await given.queued_job(tx, scheduled_for=datetime.now(UTC) + timedelta(days=1))
    await given.running_job(tx)
    await given.ended_job(tx, "failed")

    assert {one.verdict for one in await checks.examine_hot(tx)} == {Verdict.OK}


async def test_a_lease_that_nobody_rescued_is_named(tx: Tx) -> None:
    await given.running_job(tx)
    late = tx.settings.lease_seconds + tx.settings.sweep_seconds + 1
    await given.end_leases(tx, in_seconds=-late)

    found = await named(tx, "expired_leases")

    assert (found.verdict, found.value) == (Verdict.FAIL, 1)


async def test_a_lease_that_has_just_expired_is_the_watchdogs_business(tx: Tx) -> None:
    await given.running_job(tx)
    await given.end_leases(tx, in_seconds=-1)

    assert (await named(tx, "expired_leases")).verdict is Verdict.OK


@pytest.mark.parametrize(("seconds", "verdict"), [(20, Verdict.OK), (40, Verdict.WARN), (400, Verdict.FAIL)])
async def test_a_job_that_fell_due_and_was_not_staged_is_named(
    tx: Tx, seconds: int, verdict: Verdict
) -> None:
    await given.queued_job(tx, scheduled_for=datetime.now(UTC) + timedelta(days=1))
    await given.fall_due(tx, timedelta(seconds=seconds))

    assert (await named(tx, "overdue_jobs")).verdict is verdict


@pytest.mark.parametrize(
    ("seconds", "verdict"), [(200, Verdict.OK), (400, Verdict.WARN), (4000, Verdict.FAIL)]
)
async def test_a_workflow_step_whose_jobs_are_not_made_is_named(
    tx: Tx, seconds: int, verdict: Verdict
) -> None:
    await broken.sleeping_parent(tx)
    assert (await named(tx, "left_steps")).value == 0
    before = datetime.now(UTC) - timedelta(seconds=seconds)
    await tx.run(
        """
        insert into fairlead.workflow_steps (
            run_id, place, tenant_id, name, definition_key, spec, before, next, on_failure, state, pending, remaining, left_at)
        select id, 0, tenant_id, 'heavy', 'anything', '{}', '{}', '{}', 'fail', 'running', 0, 1, %s
        from fairlead.workflow_runs
        """,
        [before],
    )

    assert (await named(tx, "left_steps")).verdict is verdict


async def test_a_job_that_waits_for_a_run_that_is_over_is_named(tx: Tx) -> None:
    job_id = await broken.sleeping_parent(tx)

    found = await named(tx, "sleeping_parents")

    assert found.verdict is Verdict.FAIL
    assert str(job_id) in found.detail
    await given.set_run(tx, status="running", finished_at=None)
    assert (await named(tx, "sleeping_parents")).verdict is Verdict.OK


@pytest.mark.parametrize(
    "breaking", [broken.lost_lease, broken.queued_without_row, broken.scheduled_without_row]
)
async def test_a_job_that_no_claim_can_find_is_named(
    tx: Tx, breaking: Callable[[Tx], Awaitable[UUID]]
) -> None:
    await given.queued_job(tx, definition="anything")
    job_id = await breaking(tx)

    found = await named(tx, "queued_without_row")

    assert (found.verdict, found.value) == (Verdict.FAIL, 1)
    assert str(job_id) in found.detail


async def test_a_duty_that_no_process_does_or_that_fails_is_named(tx: Tx) -> None:
    await given.make_duty_due(tx, "usage", late=timedelta(minutes=11))
    late = await named(tx, "duties")
    await given.fail_duty(tx, "runs", "no right", times=3)
    failing = await named(tx, "duties")

    assert (late.verdict, late.value) == (Verdict.WARN, 1)
    assert "usage is 66" in late.detail
    assert (failing.verdict, failing.value) == (Verdict.FAIL, 2)
    assert "runs failed 3 times: no right" in failing.detail


async def test_entries_of_a_day_without_a_partition_are_named(tx: Tx) -> None:
    await tx.run(
        "insert into fairlead.audit_log (at, actor, action, resource_type) values ('2001-01-01', 'a', 'b', 'c')"
    )

    found = await named(tx, "audit_rest")

    assert (found.verdict, found.value) == (Verdict.WARN, 1)


async def test_counts_that_the_fold_left_behind_are_named(tx: Tx) -> None:
    await tx.run(
        "insert into fairlead.counts (tenant_id, definition_id, minute, queued) "
        "select t.id, d.id, date_trunc('minute', clock_timestamp() - interval '20 minutes'), 0 "
        "from (select id from fairlead.tenants limit 1) t, (select id from fairlead.job_definitions limit 1) d, "
        "generate_series(0, %s) n",
        [checks.UNFOLDED_ROWS + 1],
    )

    found = await named(tx, "unfolded_counts")

    assert (found.verdict, found.value) == (Verdict.WARN, checks.UNFOLDED_ROWS + 1)


async def test_a_transaction_that_is_idle_for_longer_than_a_lease_is_named(database_url: str) -> None:
    async def examine(tx: Tx) -> list[Finding]:
        tx.settings = dataclasses.replace(tx.settings, lease_seconds=1)
        return await checks.examine_hot(tx)

    with psycopg.connect(database_url, application_name="shop") as idle:
        pid = idle.info.backend_pid
        idle.execute("select 1")
        # the transactions that look may be idle for longer
        async with Database(database_url, Settings()) as database, asyncio.timeout(SECONDS):
            found: list[Finding] = []
            while not found or found[0].verdict is Verdict.OK:
                found = await database.transact(examine)

    assert found[0].check == "idle_transactions"
    assert found[0].verdict is Verdict.WARN
    assert f"process {pid} (shop)" in found[0].detail


@each_case(
    ("holder", "verdict"),
    [
        (None, Verdict.OK),
        (XminHolder("process 7", 299, 10), Verdict.OK),
        (XminHolder("process 7", 301, 10), Verdict.WARN),
        (XminHolder("process 7", 3601, 10), Verdict.FAIL),
        (XminHolder("replication slot away", None, 4_000_000), Verdict.OK),
        (XminHolder("replication slot away", None, 6_000_000), Verdict.WARN),
    ],
)
def test_what_holds_back_vacuum_is_judged_by_its_age(holder: XminHolder | None, verdict: Verdict) -> None:
    assert checks.judge_xmin(holder).verdict is verdict


async def test_the_holder_of_the_oldest_xmin_is_found(database_url: str) -> None:
    with psycopg.connect(database_url, application_name="report") as reader:
        pid = reader.info.backend_pid
        reader.execute("set transaction isolation level repeatable read")
        reader.execute("select 1")
        async with Database(database_url, Settings()) as database, database.transaction() as tx:
            found = await stored.find_oldest_xmin(tx)

    assert found is not None
    assert found.holder == f"process {pid} (report)"


# How PostgreSQL is set up

FINE = ServerState(
    isolation="read committed",
    idle_milliseconds=10_000,
    default_idle_milliseconds=0,
    is_remote=True,
    keepalives_idle=60,
    synchronous_commit="on",
    standby_names="",
    standbys=0,
    synchronous_standbys=0,
    connections=97,
    connected=20,
    workers=3,
    frozen_age=1000,
    freeze_max_age=200_000_000,
    autovacuum="on",
    track_counts="on",
)


@each_case(
    ("check", "verdict", "changes"),
    [
        (None, Verdict.OK, {}),
        (None, Verdict.OK, {"standby_names": "*", "standbys": 1, "synchronous_standbys": 1}),
        ("isolation", Verdict.WARN, {"isolation": "repeatable read"}),
        ("idle_timeout", Verdict.WARN, {"idle_milliseconds": 0}),
        ("idle_timeout", Verdict.WARN, {"idle_milliseconds": 3_600_000}),
        ("keepalives", Verdict.WARN, {"keepalives_idle": 7200}),
        ("standby", Verdict.WARN, {"standbys": 1}),
        (
            "standby",
            Verdict.WARN,
            {"standby_names": "*", "synchronous_commit": "local", "synchronous_standbys": 1},
        ),
        ("standby", Verdict.FAIL, {"standby_names": "*"}),
        ("connections", Verdict.WARN, {"workers": 9}),
        ("connections", Verdict.WARN, {"connected": 90}),
        ("wraparound", Verdict.WARN, {"frozen_age": 1_100_000_000}),
        ("wraparound", Verdict.FAIL, {"frozen_age": 1_700_000_000}),
        ("autovacuum", Verdict.FAIL, {"autovacuum": "off"}),
        ("autovacuum", Verdict.FAIL, {"track_counts": "off"}),
    ],
)
def test_a_setting_that_endangers_a_promise_is_named(
    check: str | None, verdict: Verdict, changes: dict[str, object]
) -> None:
    server = replace(FINE, **changes)

    found = [one for one in server_checks.judge_server(server, Settings()) if one.verdict is not Verdict.OK]

    assert [(one.check, one.verdict) for one in found] == ([] if check is None else [(check, verdict)])
    assert all(one.advice for one in found)


async def test_the_facts_of_a_real_server_can_be_judged(tx: Tx) -> None:
    found = {
        one.check: one for one in server_checks.judge_server(await stored.read_server_state(tx), tx.settings)
    }

    assert found["isolation"].verdict is Verdict.OK
    assert found["standby"].verdict is Verdict.OK
    assert found["connections"].verdict is Verdict.OK


# As a duty


async def test_one_process_looks_for_all_and_logs_what_changed(database_url: str) -> None:
    async with Database(database_url, Settings()) as database:
        duties = Duties(database, retention_days=30, audit_retention_days=365)
        async with database.transaction() as tx:
            fresh = await checks.list_stored(tx)
            await broken.queued_without_row(tx)
        with capture_logs() as logged:
            await duties()
            await given.make_duty_due(database, "checks")
            await duties()
        async with database.transaction() as tx:
            found = {one.check: one for one in await checks.list_stored(tx)}

    assert [(one.check, one.verdict) for one in fresh] == [("checks", Verdict.WARN)]
    assert found["queued_without_row"].verdict is Verdict.FAIL
    assert found["checks"].verdict is Verdict.OK
    told = [one for one in logged if one["event"] == "check_changed" and one["check"] != "duties"]
    assert [(one["check"], one["verdict"]) for one in told] == [("queued_without_row", "fail")]


async def test_a_duty_that_fails_is_counted_until_it_is_done(database_url: str) -> None:
    async with Database(database_url, Settings()) as database:
        duties = Duties(database, retention_days=30, audit_retention_days=365)
        async with database.transaction() as tx:
            await tx.run("alter table fairlead.sessions rename to gone")
            await given.rest_from_duties(tx, but=["expired"])
        with pytest.raises(psycopg.errors.UndefinedTable):
            await duties()
        async with database.transaction() as tx:
            failed = await given.failed_duties(tx)
            await tx.run("alter table fairlead.gone rename to sessions")
            await given.make_duty_due(tx, "expired")
        await duties()
        assert await given.failed_duties(database) == {}

    assert [*failed] == ["expired"]
    assert "sessions" in failed["expired"]
