"""The bridge: what an engine carries keeps its lease, ends once, and outlives the bridge that handed it over."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from fairlead import Settings
from fairlead.actions import definitions, encryption, hosts, jobs, why
from fairlead.actions import tenants as tenant_actions
from fairlead.actions.handovers import AttemptEnd, finish
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.errors import EncryptionKeyUnavailable, EngineUnavailable
from fairlead.integrations.engine import DeliveryProgress, Engine, Handover, Report
from fairlead.model.delivery import AttemptRef, make_secret
from fairlead.model.job import Job
from fairlead.model.outcome import Failed, Succeeded
from fairlead.model.reason import Reason
from fairlead.runtime import bridge, engine_bridge
from fairlead.runtime.bridge import Bridge, BridgePlan
from fairlead.runtime.engine_bridge import EngineTerms
from fairlead.store import handovers, rescue
from tests import given, waiting
from tests.acting import act
from tests.tables import each_case
from tests.waiting import SECONDS, eventually

pytestmark = pytest.mark.usefixtures("parcels")

ENGINE = "carrier"
KEY = "parcel"
# ends the carrier's reports
END: Sequence[Report] = ()


class Carrier:
    """An engine in memory: it records what it is given, and reports what the test says."""

    def __init__(self) -> None:
        self.handed: list[Handover] = []
        self.reports: asyncio.Queue[Sequence[Report]] = asyncio.Queue()
        self.stopped: list[str] = []
        self.acknowledged: list[UUID] = []
        self.refusals: dict[str, str] = {}
        self.lost: set[str] = set()
        self.waiting = True
        self.is_up = True
        self.connections = 0
        self.failures = 0

    async def hand_over(self, handovers: Sequence[Handover]) -> Mapping[str, str]:
        if not self.is_up:
            raise EngineUnavailable("The carrier is away.")
        self.handed += handovers
        return {one.id: why for one in handovers for why in [self.refusals.get(one.definition_key)] if why}

    async def results(self) -> AsyncIterator[Sequence[Report]]:
        while (batch := await self.reports.get()) is not END:
            yield batch

    async def find_lost(self, handovers: Sequence[Handover]) -> Sequence[Report]:
        return [
            Report(
                attempt=name(one),
                what=Failed("DeliveryLost", "the carrier has lost it"),
            )
            for one in handovers
            if one.id in self.lost
        ]

    async def cancel(self, handovers: Sequence[Handover]) -> set[str]:
        self.stopped += [one.id for one in handovers]
        return {one.id for one in handovers} if self.waiting else set()

    def report(self, handover: Handover, what: Any, *, attempt: AttemptRef | None = None) -> None:
        async def acknowledge() -> None:
            self.acknowledged.append(handover.lease.job_id)

        self.reports.put_nowait(
            [
                Report(
                    attempt=attempt or name(handover),
                    what=what,
                    acknowledge=acknowledge,
                )
            ]
        )

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Engine]:
        if not self.is_up:
            self.failures += 1
            raise EngineUnavailable("The carrier is away.")
        self.connections += 1
        yield self


@pytest.fixture
def carrier() -> Carrier:
    return Carrier()


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_bridge, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(engine_bridge, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(bridge, "DEFINITIONS_SECONDS", 0.1)


@pytest.fixture
async def parcels(db: Database) -> None:
    await act(db, define)


async def define(tx: Tx, /, **fields: Any) -> None:
    values = {"kind": "delivered", "engine": ENGINE, "queue": "to-{tenant}", **fields}
    await definitions.patch(tx, given.TESTER, KEY, values)


async def enqueue(db: Database, **fields: Any) -> UUID:
    return await given.queued_job(db, definition=KEY, **{"payload": {"n": 1}, **fields})


async def read(db: Database, job_id: UUID) -> Job:
    async with db.transaction() as tx:
        job, _ = await jobs.show_job(tx, given.TESTER, job_id)
        return job


async def until(db: Database, job_id: UUID, fits: Callable[[Job], bool], what: str) -> Job:
    async with asyncio.timeout(SECONDS):
        while not fits(job := await read(db, job_id)):
            await asyncio.sleep(0.01)
    assert fits(job), what
    return job


async def until_status(db: Database, job_id: UUID, status: str) -> Job:
    return await until(db, job_id, lambda job: job.status == status, status)


@asynccontextmanager
async def bridged(
    url: str, settings: Settings, carrier: Carrier, *, max_in_flight: int = 100
) -> AsyncIterator[None]:
    terms = EngineTerms(ENGINE, carrier.connect, max_in_flight)
    plan = BridgePlan(url=url, settings=settings, engines=[terms], version="test")
    stop = asyncio.Event()
    running = asyncio.create_task(Bridge(plan).run(stop))
    try:
        yield
    finally:
        stop.set()
        await running


def name(handover: Handover) -> AttemptRef:
    """The attempt as an engine names it that carries no tokens."""
    lease = handover.lease
    return AttemptRef(lease.job_id, lease.attempt_no, None, make_secret(lease.token), handover.queue)


async def handed(carrier: Carrier, number: int = 1) -> list[Handover]:
    await eventually(lambda: len(carrier.handed) >= number or None, f"{number} attempts to be handed over")
    return carrier.handed


async def test_a_job_is_handed_over_reports_its_progress_and_ends(
    db: Database, database_url: str, settings: Settings, carrier: Carrier
) -> None:
    job_id = await enqueue(db, correlation_id="order-7")
    async with bridged(database_url, settings, carrier):
        [one] = await handed(carrier)
        assert (one.lease.job_id, one.queue, one.tenant) == (job_id, f"to-{given.TENANT}", given.TENANT)
        assert (one.payload, one.correlation_id, one.definition_key) == ({"n": 1}, "order-7", KEY)
        assert one.id == f"{job_id}-1"
        running = await until(db, job_id, lambda job: job.status == "running", "running")
        assert str(running.claimed_by_worker).startswith("bridge:")
        carrier.report(one, DeliveryProgress(50, "half"))
        await until(db, job_id, lambda job: bool(job.progress) and job.progress["percent"] == 50, "progress")
        carrier.report(one, Succeeded({"ok": True}))
        done = await until_status(db, job_id, "succeeded")
        assert done.output == {"ok": True}
        await eventually(lambda: carrier.acknowledged == [job_id, job_id] or None, "both acknowledged")
    assert await act(db, handovers.count, ENGINE) == 0


async def test_a_result_whose_key_is_away_is_stored_when_it_is_back(
    db: Database, database_url: str, settings: Settings, carrier: Carrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And keeps neither results of others nor the look for cancels from going on."""
    locked, free, canceled = [await enqueue(db) for _ in range(3)]
    without_key = {locked, canceled}
    find_owners = handovers.find_owners

    async def find(tx: Tx, engine: str, attempts: Sequence[AttemptRef]) -> Any:
        if without_key & {one.job_id for one in attempts}:
            raise EncryptionKeyUnavailable("The KMS is away.")
        return await find_owners(tx, engine, attempts)

    monkeypatch.setattr(handovers, "find_owners", find)
    async with bridged(database_url, settings, carrier):
        by_job = {one.lease.job_id: one for one in await handed(carrier, 3)}
        await act(db, jobs.cancel, given.TESTER, canceled)
        for job_id in (locked, free):
            carrier.report(by_job[job_id], Succeeded(str(job_id)))
        await until_status(db, free, "succeeded")
        await eventually(lambda: len(carrier.stopped) > 2 or None, "several looks")
        assert carrier.acknowledged == [free]

        without_key.clear()
        assert (await until_status(db, locked, "succeeded")).output == str(locked)
        await until_status(db, canceled, "canceled")
        await eventually(
            lambda: carrier.acknowledged == [free, locked] or None, "the result to be acknowledged"
        )
    assert carrier.connections == 1


