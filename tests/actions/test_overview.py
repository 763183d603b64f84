"""The overview: which facts become problems, and what a tenant does not see."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from fairlead.actions import error_groups, gates, overview
from fairlead.db.tx import Tx
from fairlead.model.access import Principal, Role
from fairlead.model.finding import Verdict
from fairlead.model.job import JobStatus
from fairlead.model.overview import Overview, OverviewProblem, ProblemKind
from fairlead.store import overview as store
from fairlead.store import triggers
from tests import given
from tests.conftest import RoundTrips
from tests.given import OTHER, TENANT, TESTER
from tests.plans import count_rows, read_plan

DAY = timedelta(days=1)


async def of_tenant(tx: Tx, slug: str = TENANT, role: Role = Role.TENANT_ADMIN) -> Overview:
    return await overview.get_overview(tx, Principal("ada", role, await given.tenant_id(tx, slug)))


async def of_all(tx: Tx) -> Overview:
    await given.run_checks_now(tx)
    return await overview.get_overview(tx, TESTER)


async def worker(
    tx: Tx,
    name: str = "box:1:boot",
    *,
    serves: Sequence[str] = (),
    ago: timedelta = timedelta(),
    whose: UUID | None = None,
) -> None:
    busy = {"running_count": 2, "concurrency": 10}
    await given.add_worker(tx, name, seen=-ago, definitions=serves, tenant_id=whose, **busy)


def kinds(found: Overview) -> list[str]:
    return [one.kind for one in found.problems]


def one_problem(found: Overview, kind: ProblemKind) -> OverviewProblem:
    [only] = [one for one in found.problems if one.kind is kind]
    return only


async def test_without_problems_everything_is_fine(tx: Tx) -> None:
    await worker(tx)
    await given.ended_job(tx, "succeeded")

    for found in (await of_tenant(tx), await of_all(tx)):
        assert (found.verdict, found.summary, found.problems) == (Verdict.OK, "Everything is fine", [])
        assert found.counts[JobStatus.SUCCEEDED] == 1
        assert found.run_ms is not None
        assert found.run_ms.p95 == 20
        assert [one.definition_key for one in found.slowest] == ["greet"]
    assert [(one.name, one.ended_count) for one in (await of_tenant(tx)).busiest] == [("greet", 1)]
    assert [(one.name, one.ended_count) for one in (await of_all(tx)).busiest] == [(TENANT, 1)]


async def test_jobs_that_no_worker_serves_are_a_problem_for_each_definition(tx: Tx) -> None:
    await worker(tx, serves=["anything"])
    await given.queued_job(tx, definition="anything")
    for tenant in (TENANT, TENANT, OTHER):
        await given.queued_job(tx, tenant=tenant)

    found = await of_all(tx)

    unserved = one_problem(found, ProblemKind.NO_WORKER)
    assert (found.verdict, found.summary) == (Verdict.FAIL, "1 problem")
    assert (unserved.title, unserved.count, unserved.subject) == ("No worker serves greet", 3, "greet")
    assert "2 tenants wait" in unserved.detail
    own = one_problem(await of_tenant(tx), ProblemKind.NO_WORKER)
    assert (own.count, own.detail) == (2, "1 worker running, but none takes jobs of this definition.")


async def test_a_worker_that_serves_one_tenant_does_not_serve_another(tx: Tx) -> None:
    await worker(tx, serves=[f"greet {await given.tenant_id(tx)}"])
    await given.queued_job(tx)
    await given.queued_job(tx, tenant=OTHER)

    assert kinds(await of_tenant(tx)) == []
    assert kinds(await of_tenant(tx, OTHER)) == [ProblemKind.NO_WORKER]


async def test_without_any_worker_there_is_one_problem(tx: Tx) -> None:
    await given.queued_job(tx)
    await given.queued_job(tx, definition="anything")

    unserved = one_problem(await of_tenant(tx), ProblemKind.NO_WORKER)

    assert (unserved.title, unserved.count, unserved.subject) == ("No worker is running", 2, None)


async def test_jobs_that_are_due_later_need_no_worker_yet(tx: Tx) -> None:
    await given.queued_job(tx, delay=timedelta(hours=1))

    assert kinds(await of_tenant(tx)) == []


async def test_a_silent_worker_is_shown_to_its_tenant_only(tx: Tx) -> None:
    await worker(tx, "shared", ago=DAY)
    await worker(tx, "own", ago=DAY, whose=await given.tenant_id(tx))

    assert [one.subject for one in (await of_all(tx)).problems] == ["own", "shared"]
    assert [one.subject for one in (await of_tenant(tx)).problems] == ["own"]
    assert kinds(await of_tenant(tx, OTHER)) == []
    assert (await of_tenant(tx)).workers is None
    fleet = (await of_all(tx)).workers
    assert fleet is not None
    assert (fleet.online, fleet.silent, fleet.capacity) == (0, 2, 0)


async def test_an_agent_that_is_away_is_worse_if_jobs_wait_for_it(tx: Tx) -> None:
    at = await given.host(tx, seen=DAY)
    assert kinds(await of_tenant(tx)) == [ProblemKind.AGENT_SILENT]

    await given.queued_job(tx, host_id=at)

    found = await of_tenant(tx)
    assert kinds(found) == [ProblemKind.NO_AGENT]
    assert (found.verdict, found.problems[0].count) == (Verdict.FAIL, 1)
    assert kinds(await of_tenant(tx, OTHER)) == []


async def test_a_host_that_never_connected_is_a_problem_only_with_jobs(tx: Tx) -> None:
    at = await given.host(tx, seen=None)
    assert kinds(await of_tenant(tx)) == []

    await given.queued_job(tx, host_id=at)

    assert "has never connected" in one_problem(await of_tenant(tx), ProblemKind.NO_AGENT).title


async def test_errors_are_new_for_a_day(tx: Tx) -> None:
    old = await given.failed_job(tx, "no such file 7", definition="anything")
    await given.set_attempt(tx, old, finished_at=datetime.now(UTC) - timedelta(days=2))
    for status in ("failed", "failed", "dead_letter"):
        await given.failed_job(tx, "code 12 of host 3", status=status)
    assert await error_groups.fold_failures(tx) is False

    found = await of_tenant(tx)

    errors = [(one.title, one.count, one.count_of) for one in found.problems]
    assert errors == [("New error in greet", 3, "jobs")]
    assert (found.verdict, found.summary) == (Verdict.WARN, "1 warning")
    assert found.problems[0].detail == "code <n> of host <n>"
    assert kinds(await of_tenant(tx, OTHER)) == []


@pytest.mark.parametrize(("status", "noun"), [("failed", "failed jobs"), ("dead_letter", "dead letters")])
async def test_an_errors_jobs_have_the_name_of_their_status(tx: Tx, status: str, noun: str) -> None:
    for _ in range(2):
        await given.ended_job(tx, status)
    await error_groups.fold_failures(tx)

    assert [(one.count, one.count_of) for one in (await of_tenant(tx)).problems] == [(2, noun)]


async def fire(tx: Tx, trigger_id: UUID, *outcomes: str) -> None:
    # ids of the same millisecond have no order, so these are numbered
    for number, outcome in enumerate(outcomes, await given.count(tx, "trigger_firings") + 1):
        await tx.run(
            "insert into fairlead.trigger_firings (id, trigger_id, tenant_id, slot, outcome, reason, detail) "
            "select %s, id, tenant_id, fairlead.uuid7()::text, %s, 'because', 'the payload has no name' "
            "from fairlead.job_triggers where id = %s",
            [UUID(int=number << 64), outcome, trigger_id],
        )
    await triggers.mark_fired(tx, [trigger_id])


async def test_a_trigger_fails_as_long_as_its_last_firing_failed(tx: Tx) -> None:
    made = await given.trigger(tx)
    await fire(tx, made.id, "failed", "skipped", "failed", "failed")

    failing = one_problem(await of_tenant(tx), ProblemKind.TRIGGER_FAILING)

    assert (failing.count, failing.detail, failing.subject) == (2, "the payload has no name", str(made.id))
    assert kinds(await of_tenant(tx, OTHER)) == []
    await fire(tx, made.id, "skipped")
    assert kinds(await of_tenant(tx)) == []


async def test_pauses_say_who_and_why(tx: Tx) -> None:
    await gates.pause(tx, TESTER, tenant=OTHER, note="unpaid")
    await gates.pause(tx, TESTER, definition="greet", note="broken")

    everywhere, own, other = await of_all(tx), await of_tenant(tx), await of_tenant(tx, OTHER)

    assert kinds(everywhere) == [ProblemKind.TENANT_PAUSED, ProblemKind.DEFINITION_PAUSED]
    assert everywhere.verdict is Verdict.WARN
    assert everywhere.problems[0].detail == "“unpaid” By tester."
    assert kinds(own) == [ProblemKind.DEFINITION_PAUSED]
    assert (other.verdict, other.summary) == (Verdict.FAIL, "1 problem, 1 warning")
    await gates.pause(tx, TESTER)
    assert kinds(await of_tenant(tx))[0] is ProblemKind.SYSTEM_PAUSED


async def test_a_full_limit_is_a_warning_when_jobs_have_waited_behind_it(tx: Tx) -> None:
    await worker(tx)
    await given.set_definition(tx, "greet", max_running=1)
    await given.running_job(tx, tenant=OTHER)
    job_id = await given.queued_job(tx)
    assert kinds(await of_tenant(tx)) == []

    await given.wait_longer(tx, job_id, seconds=300)

    full = one_problem(await of_tenant(tx), ProblemKind.LIMIT_REACHED)
    assert (full.title, full.count) == ("The concurrency limit of definition greet is reached", 1)
    assert full.detail == "1 of 1 are running."


async def test_a_tenant_with_twice_its_share_is_a_warning_while_another_waits(tx: Tx) -> None:
    await worker(tx)
    for _ in range(9):
        await given.running_job(tx)
    await given.queued_job(tx, tenant=OTHER)
    # with two tenants of the same weight, twice the share is everything
    await given.set_tenant(tx, OTHER, weight=3)

    unfair = one_problem(await of_all(tx), ProblemKind.UNFAIR_SHARE)

    assert unfair.detail == "100% of the running jobs; fair would be 25%."
    assert kinds(await of_tenant(tx)) == []
    await given.forget_waiting(tx, OTHER)
    assert kinds(await of_all(tx)) == []


async def test_the_last_results_of_the_checks_are_for_super_admins(tx: Tx) -> None:
    await tx.run(
        "insert into fairlead.checks (name, verdict, detail, advice) values "
        "('expired_leases', 'fail', '3 leases expired', 'run maintenance')"
    )

    found = await of_all(tx)

    problem = one_problem(found, ProblemKind.CHECK)
    assert (problem.severity, problem.advice) == (Verdict.FAIL, "run maintenance")
    assert "3 leases expired" in problem.title
    assert {one.check for one in found.checks} == {"expired_leases", "checks"}
    assert (await of_tenant(tx)).checks == []


async def test_of_many_problems_of_a_kind_some_are_left_out(tx: Tx) -> None:
    for number in range(12):
        await worker(tx, f"w{number}", ago=DAY)

    found = await of_all(tx)

    assert (len(found.problems), found.problems_left_out, found.summary) == (10, 2, "12 warnings")


async def test_a_tenant_sees_no_name_of_another(tx: Tx) -> None:
    await worker(tx, "secret-machine", serves=["elsewhere"], ago=DAY)
    await worker(tx, "their-machine", ago=DAY, whose=await given.tenant_id(tx, OTHER))
    await given.host(tx, seen=DAY, tenant=OTHER)
    await fire(tx, (await given.trigger(tx, tenant=OTHER)).id, "failed")
    await given.ended_job(tx, "failed", tenant=OTHER)
    await given.queued_job(tx, tenant=OTHER)
    await gates.pause(tx, TESTER, tenant=OTHER)
    await given.set_definition(tx, "anything", only_tenants=[await given.tenant_id(tx, OTHER)])
    await gates.pause(tx, TESTER, definition="anything")

    assert len(kinds(await of_tenant(tx, OTHER))) >= 6
    assert kinds(await of_tenant(tx)) == []


async def test_the_overview_of_a_tenant_takes_few_round_trips(tx: Tx, round_trips: RoundTrips) -> None:
    viewer = Principal("ada", Role.TENANT_ADMIN, await given.tenant_id(tx, TENANT))
    round_trips(tx)

    await overview.get_overview(tx, viewer)

    settings = tenant = "BaseCursor._execute_gen"
    assert round_trips(tx) == ["_run_pipeline", settings, "_run_pipeline", tenant]


async def test_the_oldest_job_of_a_backlog_is_found_without_reading_the_others(tx: Tx) -> None:
    await given.backlog(tx, 5000)
    values = {"tenant_id": None, "most": store.MOST_BACKLOGS}

    nodes = await read_plan(tx, store.sql.backlogs, values)

    assert len(await tx.all(*store.backlogs(None))) >= 3
    assert max(map(count_rows, nodes)) < 100, nodes
