"""Fairness over the last hours: the share of run time against the share that the weight gives."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from fairlead.actions import fairness
from fairlead.actions.fairness import FairnessReport
from fairlead.db.tx import Tx
from fairlead.errors import Forbidden
from fairlead.model.access import Principal, Role
from tests import given
from tests.given import OTHER, TENANT, TESTER


async def ran(tx: Tx, slug: str, *, hours_ago: int, run_ms: int) -> None:
    """Usage of an hour, as the fold leaves it."""
    hour = datetime.now(UTC) - timedelta(hours=hours_ago)
    await given.add_usage(tx, slug, hour, runs=1, succeeded=1, run_ms=run_ms)


def shares(report: FairnessReport) -> list[tuple[str, float, float]]:
    return [(one.tenant, round(one.share, 2), round(one.fair_share, 2)) for one in report.tenants]


async def test_a_tenant_is_compared_with_those_that_ran_in_the_same_hours(tx: Tx) -> None:
    await given.set_tenant(tx, OTHER, weight=3)
    await ran(tx, TENANT, hours_ago=2, run_ms=600)
    await ran(tx, TENANT, hours_ago=1, run_ms=300)
    await ran(tx, OTHER, hours_ago=1, run_ms=100)
    await ran(tx, OTHER, hours_ago=30, run_ms=5000)

    report = await fairness.compare_hours(tx, TESTER)

    # alone in one hour (all of 600 is fair), a quarter of 400 in the other
    assert shares(report) == [(TENANT, 0.9, 0.7), (OTHER, 0.1, 0.3)]
    assert len(report.hours) == 24
    assert report.tenants[0].hourly == {report.hours[-3]: 1.0, report.hours[-2]: 0.75}


async def test_runs_that_are_not_folded_yet_count_once(tx: Tx) -> None:
    await ran(tx, TENANT, hours_ago=0, run_ms=100)
    await tx.run(
        "insert into fairlead.counts (tenant_id, definition_id, minute, succeeded, runs, run_ms) "
        "values (%s, %s, date_trunc('minute', now()), 1, 1, 300), (%s, %s, date_trunc('minute', now()), 1, null, null)",
        [await given.tenant_id(tx, OTHER), UUID(int=1), await given.tenant_id(tx, OTHER), UUID(int=1)],
    )

    assert shares(await fairness.compare_hours(tx, TESTER)) == [(OTHER, 0.75, 0.5), (TENANT, 0.25, 0.5)]


async def test_only_super_admins_compare_tenants(tx: Tx) -> None:
    assert (await fairness.compare_hours(tx, TESTER)).tenants == []
    with pytest.raises(Forbidden):
        await fairness.compare_hours(tx, Principal("ada", Role.TENANT_ADMIN, await given.tenant_id(tx)))
