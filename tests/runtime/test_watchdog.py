"""The watchdog's duties: each at its own pace, by one process at a time, and never in the way of the leases."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from structlog.testing import capture_logs

from fairlead.actions import workflow_progress, workflows
from fairlead.actions.workflows import RunRequest
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.errors import DatabaseBusy
from fairlead.model.job import JobStatus
from fairlead.runtime.duties import Duties
from fairlead.runtime.maintenance import Caretaker
from fairlead.runtime.watchdog import Watchdog
from fairlead.store import counts, duties, queue, rescue, retention
from tests import given

LEASE, SWEEP = 600.0, 10.0
ALL = {
    "retention",
    "audit_prepare",
    "audit_drop",
    "count_minutes",
    "count_history",
    "usage",
    "expired",
    "firings",
    "events",
    "runs",
    "sleepers",
    "checks",
    "sample",
    "stored_bytes",
    "failures",
    "error_groups",
    "held_jobs",
    "limit_rows",
    "approvals",
    "account_mails",
}


def watchdog(db: Database, *, sweep_seconds: float = SWEEP) -> Watchdog:
    return Watchdog(
        db,
        lease_seconds=LEASE,
        sweep_seconds=sweep_seconds,
        duties=Duties(db, retention_days=30, audit_retention_days=365),
    )


async def old_jobs(db: Database, number: int) -> None:
    async with db.transaction() as tx:
        for _ in range(number):
            # an id that is not of our making: it says nothing about its age
            await given.ended_job(tx, "succeeded", id=uuid4())
        await given.set_job(tx, finished_at=datetime.now(UTC) - timedelta(days=31))


async def old_audit_day(db: Database) -> None:
    async with db.transaction() as tx:
        await tx.run(
            "create table fairlead.audit_log_20010101 partition of fairlead.audit_log "
            "for values from ('2001-01-01 00:00+00') to ('2001-01-02 00:00+00')"
        )


async def values(db: Database, query: str) -> list[Any]:
    async with db.transaction() as tx:
        return await tx.values(query)


async def read_clock(db: Database) -> datetime:
    [(now,)] = await values(db, "select clock_timestamp()")
    assert isinstance(now, datetime)
    return now


async def left_undone(db: Database, since: datetime) -> list[str]:
    """The duties that nobody has done since then, though they were due. Some that were done may be due again."""
    return sorted(name for name, due_at in (await given.duty_times(db)).items() if due_at <= since)


@pytest.fixture
async def _small_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "remove", partial(retention.remove, look=2, limit=2))


async def test_every_duty_of_the_database_is_done_by_somebody(db: Database) -> None:
    assert (
        {*await given.duty_times(db)}
        == ALL
        == set(Duties(db, retention_days=1, audit_retention_days=1)._work)
    )


@pytest.mark.postgres_only("its coordinator drops the days of the audit log")
async def test_it_removes_folds_prepares_and_drops(db: Database) -> None:
    given.a_well_kept_database(db.url)
    await old_jobs(db, 3)
    await old_audit_day(db)
    async with db.transaction() as tx:
        await given.age(tx, "counts", days=2)
        days = await tx.values(
            "select relname from pg_class where relname ~ '^audit_log_2[0-9]{7}$' order by 1 desc limit 1"
        )
        await tx.run(f"drop table fairlead.{days[0][0]}")
    dog = watchdog(db)
    begun = await read_clock(db)

    with capture_logs() as logs:
        for _ in range(500):
            pause = await dog()
            if pause > 0:
                break

    told = {name: entry[name] for entry in logs for name in ("jobs", "audit_days") if name in entry}
    assert told == {"jobs": 3, "audit_days": 1}
    assert [entry["event"] for entry in logs if "retention" in entry["event"]] == ["retention_removed"] * 2
    assert await given.count(db, "jobs") == 0
    assert await values(db, "select to_regclass('fairlead.audit_log_20010101')") == [(None,)]
    assert await values(db, f"select to_regclass('fairlead.{days[0][0]}') is not null") == [(True,)]
    assert await given.count(db, "counts") <= 2  # the level, and what went after it
    assert await left_undone(db, begun) == []


async def test_zero_keeps_jobs_and_audit_for_ever(db: Database) -> None:
    await old_jobs(db, 1)
    await old_audit_day(db)

    await Duties(db, retention_days=0, audit_retention_days=0)()

    assert await given.count(db, "jobs") == 1
    assert await values(db, "select to_regclass('fairlead.audit_log_20010101') is not null") == [(True,)]


@pytest.mark.usefixtures("_small_rounds")
async def test_rounds_follow_each_other_at_once_while_there_is_work_and_are_told_in_one_line(
    db: Database,
) -> None:
    await old_jobs(db, 5)
    await given.rest_from_duties(db, but=["retention"])
    one = Duties(db, retention_days=30, audit_retention_days=0)

    with capture_logs() as logs:
        pauses = [await one() for _ in range(3)]

    assert pauses == [0.0, 0.0, 3600.0]
    assert [entry for entry in logs if entry["log_level"] == "info"] == [
        {"event": "retention_removed", "log_level": "info", "jobs": 5}
    ]


@pytest.mark.usefixtures("_small_rounds")
async def test_retention_leaves_no_rows_in_counts_for_the_next_hour(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round adds a row for each tenant and definition: a million jobs of many tenants would slow down all sums."""
    monkeypatch.setattr("fairlead.runtime.duties.FOLDING_SECONDS", 0.0, raising=False)
    await old_jobs(db, 5)
    await given.age(db, "counts", days=2)
    await given.rest_from_duties(db, but=["retention"])
    work = Duties(db, retention_days=1, audit_retention_days=0)

    while await work() == 0:
        pass
    await work()

    assert await given.count(db, "jobs") == 0
    assert await given.count(db, "counts") == 1