async def test_a_failure_is_retried_as_an_attempt_of_its_own_and_a_late_result_is_refused(
    db: Database, database_url: str, settings: Settings, carrier: Carrier
) -> None:
    async with db.transaction() as tx:
        backoff = {"base_seconds": 0, "factor": 1, "cap_seconds": 0, "jitter": 0}
        await define(tx, backoff=backoff)
    job_id = await enqueue(db)
    async with bridged(database_url, settings, carrier):
        [first] = await handed(carrier)
        carrier.report(first, Failed("Boom", "it broke"))
        _, second = await handed(carrier, 2)
        assert second.id == f"{job_id}-2"
        carrier.report(first, Succeeded("late"))
        stale = AttemptRef(job_id, 2, first.lease.token)
        carrier.report(second, Succeeded("with another token"), attempt=stale)
        await eventually(lambda: len(carrier.acknowledged) == 3 or None, "the refused to be acknowledged")
        assert (await read(db, job_id)).status == "running"
        carrier.report(second, Succeeded("right"))
        assert (await until_status(db, job_id, "succeeded")).output == "right"


async def test_a_report_counts_only_from_the_engine_and_the_queue_of_the_attempt_and_with_its_secret(
    db: Database, database_url: str, settings: Settings, carrier: Carrier
) -> None:
    function = await given.claimed_job(db)
    await enqueue(db)
    async with bridged(database_url, settings, carrier):
        [handover] = await handed(carrier)
        right, job_id = name(handover), handover.lease.job_id
        forged = [
            AttemptRef(job_id, 1),
            msgspec.structs.replace(right, secret=make_secret(uuid4())),
            msgspec.structs.replace(right, queue=f"to-{given.OTHER}"),
            AttemptRef(function.job_id, 1),
            AttemptRef(function.job_id, 1, function.token),
            AttemptRef(function.job_id, 1, None, make_secret(function.token), handover.queue),
        ]
        for attempt in forged:
            carrier.report(handover, DeliveryProgress(99, "forged"), attempt=attempt)
            carrier.report(handover, Succeeded("forged"), attempt=attempt)
        reported = 2 * len(forged)
        await eventually(lambda: len(carrier.acknowledged) == reported or None, "all to be refused")
        for running in (job_id, function.job_id):
            job = await read(db, running)
            assert (job.status, job.progress) == ("running", None)
        async with db.transaction() as tx:
            assert await finish(tx, [AttemptEnd(right, Succeeded("forged"))], engine="other") == {}
        carrier.report(handover, Succeeded("right"))
        assert (await until_status(db, job_id, "succeeded")).output == "right"


