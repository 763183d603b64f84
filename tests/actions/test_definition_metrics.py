"""How a definition does: what a tenant sees of it, and what a super admin."""

from datetime import UTC, datetime, timedelta

from fairlead.actions import definition_metrics, definitions, error_groups
from fairlead.actions.definition_metrics import DefinitionMetrics
from fairlead.db.tx import Tx
from fairlead.model.access import Principal, Role
from fairlead.model.definition import Definition
from fairlead.store import definition_history, times
from tests import given
from tests.actions.test_overview import worker
from tests.given import OTHER, TENANT, TESTER
from tests.plans import count_rows, read_plan


async def greet(tx: Tx) -> Definition:
    found = await definitions.find(tx, TESTER, "greet")
    assert found is not None
    return found


async def metrics(tx: Tx, who: Principal, span: str = "1h") -> DefinitionMetrics:
    return await definition_metrics.get_metrics(tx, who, await greet(tx), span=span)


async def viewer(tx: Tx, slug: str = TENANT) -> Principal:
    return Principal("ada", Role.VIEWER, await given.tenant_id(tx, slug))


async def test_ends_failures_and_times_are_those_of_the_tenant_and_definition(tx: Tx) -> None:
    for status in ("succeeded", "succeeded", "succeeded", "failed"):
        await given.ended_job(tx, status)
    await given.ended_job(tx, "succeeded", tenant=OTHER)
    await given.ended_job(tx, "dead_letter", definition="anything")
    await error_groups.fold_failures(tx)

    own, everywhere = await metrics(tx, await viewer(tx)), await metrics(tx, TESTER)

    assert (own.ended_count, own.failed_count, own.failure_rate) == (4, 1, 0.25)
    assert (everywhere.ended_count, everywhere.failed_count) == (5, 1)
    assert own.times.jobs == 4
    assert own.times.run_ms is not None
    assert own.times.run_ms.p50 == 20
    assert [(group.failed, group.dead_letter) for group in own.errors] == [(1, 0)]


async def test_a_week_is_read_by_the_hour_and_counts_every_run_once(tx: Tx) -> None:
    await given.ended_job(tx, "succeeded")
    days_ago = datetime.now(UTC) - timedelta(days=3)
    await given.add_usage(tx, TENANT, days_ago, runs=10, succeeded=7, failed=2, dead_letter=1, run_ms=0)

    week, day = await metrics(tx, await viewer(tx), "7d"), await metrics(tx, await viewer(tx), "24h")

    assert (week.ended_count, week.failed_count) == (11, 3)
    assert day.ended_count == 1
    assert (await metrics(tx, await viewer(tx, OTHER), "7d")).ended_count == 0


async def test_a_tenant_learns_how_many_workers_serve_it_and_a_super_admin_which(tx: Tx) -> None:
    await worker(tx, "every")
    await worker(tx, "greeter", serves=["greet"])
    await worker(tx, "for-acme", serves=[f"greet {await given.tenant_id(tx)}"])
    await worker(tx, "other", serves=["greeting", "anything"])
    await worker(tx, "gone", ago=timedelta(days=1))

    everywhere = await metrics(tx, TESTER)
    own, other = await metrics(tx, await viewer(tx)), await metrics(tx, await viewer(tx, OTHER))

    assert everywhere.workers is not None
    assert [one.worker_id for one in everywhere.workers] == ["every", "for-acme", "greeter"]
    assert (own.workers, own.serving) == (None, 3)
    assert (other.workers, other.serving) == (None, 2)


async def test_every_change_is_kept_as_a_version(tx: Tx) -> None:
    await definitions.patch(tx, TESTER, "greet", {"timeout_seconds": 77})
    await definitions.patch(tx, TESTER, "greet", {"timeout_seconds": 77})

    newest, first = await definition_metrics.list_versions(tx, TESTER, await greet(tx))

    assert newest.lines is not None
    assert [one.text.strip() for one in newest.lines if one.change == "added"] == ['"timeout_seconds": 77']
    assert (newest.before, first.lines) == (first.version.version, None)
    assert newest.version.changed_by == "tester"
    shown = await definition_metrics.list_versions(tx, await viewer(tx), await greet(tx))
    assert [one.version.changed_by for one in shown] == [None, None]


async def test_old_versions_are_removed(tx: Tx) -> None:
    for seconds in range(1, definition_history.MOST_KEPT + 3):
        await definitions.patch(tx, TESTER, "greet", {"timeout_seconds": seconds})

    assert await given.count_versions(tx, "greet") == definition_history.MOST_KEPT
    assert (await definition_metrics.list_versions(tx, TESTER, await greet(tx)))[0].lines


async def test_times_are_read_from_a_bounded_number_of_jobs(tx: Tx) -> None:
    definition = await greet(tx)
    await tx.run(
        "insert into fairlead.job_records (id, tenant_id, definition_id, priority, max_attempts, scheduled_for, status,"
        " attempt_count, started_at, finished_at, claimed_by_worker, success_token, payload)"
        " select fairlead.uuid7(), %s, %s, 100, 3, now(), 'succeeded', 1, now(), now(), 'w', gen_random_uuid(), '{}'"
        " from generate_series(1, 5000)",
        [await given.tenant_id(tx), definition.id],
    )
    await tx.run("analyze fairlead.job_records")
    values = {
        "tenant_id": await given.tenant_id(tx),
        "definition_id": definition.id,
        "seconds": 3600,
        "look": 50,
        "most": 0,
    }
    await tx.prefer_indexes()

    nodes = await read_plan(tx, times.sql.sampled, values)

    assert max(map(count_rows, nodes)) <= 200, nodes
