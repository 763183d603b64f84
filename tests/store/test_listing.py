"""A page of jobs reads a bounded number of rows, whatever the tenant's history, and misses none."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from fairlead import Fairlead, JobStatus, NewJob
from fairlead.actions import jobs, stats
from fairlead.actions.jobs import JobFilter
from fairlead.bench import backlog
from fairlead.db.tx import TransactionIdentity, Tx
from fairlead.errors import FilterOnSecret, InvalidInput, SearchTooSlow
from fairlead.model.access import Principal, Role
from fairlead.model.job import WaitingFor
from fairlead.model.outcome import Change
from fairlead.store import job_search, queue
from tests import given
from tests.plans import count_rows, read_plan

MANY = 6000
FEW = 12
LIMIT = 20
LOOK = 300
Q = JobStatus


class Explained(Tx):
    """A transaction that remembers how many rows each of its statements has read."""

    reads: int = 0

    async def all(self, row: Any, query: str, params: Any = None) -> Any:
        await self._explain(query, params)
        return await super().all(row, query, params)

    async def dicts(self, query: str, params: Any = None) -> Any:
        await self._explain(query, params)
        return await super().dicts(query, params)

    async def values(self, query: str, params: Any = None) -> Any:
        if "set_config" not in query:
            await self._explain(query, params)
        return await super().values(query, params)

    async def _explain(self, query: str, params: Any) -> None:
        own = Tx(self.connection, self.settings, tables=self._tables)
        for node in await read_plan(own, query, params):
            if "Relation Name" in node:
                self.reads += int(count_rows(node))


@asynccontextmanager
async def reading(fl: Fairlead, tenant: UUID) -> AsyncIterator[tuple[Explained, Principal]]:
    """A viewer's own transaction, as the API opens it: bound by row-level security."""
    async with fl.database.transaction(TransactionIdentity(tenant)) as tx:
        explained = Explained(tx.connection, tx.settings, tables=tx._tables)
        yield explained, Principal("viewer", Role.VIEWER, tenant)


@pytest.fixture(autouse=True)
def _a_short_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_search, "FIRST_LOOK", LOOK)
    monkeypatch.setattr(job_search, "FIRST_LARGE_LOOK", LOOK)
    monkeypatch.setattr(job_search, "MOST_LOOK", LOOK)
    monkeypatch.setattr(job_search, "MOST_WAITING", LOOK)


@pytest.fixture
async def tenant(fl: Fairlead) -> UUID:
    """A tenant of two definitions."""
    async with fl.transaction() as tx:
        await tx.run(
            "insert into fairlead.job_definitions (id, key) values (fairlead.definition_id('noop'), 'noop')"
        )
        return await given.tenant_id(tx)


async def enqueued(fl: Fairlead, count: int, **fields: Any) -> list[UUID]:
    new = [NewJob(definition="anything", tenant=given.TENANT, **fields) for _ in range(count)]
    return [one.id for one in await fl.enqueue_many(new)]


async def tag_all(fl: Fairlead, tag: str) -> None:
    """Give the tag to all jobs without tags."""
    async with fl.transaction() as tx:
        await tx.run(
            "with job as (update fairlead.job_records set tags = array[%(tag)s] where tags is null returning tenant_id, id) "
            "insert into fairlead.job_tags (tenant_id, tag, job_id) select tenant_id, %(tag)s, id from job",
            {"tag": tag},
        )


async def settle(fl: Fairlead) -> None:
    async with fl.transaction() as tx:
        await tx.run(
            "analyze fairlead.job_records, fairlead.ready, fairlead.later, fairlead.counts, fairlead.job_tags"
        )


