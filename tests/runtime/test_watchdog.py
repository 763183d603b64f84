"""The watchdog's duties: each at its own pace, by one process at a time, and never in the way of the leases."""

import math
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from structlog.testing import capture_logs

from fairlead.actions import settling
from fairlead.db.tx import Database, Tx
from fairlead.errors import DatabaseBusy
from fairlead.model.job import JobStatus
from fairlead.runtime.duties import Duties
from fairlead.runtime.watchdog import Watchdog
from fairlead.store import counts, duties, jobs, retention
from tests import given

SWEEP = 10.0
ALL = {
    "retention",
    "audit_prepare",
    "audit_drop",
    "minutes",
    "history",
    "usage",
    "expired",
    "firings",
    "events",
    "runs",
    "sleepers",
}


def watchdog(db: Database, *, sweep_seconds: float = SWEEP) -> Watchdog:
    return Watchdog(
        db,
        lease_seconds=0.001,
        sweep_seconds=sweep_seconds,
        duties=Duties(db, retention_days=30, audit_retention_days=365),
    )


async def old_jobs(db: Database, number: int) -> None:
    async with db.transaction() as tx:
        for _ in range(number):
            # an id that is not of our making: it says nothing about its age
            await given.ended_job(tx, "succeeded", id=uuid4())
        await tx.run("update fairlead.jobs set finished_at = finished_at - interval '31 days'")


async def values(db: Database, query: str) -> list[Any]:
    async with db.transaction() as tx:
        return await tx.values(query)


async def only(db: Database, name: str) -> None:
    async with db.transaction() as tx:
        await tx.run("update fairlead.duties set due_at = 'infinity' where name <> %s", [name])


async def make_due(db: Database, name: str) -> None:
    async with db.transaction() as tx:
        await tx.run("update fairlead.duties set due_at = clock_timestamp() where name = %s", [name])


@pytest.fixture
async def _small_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "remove", partial(retention.remove, look=2, limit=2))


async def test_every_duty_of_the_database_is_done_by_somebody(db: Database) -> None:
    names = {name for (name,) in await values(db, "select name from fairlead.duties")}

    assert names == ALL == set(Duties(db, retention_days=1, audit_retention_days=1)._work)


async def test_it_removes_folds_prepares_and_drops(db: Database) -> None:
    await old_jobs(db, 3)
    async with db.transaction() as tx:
        await tx.run("update fairlead.counts set minute = minute - interval '2 days'")
        await tx.run(
            "create table fairlead.audit_log_20010101 partition of fairlead.audit_log "
            "for values from ('2001-01-01 00:00+00') to ('2001-01-02 00:00+00')"
        )
        days = await tx.values(
            "select relname from pg_class where relname ~ '^audit_log_2[0-9]{7}$' order by 1 desc limit 1"
        )
        await tx.run(f"drop table fairlead.{days[0][0]}")
    dog = watchdog(db)

    with capture_logs() as logs:
        for _ in range(500):
            pause = await dog()
            if pause > 0:
                break

    told = {name: entry[name] for entry in logs for name in ("jobs", "audit_days") if name in entry}
    assert told == {"jobs": 3, "audit_days": 1}
    assert [entry["event"] for entry in logs] == ["retention_removed"] * 2
    assert await values(db, "select from fairlead.jobs") == []
    assert await values(db, "select to_regclass('fairlead.audit_log_20010101')") == [(None,)]
    assert await values(db, f"select to_regclass('fairlead.{days[0][0]}') is not null") == [(True,)]
    assert len(await values(db, "select from fairlead.counts")) <= 2  # the level, and what went after it
    assert await values(db, "select from fairlead.duties where due_at <= clock_timestamp()") == []


async def test_zero_keeps_jobs_and_audit_for_ever(db: Database) -> None:
    await old_jobs(db, 1)
    async with db.transaction() as tx:
        await tx.run(
            "create table fairlead.audit_log_20010101 partition of fairlead.audit_log "
            "for values from ('2001-01-01 00:00+00') to ('2001-01-02 00:00+00')"
        )

    await Duties(db, retention_days=0, audit_retention_days=0)()

    assert await values(db, "select count(*) from fairlead.jobs") == [(1,)]
    assert await values(db, "select to_regclass('fairlead.audit_log_20010101') is not null") == [(True,)]


@pytest.mark.usefixtures("_small_rounds")
async def test_rounds_follow_each_other_at_once_while_there_is_work_and_are_told_in_one_line(
    db: Database,
) -> None:
    await old_jobs(db, 5)
    await only(db, "retention")
    one = Duties(db, retention_days=30, audit_retention_days=0)

    with capture_logs() as logs:
        pauses = [await one() for _ in range(3)]

    assert pauses == [0.0, 0.0, 3600.0]
    assert [entry for entry in logs if entry["log_level"] == "info"] == [
        {"event": "retention_removed", "log_level": "info", "jobs": 5}
    ]


@pytest.mark.usefixtures("_small_rounds")
async def test_another_process_goes_on_where_the_last_one_left_off(db: Database) -> None:
    async with db.transaction() as tx:
        for number in range(1, 5):
            await given.queued_job(tx, id=UUID(int=number))
    places = []
    for _ in range(3):
        await make_due(db, "retention")
        await Duties(db, retention_days=30, audit_retention_days=0)()
        places += await values(db, "select place from fairlead.duties where name = 'retention'")

    assert places == [(str(UUID(int=2)),), (str(UUID(int=4)),), (None,)]