async def test_the_first_of_two_outcomes_in_one_batch_counts(
    db: Database, database_url: str, settings: Settings, carrier: Carrier
) -> None:
    job_id = await enqueue(db)
    async with bridged(database_url, settings, carrier):
        [handover] = await handed(carrier)
        twice = [
            Report(attempt=name(handover), what=what)
            for what in (Succeeded(1), Failed("Boom", "second"), Succeeded(2))
        ]
        carrier.reports.put_nowait(twice)
        assert (await until_status(db, job_id, "succeeded")).output == 1


async def test_an_output_that_cannot_be_stored_fails_the_job_and_the_rest_of_its_batch_is_stored(
    db: Database, database_url: str, settings: Settings, carrier: Carrier
) -> None:
    bad, good = await enqueue(db), await enqueue(db)
    async with bridged(database_url, settings, carrier):
        by_job = {handover.lease.job_id: handover for handover in await handed(carrier, 2)}
        carrier.reports.put_nowait(
            [
                Report(attempt=name(by_job[bad]), what=Succeeded("a\x00b")),
                Report(attempt=name(by_job[good]), what=Succeeded("fine")),
            ]
        )
        assert (await until_status(db, good, "succeeded")).output == "fine"
        assert "OutputInvalid" in str((await until_status(db, bad, "failed")).last_error)


async def test_what_a_bridge_leaves_goes_on_under_the_next_one_and_is_not_handed_over_again(
    db: Database, database_url: str, settings: Settings, carrier: Carrier
) -> None:
    job_id = await enqueue(db)
    async with bridged(database_url, settings, carrier):
        [one] = await handed(carrier)
        await until(db, job_id, lambda job: job.status == "running", "running")
        await confirmed(db, job_id)
    assert (await read(db, job_id)).status == "running"
    async with bridged(database_url, settings, carrier):
        other = await enqueue(db)
        await handed(carrier, 2)
        carrier.report(one, Succeeded("at last"))
        assert (await until_status(db, job_id, "succeeded")).output == "at last"
    assert [one.lease.job_id for one in carrier.handed] == [job_id, other]