async def everything(fl: Fairlead, tenant: UUID, wanted: JobFilter) -> list[UUID]:
    """All pages, one after the other."""
    found: list[UUID] = []
    cursor = None
    while True:
        async with reading(fl, tenant) as (tx, viewer):
            page = await jobs.list_jobs(tx, viewer, wanted, limit=LIMIT, cursor=cursor, seconds=0)
        found += [job.id for job in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return found


def newest_first(ids: Iterable[UUID]) -> list[UUID]:
    return sorted(ids, key=lambda one: one.bytes, reverse=True)


WANTED = {
    "anything": JobFilter(),
    "queued": JobFilter(status=[Q.QUEUED]),
    "running": JobFilter(status=[Q.RUNNING]),
    "succeeded": JobFilter(status=[Q.SUCCEEDED]),
    "failed": JobFilter(status=[Q.FAILED]),
    "living": JobFilter(status=[Q.QUEUED, Q.RUNNING]),
    "definition": JobFilter(definition_key="anything"),
    "q of a definition": JobFilter(q="oth"),
    "q of nothing": JobFilter(q="nowhere"),
    "q of an id": JobFilter(q="0190a1b2-0000-7000-8000-000000000000"),
    "long ago": JobFilter(created_before=datetime.now(UTC) - timedelta(days=900)),
    "correlation": JobFilter(correlation_id="together"),
    "dedupe key": JobFilter(dedupe_key="once"),
    "status and q": JobFilter(status=[Q.SUCCEEDED], q="anything"),
    "tag": JobFilter(tags=["rare"]),
    "tags": JobFilter(tags=["rare", "common"]),
    "tag of many": JobFilter(tags=["common"], status=[Q.FAILED]),
    "tag of nothing": JobFilter(tags=["nowhere"]),
    "payload of nothing": JobFilter(payload_contains={"nowhere": [1]}),
    "payload of living": JobFilter(status=[Q.QUEUED, Q.RUNNING], payload_contains={"nowhere": [1]}),
}


@pytest.mark.parametrize("most", ["finished", "queued"])
async def test_a_page_reads_a_bounded_number_of_rows(fl: Fairlead, tenant: UUID, most: str) -> None:
    """And little more than itself, if what it looks at matches at once."""
    await enqueued(fl, FEW, correlation_id="together", tags=("rare", "common"))
    await getattr(backlog, f"add_{most}")(fl, MANY, print, tenant=given.TENANT)
    await tag_all(fl, "common")
    await settle(fl)

    # what is looked at, each with its definition and tenant, and once more to see where it ended; counts
    most_rows = LOOK * 4 + 300
    for name, wanted in WANTED.items():
        cursor = None
        for number in range(3):
            async with reading(fl, tenant) as (tx, viewer):
                page = await jobs.list_jobs(tx, viewer, wanted, limit=LIMIT, cursor=cursor, seconds=0)
                # tags are counted, and the index of tags is read beside the jobs
                of_tags = 3 * LOOK if wanted.tags else 0
                assert tx.reads <= most_rows + of_tags, (name, number, tx.reads)
            if (cursor := page.next_cursor) is None:
                break
    matching = [Q.SUCCEEDED] if most == "finished" else [Q.QUEUED]
    for wanted in (JobFilter(), JobFilter(q="noop"), JobFilter(status=matching)):
        async with reading(fl, tenant) as (tx, viewer):
            page = await jobs.list_jobs(tx, viewer, wanted, limit=LIMIT)
            assert len(page.items) == LIMIT
            # counting what waits is bounded too, and it only happens for `queued`
            assert tx.reads <= LIMIT * 10 + (LOOK + 1 if wanted.status == [Q.QUEUED] else 0)


@pytest.mark.parametrize("most", ["finished", "queued"])
async def test_page_by_page_nothing_is_missed(fl: Fairlead, tenant: UUID, most: str) -> None:
    early = await enqueued(fl, FEW, correlation_id="together")
    await getattr(backlog, f"add_{most}")(fl, MANY, print, tenant=given.TENANT)
    late = await enqueued(fl, FEW)
    hers = newest_first([*early, *late])

    assert await everything(fl, tenant, JobFilter(definition_key="anything")) == hers
    assert await everything(fl, tenant, JobFilter(q="YTHI")) == hers
    assert await everything(fl, tenant, JobFilter(q="TOGE")) == newest_first(early)
    assert await everything(fl, tenant, JobFilter(q=str(early[3]))) == [early[3]]
    assert await everything(fl, tenant, JobFilter(correlation_id="together")) == newest_first(early)
    if most == "finished":
        assert await everything(fl, tenant, JobFilter(status=[Q.QUEUED])) == hers
        assert len(await everything(fl, tenant, JobFilter(status=[Q.FAILED]))) == MANY // 100


@pytest.mark.thorough
async def test_jobs_are_found_by_all_of_their_tags(fl: Fairlead, tenant: UUID) -> None:
    rare = await enqueued(fl, FEW, tags=("rare", "common"))
    await backlog.add_finished(fl, MANY, print, tenant=given.TENANT)
    await tag_all(fl, "common")
    other = await enqueued(fl, 2, tags=("rare",))
    await settle(fl)

    async def found(**wanted: Any) -> list[UUID]:
        return await everything(fl, tenant, JobFilter(**wanted))

    assert await found(tags=["rare"]) == newest_first([*rare, *other])
    assert await found(tags=["common", "rare"]) == newest_first(rare)
    assert await found(tags=["rare"], status=[Q.SUCCEEDED]) == []
    # the jobs of a large tag that failed are one in a hundred: far more pieces than one
    assert len(await found(tags=["common"], status=[Q.FAILED])) == MANY // 100
    assert len(await found(tags=["common"])) == MANY + FEW
    async with reading(fl, tenant) as (tx, viewer):
        page = await jobs.list_jobs(tx, viewer, JobFilter(tags=["rare"]), limit=LIMIT, seconds=0)
        assert tx.reads <= (FEW + 2) * 8 + 300
    assert (len(page.items), page.next_cursor) == (FEW + 2, None)


async def test_a_selective_filter_looks_at_all_waiting_jobs(fl: Fairlead, tenant: UUID) -> None:
    [early] = await enqueued(fl, 1, correlation_id="together", tags=("old",))
    await enqueued(fl, LOOK - 10, tags=("new",))
    wanted = JobFilter(status=[Q.QUEUED], correlation_id="together")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_search, "FIRST_LOOK", 20)
        patch.setattr(job_search, "FIRST_LARGE_LOOK", 20)
        patch.setattr(job_search, "MOST_LOOK", 20)
        assert await everything(fl, tenant, wanted) == [early]
        assert await everything(fl, tenant, JobFilter(tags=["old"], correlation_id="together")) == [early]