async def test_a_duty_that_another_process_is_at_is_passed_by(db: Database) -> None:
    await old_jobs(db, 1)
    async with db.transaction() as other:
        assert await duties.take(other, "retention") is not None
        while await Duties(db, retention_days=30, audit_retention_days=0)() == 0:
            pass

    assert await values(db, "select name from fairlead.duties where due_at <= clock_timestamp()") == [
        ("retention",)
    ]
    assert await values(db, "select count(*) from fairlead.jobs") == [(1,)]


async def test_a_duty_that_is_done_rests_whoever_asks(db: Database) -> None:
    while await Duties(db, retention_days=30, audit_retention_days=0)() == 0:
        pass
    await old_jobs(db, 1)

    assert await Duties(db, retention_days=30, audit_retention_days=0)() == math.inf
    assert await values(db, "select count(*) from fairlead.jobs") == [(1,)]


async def test_a_duty_that_fails_stops_neither_the_rescue_nor_the_other_duties(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(tx: Tx, **_: Any) -> None:
        await tx.run("select 1 / 0")

    monkeypatch.setattr(retention, "remove", broken)
    monkeypatch.setattr(counts, "fold_history", broken)
    async with db.transaction() as tx:
        job_id = await given.running_job(tx)
        await tx.run("update fairlead.leases set expires_at = clock_timestamp() - %s", [timedelta(minutes=1)])
    dog = watchdog(db, sweep_seconds=0.1)

    with capture_logs() as logs:
        for _ in range(500):
            await dog()
            if not await values(db, "select from fairlead.duties where due_at <= clock_timestamp()"):
                break

    assert [entry["event"] for entry in logs].count("duty_failed") == 2
    assert await values(
        db,
        "select name from fairlead.duties where due_at < clock_timestamp() + interval '5 min' and name not in ('minutes', 'usage', 'sleepers') order by 1",
    ) == [("history",), ("retention",)]
    async with db.transaction() as tx:
        job = await jobs.get(tx, job_id)
    assert job is not None
    assert job.status is JobStatus.QUEUED


async def test_a_lease_that_cannot_be_rescued_keeps_no_other_from_it(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with db.transaction() as tx:
        held = [await given.running_job(tx) for _ in range(5)]
        await tx.run("update fairlead.leases set expires_at = clock_timestamp() - %s", [timedelta(minutes=1)])
    stuck, settle = held[1], settling.settle

    async def broken(tx: Tx, ended: Mapping[UUID, JobStatus]) -> None:
        if stuck in ended:
            await tx.run("select 1 / 0")
        await settle(tx, ended)

    monkeypatch.setattr(settling, "settle", broken)
    dog = watchdog(db, sweep_seconds=0)

    with capture_logs() as logs:
        await dog()

    assert await values(db, "select id from fairlead.jobs where status = 'running'") == [(stuck,)]
    assert dog.rescued == 4
    [told] = [entry for entry in logs if entry["event"] == "lease_not_rescued"]
    assert told["job_id"] == str(stuck)
    assert "division by zero" in told["why"]

    monkeypatch.setattr(settling, "settle", settle)
    await dog()
    assert await values(db, "select from fairlead.leases") == []


async def test_without_rights_to_the_duties_leases_are_rescued_all_the_same(db: Database) -> None:
    async with db.transaction() as tx:
        await tx.run("alter table fairlead.duties rename to duties_no_more")

    with capture_logs() as logs:
        pause = await watchdog(db)()

    assert 0 < pause <= SWEEP
    assert [entry["event"] for entry in logs] == ["duty_failed"]


async def test_a_reader_of_the_audit_log_puts_the_dropping_off(db: Database) -> None:
    async with db.transaction() as tx:
        await tx.run(
            "create table fairlead.audit_log_20010101 partition of fairlead.audit_log "
            "for values from ('2001-01-01 00:00+00') to ('2001-01-02 00:00+00')"
        )
    await only(db, "audit_drop")
    one = Duties(db, retention_days=0, audit_retention_days=365)
    async with db.transaction() as reader:
        await reader.values("select from fairlead.audit_log limit 1")
        with pytest.raises(DatabaseBusy):
            await one()
        assert await one() == math.inf

    await make_due(db, "audit_drop")
    assert await one() == 0.0
    assert await values(db, "select to_regclass('fairlead.audit_log_20010101')") == [(None,)]


@pytest.mark.usefixtures("_small_rounds")
async def test_rounds_that_follow_each_other_do_not_sweep_again(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept = []
    sweep = Watchdog._sweep

    async def counted(self: Watchdog, tx: Tx) -> int:
        swept.append(1)
        return await sweep(self, tx)

    monkeypatch.setattr(Watchdog, "_sweep", counted)
    await old_jobs(db, 5)
    await only(db, "retention")
    dog = watchdog(db, sweep_seconds=600)

    assert [await dog() == 0 for _ in range(3)] == [True, True, False]
    assert len(swept) == 1
