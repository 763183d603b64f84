"""What is broken by hand is named, mended once, and audited; what is whole is not touched."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from click.testing import CliRunner

from fairlead import Fairlead
from fairlead.actions import consistency, repair
from fairlead.cli import main
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.errors import Forbidden
from fairlead.model.access import Principal, Role
from fairlead.model.finding import Verdict
from fairlead.model.inconsistency import Inconsistency, InconsistencyKind
from fairlead.model.job import JobStatus
from fairlead.runtime.maintenance import release_left_steps
from fairlead.store import audit, jobs
from fairlead.store import checks as stored
from fairlead.store import consistency as pieces
from tests import broken, given
from tests.acting import act
from tests.given import TESTER
from tests.plans import read_scans
from tests.runs import begun, claimed, diamond, states, succeeded

Break = Callable[[Tx], Awaitable[UUID]]


async def faults_of(database: Database, *, full: bool = True) -> list[Inconsistency]:
    return [one async for one in consistency.find_faults(database, full=full)]


async def mend(database: Database, fault: Inconsistency) -> bool:
    return await database.transact(partial(repair.mend, principal=TESTER, fault=fault))


async def repairs_in(tx: Tx) -> list[audit.Entry]:
    return [one for one in await audit.list_recent(tx) if one.action == "REPAIRED"]


async def everything_in(tx: Tx) -> list[Any]:
    """All rows that a repair could change."""
    tables = (
        "job_records",
        "ready",
        "later",
        "leases",
        "active_keys",
        "counts",
        "workflow_runs",
        "workflow_steps",
    )
    return [
        await tx.values(f"select t::text, xmin::text from fairlead.{name} t order by 1") for name in tables
    ]


@pytest.mark.parametrize(
    ("breaking", "kind"),
    [
        (broken.sleeping_parent, InconsistencyKind.SLEEPING_PARENT),
        (broken.sleeping_function, InconsistencyKind.SLEEPING_FUNCTION),
        (broken.function_without_wait, InconsistencyKind.SLEEPING_FUNCTION),
        (broken.queued_without_row, InconsistencyKind.QUEUED_WITHOUT_ROW),
        (broken.scheduled_without_row, InconsistencyKind.QUEUED_WITHOUT_ROW),
        (broken.active_without_key, InconsistencyKind.ACTIVE_WITHOUT_KEY),
        (broken.stale_key, InconsistencyKind.STALE_KEY),
        (broken.key_of_no_job, InconsistencyKind.STALE_KEY),
        (broken.wrong_counts, InconsistencyKind.COUNTS),
        (broken.held_in_vain, InconsistencyKind.HELD_IN_VAIN),
        (broken.other_limit_key, InconsistencyKind.LIMIT_KEY),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
async def test_a_fault_is_named_mended_once_and_audited(
    db: Database, breaking: Break, kind: InconsistencyKind
) -> None:
    async with db.transaction() as tx:
        await given.queued_job(tx, definition="anything", dedupe_key="another")
        await given.running_job(tx, definition="anything", tenant=given.OTHER)
        broken_id = await breaking(tx)

    found = [one for one in await faults_of(db, full=False) if one.kind is kind]

    assert {one.id for one in found} == {broken_id}
    assert await mend(db, found[0])
    assert await faults_of(db) == []
    assert not await mend(db, found[0])
    [entry] = await act(db, repairs_in)
    assert (entry.actor, entry.resource_id) == (TESTER.actor, str(broken_id))
    assert entry.details == {"kind": str(kind), "problem": found[0].problem}
    assert entry.tenant_id is not None


async def test_a_job_whose_lease_is_gone_is_queued_again_without_a_charge(db: Database) -> None:
    job_id = await act(db, broken.lost_lease)
    faults = {one.kind: one for one in await faults_of(db)}

    mended = [await mend(db, faults[kind]) for kind in InconsistencyKind if kind in faults]

    job = await act(db, jobs.get, job_id)
    assert (set(faults), mended[0]) == (
        {InconsistencyKind.QUEUED_WITHOUT_ROW, InconsistencyKind.COUNTS},
        True,
    )
    assert await faults_of(db) == []
    assert job is not None
    assert (job.status, job.attempt_count, job.failure_count, job.lost_count) == (JobStatus.QUEUED, 0, 0, 0)


async def test_a_key_that_another_active_job_has_is_left_to_a_person(db: Database) -> None:
    async with db.transaction() as tx:
        first = await broken.active_without_key(tx)
        await given.queued_job(tx, dedupe_key="k")
    [fault] = await faults_of(db)

    assert (fault.kind, fault.id) == (InconsistencyKind.ACTIVE_WITHOUT_KEY, first)
    assert not await mend(db, fault)
    async with db.transaction() as tx:
        assert await repairs_in(tx) == []
        await given.set_job(tx, first, dedupe_key=None)  # for the fixture


async def test_a_status_that_the_times_contradict_is_named(db: Database) -> None:
    async with db.transaction() as tx:
        job_id = await given.ended_job(tx, "succeeded")
        await given.set_job(tx, job_id, attempt_count=0)

    [fault] = await faults_of(db)

    assert (fault.kind, fault.id) == (InconsistencyKind.OTHER, job_id)
    assert fault.problem == "is succeeded, which its times or its count of attempts contradict"
    async with db.transaction() as tx:
        assert [(job_id, fault.problem)] == await jobs.list_inconsistencies(tx)
        await given.set_job(tx, job_id, attempt_count=1)  # for the fixture


async def test_a_healthy_system_is_not_touched(fl: Fairlead) -> None:
    database = fl.database
    await begun(fl, diamond())
    async with database.transaction() as tx:
        ids = [
            await given.queued_job(tx, dedupe_key="a"),
            await given.queued_job(tx, scheduled_for=datetime.now(UTC) + timedelta(days=1)),
            await given.running_job(tx),
            await given.ended_job(tx, "failed"),
        ]
        tenants = [await given.tenant_id(tx, slug) for slug in (given.TENANT, given.OTHER)]
        runs = await given.run_statuses(tx)
        before = await everything_in(tx)

    assert await faults_of(database) == []
    for kind in repair.MENDS:
        for one in [*ids, *tenants, *runs]:
            assert not await mend(database, Inconsistency(kind, one, "as if it were wrong"))

    async with database.transaction() as tx:
        assert await everything_in(tx) == before
        assert await repairs_in(tx) == []


async def test_a_job_that_somebody_changes_at_this_moment_is_left_alone(db: Database) -> None:
    job_id = await act(db, broken.queued_without_row)
    [fault] = [one for one in await faults_of(db) if one.kind is InconsistencyKind.QUEUED_WITHOUT_ROW]

    async with db.transaction() as other:
        await given.hold(other, "job", job_id)
        assert not await mend(db, fault)

    assert await mend(db, fault)


async def test_only_who_manages_the_system_repairs(tx: Tx) -> None:
    operator = Principal(actor="user:o", role=Role.OPERATOR, tenant_id=UUID(int=1))

    with pytest.raises(Forbidden):
        await repair.mend(tx, operator, Inconsistency(InconsistencyKind.COUNTS, UUID(int=1), ""))


# Runs


@pytest.fixture
async def run_fl(fl: Fairlead) -> AsyncIterator[Fairlead]:
    yield fl
    assert await faults_of(fl.database) == []


@pytest.mark.parametrize(
    "breakage",
    [
        "update fairlead.workflow_runs set live = live + 1",
        "update fairlead.workflow_steps set remaining = remaining + 1 where state = 'running' and name = 'left'",
        "update fairlead.workflow_steps set pending = pending + 1 where name = 'last'",
    ],
)
async def test_counters_of_a_run_are_counted_anew_and_it_goes_on_to_its_end(
    run_fl: Fairlead, breakage: str
) -> None:
    fl = run_fl
    run = await begun(fl, diamond())
    await (await claimed(fl))["first"].succeed({"n": 1})
    await act(fl.database, Tx.run, breakage)
    [fault] = await faults_of(fl.database)

    assert (fault.kind, fault.id) == (InconsistencyKind.RUN_COUNTERS, run.id)
    assert await mend(fl.database, fault)

    assert await faults_of(fl.database) == []
    await succeeded(fl)
    assert set((await states(run)).values()) == {"succeeded"}


async def test_a_step_whose_jobs_are_all_over_is_counted_and_frees_the_next(run_fl: Fairlead) -> None:
    fl = run_fl
    run = await begun(fl, diamond())
    await (await claimed(fl))["first"].succeed({"n": 1})
    both = await claimed(fl)
    async with fl.database.transaction() as tx:
        for name in both:
            await given.set_step(tx, name, remaining=2)
    for lease in both.values():
        await lease.succeed({"n": 1})
    assert (await states(run))["last"] == "waiting"
    fault = (await faults_of(fl.database))[0]

    assert await mend(fl.database, fault)

    await succeeded(fl)
    assert set((await states(run)).values()) == {"succeeded"}


async def test_a_step_that_could_begin_and_did_not_begins(run_fl: Fairlead) -> None:
    fl = run_fl
    run = await begun(fl, diamond())
    await given.set_step(fl.database, "left", pending=2)
    await (await claimed(fl))["first"].succeed({"n": 1})
    assert (await states(run))["left"] == "waiting"
    [fault] = await faults_of(fl.database)

    assert await mend(fl.database, fault)

    assert (await states(run))["left"] == "running"
    await succeeded(fl)
    assert set((await states(run)).values()) == {"succeeded"}


async def test_a_step_whose_jobs_are_still_to_be_made_is_left_as_it_is(run_fl: Fairlead) -> None:
    fl = run_fl
    run = await begun(fl, diamond(on_failure="continue"))
    await (await claimed(fl))["first"].succeed({"n": 1})
    both = await claimed(fl)
    await both["left"].fail("no", retryable=False)
    async with fl.database.transaction() as tx:  # as after a retry: it has an ended job, and begins again
        await given.set_step(tx, "left", state="running", remaining=1, failed=0, finished_at=None)
        await tx.run("update fairlead.workflow_steps set left_at = clock_timestamp() where name = 'left'")
        await given.set_step(tx, "last", pending=2, ran=0)
        await tx.run("update fairlead.workflow_runs set live = 3")
    [fault] = await faults_of(fl.database)

    assert await mend(fl.database, fault)

    assert (await states(run))["left"] == "running"
    await release_left_steps(fl.database)
    await both["right"].succeed()
    await succeeded(fl)
    assert set((await states(run)).values()) == {"succeeded"}


# On the command line


def doctor(url: str, *argv: str, answer: str | None = None) -> Any:
    return CliRunner().invoke(main, ["doctor", *argv], env={"FAIRLEAD_DATABASE_URL": url}, input=answer)


async def test_the_doctor_asks_before_it_repairs_and_says_what_became_of_it(
    database_url: str, settings: Any
) -> None:
    import asyncio  # noqa: PLC0415

    async with Database(database_url, settings) as database:
        async with database.transaction() as tx:
            job_id = await broken.queued_without_row(tx)
            await broken.stale_key(tx)

        refused = await asyncio.to_thread(doctor, database_url, "--repair", answer="n\n")
        assert refused.exit_code == 1
        assert "Repair them now?" in refused.output
        assert await faults_of(database) != []

        unasked = await asyncio.to_thread(doctor, database_url, "--repair", "--json")
        assert unasked.exit_code == 1
        assert "Add --yes" in unasked.output

        done = await asyncio.to_thread(doctor, database_url, "--repair", "--yes", "--json")
        assert done.exit_code == 0, done.output
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        repaired = [one for one in lines if "repair" in one]
        assert {(one["repair"], one["became"]) for one in repaired} >= {
            ("queued_without_row", "repaired"),
            ("stale_key", "repaired"),
        }
        assert str(job_id) in {one["id"] for one in repaired}
        assert await faults_of(database) == []
        again = await asyncio.to_thread(doctor, database_url, "--full")
        assert again.exit_code == 0, again.output
        assert "queue and record agree, of all jobs" in again.output


# The walk


async def test_a_duty_walks_through_the_whole_record_and_keeps_what_it_finds(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consistency, "SAMPLED", 2)
    async with db.transaction() as tx:
        for _ in range(3):
            await given.queued_job(tx)
        job_id = await broken.active_without_key(tx)
        await given.queued_job(tx)

    places, faults = await lap(db)

    assert len(places) == 5  # three of jobs, then keys, runs and levels
    assert [(one.kind, one.id) for one in faults] == [(InconsistencyKind.ACTIVE_WITHOUT_KEY, job_id)]
    [found] = await act(db, stored.list_findings)
    assert (found.check, found.verdict, found.value) == ("consistency", Verdict.FAIL, 1)

    await mend(db, faults[0])
    assert (await lap(db))[1] == []
    [found] = await act(db, stored.list_findings)
    assert (found.verdict, found.value) == (Verdict.OK, 0)


async def lap(db: Database) -> tuple[list[str], list[Inconsistency]]:
    """Where each piece began, and what all of them found."""
    place: str | None = None
    places: list[str] = []
    faults: list[Inconsistency] = []
    while True:
        sampled = await db.transact(partial(consistency.check_next_piece, place=place))
        faults += sampled.faults
        if (place := sampled.place) is None:
            return places, faults
        places.append(place)


async def test_a_piece_reads_no_more_than_it_looks_at(tx: Tx) -> None:
    for _ in range(30):
        await given.queued_job(tx, dedupe_key=str(uuid4()))
    await tx.prefer_indexes()
    values = {"place": UUID(int=0), "look": 5}

    tables = ("job_records", "ready", "later", "leases", "active_keys")
    read = await read_scans(tx, pieces.sql.jobs, values, *tables)

    assert {one["Relation Name"] for one in read} == set(tables)
    assert [one for one in read if one["Node Type"] == "Seq Scan"] == []
    assert [one for one in read if one["Actual Rows"] * one["Actual Loops"] > 5] == []
