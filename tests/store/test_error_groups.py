"""Failures are added to error groups: none is missed, secrets stay out, and what is read is bounded."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from fairlead import Fairlead, JobStatus
from fairlead.actions import bulk_jobs, error_groups, jobs
from fairlead.actions.error_groups import GroupFilter, JobChoice
from fairlead.db.tx import TransactionIdentity, Tx
from fairlead.errors import ErrorGroupUnknown, InvalidInput
from fairlead.model.access import Principal, Role
from fairlead.model.error_groups import OTHER_ERRORS, ErrorGroup, GroupOrder, GroupState
from fairlead.model.outcome import SUCCEEDED, Failed, decide
from fairlead.runtime.duties import Duties
from fairlead.store import error_groups as store
from fairlead.store import queue, retention
from tests import given
from tests.plans import read_scans

EVERY = GroupFilter(state=GroupState.ALL)


async def fold(tx: Tx) -> None:
    while await error_groups.fold_failures(tx):
        pass


async def list_all(tx: Tx, principal: Principal = given.TESTER, **wanted: Any) -> list[ErrorGroup]:
    return await error_groups.list_groups(tx, principal, GroupFilter(**wanted))


async def principal_of(tx: Tx, role: Role, slug: str = given.TENANT) -> Principal:
    return Principal(str(role), role, await given.tenant_id(tx, slug))


async def members(tx: Tx) -> set[UUID]:
    return {one for (one,) in await tx.values("select job_id from fairlead.error_group_jobs")}


async def test_failures_are_grouped_by_tenant_definition_and_pattern(tx: Tx) -> None:
    for number in range(3):
        await given.failed_job(tx, f"Refused: port {number}")
    await given.failed_job(tx, "Refused: port 9", tenant=given.OTHER)
    await given.failed_job(tx, "Refused: port 9", definition="anything")
    last = await given.failed_job(tx, "Other: no", status="failed")
    await given.ended_job(tx, "succeeded")
    await given.ended_job(tx, "canceled")
    await fold(tx)

    own = await list_all(tx, await principal_of(tx, Role.VIEWER))

    assert {(one.definition_key, one.pattern, one.dead_letter, one.failed, one.seen) for one in own} == {
        ("greet", "Refused: port <n>", 3, 0, 3),
        ("anything", "Refused: port <n>", 1, 0, 1),
        ("greet", "Other: no", 0, 1, 1),
    }
    assert own[0].last_job_id == last
    assert len(await list_all(tx)) == 4
    assert await given.count(tx, "failures") == 0


@pytest.mark.postgres_only("it has no triggers")
async def test_a_group_counts_on_and_keeps_its_first_time(tx: Tx) -> None:
    await given.failed_job(tx, "E: 1")
    await fold(tx)
    [first] = await list_all(tx)
    await tx.run("update fairlead.job_definitions set description = 'new' where key = 'greet'")
    newest = await given.failed_job(tx, "E: 2")
    await fold(tx)

    [group] = await list_all(tx)

    assert (group.id, group.first_seen, group.seen, group.jobs) == (first.id, first.first_seen, 2, 2)
    assert group.last_seen > first.last_seen
    assert (group.last_version, group.last_job_id) == (first.last_version + 1, newest)
    hours = await error_groups.list_hours(tx, given.TESTER, [group])
    assert sum(one.failures for one in hours[group.id]) == 2


@pytest.mark.parametrize("in_bulk", [True, False])
async def test_a_retried_job_leaves_its_group_at_once(tx: Tx, *, in_bulk: bool) -> None:
    job_id = await given.failed_job(tx, "E")
    stays = await given.failed_job(tx, "E")
    await fold(tx)

    if in_bulk:
        await bulk_jobs.retry_chosen(tx, given.TESTER, [job_id], told={})
    else:
        await jobs.retry(tx, given.TESTER, given.catalog(), job_id)

    [group] = await list_all(tx)
    assert (group.jobs, group.seen) == (1, 2)
    assert await members(tx) == {stays}
    await fold(tx)  # the changes are added up, and the number stays
    assert [one.jobs for one in await list_all(tx)] == [1]
    assert await given.count(tx, "error_group_changes") == 0


async def test_a_job_that_is_being_retried_waits_for_the_next_round_and_is_no_member(fl: Fairlead) -> None:
    job_id = await given.failed_job(fl, "E")
    async with fl.transaction() as retrying:
        await bulk_jobs.retry_chosen(retrying, given.TESTER, [job_id], told={})
        async with fl.transaction() as tx:
            await fold(tx)
            assert await list_all(tx, state=GroupState.ALL) == []
            assert await given.count(tx, "failures") == 1
    async with fl.transaction() as tx:
        await fold(tx)
        assert [(one.seen, one.jobs) for one in await list_all(tx, state=GroupState.ALL)] == [(1, 0)]
        assert await list_all(tx) == []


async def test_a_removed_job_leaves_its_group_and_an_old_group_goes(fl: Fairlead) -> None:
    async with fl.transaction() as tx:
        kept = await given.failed_job(tx, "Kept")
        gone = await given.failed_job(tx, "Gone")
        await fold(tx)
        noted = await given.failed_job(tx, "Never added")
        old = "set finished_at = now() - interval '40 d', id = id where id = any(%s)"
        await tx.run(f"update fairlead.job_records {old}", [[gone, noted]])
        await tx.run("update fairlead.job_definitions set retention_days = 30")
        # ids are old as well
        for table, column in (("job_records", "id"), ("error_group_jobs", "job_id"), ("failures", "job_id")):
            await tx.run(
                f"update fairlead.{table} set {column} = overlay({column}::text placing '0000000' from 1)::uuid where {column} = any(%s)",
                [[gone, noted]],
            )
        await retention.remove(tx, days=30)
        assert await members(tx) == {kept}
        assert {one.pattern: one.jobs for one in await list_all(tx, state=GroupState.ALL)} == {
            "Kept": 1,
            "Gone": 0,
        }
        await fold(tx)
        assert await given.count(tx, "failures") == 0
        await tx.run("update fairlead.error_groups set last_seen = now() - interval '40 d'")

        assert await store.remove_old(tx, days=30, limit=10) == 1
        assert [one.pattern for one in await list_all(tx, state=GroupState.ALL)] == ["Kept"]
        assert await given.count(tx, "error_group_hours") == 1


async def test_the_duty_adds_failures(fl: Fairlead) -> None:
    await given.failed_job(fl, "E")
    await given.rest_from_duties(fl, but=["failures"])

    await Duties(fl.database, retention_days=30, audit_retention_days=30)()

    async with fl.transaction() as tx:
        assert [one.jobs for one in await list_all(tx)] == [1]


async def test_secrets_are_masked_before_anything_is_stored(tx: Tx) -> None:
    await tx.run("update fairlead.job_definitions set secret_paths = '{/name}' where key = 'greet'")
    job_id = await given.failed_job(tx, "Refused: hunter22 is not it", payload={"name": "hunter22"})
    await given.set_job(tx, job_id, error={"type": "Refused", "traceback": "in call(hunter22)"})
    await fold(tx)

    [group] = await list_all(tx)
    sample = await error_groups.get_sample(tx, given.TESTER, group)
    [job] = await error_groups.list_jobs(tx, given.TESTER, group, JobChoice())

    assert group.pattern == "Refused: [redacted] is not it"
    assert "in call([redacted])" in sample
    assert job.error == group.pattern
    stored = await tx.values("select g::text from fairlead.error_groups g")
    assert "hunter22" not in str(stored)


async def test_errors_without_end_share_one_group(tx: Tx, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_groups, "MOST_GROUPS", 2)
    for word in ("a", "b", "c", "d"):
        await given.failed_job(tx, f"E: {word}")
    await fold(tx)
    await given.failed_job(tx, "E: a")
    await given.failed_job(tx, "E: e")
    await fold(tx)

    found = await list_all(tx)

    assert len(found) == 3
    assert {one.pattern: one.jobs for one in found}[OTHER_ERRORS] == 3


async def test_a_group_is_retried_since_a_time_and_left_jobs_have_reasons(tx: Tx) -> None:
    old, new, held = (
        await given.failed_job(tx, "E"),
        await given.failed_job(tx, "E"),
        await given.failed_job(tx, "E", dedupe_key="k"),
    )
    await given.queued_job(tx, dedupe_key="k")
    noon = datetime.now(UTC) - timedelta(hours=1)
    await given.set_attempt(tx, old, finished_at=noon - timedelta(hours=1))
    await fold(tx)
    [group] = await list_all(tx)
    operator = await principal_of(tx, Role.OPERATOR)
    since = JobChoice(since=noon)

    assert await error_groups.count_jobs(tx, operator, group, since) == 2
    did = await error_groups.retry(tx, operator, group.id, since)

    assert (did.count, did.more, did.skipped, did.reasons) == (1, False, 1, {"dedupe_key_taken": 1})
    assert await members(tx) == {old, held}
    assert (await jobs.show_job(tx, operator, new))[0].status is JobStatus.QUEUED
    [entry] = await given.audit_entries(tx, "JOBS_RETRIED")
    assert (entry.resource_type, entry.resource_id) == ("error_group", str(group.id))
    assert (entry.tenant_id, entry.details["count"]) == (operator.tenant_id, 1)
    assert entry.details["filter"]["error"] == "E"


async def test_a_large_group_is_retried_in_parts_that_reach_every_job(
    tx: Tx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_jobs, "BATCH", 2)
    stuck = [await given.failed_job(tx, "E", dedupe_key=f"k{number}") for number in range(3)]
    for number in range(3):
        await given.queued_job(tx, dedupe_key=f"k{number}")
    for _ in range(5):
        await given.failed_job(tx, "E")
    await fold(tx)
    [group] = await list_all(tx)

    first = await error_groups.retry(tx, given.TESTER, group.id, JobChoice(), limit=3)
    rest = await error_groups.retry(tx, given.TESTER, group.id, JobChoice())

    assert (first.count, first.more) == (3, True)
    assert (rest.count, rest.more, rest.reasons) == (2, False, {"dedupe_key_taken": 3})
    assert await members(tx) == set(stuck)


async def test_discarded_jobs_leave_the_group_and_stay_as_they_are(tx: Tx) -> None:
    job_id = await given.failed_job(tx, "E")
    failed = await given.failed_job(tx, "E", status="failed")
    await fold(tx)
    [group] = await list_all(tx)
    operator = await principal_of(tx, Role.OPERATOR)

    did = await error_groups.discard(tx, operator, group.id, JobChoice(status=JobStatus.DEAD_LETTER))
    assert did.count == 1
    assert await members(tx) == {failed}
    await error_groups.discard(tx, operator, group.id, JobChoice())

    assert await list_all(tx) == []
    assert (await jobs.show_job(tx, operator, job_id))[0].status is JobStatus.DEAD_LETTER
    [shown] = await list_all(tx, state=GroupState.ALL)
    assert (shown.jobs, shown.discarded_by) == (0, operator.actor)
    entries = await given.audit_entries(tx, "ERROR_GROUP_DISCARDED")
    assert [one.details["count"] for one in entries] == [1, 1]
    await given.failed_job(tx, "E")
    await fold(tx)
    assert [one.jobs for one in await list_all(tx)] == [1]


@pytest.mark.postgres_only("it has no triggers")
async def test_a_muted_group_is_no_problem_until_its_time_or_its_definition_changes(tx: Tx) -> None:
    await given.failed_job(tx, "E")
    await fold(tx)
    [group] = await list_all(tx)
    operator = await principal_of(tx, Role.OPERATOR)
    day_ago = datetime.now(UTC) - timedelta(days=1)
    assert [one.id for one in await tx.all(*error_groups.new_groups(operator, day_ago))] == [group.id]

    muted = await error_groups.mute(tx, operator, group.id, until_change=True, note="known")

    assert (muted.is_muted, muted.muted_by, muted.mute_note) == (True, operator.actor, "known")
    assert await list_all(tx) == []
    assert await tx.all(*error_groups.new_groups(operator, day_ago)) == []
    assert [one.id for one in await list_all(tx, state=GroupState.MUTED)] == [group.id]
    await tx.run("update fairlead.job_definitions set description = 'new' where key = 'greet'")
    assert [one.is_muted for one in await list_all(tx)] == [False]

    await error_groups.mute(tx, operator, group.id, until=datetime.now(UTC) + timedelta(hours=1))
    assert await list_all(tx) == []
    await tx.run("update fairlead.error_groups set muted_until = now() - interval '1 s'")
    assert len(await list_all(tx)) == 1
    await error_groups.mute(tx, operator, group.id)
    assert await list_all(tx) == []
    await error_groups.unmute(tx, operator, group.id)
    assert len(await list_all(tx)) == 1
    entries = await given.audit_entries(tx, resource_type="error_group")
    assert [one.action for one in entries] == ["ERROR_GROUP_MUTED"] * 3 + ["ERROR_GROUP_UNMUTED"]


async def test_only_a_tenants_own_groups_are_there_and_what_makes_no_sense_is_refused(tx: Tx) -> None:
    await given.failed_job(tx, "E")
    await fold(tx)
    [group] = await list_all(tx)
    stranger = await principal_of(tx, Role.OPERATOR, given.OTHER)

    assert await list_all(tx, stranger) == []
    with pytest.raises(ErrorGroupUnknown):
        await error_groups.retry(tx, stranger, group.id, JobChoice())
    with pytest.raises(ErrorGroupUnknown):
        await error_groups.get(tx, given.TESTER, uuid4())
    with pytest.raises(InvalidInput, match="failed or dead_letter"):
        await list_all(tx, status=JobStatus.QUEUED)
    with pytest.raises(InvalidInput, match="not both"):
        await error_groups.mute(tx, given.TESTER, group.id, until=datetime.now(UTC), until_change=True)


async def test_a_tenants_own_transaction_may_do_all_of_it(fl: Fairlead) -> None:
    async with fl.transaction() as tx:
        for _ in range(2):
            await given.failed_job(tx, "E")
        await fold(tx)
        operator = await principal_of(tx, Role.OPERATOR)
    async with fl.database.transaction(TransactionIdentity(operator.tenant_id)) as tx:
        [group] = await list_all(tx, operator)
        assert (await error_groups.retry(tx, operator, group.id, JobChoice(), limit=1)).count == 1
        assert (await error_groups.discard(tx, operator, group.id, JobChoice())).count == 1
        await error_groups.mute(tx, operator, group.id, until_change=True)
        assert (await error_groups.get(tx, operator, group.id)).jobs == 0


async def test_groups_are_filtered_and_sorted(tx: Tx) -> None:
    for _ in range(2):
        await given.failed_job(tx, "Many")
    await given.failed_job(tx, "One failed", status="failed", definition="anything")
    await fold(tx)

    by_jobs = await error_groups.list_groups(tx, given.TESTER, EVERY, order=GroupOrder.JOBS)

    assert [one.pattern for one in by_jobs] == ["Many", "One failed"]
    assert [one.pattern for one in await list_all(tx)] == ["One failed", "Many"]
    assert [one.pattern for one in await list_all(tx, definition_key="greet")] == ["Many"]
    assert [one.pattern for one in await list_all(tx, status=JobStatus.FAILED)] == ["One failed"]
    assert [one.pattern for one in await list_all(tx, q="FAIL")] == ["One failed"]
    assert await list_all(tx, since=datetime.now(UTC) + timedelta(hours=1)) == []
    page = await error_groups.list_groups(tx, given.TESTER, EVERY, limit=1)
    assert (len(page), page.more) == (1, True)


@pytest.mark.parametrize("of_all", [False, True])
async def test_a_list_reads_the_newest_groups_by_their_index(tx: Tx, *, of_all: bool) -> None:
    await tx.run(
        "insert into fairlead.error_groups (tenant_id, definition_id, fingerprint, pattern, sample, first_seen, last_seen, "
        "first_version, last_version, last_job_id, seen, failed, dead_letter) "
        "select t.id, d.id, sha256(n::text::bytea), 'E', 'E', now(), now() - make_interval(secs => n), 1, 1, t.id, 1, 1, 0 "
        "from fairlead.tenants t, fairlead.job_definitions d, generate_series(1, 3000) n where d.key = 'greet'"
    )
    await tx.run("analyze fairlead.error_groups")
    tenant = None if of_all else (await principal_of(tx, Role.VIEWER)).tenant_id
    filters = error_groups._build_filters(Principal("x", Role.VIEWER, tenant), GroupFilter())
    query = store._OF_ALL if of_all else store._OF_TENANT
    await tx.prefer_indexes()

    [node] = await read_scans(tx, query, {**filters, "look": 40}, "error_groups")

    assert node["Index Name"] == ("error_groups_by_time" if of_all else "error_groups_by_tenant")
    assert node["Actual Rows"] <= 40
    assert node.get("Rows Removed by Filter", 0) == 0


async def test_the_jobs_of_a_status_are_found_by_the_index(tx: Tx) -> None:
    """Also if the group has very many of the other status."""
    await tx.run(
        "insert into fairlead.error_group_jobs (job_id, group_id, tenant_id, status, failed_at) "
        "select gen_random_uuid(), %(id)s, %(id)s, 'failed', now() - make_interval(secs => n) "
        "from generate_series(1, 3000) n",
        {"id": uuid4()},
    )
    [(group_id,)] = await tx.values("select group_id from fairlead.error_group_jobs limit 1")
    await tx.run("analyze fairlead.error_group_jobs")
    await tx.prefer_indexes()
    values = store._job_filter(group_id, None, JobStatus.DEAD_LETTER, None) | {"limit": 50, "most": 50}

    for query in (store.sql.jobs, store.sql.job_ids, store.sql.count_since):
        [node] = await read_scans(tx, query, values, "error_group_jobs")
        assert node["Index Name"] == "error_group_jobs_by_time"
        assert node.get("Rows Removed by Filter", 0) == 0
        assert "status" in node["Index Cond"]


async def test_only_batches_with_final_failures_note_failures(tx: Tx) -> None:
    """The statement for all other ends has nothing to do with error groups."""
    assert "fairlead.failures" not in queue.sql.finish
    assert "fairlead.failures" not in queue.sql.succeed
    for _ in range(4):
        await given.queued_job(tx)
    claim = await queue.claim(tx, worker="w", wanted=4, lease_seconds=30)
    again, fatal, canceled, done = claim.jobs
    await jobs.cancel(tx, given.TESTER, canceled.job_id)
    final = Failed("E", "x", retryable=False)
    ends = [
        (claim.lease(job), decide(job, outcome))
        for job, outcome in ((again, Failed("E", "x")), (fatal, final), (canceled, final), (done, SUCCEEDED))
    ]

    await queue.finish(tx, ends[:1], actor="worker:w")
    assert await tx.values("select job_id from fairlead.failures") == []
    await queue.finish(tx, ends[1:], actor="worker:w")

    assert await tx.values("select job_id from fairlead.failures") == [(fatal.job_id,)]