async def confirmed(db: Database, job_id: UUID) -> None:
    async def is_in_flight() -> bool:
        found = await act(db, handovers.list_in_flight, ENGINE, limit=10)
        return any(row.job_id == job_id for row in found)

    await waiting.until(is_in_flight, "the engine to have the job")


async def test_what_was_claimed_and_never_handed_over_is_handed_over_with_the_same_id(
    db: Database, database_url: str, settings: Settings, carrier: Carrier
) -> None:
    """A bridge that dies between its claim and the engine, or before the engine's answer."""
    job_id = await enqueue(db)
    async with db.transaction() as tx:
        claimed = await definitions.find(tx, given.TESTER, KEY)
        assert claimed is not None
        dead = engine_bridge.EngineBridge(db, EngineTerms(ENGINE, carrier.connect, 1), bridge_id="dead")
        dead.set_definitions(await handovers.list_definitions(tx, [ENGINE]))
        [claimed_jobs, _] = await dead._claim(tx, 10)
        assert claimed_jobs == 1
    async with bridged(database_url, settings, carrier):
        [one] = await handed(carrier)
        assert one.id == f"{job_id}-1"
        carrier.report(one, Succeeded())
        assert (await until_status(db, job_id, "succeeded")).attempt_count == 1


async def test_leases_are_renewed_by_any_bridge_and_a_job_without_one_is_lost_uncharged(
    db: Database, database_url: str, settings: Settings, carrier: Carrier
) -> None:
    job_id = await enqueue(db)
    # no lease is rescued here, should the renewal be late
    short = replace(settings, bridge_lease_seconds=2.0, sweep_seconds=3600)
    async with bridged(database_url, short, carrier):
        await handed(carrier)
        await confirmed(db, job_id)
        before = await given.lease_end(db, job_id)
        async with asyncio.timeout(SECONDS):
            while await given.lease_end(db, job_id) <= before:
                await asyncio.sleep(0.02)
    async with db.transaction() as tx:
        await given.end_leases(tx)
        assert await rescue.rescue(tx) == {job_id: "queued"}
    found = await read(db, job_id)
    assert (found.lost_count, found.failure_count, found.attempt_count) == (0, 0, 1)
    assert "fairlead bridge" in str(found.last_error)


