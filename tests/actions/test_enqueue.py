import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from fairlead import Fairlead, FairleadError, NewJob
from fairlead.actions import definitions, enqueue
from fairlead.db.database import Database
from fairlead.db.tx import TransactionIdentity, Tx
from fairlead.errors import (
    DatabaseBusy,
    DefinitionInactive,
    DefinitionUnknown,
    InvalidInput,
    JobIdTaken,
    PayloadInvalid,
    TenantUnknown,
)
from fairlead.model.job import JobStatus
from fairlead.store import audit, bulk, jobs, tenants
from tests import given
from tests.acting import act
from tests.given import OTHER, TENANT, TESTER
from tests.tables import each_case
from tests.waiting import until_somebody_waits


async def test_options_of_the_request_win_over_the_definition(fl: Fairlead) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    plain = await (await fl.enqueue("anything", tenant=TENANT)).read()
    special = await (
        await fl.enqueue(
            "anything",
            tenant=TENANT,
            payload={"a": [1, {"b": None}]},
            priority=7,
            scheduled_for=later,
            max_attempts=1,
            dedupe_key="k",
            correlation_id="c",
        )
    ).read()

    assert (plain.priority, plain.max_attempts, plain.payload) == (50, 5, {})
    assert (special.priority, special.max_attempts, special.payload) == (7, 1, {"a": [1, {"b": None}]})
    assert (special.scheduled_for, special.dedupe_key, special.correlation_id) == (later, "k", "c")
    assert (plain.created_by, plain.source) == ("tester", "manual")


async def test_a_tenant_may_be_named_by_slug_or_by_id(fl: Fairlead) -> None:
    by_slug = await (await fl.enqueue("anything", tenant=TENANT)).read()
    by_id = await (await fl.enqueue("anything", tenant=by_slug.tenant_id)).read()
    by_text = await fl.enqueue_many([given.request(tenant=str(by_slug.tenant_id).upper())])

    assert by_id.tenant == TENANT
    assert (await by_text[0].read()).tenant == TENANT


async def test_big_integers_and_every_kind_of_text_come_back_as_they_went_in(fl: Fairlead) -> None:
    payload = {
        "n": 2**200,
        "s": 'quote " \\ \t \u2028 🚢 ñ',
        "deep": {"e": []},
        "f": 0.1,
        "t": True,
        "z": None,
    }

    job = await (await fl.enqueue("anything", tenant=TENANT, payload=payload)).read()
    [bulk] = await fl.enqueue_many([given.request(definition="anything", payload=payload)])

    assert job.payload == payload
    assert (await bulk.read()).payload == payload


@each_case("many", [False, True])
@each_case(
    ("fields", "refusal"),
    [
        ({"definition": "nobody"}, DefinitionUnknown),
        ({"definition": "retired"}, DefinitionInactive),
        ({"tenant": "nowhere"}, TenantUnknown),
        ({"tenant": "6f46a1d8-6e2b-4ecf-8b46-9ec2e6a37f09"}, TenantUnknown),
        ({"payload": {"name": 3}}, PayloadInvalid),
    ],
)
async def test_what_is_refused_leaves_nothing(
    fl: Fairlead, fields: dict[str, Any], refusal: type[FairleadError], *, many: bool
) -> None:
    with pytest.raises(refusal):
        if many:
            await fl.enqueue_many([given.request(), given.request(**fields), given.request()])
        else:
            await fl.submit(given.request(**fields))
    async with fl.transaction() as tx:
        assert await given.count(tx, "jobs") == 0
        assert await given.count(tx, "ready") == 0


async def test_the_validator_follows_the_definition_without_being_told(fl: Fairlead, db: Database) -> None:
    await fl.enqueue("greet", tenant=TENANT, payload={"name": "Ada"})
    stricter = {**given.GREET["arg_schema"], "properties": {"name": {"maxLength": 2}}}  # type: ignore[dict-item]

    async with db.transaction() as tx:  # somebody else, elsewhere
        await definitions.patch(tx, TESTER, "greet", {"arg_schema": stricter})

    with pytest.raises(PayloadInvalid):
        await fl.enqueue("greet", tenant=TENANT, payload={"name": "Ada"})
    await fl.enqueue("greet", tenant=TENANT, payload={"name": "Al"})


@pytest.mark.thorough
async def test_sixty_four_enqueues_at_once_make_one_active_job_also_from_separate_connections(
    fl: Fairlead, settings: Any
) -> None:
    others = [Fairlead(settings=settings) for _ in range(8)]
    for other in others:
        await other.open()
    try:
        handles = await asyncio.gather(
            *(others[n % 8].enqueue("anything", tenant=TENANT, dedupe_key="once") for n in range(64))
        )
    finally:
        for other in others:
            await other.close()
    assert len({handle.id for handle in handles}) == 1
    assert sum(not handle.deduplicated for handle in handles) == 1
    assert await given.count(fl, "jobs") == 1