@pytest.mark.usefixtures("_small_rounds")
async def test_another_process_goes_on_where_the_last_one_left_off(db: Database) -> None:
    async with db.transaction() as tx:
        for number in range(1, 5):
            await given.queued_job(tx, id=UUID(int=number))
    places = []
    for _ in range(3):
        await given.make_duty_due(db, "retention")
        await Duties(db, retention_days=30, audit_retention_days=0)()
        places += await values(db, "select place from fairlead.duties where name = 'retention'")

    assert places == [(str(UUID(int=2)),), (str(UUID(int=4)),), (None,)]


async def test_a_duty_that_another_process_is_at_is_passed_by(db: Database) -> None:
    await old_jobs(db, 1)
    begun = await read_clock(db)
    async with db.transaction() as other:
        assert await duties.take_duty(other, "retention") is not None
        while await Duties(db, retention_days=30, audit_retention_days=0)() == 0:
            pass

    assert await left_undone(db, begun) == ["retention"]
    assert await given.count(db, "jobs") == 1


async def test_a_duty_that_is_done_rests_whoever_asks(db: Database) -> None:
    while await Duties(db, retention_days=30, audit_retention_days=0)() == 0:
        pass
    await old_jobs(db, 1)
    await given.rest_from_duties(db, but=["retention"])  # some others are due again within seconds

    assert await Duties(db, retention_days=30, audit_retention_days=0)() == math.inf
    assert await given.count(db, "jobs") == 1