async def test_the_tags_of_another_tenant_find_nothing(fl: Fairlead, tenant: UUID) -> None:
    await fl.enqueue("anything", tenant=given.OTHER, tags=["theirs"])

    assert await everything(fl, tenant, JobFilter(tags=["theirs"])) == []


async def test_an_empty_page_in_the_middle_says_where_to_go_on_when_its_time_is_over(
    fl: Fairlead, tenant: UUID
) -> None:
    [early] = await enqueued(fl, 1)
    await backlog.add_finished(fl, MANY, print, tenant=given.TENANT)

    async with reading(fl, tenant) as (tx, viewer):
        page = await jobs.list_jobs(tx, viewer, JobFilter(q="anything"), seconds=0)

    assert page.items == []
    assert page.next_cursor is not None
    assert page.searched == LOOK
    assert await everything(fl, tenant, JobFilter(q="anything")) == [early]
    async with reading(fl, tenant) as (tx, viewer):
        page = await jobs.list_jobs(tx, viewer, JobFilter(q="anything"), seconds=3600)

    assert [job.id for job in page.items] == [early]
    assert page.next_cursor is None


async def test_the_rare_jobs_of_a_definition_are_found_at_once(fl: Fairlead, tenant: UUID) -> None:
    early = await enqueued(fl, FEW)
    await backlog.add_finished(fl, MANY, print, tenant=given.TENANT)
    await settle(fl)

    for wanted in (
        JobFilter(definition_key="anything"),
        JobFilter(definition_key="anything", status=[Q.QUEUED]),
        JobFilter(definition_key="anything", created_before=datetime.now(UTC) + timedelta(days=1)),
    ):
        async with reading(fl, tenant) as (tx, viewer):
            page = await jobs.list_jobs(tx, viewer, wanted, limit=LIMIT, seconds=0)
        assert [job.id for job in page.items] == newest_first(early), wanted
        assert page.next_cursor is None
        assert tx.reads <= FEW * 8 + 300, (wanted, tx.reads)