async def test_a_key_is_the_tenants_own_and_may_have_any_length(fl: Fairlead) -> None:
    long = "k" * 1_000_000
    mine = await fl.enqueue("anything", tenant=TENANT, dedupe_key=long)
    theirs = await fl.enqueue("anything", tenant=OTHER, dedupe_key=long)
    nearly = await fl.enqueue("anything", tenant=TENANT, dedupe_key=long[:-1] + "j")

    assert len({mine.id, theirs.id, nearly.id}) == 3
    assert (await fl.enqueue("anything", tenant=TENANT, dedupe_key=long)).id == mine.id


async def test_a_key_held_by_an_unfinished_transaction_is_waited_for(fl: Fairlead, db: Database) -> None:
    async with db.transaction() as tx:
        held = await enqueue.enqueue(tx, TESTER, given.catalog(), given.request(dedupe_key="k"))
        waiting = asyncio.create_task(fl.submit(given.request(dedupe_key="k")))
        await until_somebody_waits(tx)
        assert not waiting.done()
    assert ((await waiting).id, (await waiting).deduplicated) == (held.id, True)


async def test_waiting_for_a_key_ends_with_a_plain_word(settings: Any, db: Database) -> None:
    from dataclasses import replace  # noqa: PLC0415

    async with (
        Fairlead(settings=replace(settings, lock_timeout_seconds=0.2)) as impatient,
        db.transaction() as tx,
    ):
        await enqueue.enqueue(tx, TESTER, given.catalog(), given.request(dedupe_key="k"))
        with pytest.raises(DatabaseBusy):
            await impatient.submit(given.request(dedupe_key="k"))


async def test_an_id_that_is_taken_is_refused_unless_the_answer_was_lost(tx: Tx) -> None:
    new = given.request()
    await enqueue.enqueue(tx, TESTER, given.catalog(), new)
    async with tx.connection.transaction():  # a savepoint: the clash ends the statement
        with pytest.raises(JobIdTaken):
            async with tx.connection.transaction():
                await enqueue.enqueue(tx, TESTER, given.catalog(), new)
        async with tx.connection.transaction(force_rollback=True):
            assert (await enqueue.enqueue(tx, TESTER, given.catalog(), new, again=True)).id == new.id


async def test_bulk_puts_each_job_where_it_belongs_with_every_option(fl: Fairlead) -> None:
    later = datetime.now(UTC) + timedelta(days=1)
    parent = (await fl.enqueue("anything", tenant=TENANT)).id
    full = given.request(
        priority=-5,
        scheduled_for=later,
        max_attempts=9,
        dedupe_key="k",
        correlation_id="c",
        source_ref="ref",
        parent_id=parent,
    )
    [answer, plain] = await fl.enqueue_many([full, given.request()])
    job = await answer.read()

    assert (job.priority, job.scheduled_for, job.max_attempts, job.dedupe_key) == (-5, later, 9, "k")
    assert (job.correlation_id, job.source_ref, job.parent_id) == ("c", "ref", parent)
    assert (await plain.read()).status is JobStatus.QUEUED
    async with fl.transaction() as tx:
        assert (await given.count(tx, "ready"), await given.count(tx, "later")) == (2, 1)


@pytest.mark.parametrize("delay", [90, 90.0, timedelta(seconds=90)])
async def test_a_delay_is_counted_by_the_clock_of_the_database(
    fl: Fairlead, delay: float | timedelta
) -> None:
    before = datetime.now(UTC)
    alone = await fl.enqueue("anything", tenant=TENANT, delay=delay)
    [bulk, plain] = await fl.enqueue_many([given.request(delay=delay), given.request()])

    for one in (alone, bulk):
        job = await one.read()
        assert before <= job.scheduled_for - timedelta(seconds=90) <= job.queued_at
    async with fl.transaction() as tx:
        assert (await given.count(tx, "ready"), await given.count(tx, "later")) == (1, 2)
    assert (await plain.read()).scheduled_for <= datetime.now(UTC)


async def test_a_delay_begins_when_the_job_is_enqueued(fl: Fairlead) -> None:
    @fl.job(key="anything")
    async def tidy() -> None: ...

    delayed = tidy.options(delay=3600)
    first = await (await delayed.enqueue(tenant=TENANT)).read()
    second = await (await delayed.enqueue(tenant=TENANT)).read()

    assert first.queued_at + timedelta(minutes=59) < first.scheduled_for < second.scheduled_for


