"""Tags, timeouts, expiries, keys that stay taken and debounced jobs, however they are enqueued."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from fairlead import Debounce, Fairlead, NewJob
from fairlead.actions import jobs as actions
from fairlead.errors import InvalidInput
from fairlead.model.job import JobStatus
from fairlead.store import queue, retention
from tests import given
from tests.given import TENANT, TESTER

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
        assert await tx.values("select tag, job_id from fairlead.job_tags order by tag") == [
            ("größe 7", made),
            ("red", made),
        ]
        assert await tx.values("select expires_at, job_id from fairlead.expiries") == [(job.expires_at, made)]
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


@pytest.mark.parametrize("what", BAD)
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
        await tx.run(
            "update fairlead.job_records set finished_at = finished_at - interval '99 days' where id = %s",
            [gone],
        )
        await retention.remove(tx, place=UUID(int=0), days=30, look=100, limit=100)

        assert await tx.values("select tag, job_id from fairlead.job_tags") == [("a", kept)]
        assert await tx.values("select job_id from fairlead.expiries") == [(kept,)]


# A key that stays taken


@pytest.mark.parametrize("way", WAYS)
async def test_a_key_stays_taken_after_its_job_has_ended(fl: Fairlead, way: str) -> None:
    first, _ = await enqueue(fl, way, dedupe_key="k", unique_for=3600)
    await fl.cancel(first)

    assert await enqueue(fl, way, dedupe_key="k") == (first, True)
    assert await enqueue(fl, way, dedupe_key="k", unique_for=1) == (first, True)

    async with fl.transaction() as tx:
        await tx.run("update fairlead.active_keys set unique_until = clock_timestamp()")
    second, deduplicated = await enqueue(fl, way, dedupe_key="k")
    assert (second != first, deduplicated) == (True, False)
    await fl.cancel(second)
    assert (await enqueue(fl, way, dedupe_key="k"))[1] is False


@pytest.mark.parametrize("status", ["succeeded", "failed", "dead_letter", "canceled"])
async def test_every_end_leaves_a_key_taken_until_its_time_is_over(fl: Fairlead, status: str) -> None:
    async with fl.transaction() as tx:
        ended = await given.ended_job(tx, status, dedupe_key="kept", unique_for=3600)
        await given.ended_job(tx, status, dedupe_key="free", unique_for=0.000001)

        assert await tx.values("select job_id from fairlead.active_keys") == [(ended,)]


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
        await tx.run(
            "update fairlead.active_keys set unique_until = clock_timestamp() where job_id = %s", [second]
        )
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
    await tx.run("update fairlead.job_records set scheduled_for = clock_timestamp() - interval '1 s'")
    await tx.run(
        "update fairlead.later l set due_at = j.scheduled_for from fairlead.job_records j where j.id = l.job_id"
    )
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
        await tx.run("update fairlead.debounces set first_at = first_at - interval '1 hour'")

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
        async with fl.transaction() as tx:
            await tx.run("delete from fairlead.job_records")
            await tx.run("delete from fairlead.counts")

    second, deduplicated = await enqueue(fl, "one", debounce=key)
    assert (second != first, deduplicated) == (True, False)


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
