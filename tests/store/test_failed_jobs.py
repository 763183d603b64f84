"""What is read of jobs that ended badly, and of counts, is bounded."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from fairlead.actions import bulk_jobs, gates, system
from fairlead.actions.bulk_jobs import Skip
from fairlead.actions.system import TenantComparison
from fairlead.db.tx import Tx
from fairlead.errors import InvalidInput
from fairlead.model.access import Principal, Role
from fairlead.store import bulk_jobs as stored
from fairlead.store import job_conditions, throughput
from tests import given
from tests.plans import count_rows, read_scans


async def planned(tx: Tx, query: str, values: dict[str, Any], table: str) -> list[dict[str, Any]]:
    """The nodes of a query's plan that read a table."""
    await tx.prefer_indexes()
    return await read_scans(tx, query, values, table)


async def test_chosen_jobs_are_retried_and_only_ones_own(tx: Tx) -> None:
    mine = await given.failed_job(tx, "E")
    others = await given.failed_job(tx, "E", tenant=given.OTHER)
    waiting = await given.queued_job(tx)
    operator = Principal("operator", Role.OPERATOR, await given.tenant_id(tx))

    did = await bulk_jobs.retry_chosen(tx, operator, [mine, others, waiting], told={"error": "E"})

    assert (did.count, did.skipped) == (1, 2)
    assert did.reasons == {"not_found": 1, "not_failed": 1}
    rows: dict[UUID, str] = dict(await tx.values("select id, status::text from fairlead.jobs"))
    assert (rows[mine], rows[others]) == ("queued", "dead_letter")
    [entry] = await given.audit_entries(tx, "JOBS_RETRIED")
    assert entry.details == {"filter": {"error": "E"}, "count": 1}


@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.parametrize("of_all", [False, True])
async def test_jobs_to_retry_are_read_by_their_index_and_no_further_than_is_asked_for(
    tx: Tx, *, of_all: bool, analyzed: bool
) -> None:
    await tx.run(
        "insert into fairlead.job_records (id, tenant_id, definition_id, priority, max_attempts, scheduled_for, finished_at, "
        "status, troubled, dedupe_key, created_by, payload) "
        "select fairlead.uuid7(), t.id, d.id, 100, 3, now(), now(), "
        "case when failed then 'failed' else 'succeeded' end::fairlead.job_status, failed, n::text, 'tester', '{}' "
        "from fairlead.tenants t, fairlead.job_definitions d, generate_series(1, 6000) n, lateral (select n %% 5 = 0) f(failed) "
        "where t.slug <> 'global' and d.key = 'greet'",
        [],
    )
    await tx.run(
        "insert into fairlead.active_keys (tenant_id, key_hash, job_id) "
        "select tenant_id, sha256(convert_to(dedupe_key, 'UTF8')), gen_random_uuid() from fairlead.jobs"
    )
    if analyzed:
        await tx.run("analyze fairlead.job_records, fairlead.active_keys")
    wanted = {"definition_key": "greet", "tenant_id": None if of_all else await given.tenant_id(tx)}
    asked, said = job_conditions.build_conditions(tx, wanted)
    values = {**said, "forbidden": None}
    query = "\nand ".join([stored.sql.retryable, *asked]) + " limit 10"

    for table, index in (("job_records", "jobs_troubled"), ("active_keys", "active_keys_pkey")):
        [node] = await planned(tx, query, values, table)
        if analyzed:
            assert node["Index Name"] == index
        # without statistics other indexes cost the planner the same: one job in five failed, so it passes over some
        assert count_rows(node) <= (10 if analyzed else 600)
    async with stored.open_retryable(tx, wanted) as found:
        assert sum([one.stuck == Skip.DEDUPE_KEY async for one in found]) == (2400 if of_all else 1200)


async def test_nobody_retries_too_many(tx: Tx) -> None:
    with pytest.raises(InvalidInput, match="at most 1000"):
        await bulk_jobs.retry_chosen(tx, given.TESTER, [uuid4()] * 1001, told={})


async def test_what_ended_is_read_from_counts_by_index(tx: Tx) -> None:
    await tx.run(
        "insert into fairlead.counts (tenant_id, definition_id, minute, succeeded) "
        "select t.id, d.id, clock_timestamp() - make_interval(mins => n), 1 "
        "from fairlead.tenants t, fairlead.job_definitions d, generate_series(1, 1400) n where d.key = 'greet'"
    )
    await tx.run("analyze fairlead.counts")
    tenants = [await given.tenant_id(tx), await given.tenant_id(tx, given.OTHER)]

    nodes = await planned(tx, throughput.sql.ended, {"tenants": tenants, "seconds": 3600}, "counts")

    assert {one["Index Name"] for one in nodes} == {"counts_by_level"}
    assert sum(one["Actual Rows"] * one["Actual Loops"] for one in nodes) <= 2 * 60


async def compare_tenants(tx: Tx) -> dict[str, TenantComparison]:
    found = await system.compare_tenants(tx, given.TESTER, seconds=3600, limit=10)
    return {one.queue.tenant: one for one in found}


async def test_tenants_stand_side_by_side(tx: Tx) -> None:
    await given.set_tenant(tx, given.OTHER, weight=3)
    for _ in range(3):
        await given.running_job(tx)
    await given.running_job(tx, tenant=given.OTHER)
    await given.ended_job(tx, "succeeded")
    await given.failed_job(tx, "E")

    parts = await compare_tenants(tx)

    acme, other, system_own = parts[given.TENANT], parts[given.OTHER], parts["global"]
    assert (acme.share, acme.fair_share, acme.failure_rate) == (0.75, 0.25, 0.5)
    assert (other.share, other.fair_share, other.failure_rate) == (0.25, 0.75, None)
    assert (system_own.share, system_own.fair_share) == (0, None)


async def test_a_paused_tenant_with_nothing_running_takes_no_part(tx: Tx) -> None:
    await given.queued_job(tx)
    await given.queued_job(tx, tenant=given.OTHER)
    await gates.pause(tx, given.TESTER, tenant=given.TENANT)

    parts = await compare_tenants(tx)

    assert (parts[given.TENANT].fair_share, parts[given.OTHER].fair_share) == (None, 1.0)