async def test_a_duty_that_fails_stops_neither_the_rescue_nor_the_other_duties(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(tx: Tx, **_: Any) -> None:
        await tx.run("select 1 / 0")

    monkeypatch.setattr(retention, "remove", broken)
    monkeypatch.setattr(counts, "fold_history", broken)
    async with db.transaction() as tx:
        job_id = await given.running_job(tx)
        await given.end_leases(tx)
    dog = watchdog(db, sweep_seconds=0.1)

    with capture_logs() as logs:
        for _ in range(500):
            await dog()
            if not await db.transact(duties.list_due):
                break

    assert [entry["event"] for entry in logs].count("duty_failed") == 2
    assert [*await given.failed_duties(db)] == ["count_history", "retention"]
    assert (await given.read_job(db, job_id)).status is JobStatus.QUEUED


async def test_without_rights_to_the_duties_leases_are_rescued_all_the_same(db: Database) -> None:
    async with db.transaction() as tx:
        await tx.run("alter table fairlead.duties rename to duties_no_more")

    with capture_logs() as logs:
        pause = await watchdog(db)()

    assert 0 < pause <= SWEEP
    assert [entry["event"] for entry in logs if "duty" in entry["event"]] == ["duty_failed"]


@pytest.mark.postgres_only("its coordinator drops the days of the audit log")
async def test_a_reader_of_the_audit_log_puts_the_dropping_off(db: Database) -> None:
    await old_audit_day(db)
    await given.rest_from_duties(db, but=["audit_drop"])
    one = Duties(db, retention_days=0, audit_retention_days=365)
    async with db.transaction() as reader:
        await reader.values("select from fairlead.audit_entries limit 1")
        with pytest.raises(DatabaseBusy):
            await one()
        assert await one() == math.inf

    await given.make_duty_due(db, "audit_drop")
    assert await one() == 0.0
    assert await values(db, "select to_regclass('fairlead.audit_log_20010101')") == [(None,)]


@pytest.mark.usefixtures("_small_rounds")
async def test_rounds_that_follow_each_other_do_not_sweep_again(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept = []
    sweep = Watchdog._swept

    async def counted(self: Watchdog) -> int:
        swept.append(1)
        return await sweep(self)

    monkeypatch.setattr(Watchdog, "_swept", counted)
    await old_jobs(db, 5)
    await given.rest_from_duties(db, but=["retention"])
    dog = watchdog(db, sweep_seconds=600)

    assert [await dog() == 0 for _ in range(3)] == [True, True, False]
    assert len(swept) == 1


# What cannot be rescued keeps no other waiting


async def run_of_many(db: Database, number: int) -> UUID:
    """A run whose one step is so many jobs, each with an expired lease of one lost worker."""
    step = {"name": "each", "definition": "anything", "for_each": list(range(number))}
    asked = RunRequest(tenant=given.TENANT)
    async with db.transaction() as tx:
        run = await workflows.start_inline(tx, given.TESTER, {"key": "wide", "steps": [step]}, asked)
        claim = await queue.claim(tx, worker="dead", wanted=number, lease_seconds=LEASE)
        assert len(claim.jobs) == number
        await given.end_leases(tx)
    return run.id


async def expired_job(db: Database, tenant: str) -> UUID:
    async with db.transaction() as tx:
        job_id = await given.running_job(tx, tenant=tenant)
        await given.end_leases(tx)
    return job_id


async def test_leases_of_a_run_that_is_held_do_not_keep_another_tenants_from_being_rescued(
    db: Database,
) -> None:
    run_id = await run_of_many(db, 600)
    other = await expired_job(db, given.OTHER)
    dog = watchdog(db, sweep_seconds=0)
    async with db.transaction() as holder:
        await given.hold(holder, "run", run_id)

        await dog()

        assert await given.count(db, "leases") == 600
        assert dog.rescued == 1
    assert (await given.read_job(db, other)).status is JobStatus.QUEUED
    while dog.rescued < 601:
        await dog()
    assert await given.count(db, "leases") == 0


async def test_a_step_that_the_watchdog_ends_ends_its_run(db: Database) -> None:
    run_id = await run_of_many(db, 1)
    await given.set_job(db, lost_count=2)

    await watchdog(db)()

    [job] = await given.all_jobs(db)
    assert (job.workflow_run_id, job.status) == (run_id, JobStatus.DEAD_LETTER)
    assert await given.run_statuses(db) == {run_id: "failed"}


async def test_a_lease_that_cannot_be_rescued_rests_and_keeps_no_other_from_it(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with db.transaction() as tx:
        held = [await given.running_job(tx) for _ in range(5)]
        await given.end_leases(tx)
    stuck, tried, settle = held[1], list[UUID](), workflow_progress.settle_jobs

    async def broken(tx: Tx, ended: Mapping[UUID, JobStatus]) -> None:
        if stuck in ended:
            tried.append(stuck)
            await tx.run("select 1 / 0")
        await settle(tx, ended)

    monkeypatch.setattr(workflow_progress, "settle_jobs", broken)
    dog = watchdog(db, sweep_seconds=0)
    dog._sweep_seconds = SWEEP  # by which it rests
    with capture_logs() as logs:
        await dog()

    assert [job.id for job in await given.all_jobs(db) if job.status is JobStatus.RUNNING] == [stuck]
    assert dog.rescued == 4
    [told] = [entry for entry in logs if entry["event"] == "lease_not_rescued"]
    assert told["job_id"] == str(stuck)
    assert "division by zero" in told["why"]
    assert len(tried) == 2  # with all, and by itself
    await expired_job(db, given.OTHER)
    dog._sweep_at = -math.inf

    await dog()

    assert len(tried) == 2
    assert dog.rescued == 5
    monkeypatch.setattr(workflow_progress, "settle_jobs", settle)
    dog._failures = {}
    dog._sweep_at = -math.inf
    await dog()
    assert dog.rescued == 6
    assert await given.count(db, "leases") == 0


# Outages


async def age_pulse(db: Database, seconds: float) -> None:
    await given.age_pulse(db, timedelta(seconds=seconds))


async def test_after_an_outage_owners_have_a_lease_to_hand_in_what_they_have(db: Database) -> None:
    """It is measured by a row of the database, so it makes no difference whether the server was restarted."""
    dog = watchdog(db, sweep_seconds=0)
    await dog()
    await age_pulse(db, LEASE)
    await expired_job(db, given.TENANT)

    await dog()
    assert dog.rescued == 0
    await age_pulse(db, LEASE / 3)
    await dog()
    assert dog.rescued == 0
    for _ in range(3):  # time passes, and it goes on looking
        await age_pulse(db, LEASE / 3)
        await dog()
    assert dog.rescued == 1


async def test_where_looks_are_rare_leases_are_rescued_all_the_same(db: Database) -> None:
    """As with ticks, once an hour: each look seems to follow an outage."""
    dog = watchdog(db, sweep_seconds=0)
    await dog()
    await expired_job(db, given.TENANT)
    rescued = []
    for hours in (1, 2, 3):
        await age_pulse(db, 3600)
        await given.end_leases(db, in_seconds=-3600 * hours)
        await dog()
        rescued.append(dog.rescued)
    assert rescued[-1] == 1


async def test_two_watchdogs_do_not_wait_for_each_others_pulse(db: Database) -> None:
    await expired_job(db, given.TENANT)
    dog = watchdog(db, sweep_seconds=0)
    async with db.transaction() as other:
        await rescue.record_pulse(other, lease_seconds=LEASE, gap_seconds=LEASE / 2)

        await dog()

        assert dog.rescued == 1


async def test_a_caretaker_sweeps_the_database_that_is_open_now(db: Database) -> None:
    caretaker = Caretaker()
    async with Database(db.url, db.settings) as closed_soon:
        await caretaker(closed_soon)
    async with db.transaction() as tx:
        job_id = await given.running_job(tx)
        await given.end_leases(tx)

    await caretaker(db)

    assert (await given.read_job(db, job_id)).status is JobStatus.QUEUED