async def test_times_are_bounds_of_the_index(fl: Fairlead, tenant: UUID) -> None:
    await backlog.add_finished(fl, MANY, print, tenant=given.TENANT)
    await settle(fl)
    async with fl.transaction() as tx:
        [(middle,)] = await tx.values(
            "select queued_at from fairlead.job_records where tenant_id = %s order by id offset %s limit 1",
            [tenant, MANY // 2],
        )

    for wanted in (
        JobFilter(created_before=middle - timedelta(days=9000)),
        JobFilter(created_after=datetime.now(UTC) + timedelta(hours=1)),
    ):
        async with reading(fl, tenant) as (tx, viewer):
            page = await jobs.list_jobs(tx, viewer, wanted, limit=LIMIT, seconds=0)
        assert page.items == []
        assert page.next_cursor is None
        assert tx.reads <= 20


async def test_a_part_of_an_id_finds_the_job(fl: Fairlead, tenant: UUID) -> None:
    [mine, *others] = await enqueued(fl, 40)
    text = str(mine)

    for part in (text[-8:], text[-12:], text[-9:], text.replace("-", "")[-20:].upper()):
        assert await everything(fl, tenant, JobFilter(q=part)) == [mine], part
    begin = text[:13]
    same = [one for one in [mine, *others] if str(one).startswith(begin)]
    assert await everything(fl, tenant, JobFilter(q=begin)) == newest_first(same)
    # too short to be an id
    assert await everything(fl, tenant, JobFilter(q=text[-7:])) == []


async def test_queued_jobs_are_told_apart_by_what_they_wait_for(fl: Fairlead, tenant: UUID) -> None:
    ready = await enqueued(fl, 2)
    scheduled = await enqueued(fl, 2, scheduled_for=datetime.now(UTC) + timedelta(hours=1))
    async with fl.transaction() as tx:
        lease = await given.claimed_job(tx)
        change = Change(status=Q.QUEUED, attempt_status="failed", charge=1, delay=3600.0)
        await queue.finish(tx, [(lease, change)], actor="somebody")
        retrying = lease.job_id
        running = await given.running_job(tx)

    for waiting_for, expected in (
        (WaitingFor.READY, ready),
        (WaitingFor.SCHEDULED, scheduled),
        (WaitingFor.RETRYING, [retrying]),
    ):
        found = await everything(fl, tenant, JobFilter(waiting_for=waiting_for))
        assert found == newest_first(expected), waiting_for
        assert running not in found


async def test_a_small_tenant_does_not_walk_through_the_jobs_of_a_large_one(
    fl: Fairlead, tenant: UUID
) -> None:
    await enqueued(fl, 100)
    await backlog.add_finished(fl, MANY, print, tenant=given.OTHER)
    [middle, *_] = await enqueued(fl, 60)
    await settle(fl)

    for wanted in (
        JobFilter(),
        JobFilter(q="nowhere"),
        JobFilter(status=[Q.SUCCEEDED]),
        JobFilter(q="ything"),
    ):
        for cursor in (None, str(middle)):
            async with reading(fl, tenant) as (tx, viewer):
                await jobs.list_jobs(tx, viewer, wanted, limit=LIMIT, cursor=cursor, seconds=0)
                assert tx.reads <= LOOK * 4 + 300, (wanted, cursor)


async def test_a_status_that_nobody_has_ends_at_once(fl: Fairlead, tenant: UUID) -> None:
    await backlog.add_queued(fl, MANY, print, tenant=given.TENANT)

    async with reading(fl, tenant) as (tx, viewer):
        page = await jobs.list_jobs(tx, viewer, JobFilter(status=[Q.SUCCEEDED]))

    assert page == jobs.JobPage([], None)


async def test_queued_jobs_are_found_wherever_they_wait(fl: Fairlead, tenant: UUID) -> None:
    ready = await enqueued(fl, 2)
    later = await enqueued(fl, 2, scheduled_for=datetime.now(UTC) + timedelta(hours=1))
    hosts = await backlog.add_hosts(fl, 2, tenant=given.TENANT)
    await backlog.add_queued(fl, 2, print, tenant=given.TENANT, hosts=hosts)
    await backlog.add_finished(fl, MANY, print, tenant=given.TENANT)

    found = await everything(fl, tenant, JobFilter(status=[Q.QUEUED]))

    assert len(found) == 6
    assert {*ready, *later} <= set(found)


async def test_jobs_are_found_by_error_worker_duration_and_payload(fl: Fairlead, tenant: UUID) -> None:
    async with fl.transaction() as tx:
        failed = await given.failed_job(
            tx,
            "ConnectionError: Timeout after 5 s",
            status="failed",
            definition="anything",
            payload={"name": "Ada", "to": {"address": "ada@example.com"}},
        )
        other = await given.ended_job(
            tx,
            "succeeded",
            definition="anything",
            payload={"name": "Bob", "to": {"address": "bob@example.com"}},
        )
        # no other job has run for so long, on any machine
        await tx.run("update fairlead.job_records set started_at = finished_at - interval '1 hour'")
        running = await given.running_job(tx, definition="anything", payload={"name": "Cleo", "size": 42})

    async def found(**wanted: Any) -> list[UUID]:
        return await everything(fl, tenant, JobFilter(**wanted))

    assert await found(error="timeout AFTER") == [failed]
    assert await found(error="refused") == []
    assert await found(worker="some") == newest_first([failed, other, running])
    assert await found(worker="body") == []
    assert await found(duration_over=3000) == newest_first([failed, other])
    assert await found(duration_over=5000) == []
    assert await found(duration_under=5000) == newest_first([failed, other])
    assert await found(payload={"to.address": "ada@example.com"}) == [failed]
    assert await found(payload={"to.address": "*@example.com", "name": "B*"}) == [other]
    assert await found(payload={"to.address": "%@example.com"}) == []
    assert await found(payload={"size": "42"}) == [running]
    assert await found(payload_contains={"to": {"address": "ada@example.com"}}) == [failed]
    assert await found(payload_contains={"to": {}}) == newest_first([failed, other])
    assert await found(payload_contains={"name": "Ada", "to": {"address": "bob@example.com"}}) == []
    assert await found(payload_contains={"size": 42}, status=[Q.QUEUED, Q.RUNNING]) == [running]
    assert await found(payload_contains={"size": "42"}) == []
    assert await found(q="ADA@example") == [failed]
    assert await found(q="timeout") == [failed]
    assert await found(status=[Q.RUNNING, Q.FAILED], worker="some") == newest_first([failed, running])
    assert await found(status=[Q.QUEUED], worker="some") == []


async def test_secrets_cannot_be_guessed_by_a_search(fl: Fairlead, tenant: UUID) -> None:
    await given.set_definition(fl, "anything", secret_paths=["/login/pin"])
    payload = {"login": {"pin": "1234", "name": "Ada"}, "to": "ada@example.com"}
    [secret] = await enqueued(fl, 1, payload=payload)
    await given.set_job(fl, secret, last_error="pin 1234 refused")

    for wanted in (
        JobFilter(error="pin 1"),
        JobFilter(q="1234"),
        JobFilter(payload={"login.pin": "1*"}),
        JobFilter(payload={"login.pin": "1234"}),
        JobFilter(payload={"login": "*1234*"}),
        JobFilter(payload={"login.name": "Ada"}),
        JobFilter(payload_contains={"login": {"pin": "1234"}}),
        JobFilter(payload_contains={"login": {"name": "Ada"}}),
        JobFilter(payload_contains={"to": "ada@example.com", "login": {}}),
    ):
        assert await everything(fl, tenant, wanted) == [], wanted
    assert await everything(fl, tenant, JobFilter(payload={"to": "ada@*"})) == [secret]
    assert await everything(fl, tenant, JobFilter(payload_contains={"to": "ada@example.com"})) == [secret]
    asked = JobFilter(payload_contains={"login": {"pin": "1234"}}, definition_key="anything")
    with pytest.raises(FilterOnSecret, match="/login/pin is secret"):
        await everything(fl, tenant, asked)


@pytest.mark.parametrize("path", ["/a~1b", "/*", "/**", "", "/~0x/y"])
async def test_a_secret_is_not_found_by_any_way_of_writing_its_path(
    fl: Fairlead, tenant: UUID, path: str
) -> None:
    await given.set_definition(fl, "anything", secret_paths=[path])
    await enqueued(fl, 1, payload={"a/b": "1234", "~x": {"y": "1234"}})

    name, value = ("~x", {"y": "1234"}) if path.startswith("/~0") else ("a/b", "1234")
    assert await everything(fl, tenant, JobFilter(payload_contains={name: value})) == []
    if isinstance(value, str):
        assert await everything(fl, tenant, JobFilter(payload={name: value})) == []


def _nest(levels: int) -> dict[str, Any]:
    return {"a": _nest(levels - 1)} if levels else {}


async def test_a_filter_that_takes_long_to_compare_is_refused(fl: Fairlead, tenant: UUID) -> None:
    for wanted in (
        JobFilter(error="x" * 201),
        JobFilter(payload={"a": "*a*a*a*"}),
        JobFilter(payload={str(n): "1" for n in range(6)}),
        JobFilter(tags=[]),
        JobFilter(tags=["a,b"]),
        JobFilter(tags=["x" * 65]),
        JobFilter(tags=[str(n) for n in range(17)]),
        JobFilter(payload_contains={}),
        JobFilter(payload_contains=[1]),  # type: ignore[arg-type]
        JobFilter(payload_contains={"a": "x" * 2000}),
        JobFilter(payload_contains={"a": "\x00"}),
        JobFilter(payload_contains=_nest(10)),
    ):
        async with reading(fl, tenant) as (tx, viewer):
            with pytest.raises(InvalidInput):
                await jobs.list_jobs(tx, viewer, wanted)


async def test_the_counts_say_how_many_match(fl: Fairlead, tenant: UUID) -> None:
    await enqueued(fl, 3)
    await backlog.add_finished(fl, MANY, print, tenant=given.TENANT)

    for wanted, expected in (
        (JobFilter(), MANY + 3),
        (JobFilter(definition_key="anything"), 3),
        (JobFilter(status=[Q.FAILED, Q.SUCCEEDED]), MANY),
        (JobFilter(definition_key="nowhere"), 0),
        (JobFilter(q="anything"), None),
    ):
        async with reading(fl, tenant) as (tx, viewer):
            assert await jobs.count_matching(tx, viewer, wanted) == expected, wanted


@pytest.mark.parametrize(
    ("field", "value", "beginnings", "found_by"),
    [
        ("dedupe_key", 'anything::acme::{"pin":"1234"}', ['anything::acme::{"pin":"1'], ["dedupe_key"]),
        ("correlation_id", "order-1234", ["order-", "order-1", "order-123"], ["correlation_id", "q"]),
    ],
)
async def test_the_secrets_in_a_field_cannot_be_guessed_by_its_beginning(
    fl: Fairlead, tenant: UUID, field: str, value: str, beginnings: list[str], found_by: list[str]
) -> None:
    await given.set_definition(fl, "anything", secret_paths=["/pin"])
    [secret] = await enqueued(fl, 1, payload={"pin": "1234"}, **{field: value})

    for beginning in beginnings:
        assert await everything(fl, tenant, JobFilter(q=beginning)) == []
    for name in found_by:
        assert await everything(fl, tenant, JobFilter(**{name: value})) == [secret]  # type: ignore[arg-type]


async def test_a_summary_reads_no_jobs(fl: Fairlead, tenant: UUID) -> None:
    before = datetime.now(UTC)
    await backlog.add_finished(fl, MANY, print, tenant=given.TENANT)
    await backlog.add_queued(fl, MANY, print, tenant=given.TENANT)
    await settle(fl)

    async with reading(fl, tenant) as (tx, viewer):
        summary = await stats.get_summary(tx, viewer)

    assert summary.counts.queued == MANY
    assert summary.counts.succeeded == MANY * 99 // 100
    assert tx.reads < 500
    assert summary.oldest_ready_at is not None
    assert before <= summary.oldest_ready_at + timedelta(seconds=MANY - 1) <= summary.counts.at


async def test_the_oldest_is_found_across_definitions_priorities_and_hosts(
    fl: Fairlead, tenant: UUID
) -> None:
    moment = datetime.now(UTC) - timedelta(hours=2)
    await enqueued(fl, 3)
    await enqueued(fl, 1, priority=7)
    await waiting_since(fl, moment + timedelta(hours=1), priority=7)
    assert await oldest(fl, tenant) == moment + timedelta(hours=1)

    await enqueued(fl, 1, priority=90)
    await waiting_since(fl, moment, priority=90)
    assert await oldest(fl, tenant) == moment

    hosts = await backlog.add_hosts(fl, 1, tenant=given.TENANT)
    await backlog.add_queued(fl, 9000, print, tenant=given.TENANT, hosts=hosts)
    assert (await oldest(fl, tenant)) < moment


async def waiting_since(fl: Fairlead, moment: datetime, *, priority: int) -> None:
    """Jobs of this priority were enqueued at that time."""
    async with fl.transaction() as tx:
        values = [moment, priority]
        await tx.run("update fairlead.ready set scheduled_for = %s where priority = %s", values)
        await tx.run("update fairlead.job_records set scheduled_for = %s where priority = %s", values)
        await tx.run(
            "update fairlead.job_records set queued_at = scheduled_for where priority = %s", [priority]
        )


async def oldest(fl: Fairlead, tenant: UUID) -> datetime:
    async with reading(fl, tenant) as (tx, viewer):
        found = (await stats.get_summary(tx, viewer)).oldest_ready_at
    assert found is not None
    return found


async def test_a_tenant_without_jobs_has_no_oldest(fl: Fairlead, tenant: UUID) -> None:
    async with reading(fl, tenant) as (tx, viewer):
        summary = await stats.get_summary(tx, viewer)

    assert summary.oldest_ready_at is None
    assert summary.counts.queued == 0


async def test_a_statement_of_a_search_takes_only_so_long(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_search, "STATEMENT_SECONDS", 0.05)
    await given.queued_job(fl.database)
    wanted = JobFilter(tenant=given.TENANT, q="x")
    async with fl.database.transaction() as blocking:
        await blocking.run("lock table fairlead.job_records in access exclusive mode")
        with pytest.raises(SearchTooSlow, match=r"longer than 0\.05 s"):
            async with fl.database.transaction() as tx:
                await jobs.list_jobs(tx, fl.principal, wanted)
    async with fl.database.transaction() as tx:
        limit = await tx.values("select current_setting('statement_timeout')")
        await jobs.list_jobs(tx, fl.principal, wanted)
        assert await tx.values("select current_setting('statement_timeout')") == limit