@each_case(
    ("options", "words"),
    [
        ({"delay": 1, "scheduled_for": datetime(2031, 1, 1, tzinfo=UTC)}, "together with scheduled_for"),
        ({"delay": -1}, "between 0 and 315360000 seconds"),
        ({"delay": float("nan")}, "between 0 and 315360000 seconds"),
        ({"delay": timedelta(days=3651)}, "between 0 and 315360000 seconds"),
        ({"delay": True}, "must be seconds"),
        ({"delay": "soon"}, "must be seconds"),
    ],
)
async def test_a_delay_that_cannot_be_is_refused(fl: Fairlead, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as refused:
        await fl.enqueue("anything", tenant=TENANT, **options)
    assert [fault.path for fault in refused.value.faults] == ["delay"]


async def test_bulk_names_many_bad_payloads_in_one_answer(fl: Fairlead) -> None:
    load = [given.request(payload={"name": "fine" if n % 3 else n}) for n in range(100)]

    with pytest.raises(PayloadInvalid) as refused:
        await fl.enqueue_many(load)

    assert [fault.path for fault in refused.value.faults][:3] == ["[0]/name", "[3]/name", "[6]/name"]
    assert len(refused.value.faults) == 20


async def test_two_bulk_loads_with_the_same_keys_in_opposite_order_do_not_deadlock(fl: Fairlead) -> None:
    keys = [f"key-{n}" for n in range(200)]

    def load(order: list[str]) -> list[NewJob]:
        return [given.request(definition="anything", payload={}, dedupe_key=key) for key in order]

    answers = await asyncio.gather(*(fl.enqueue_many(load(keys[::step])) for step in (1, -1) * 4))

    assert sum(not answer.deduplicated for batch in answers for answer in batch) == 200


async def test_bulk_is_one_audit_row_per_tenant_and_reports_progress(fl: Fairlead) -> None:
    seen: list[int] = []
    await fl.enqueue_many([given.request() for _ in range(2500)], progress=seen.append)

    assert seen == [0, 1000, 2000, 2500]
    async with fl.transaction() as tx:
        [entry] = [entry for entry in await audit.list_recent(tx) if entry.action == "jobs_created"]
        assert entry.details == {"count": 2500, "definitions": {"greet": 2500}}


async def test_the_same_call_is_audited_in_the_same_way_each_time(fl: Fairlead) -> None:
    """Also for a tenant's own, whose transactions have another role than their connection."""
    tenant_id = (await act(fl, tenants.get_ids, [given.TENANT]))[given.TENANT]
    known = given.catalog()
    for acting in (TransactionIdentity(None), TransactionIdentity(tenant_id)):
        async with fl.database.transaction(acting) as tx:
            for _ in range(2):  # the second time the ids are known, and it takes the short way
                await enqueue.enqueue(tx, given.TESTER, known, given.request(tenant=str(tenant_id)))
    told = [entry.details for entry in await act(fl, audit.list_recent) if entry.action == "job_created"]
    assert told == [{"definition_key": "greet"}] * 4


async def test_an_empty_load_is_no_load(fl: Fairlead) -> None:
    assert await fl.enqueue_many([]) == []


async def test_dictionaries_are_read_as_requests(fl: Fairlead) -> None:
    [answer] = await fl.enqueue_many(
        [
            {
                "definition": "greet",
                "tenant": TENANT,
                "payload": {"name": "A"},
                "scheduled_for": "2031-01-01T00:00:00Z",
            }
        ]
    )
    assert (await answer.read()).scheduled_for == datetime(2031, 1, 1, tzinfo=UTC)


async def test_every_job_is_counted_where_it_stands(fl: Fairlead) -> None:
    for _ in range(3):
        await fl.enqueue("greet", tenant=TENANT, payload={"name": "A"})
    await fl.enqueue_many([given.request() for _ in range(5)])
    first = await fl.enqueue("anything", tenant=TENANT)
    await fl.cancel(first.id)
    async with fl.transaction() as tx:
        [(queued, canceled)] = await tx.values("select sum(queued), sum(canceled) from fairlead.counts")
        assert (queued, canceled) == (8, 1)
        assert await jobs.list_inconsistencies(tx) == []


async def test_ids_are_time_ordered(fl: Fairlead) -> None:
    ids: list[UUID] = [(await fl.enqueue("anything", tenant=TENANT)).id for _ in range(20)]
    assert ids == sorted(ids)
    assert {job_id.version for job_id in ids} == {7}


async def test_a_load_is_checked_and_its_keys_are_claimed_in_pieces(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enqueue, "CHECKED_AT_ONCE", 2)
    monkeypatch.setattr(bulk, "KEYS_AT_ONCE", 2)
    there = await fl.enqueue("anything", tenant=TENANT, dedupe_key="k3")
    load = [given.request(dedupe_key=f"k{n % 5}") for n in range(7)]
    load.append(given.request(dedupe_key="k3", tenant=OTHER))
    made = await fl.enqueue_many(load)

    assert [one.deduplicated for one in made] == [False, False, False, True, False, True, True, False]
    assert made[3].id == there.id
    assert [made[5].id, made[6].id] == [made[0].id, made[1].id]
    for at in (0, 1, 4, 5, 6):
        broken = [given.request() for _ in range(7)]
        broken[at] = given.request(max_attempts=0)
        with pytest.raises(InvalidInput, match=f"^Job {at} of this load") as refused:
            await fl.enqueue_many(broken)
        assert refused.value.faults[0].path.startswith(f"[{at}]")
