"""A page of jobs reads a bounded number of rows, whatever the tenant's history, and misses none."""

from collections.abc import AsyncIterator, Iterable, Mapping
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
from fairlead.model.access import Principal, Role
from fairlead.store import jobs as store
from tests import given

MANY = 6000
FEW = 12
LIMIT = 20
Q = JobStatus


class Explained(Tx):
    """A transaction that remembers how many rows each of its statements has read."""

    reads: int = 0

    async def all(self, row: Any, query: str, params: Any = None) -> Any:
        await self._explain(query, params)
        return await super().all(row, query, params)

    async def values(self, query: str, params: Any = None) -> Any:
        if "set_config" not in query:
            await self._explain(query, params)
        return await super().values(query, params)

    async def _explain(self, query: str, params: Any) -> None:
        [(plan,)] = await super().values(f"explain (analyze, format json) {query}", params)
        self.reads += read_by(plan[0]["Plan"])


def read_by(node: Mapping[str, Any]) -> int:
    """The rows that the scans of a plan came by."""
    rows = 0
    if "Relation Name" in node:
        rows = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
    return int(rows) + sum(read_by(below) for below in node.get("Plans", ()))


@asynccontextmanager
async def reading(fl: Fairlead, tenant: UUID) -> AsyncIterator[tuple[Explained, Principal]]:
    """A viewer's own transaction, as the API opens it: bound by row-level security."""
    async with fl.database.transaction(TransactionIdentity(tenant)) as tx:
        explained = Explained(tx.connection, tx.settings)
        yield explained, Principal("viewer", Role.VIEWER, tenant)


@pytest.fixture(autouse=True)
def _a_short_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LOOK", 300)


@pytest.fixture
async def tenant(fl: Fairlead) -> UUID:
    """A tenant of two definitions."""
    async with fl.transaction() as tx:
        await tx.run("insert into fairlead.job_definitions (key) values ('noop')")
        [(found,)] = await tx.values("select id from fairlead.tenants where slug = %s", [given.TENANT])
    return UUID(str(found))


async def enqueued(fl: Fairlead, count: int, **fields: Any) -> list[UUID]:
    new = [NewJob(definition="anything", tenant=given.TENANT, **fields) for _ in range(count)]
    return [one.id for one in await fl.enqueue_many(new)]


async def settle(fl: Fairlead) -> None:
    async with fl.transaction() as tx:
        await tx.run("analyze fairlead.job_records, fairlead.ready, fairlead.later, fairlead.counts")


async def everything(fl: Fairlead, tenant: UUID, wanted: JobFilter) -> list[UUID]:
    """All pages, one after the other."""
    found: list[UUID] = []
    cursor = None
    while True:
        async with reading(fl, tenant) as (tx, viewer):
            page = await jobs.list_jobs(tx, viewer, wanted, limit=LIMIT, cursor=cursor)
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
}


@pytest.mark.parametrize("most", ["finished", "queued"])
async def test_a_page_reads_a_bounded_number_of_rows(fl: Fairlead, tenant: UUID, most: str) -> None:
    await enqueued(fl, FEW, correlation_id="together")
    await getattr(backlog, f"add_{most}")(fl, MANY, print, tenant=given.TENANT)
    await settle(fl)

    # what is looked at, each with its definition and tenant, and once more to see where it ended; counts
    most_rows = store.LOOK * 4 + 300
    for name, wanted in WANTED.items():
        cursor = None
        for number in range(3):
            async with reading(fl, tenant) as (tx, viewer):
                page = await jobs.list_jobs(tx, viewer, wanted, limit=LIMIT, cursor=cursor)
                assert tx.reads <= most_rows, (name, number, tx.reads)
            if (cursor := page.next_cursor) is None:
                break


@pytest.mark.parametrize("most", ["finished", "queued"])
async def test_a_page_that_matches_at_once_reads_little_more_than_itself(
    fl: Fairlead, tenant: UUID, most: str
) -> None:
    await getattr(backlog, f"add_{most}")(fl, MANY, print, tenant=given.TENANT)
    await settle(fl)

    [matching] = [[Q.SUCCEEDED] if most == "finished" else [Q.QUEUED]]
    for wanted in (JobFilter(), JobFilter(q="noop"), JobFilter(status=matching)):
        async with reading(fl, tenant) as (tx, viewer):
            page = await jobs.list_jobs(tx, viewer, wanted, limit=LIMIT)
            assert len(page.items) == LIMIT
            # counting what waits is bounded too, and it only happens for `queued`
            assert tx.reads <= LIMIT * 10 + (store.LOOK + 1 if wanted.status == [Q.QUEUED] else 0)


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


async def test_an_empty_page_in_the_middle_says_where_to_go_on(fl: Fairlead, tenant: UUID) -> None:
    [early] = await enqueued(fl, 1)
    await backlog.add_finished(fl, MANY, print, tenant=given.TENANT)

    async with reading(fl, tenant) as (tx, viewer):
        page = await jobs.list_jobs(tx, viewer, JobFilter(definition_key="anything"))

    assert page.items == []
    assert page.next_cursor is not None
    assert await everything(fl, tenant, JobFilter(definition_key="anything")) == [early]


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
                await jobs.list_jobs(tx, viewer, wanted, limit=LIMIT, cursor=cursor)
                assert tx.reads <= store.LOOK * 4 + 300, (wanted, cursor)


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


async def test_the_secrets_in_a_dedupe_key_cannot_be_guessed_by_its_beginning(
    fl: Fairlead, tenant: UUID
) -> None:
    async with fl.transaction() as tx:
        await tx.run("update fairlead.job_definitions set secret_paths = '{/pin}' where key = 'anything'")
    [secret] = await enqueued(fl, 1, dedupe_key='anything::acme::{"pin":"1234"}', payload={"pin": "1234"})

    assert await everything(fl, tenant, JobFilter(q='anything::acme::{"pin":"1')) == []
    assert await everything(fl, tenant, JobFilter(dedupe_key='anything::acme::{"pin":"1234"}')) == [secret]


async def test_the_secrets_in_a_correlation_id_cannot_be_guessed_by_its_beginning(
    fl: Fairlead, tenant: UUID
) -> None:
    async with fl.transaction() as tx:
        await tx.run("update fairlead.job_definitions set secret_paths = '{/pin}' where key = 'anything'")
    [secret] = await enqueued(fl, 1, correlation_id="order-1234", payload={"pin": "1234"})

    for beginning in ("order-", "order-1", "order-123"):
        assert await everything(fl, tenant, JobFilter(q=beginning)) == []
    assert await everything(fl, tenant, JobFilter(q="order-1234")) == [secret]
    assert await everything(fl, tenant, JobFilter(correlation_id="order-1234")) == [secret]


async def test_a_summary_reads_no_jobs(fl: Fairlead, tenant: UUID) -> None:
    await backlog.add_finished(fl, MANY, print, tenant=given.TENANT)
    await backlog.add_queued(fl, MANY, print, tenant=given.TENANT)
    await settle(fl)

    async with reading(fl, tenant) as (tx, viewer):
        summary = await stats.get_summary(tx, viewer)

    assert summary.counts.queued == MANY
    assert summary.counts.succeeded == MANY * 99 // 100
    assert tx.reads < 500
    assert summary.oldest_ready_at is not None
    assert 0 <= (summary.counts.at - summary.oldest_ready_at).total_seconds() - (MANY - 1) < 60


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
