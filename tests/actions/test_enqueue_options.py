"""Tags, timeouts, expiries, keys that stay taken and debounced jobs, however they are enqueued."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from fairlead import Debounce, Fairlead, Flow, NewJob
from fairlead.actions import definitions, dispatch, expiry, triggers, why
from fairlead.actions import jobs as actions
from fairlead.db.tx import Tx
from fairlead.errors import FairleadError, InvalidInput
from fairlead.model.job import JobStatus
from fairlead.model.outcome import Backoff, Change, RetryBudget, Succeeded, decide
from fairlead.store import jobs, kept_keys, queue, retention
from tests import given
from tests.given import TENANT, TESTER
from tests.runs import begun
from tests.tables import each_case
from tests.waiting import SECONDS
from tests.working import working

WAYS = ("one", "many", "joined", "sql")


async def enqueue(fl: Fairlead, way: str, **fields: Any) -> tuple[UUID, bool]:
    """Enqueue a job in one of the ways: its id, and whether it was deduplicated."""
    payload = fields.pop("payload", {"name": "Ada"})
    if way == "one":
        made = await fl.enqueue("anything", tenant=TENANT, payload=payload, **fields)
        return made.id, made.deduplicated
    new = NewJob(definition="anything", tenant=TENANT, payload=payload, **fields)
    if way == "many":
        [made] = await fl.enqueue_many([new])
        return made.id, made.deduplicated
    async with await psycopg.AsyncConnection.connect(str(fl.settings.database_url)) as connection:
        if way == "joined":
            made = await fl.submit(new, tx=connection)
            return made.id, made.deduplicated
        if "debounce" in fields:
            fields["debounce"] = Jsonb(fields["debounce"].to_json())
        for name in ("timeout", "expires_in", "unique_for"):
            if name in fields and not isinstance(fields[name], timedelta):
                fields[name] = timedelta(seconds=fields[name])
        if "tags" in fields:
            fields["tags"] = list(fields["tags"])
        named = "".join(f", {name} => %({name})s" for name in fields)
        cursor = await connection.execute(
            f"select * from fairlead.enqueue(%(tenant)s, 'anything', %(payload)s{named})".encode(),
            {"tenant": TENANT, "payload": Jsonb(payload), **fields},
        )
        found = await cursor.fetchone()
        assert found is not None
        return found[0], found[1]


@pytest.mark.parametrize("way", WAYS)
async def test_a_job_has_its_tags_its_timeout_and_its_expiry(fl: Fairlead, way: str) -> None:
    made, _ = await enqueue(
        fl, way, tags=("red", "größe 7"), timeout=timedelta(seconds=1.5), expires_in=timedelta(hours=1)
    )

    job = await fl.read(made)
    assert (job.tags, job.timeout_seconds) == (("red", "größe 7"), 2)
    assert job.expires_at == job.scheduled_for + timedelta(hours=1)
    async with fl.transaction() as tx:
        assert await given.job_tags(tx) == {("größe 7", made), ("red", made)}
        assert await given.expiring_jobs(tx) == {made: job.expires_at}
        claim = await queue.claim(tx, worker="w1", wanted=1, lease_seconds=30)
    assert [one.timeout_seconds for one in claim.jobs] == [2]


async def test_a_load_has_jobs_with_and_without_options(fl: Fairlead) -> None:
    plain = [given.request() for _ in range(3)]
    made = await fl.enqueue_many(
        [
            plain[0],
            given.request(tags=["a"], delay=60, expires_in=60),
            plain[1],
            given.request(timeout=30),
            plain[2],
            given.request(tags=[], dedupe_key="k", unique_for=60),
        ]
    )

    found = [await one.read() for one in made]
    assert [job.tags for job in found] == [None, ("a",), None, None, None, None]
    assert [job.timeout_seconds for job in found] == [None, None, None, 30, None, None]
    assert [job.expires_at and job.expires_at - job.scheduled_for for job in found] == [
        *(None, timedelta(minutes=1), None, None, None, None)
    ]


BAD: dict[str, dict[str, Any]] = {
    "too many tags": {"tags": [str(n) for n in range(17)]},
    "a tag twice": {"tags": ["a", "b", "a"]},
    "a long tag": {"tags": ["x" * 65]},
    "an empty tag": {"tags": [""]},
    "a tag with a comma": {"tags": ["a,b"]},
    "a tag with a blank": {"tags": ["a "]},
    "a tag with a line break": {"tags": ["a\nb"]},
    "a timeout of nothing": {"timeout": 0},
    "a timeout of years": {"timeout": 2_592_001},
    "an expiry in the past": {"expires_in": -1},
    "an expiry at once": {"expires_in": 0},
    "a key taken for nothing": {"dedupe_key": "k", "unique_for": 0},
    "unique without a key": {"unique_for": 60},
    "debounced and deduplicated": {"debounce": Debounce(key="k", seconds=1), "dedupe_key": "k"},
    "debounced without a pause": {"debounce": Debounce(key="k", seconds=0)},
    "debounced without a key": {"debounce": Debounce(key="", seconds=1)},
    "debounced for less than a pause": {"debounce": Debounce(key="k", seconds=5, max_seconds=4)},
}


@each_case("what", BAD)
async def test_bad_options_are_refused_in_every_way(fl: Fairlead, what: str) -> None:
    for way in ("one", "many", "joined"):
        with pytest.raises(InvalidInput) as refused:
            await enqueue(fl, way, **BAD[what])
        assert refused.value.faults[0].path in BAD[what]
    with pytest.raises(psycopg.Error) as told:
        await enqueue(fl, "sql", **BAD[what])
    assert told.value.diag.message_detail == "invalid_input"

    async with fl.transaction() as tx:
        for table in ("jobs", "job_tags", "expiries", "active_keys", "debounces"):
            assert await given.count(tx, table) == 0


async def test_the_tags_and_the_expiry_of_a_job_go_with_it(fl: Fairlead) -> None:
    kept, _ = await enqueue(fl, "one", tags=["a"], expires_in=60)
    async with fl.transaction() as tx:
        long_ago = UUID("00000000-0000-7000-8000-000000000001")
        gone = await given.ended_job(tx, "succeeded", id=long_ago, tags=["a", "b"], expires_in=60)
        await given.set_job(tx, gone, finished_at=datetime.now(UTC) - timedelta(days=99))
        await retention.remove(tx, place=UUID(int=0), days=30, look=100, limit=100)

        assert await given.job_tags(tx) == {("a", kept)}
        assert [*await given.expiring_jobs(tx)] == [kept]


# A key that stays taken


@pytest.mark.parametrize("way", WAYS)
async def test_a_key_stays_taken_after_its_job_has_ended(fl: Fairlead, way: str) -> None:
    first, _ = await enqueue(fl, way, dedupe_key="k", unique_for=3600)
    await fl.cancel(first)

    assert await enqueue(fl, way, dedupe_key="k") == (first, True)
    assert await enqueue(fl, way, dedupe_key="k", unique_for=1) == (first, True)

    await given.free_keys(fl)
    second, deduplicated = await enqueue(fl, way, dedupe_key="k")
    assert (second != first, deduplicated) == (True, False)
    await fl.cancel(second)
    assert (await enqueue(fl, way, dedupe_key="k"))[1] is False


@pytest.mark.parametrize("status", ["succeeded", "failed", "dead_letter", "canceled"])
async def test_every_end_leaves_a_key_taken_until_its_time_is_over(fl: Fairlead, status: str) -> None:
    async with fl.transaction() as tx:
        ended = await given.ended_job(tx, status, dedupe_key="kept", unique_for=3600)
        await given.ended_job(tx, status, dedupe_key="free", unique_for=0.000001)

        assert await given.key_holders(tx) == [ended]


async def test_a_plain_success_leaves_a_key_taken_until_its_time_is_over(fl: Fairlead) -> None:
    """Without output, cost and log it is written by a statement of its own."""
    kept, _ = await enqueue(fl, "one", dedupe_key="kept", unique_for=3600)
    await enqueue(fl, "one", dedupe_key="free", unique_for=0.000001)
    async with fl.transaction() as tx:
        claim = await queue.claim(tx, worker="w", wanted=2, lease_seconds=30)
        ends = [
            (claim.lease(job), decide(RetryBudget(1, 0, 0, Backoff()), Succeeded())) for job in claim.jobs
        ]
        assert all(change.is_plain_success for _, change in ends)
        await queue.finish(tx, ends, actor="w")
        assert await given.key_holders(tx) == [kept]


async def test_a_running_job_keeps_its_key_however_late_it_is(fl: Fairlead) -> None:
    async with fl.transaction() as tx:
        running = await given.running_job(tx, dedupe_key="k", unique_for=0.000001)

    assert await enqueue(fl, "one", dedupe_key="k") == (running, True)
    assert await enqueue(fl, "many", dedupe_key="k") == (running, True)


async def test_a_job_whose_key_is_still_taken_by_itself_can_be_retried(fl: Fairlead) -> None:
    first, _ = await enqueue(fl, "one", dedupe_key="k", unique_for=3600)
    second, _ = await enqueue(fl, "one", dedupe_key="l", unique_for=3600)
    await fl.cancel(first)
    await fl.cancel(second)

    async with fl.transaction() as tx:
        await given.free_keys(tx, second)
        for one in (first, second):
            assert (await actions.retry(tx, TESTER, fl.catalog, one)).status is JobStatus.QUEUED


# Debounce


@pytest.mark.parametrize("way", WAYS)
async def test_one_waiting_job_of_a_key_is_moved_and_gets_the_last_payload(fl: Fairlead, way: str) -> None:
    key = Debounce(key="k", seconds=60, max_seconds=90)
    first, deduplicated = await enqueue(fl, way, payload={"n": 1}, debounce=key, expires_in=10)
    was = await fl.read(first)
    assert (deduplicated, was.scheduled_for > was.queued_at) == (False, True)

    assert await enqueue(fl, way, payload={"n": 2}, debounce=key) == (first, True)
    moved = await fl.read(first)
    assert (moved.payload, moved.scheduled_for > was.scheduled_for) == ({"n": 2}, True)
    assert moved.expires_at is None

    far = Debounce(key="k", seconds=80, max_seconds=80, payload="first")
    assert await enqueue(fl, way, payload={"n": 3}, debounce=far) == (first, True)
    bounded = await fl.read(first)
    assert (bounded.payload, bounded.scheduled_for - was.scheduled_for) == ({"n": 2}, timedelta(seconds=20))

    other, deduplicated = await enqueue(fl, way, debounce=Debounce(key="other", seconds=60))
    assert (other != first, deduplicated) == (True, False)


@pytest.mark.parametrize("way", WAYS)
async def test_a_job_that_has_started_is_not_moved(fl: Fairlead, way: str) -> None:
    key = Debounce(key="k", seconds=3600)
    first, _ = await enqueue(fl, way, payload={"n": 1}, debounce=key)
    async with fl.transaction() as tx:
        await make_due(tx)
        [claimed] = (await queue.claim(tx, worker="w1", wanted=1, lease_seconds=30)).jobs
    assert claimed.job_id == first

    second, deduplicated = await enqueue(fl, way, payload={"n": 2}, debounce=key)
    assert (second != first, deduplicated) == (True, False)
    assert await enqueue(fl, way, payload={"n": 3}, debounce=key) == (second, True)
    assert ((await fl.read(first)).payload, (await fl.read(second)).payload) == ({"n": 1}, {"n": 3})


async def make_due(tx: Any) -> None:
    """Make all jobs of `later` due, and put them into ready."""
    await given.fall_due(tx)
    await queue.stage_due(tx, limit=100)


async def test_a_job_that_is_ready_waits_again_until_its_longest_time(fl: Fairlead) -> None:
    first, _ = await enqueue(fl, "one", payload={"n": 1}, debounce=Debounce(key="k", seconds=60))
    async with fl.transaction() as tx:
        await make_due(tx)
        assert [await given.count(tx, table) for table in ("ready", "later")] == [1, 0]

    assert await enqueue(fl, "one", payload={"n": 2}, debounce=Debounce(key="k", seconds=60)) == (first, True)
    async with fl.transaction() as tx:
        assert [await given.count(tx, table) for table in ("ready", "later")] == [0, 1]
        await make_due(tx)
        await given.age_debounces(tx, timedelta(hours=1))

    late = Debounce(key="k", seconds=60, max_seconds=120)
    assert await enqueue(fl, "one", payload={"n": 3}, debounce=late) == (first, True)
    async with fl.transaction() as tx:
        assert [await given.count(tx, table) for table in ("ready", "later")] == [1, 0]
    assert (await fl.read(first)).payload == {"n": 3}


@pytest.mark.parametrize("ended", ["canceled", "removed"])
async def test_a_key_whose_job_is_gone_begins_anew(fl: Fairlead, ended: str) -> None:
    key = Debounce(key="k", seconds=3600)
    first, _ = await enqueue(fl, "one", debounce=key)
    await fl.cancel(first)
    if ended == "removed":
        await given.forget_jobs(fl)

    second, deduplicated = await enqueue(fl, "one", debounce=key)
    assert (second != first, deduplicated) == (True, False)


@pytest.mark.thorough
async def test_32_callers_at_once_leave_one_waiting_job_with_the_last_payload(fl: Fairlead) -> None:
    key = Debounce(key="k", seconds=3600)

    answers = await asyncio.gather(
        *(enqueue(fl, WAYS[n % 4], payload={"n": n}, debounce=key) for n in range(32))
    )

    [job] = {job_id for job_id, _ in answers}
    assert sum(not deduplicated for _, deduplicated in answers) == 1
    last, _ = await enqueue(fl, "one", payload={"n": 99}, debounce=key)
    assert (last, (await fl.read(job)).payload) == (job, {"n": 99})


async def test_loads_with_the_same_keys_in_other_orders_do_not_deadlock(fl: Fairlead) -> None:
    keys = [Debounce(key=f"k{n}", seconds=3600) for n in range(12)]

    async def load(n: int) -> None:
        mine = keys[n:] + keys[:n] if n % 2 else list(reversed(keys[n:] + keys[:n]))
        requests = [NewJob(definition="anything", tenant=TENANT, debounce=key) for key in mine]
        if n % 3:
            await fl.enqueue_many(requests)
            return
        async with await psycopg.AsyncConnection.connect(str(fl.settings.database_url)) as connection:
            await fl.enqueue_many(requests, tx=connection)

    await asyncio.gather(*(load(n) for n in range(12)))

    async with fl.transaction() as tx:
        assert await given.count(tx, "later") == 12


# Expiry


async def test_jobs_that_have_not_started_in_time_are_canceled_and_no_others(fl: Fairlead) -> None:
    async with fl.transaction() as tx:
        running = await given.running_job(tx, expires_in=1)
        retried = await given.claimed_job(tx, expires_in=1)
        change = Change(status=JobStatus.QUEUED, attempt_status="failed", charge=1)
        await queue.finish(tx, [(retried, change)], actor="w1")
        ended = await given.ended_job(tx, "succeeded", expires_in=1)
        ready = await given.queued_job(tx, expires_in=1, dedupe_key="k")
        later = await given.queued_job(tx, expires_in=1, delay=3600)
        await given.expire_jobs(tx)
        kept = await given.queued_job(tx, expires_in=3600)

        await expiry.expire_jobs(tx, limit=100)

        found = {job: await jobs.get(tx, job) for job in (running, retried.job_id, ended, ready, later, kept)}
        assert [job.status if job else None for job in found.values()] == [
            *("running", "queued", "succeeded", "canceled", "canceled", "queued")
        ]
        assert all(job and job.error["type"] == "expired" for job in (found[ready], found[later]))
        assert [*await given.expiring_jobs(tx)] == [kept]
        assert await given.count(tx, "active_keys") == 0
        entries = await given.audit_entries(tx, "JOB_CANCELED")
        assert {(entry.resource_id, entry.details["reason"]) for entry in entries} == {
            (str(ready), "expired"),
            (str(later), "expired"),
        }


async def test_a_claim_starts_no_job_that_has_expired_and_takes_those_behind_it(fl: Fairlead) -> None:
    async with fl.transaction() as tx:
        expired = [await given.queued_job(tx, expires_in=1, priority=1) for _ in range(3)]
        await given.expire_jobs(tx)
        behind = await given.queued_job(tx, priority=2)

        first = await queue.claim(tx, worker="w1", wanted=2, lease_seconds=30)
        second = await queue.claim(tx, worker="w1", wanted=2, lease_seconds=30)

        assert (first.jobs, first.again) == ([], True)
        assert [job.job_id for job in second.jobs] == [behind]
        assert {(job.status if (job := await jobs.get(tx, one)) else None) for one in expired} == {"canceled"}
        await expiry.expire_jobs(tx, limit=100)
        assert await given.count(tx, "expiries") == 0


async def test_an_expired_job_that_is_retried_does_not_expire_again(fl: Fairlead) -> None:
    job, _ = await enqueue(fl, "one", expires_in=1)
    async with fl.transaction() as tx:
        await given.expire_jobs(tx)
        await expiry.expire_jobs(tx, limit=100)
        assert (await actions.retry(tx, TESTER, fl.catalog, job)).expires_at is None
        [claimed] = (await queue.claim(tx, worker="w1", wanted=1, lease_seconds=30)).jobs
    assert claimed.job_id == job


async def test_a_worker_cancels_expired_jobs_that_it_cannot_start(fl: Fairlead) -> None:
    job, _ = await enqueue(fl, "one", expires_in=0.01)
    other, _ = await enqueue(fl, "one", expires_in=0.01, delay=0.01)
    async with working(fl), asyncio.timeout(SECONDS):
        for job_id in (job, other):
            while (expired := await fl.read(job_id)).status is JobStatus.QUEUED:
                await asyncio.sleep(0.05)
            assert (expired.status, expired.error["type"]) == (JobStatus.CANCELED, "expired")


async def test_why_tells_when_a_job_expires(fl: Fairlead) -> None:
    job, _ = await enqueue(fl, "one", expires_in=3600)
    async with fl.transaction() as tx:
        *_, last = (await why.explain_job(tx, TESTER, job)).reasons
        assert (last.code, 0 < last.facts["in_seconds"] <= 3600) == ("expires", True)
        await given.expire_jobs(tx)
        [only] = (await why.explain_job(tx, TESTER, job)).reasons
        assert (only.code, only.facts["in_seconds"] < 0) == ("expires", True)


async def test_keys_whose_time_is_over_are_removed(fl: Fairlead) -> None:
    key = Debounce(key="k", seconds=3600)
    async with fl.transaction() as tx:
        await given.ended_job(tx, "succeeded", dedupe_key="over", unique_for=3600)
        await given.queued_job(tx, dedupe_key="active", unique_for=3600)
        waiting = await given.queued_job(tx, debounce=key)
        gone = await given.queued_job(tx, debounce=Debounce(key="l", seconds=3600))
        await jobs.cancel_queued(tx, gone)
        assert await kept_keys.free_over(tx, limit=10) + await kept_keys.forget_debounced(tx, limit=10) == 0

        await given.free_keys(tx)
        await given.age_debounces(tx, timedelta(days=2))

        assert [await kept_keys.free_over(tx, limit=10), await kept_keys.forget_debounced(tx, limit=10)] == [
            1,
            1,
        ]
        assert await given.count(tx, "active_keys") == 1
        assert await given.debounced_jobs(tx) == [waiting]


# Steps of workflows


@pytest.mark.parametrize("items", [None, [1, 2]])
async def test_a_step_whose_job_expires_fails_and_its_run_goes_on(
    fl: Fairlead, items: list[int] | None
) -> None:
    flow = Flow("w")
    late = flow.step(
        *("late", "anything", {}),
        for_each=items,
        expires_in=timedelta(hours=1),
        tags=["night"],
        timeout=7,
        on_failure="continue",
    )
    flow.step("next", "anything", after=[late])
    run = await begun(fl, flow)
    async with fl.transaction() as tx:
        found = await given.all_jobs(tx)
        assert {(job.tags, job.timeout_seconds) for job in found} == {(("night",), 7)}
        assert all(job.expires_at - job.queued_at > timedelta(minutes=59) for job in found if job.expires_at)
        assert await given.count(tx, "job_tags") == await given.count(tx, "expiries") == len(items or "x")
        await given.expire_jobs(tx)
        # the claim leaves steps to the stager, which moves their runs on
        assert (await queue.claim(tx, worker="w1", wanted=5, lease_seconds=30)).jobs == []
        await expiry.expire_jobs(tx, limit=100)

    steps = {step.name: step.state for step in (await run.read()).steps}
    assert steps == {"late": "canceled", "next": "running"}
    async with fl.transaction() as tx:
        assert len((await queue.claim(tx, worker="w1", wanted=5, lease_seconds=30)).jobs) == 1


# Triggers


async def test_events_about_the_same_thing_move_one_job(fl: Fairlead) -> None:
    options = {
        "tags": ["{{event.folder}}", "folders"],
        "timeout": "5m",
        "expires_in": 3600,
        "debounce": {"key": "{{event.folder}}", "seconds": 1800},
    }
    async with fl.transaction() as tx:
        template = {"n": "{{event.n}}"}
        made = await given.trigger(tx, payload_template=template, job_options=options)
        assert made.job_options == options
        for n, folder in enumerate(("a", "b", "a", "b", "a")):
            await given.event(tx, data={"folder": folder, "n": n})
    await fl.database.transact(lambda tx: dispatch.dispatch(tx, fl.catalog, limit=100))

    async with fl.transaction() as tx:
        found = sorted(await given.all_jobs(tx), key=lambda job: job.tags or ())
        assert [(job.tags, job.timeout_seconds, job.payload) for job in found] == [
            (("a", "folders"), 300, {"n": 4}),
            (("b", "folders"), 300, {"n": 3}),
        ]
        assert {job.expires_at - job.scheduled_for for job in found if job.expires_at} == {timedelta(hours=1)}
        fired = await triggers.list_firings(tx, TESTER, made.id)
        assert sorted(one.outcome for one in fired) == [*["deduplicated"] * 3, *["enqueued"] * 2]


async def test_a_schedule_gives_its_jobs_options(fl: Fairlead) -> None:
    async with fl.transaction() as tx:
        made = await given.trigger(tx, every_seconds=3600, job_options={"tags": ["night"], "priority": 3})
        firing = await triggers.fire_now(tx, TESTER, fl.catalog, made.id)
        assert firing.job_id is not None
        job = await jobs.get(tx, firing.job_id)
        assert job is not None
        assert (job.tags, job.priority) == (("night",), 3)
        changed = await triggers.change(tx, TESTER, made.id, {"job_options": None})
        assert changed.trigger.job_options == {}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"job_options": {"delay": 5}}, "/job_options/delay"),
        ({"job_options": {"tags": ["a", "a"]}}, "/job_options/tags"),
        ({"job_options": {"expires_in": 0}}, "/job_options/expires_in"),
        ({"job_options": {"debounce": {"key": "k"}}}, "/job_options/debounce"),
        (
            {"job_options": {"debounce": {"key": "k", "seconds": 1}}, "every_seconds": 60},
            "/job_options/debounce",
        ),
    ],
)
async def test_options_that_a_trigger_cannot_give_are_refused(
    tx: Tx, fields: dict[str, Any], path: str
) -> None:
    with pytest.raises(FairleadError) as refused:
        await given.trigger(tx, **fields)
    assert (refused.value.code, refused.value.faults[0].path) == ("trigger_invalid", path)


@pytest.mark.parametrize("way", ["many", "joined"])
async def test_loads_take_the_turns_of_their_keys_in_one_order(fl: Fairlead, way: str) -> None:
    """Two loads with the keys in opposite order would deadlock otherwise. Within a key, the order of the load holds."""
    async with fl.transaction() as tx:
        by_key = {"pointer": "/c", "max_running": 1, "strategy": "replace_queued"}
        await definitions.patch(tx, TESTER, "anything", {"by_key": by_key})

    async def enqueue_in_turn(customers: list[str]) -> list[str]:
        load = [
            NewJob(
                definition="anything",
                tenant=TENANT,
                payload={"c": customer},
                dedupe_key=f"{len(customers) - place} {customer}",
            )
            for place, customer in enumerate(customers)
        ]
        async with await psycopg.AsyncConnection.connect(str(fl.settings.database_url)) as connection:
            made = await fl.enqueue_many(load, tx=connection if way == "joined" else None)
        assert [one.id for one in made] == [new.id for new in load]
        queued = [await fl.read(new.id) for new in load]
        assert [job.status for job in queued[-1:]] == [JobStatus.QUEUED]
        assert {job.payload["c"]: job.id for job in queued if job.status is JobStatus.QUEUED} == {
            new.payload["c"]: new.id for new in load
        }
        return [job.payload["c"] for job in sorted(queued, key=lambda job: job.queued_at)]

    customers = ["b", "ä", "a", "d", "c", "b", "d"]
    assert await enqueue_in_turn(customers) == await enqueue_in_turn(customers[::-1])