@pytest.mark.thorough
async def test_a_cancel_takes_a_waiting_job_back_and_tells_a_running_one_to_stop(
    db: Database, database_url: str, settings: Settings, carrier: Carrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bridged(database_url, settings, carrier):
        waiting = await enqueue(db)
        await handed(carrier)
        await cancel(db, waiting)
        assert (await until_status(db, waiting, "canceled")).attempt_count == 1
        assert carrier.stopped == [f"{waiting}-1"]

        carrier.waiting = False
        running = await enqueue(db)
        _, one = await handed(carrier, 2)
        await cancel(db, running)
        await eventually(lambda: f"{running}-1" in carrier.stopped or None, "the worker to be told")
        assert (await read(db, running)).status == "running"
        monkeypatch.setattr(engine_bridge, "STOP_SECONDS", 0.0)
        await until_status(db, running, "canceled")
        carrier.report(one, Succeeded("too late"))
        await eventually(lambda: carrier.acknowledged == [running] or None, "the late result to be refused")
        assert (await read(db, running)).status == "canceled"


async def cancel(db: Database, job_id: UUID) -> None:
    await act(db, jobs.cancel, given.TESTER, job_id)


@pytest.mark.thorough
async def test_a_job_that_takes_too_long_times_out_and_one_that_is_lost_is_retried(
    db: Database, database_url: str, settings: Settings, carrier: Carrier
) -> None:
    await act(db, define, timeout_seconds=1, max_attempts=1)
    slow = await enqueue(db)
    async with bridged(database_url, settings, carrier):
        await until_status(db, slow, "dead_letter")
        assert "no result within 1 s" in str((await read(db, slow)).last_error)
        assert carrier.stopped == [f"{slow}-1"]
        async with db.transaction() as tx:
            backoff = {"base_seconds": 0, "factor": 1, "cap_seconds": 0, "jitter": 0}
            await define(tx, timeout_seconds=60, max_attempts=2, backoff=backoff)
        lost = await enqueue(db)
        carrier.lost.add(f"{lost}-1")
        await eventually(
            lambda: any(one.id == f"{lost}-2" for one in carrier.handed) or None, "the second attempt"
        )


async def test_what_can_never_be_delivered_fails_and_says_why(
    db: Database, database_url: str, settings: Settings, carrier: Carrier
) -> None:
    carrier.refusals[KEY] = "it is larger than 256 KiB: send a reference instead"
    job_id = await enqueue(db)
    async with bridged(database_url, settings, carrier):
        failed = await until_status(db, job_id, "failed")
    assert "NotDeliverable: it is larger than 256 KiB" in str(failed.last_error)


async def test_an_engine_that_is_away_is_tried_again_and_nothing_is_lost(
    db: Database, database_url: str, settings: Settings, carrier: Carrier
) -> None:
    carrier.is_up = False
    job_id = await enqueue(db)
    async with bridged(database_url, settings, carrier):
        await eventually(lambda: carrier.failures >= 2 or None, "two attempts to connect")
        assert (await read(db, job_id)).status == "queued"
        carrier.is_up = True
        [one] = await handed(carrier)
        carrier.is_up = False
        second = await enqueue(db)
        await until(db, second, lambda job: job.status == "running", "claimed")
        carrier.is_up = True
        await handed(carrier, 2)
        assert [one.id for one in carrier.handed] == [f"{job_id}-1", f"{second}-1"]
        carrier.report(one, Succeeded())
        await until_status(db, job_id, "succeeded")


async def test_an_engine_whose_reports_end_is_connected_again(
    db: Database, database_url: str, settings: Settings, carrier: Carrier
) -> None:
    async with bridged(database_url, settings, carrier):
        job_id = await enqueue(db)
        [one] = await handed(carrier)
        carrier.reports.put_nowait(END)
        await eventually(lambda: carrier.connections == 2 or None, "the second connection")
        carrier.report(one, Succeeded())
        await until_status(db, job_id, "succeeded")


@pytest.mark.thorough
async def test_the_engine_carries_no_more_than_its_limit_and_no_tenant_more_than_its_own(
    db: Database, database_url: str, settings: Settings, carrier: Carrier
) -> None:
    await act(db, tenant_actions.change, given.TESTER, given.TENANT, {"max_running": 2})
    for _ in range(4):
        await enqueue(db)
        await enqueue(db, tenant=given.OTHER)
    reported: list[Handover] = []
    async with bridged(database_url, settings, carrier, max_in_flight=5):
        for number in range(5, 9):
            await handed(carrier, number)
            alive = [one for one in carrier.handed if one not in reported]
            assert len(alive) <= 5
            assert sum(one.tenant == given.TENANT for one in alive) <= 2
            reported.append(next(one for one in alive if one.tenant == given.TENANT or number > 7))
            carrier.report(reported[-1], Succeeded())


@pytest.mark.thorough
async def test_jobs_that_wait_for_a_rate_are_handed_over_when_it_opens(
    db: Database, database_url: str, settings: Settings, carrier: Carrier
) -> None:
    await act(db, define, rate={"limit": 1, "per_seconds": 1, "burst": 1})
    jobs = [await enqueue(db) for _ in range(3)]
    # long enough that nothing is found by polling
    async with bridged(database_url, replace(settings, poll_seconds=3600.0), carrier):
        handovers = await handed(carrier, 3)
        assert [one.lease.job_id for one in handovers] == jobs
        for one in handovers:
            carrier.report(one, Succeeded())
        for job in jobs:
            await until_status(db, job, "succeeded")


async def test_jobs_of_a_host_go_to_its_queue_within_its_limit(
    db: Database, database_url: str, settings: Settings, carrier: Carrier
) -> None:
    async with db.transaction() as tx:
        await define(tx, queue="host-{host}")
        tenant_id = await tenant_actions.find_id(tx, given.TENANT)
        assert tenant_id is not None
        host = await hosts.add(tx, given.TESTER, tenant_id=tenant_id, name="box", max_running=1)
    first, second = await enqueue(db, host_id=host.id), await enqueue(db, host_id=host.id)
    free = await enqueue(db)
    async with bridged(database_url, settings, carrier):
        await handed(carrier, 2)
        by_queue = {one.queue: one for one in carrier.handed}
        assert by_queue["host-box"].lease.job_id == first
        assert by_queue["host-"].lease.job_id == free
        await until_worker(db)
        assert [one.code for one in await reasons(db, second)] == ["host_limit"]
        carrier.report(by_queue["host-box"], Succeeded())
        await handed(carrier, 3)
        assert (carrier.handed[2].lease.job_id, carrier.handed[2].host) == (second, "box")


async def test_why_and_the_overview_name_the_engine(
    db: Database, database_url: str, settings: Settings, carrier: Carrier
) -> None:
    job_id = await enqueue(db)
    [reason] = await reasons(db, job_id)
    assert (reason.code, reason.facts["engine"]) == ("no_worker", ENGINE)
    assert f"start `fairlead bridge` with [engines.{ENGINE}]" in reason.message
    async with bridged(database_url, settings, carrier):
        await handed(carrier)
        [reason] = await reasons(db, job_id)
        assert (reason.code, reason.facts["engine"]) == ("running", ENGINE)
        await until_worker(db)
        await act(db, tenant_actions.change, given.TESTER, given.TENANT, {"max_running": 1})
        assert [one.code for one in await reasons(db, await enqueue(db))] == ["tenant_limit"]


async def reasons(db: Database, job_id: UUID) -> list[Reason]:
    return (await act(db, why.explain_job, given.TESTER, job_id)).reasons


async def until_worker(db: Database) -> None:
    query = "select from fairlead.job_workers where %s = any(queues)"
    await waiting.until(lambda: db.single(lambda tx: tx.values(query, [KEY])), "the bridge to be seen")


@each_case(
    ("fields", "told"),
    [
        ({"kind": "delivered"}, "engine must name an engine"),
        ({"kind": "function", "engine": "x"}, "engine is only for the kinds"),
        ({"kind": "function", "queue": "x"}, "queue is only for the kinds"),
        ({"kind": "bullmq", "queue": "{org}"}, "queue may have only these placeholders: {tenant}"),
        ({"kind": "bullmq", "queue": "a}b"}, "queue may have only these placeholders"),
        ({"kind": "bullmq", "queue": ""}, "queue must have 1 to 512 characters"),
        ({"kind": "delivered", "engine": "no spaces"}, "engine must begin with a letter"),
    ],
)
async def test_a_definition_with_a_wrong_engine_or_queue_is_refused(
    tx: Tx, fields: dict[str, Any], told: str
) -> None:
    with pytest.raises(Exception, match=told.replace("{", r"\{")):
        await definitions.create(tx, given.TESTER, {"key": "wrong", **fields})


async def test_a_bridge_hands_over_opened_secrets_and_gives_jobs_back_without_the_key(
    database_url: str, settings: Settings, carrier: Carrier, tmp_path: Path
) -> None:
    (tmp_path / "master.key").write_text("ab" * 32)
    own = replace(settings, encryption_key=f"file:{tmp_path / 'master.key'}")
    secret = {"token": "sk-live-0123456789-canary"}
    database = Database(database_url, own)
    await database.open()
    try:
        async with database.transaction() as tx:
            marked = {"type": "object", "properties": {"token": {"type": "string", "x-secret": True}}}
            await define(tx, arg_schema=marked)
            await encryption.enable(tx, given.TESTER)
        waiting = await enqueue(database, payload=secret, max_attempts=1)
        async with bridged(database_url, settings, carrier):
            told = await until(database, waiting, lambda job: job.last_error is not None, "it is given back")
        assert carrier.handed == []
        assert (told.failure_count, "no master key" in str(told.last_error)) == (0, True)

        ready = await enqueue(database, payload=secret)
        async with bridged(database_url, own, carrier):
            await eventually(
                lambda: next((one for one in carrier.handed if one.lease.job_id == ready), None),
                "the job is handed over",
            )
        assert [one.payload for one in carrier.handed if one.lease.job_id == ready] == [secret]
    finally:
        await database.close()
