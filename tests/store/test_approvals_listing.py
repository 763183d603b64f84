"""A page of approvals reads a bounded number of rows, however many are answered or of jobs that have ended."""

from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from fairlead import Fairlead
from fairlead.actions import approvals
from fairlead.db.tx import Tx
from fairlead.store import approvals as store
from tests import given
from tests.store.test_listing import Explained
from tests.tables import each_case

MANY = 2500
TENANTS = [None, given.TENANT]
LOOK = 500
LOOKS = 4
# an approval, its job and its step, and what a page reads beside them
MOST_READS = LOOK * LOOKS * 3 + 300

COLUMNS = """
    select string_agg(quote_ident(column_name), ', ') from information_schema.columns
    where table_schema = 'fairlead' and table_name = 'job_records' and is_generated = 'NEVER'"""
ENDED_JOBS = """
    insert into fairlead.job_records ({columns})
    select {columns} from (
        select n.* from fairlead.job_records j, generate_series(1, %(many)s) g, lateral jsonb_populate_record(
            j, jsonb_build_object('id', fairlead.uuid7(), 'status', 'canceled', 'finished_at', now(), 'g', g)) n) made"""
STEPS = """
    insert into fairlead.job_steps (job_id, position, attempt_no, status, kind, name, tenant_id, started_at, request)
    select id, 0, 1, 'waiting', 'approval', 'pay', tenant_id, now(), jsonb_build_object('approval_id', id::text)
    from fairlead.job_records where status = 'canceled'"""
OF_ENDED_JOBS = """
    insert into fairlead.approvals (id, tenant_id, job_id, branch, position, name, title, roles)
    select id, tenant_id, id, '', 0, 'pay', 'Pay?', '{operator}' from fairlead.job_records where status = 'canceled'"""
# of the job that waits for the open one
FORGOTTEN = """
    insert into fairlead.approvals (id, tenant_id, job_id, branch, position, name, title, roles)
    select fairlead.uuid7(), a.tenant_id, a.job_id, a.branch, a.position, a.name, a.title, a.roles
    from fairlead.approvals a, generate_series(1, %(many)s) g where a.id = %(open)s and g > 0"""


@pytest.fixture
async def open_approval(fl: Fairlead, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[UUID]:
    """The oldest approval; the newer ones are of jobs that have ended, or were forgotten."""
    monkeypatch.setattr(store, "LOOK", LOOK)
    monkeypatch.setattr(approvals, "MOST_LOOKS", LOOKS)
    async with fl.transaction() as tx:
        found = await given.open_approval(tx)
        [(columns,)] = await tx.values(COLUMNS)
        for statement in (ENDED_JOBS.format(columns=columns), STEPS, OF_ENDED_JOBS, FORGOTTEN):
            await tx.run(statement, {"many": MANY, "open": found} if "%(" in statement else None)
        await analyze(tx)
    yield found
    async with fl.transaction() as tx:
        # clean for the checks at the end: these jobs were never whole
        await tx.run(
            "delete from fairlead.job_steps where job_id = any(array(select id from fairlead.job_records where status = 'canceled'))"
        )
        await tx.run("delete from fairlead.job_records where status = 'canceled'")


async def analyze(tx: Tx) -> None:
    for table in ("approvals", "job_steps", "job_records"):
        await tx.run(f"analyze fairlead.{table}")


@each_case("tenant", TENANTS)
async def test_the_open_approval_is_found_behind_very_many_that_are_not_needed(
    fl: Fairlead, open_approval: UUID, tenant: str | None
) -> None:
    found, cursor, pages = list[UUID](), None, 0
    async with fl.transaction() as plain:
        while True:
            tx = Explained(plain.connection, plain.settings, tables=plain._tables)
            page = await approvals.list_approvals(tx, given.TESTER, tenant=tenant, cursor=cursor)
            assert tx.reads <= MOST_READS, (pages, tx.reads)
            found += [one.id for one in page.items]
            cursor, pages = page.next_cursor, pages + 1
            if cursor is None:
                break
    assert found == [open_approval]
    assert pages <= 2 * MANY / (LOOK * LOOKS) + 1


@pytest.mark.postgres_only("a worker vacuums no table, only its shards")
async def test_answered_approvals_are_no_part_of_the_open_list(fl: Fairlead, open_approval: UUID) -> None:
    async with fl.transaction() as plain:
        await plain.run("update fairlead.approvals set status = 'approved' where id <> %s", [open_approval])
    # those that have just been answered are still in the index
    await fl.database.single(lambda tx: tx.run("vacuum fairlead.approvals"))
    async with fl.transaction() as plain:
        for when in ("before", "after"):
            if when == "after":
                await analyze(plain)
            for tenant in TENANTS:
                tx = Explained(plain.connection, plain.settings, tables=plain._tables)
                page = await approvals.list_approvals(tx, given.TESTER, tenant=tenant)
                assert ([one.id for one in page.items], page.next_cursor) == ([open_approval], None)
                assert tx.reads <= 50, (when, tenant)
