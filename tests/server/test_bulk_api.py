"""Many jobs canceled or retried by filter."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from fairlead.actions import definitions
from fairlead.model.job import JobStatus
from fairlead.model.outcome import Succeeded, decide
from fairlead.runtime.store_source import StoreSource
from fairlead.store import queue
from tests import given
from tests.acting import act
from tests.server.world import World
from tests.tables import each_case

TROUBLED = ("failed", "dead_letter", "canceled")


async def bulk(
    world: World, what: str, who: str = "operator", tenant: str = given.TENANT, **body: Any
) -> Any:
    answer = await ask(world, what, who, tenant, **body)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert told.pop("next_cursor") is None
    return told


def moved(count: int, *, more: bool = False, **reasons: int) -> dict[str, Any]:
    """What is answered if so many jobs were changed, and others skipped for these reasons."""
    return {"count": count, "more": more, "skipped": sum(reasons.values()), "reasons": reasons}


async def ask(
    world: World, what: str, who: str = "operator", tenant: str = given.TENANT, **body: Any
) -> httpx2.Response:
    return await world.call("POST", f"/jobs/{what}", who=who, tenant=tenant, json=body)


async def a_job_of_every_kind(world: World, **fields: Any) -> dict[str, UUID]:
    """One that is ready, one for later, one that runs, and one of each end."""
    async with world.fl.transaction() as tx:
        made = {
            "queued": await given.queued_job(tx, **fields),
            "running": await given.running_job(tx, **fields),
        }
        made |= {status: await given.ended_job(tx, status, **fields) for status in ("succeeded", *TROUBLED)}
        [(later,)] = await tx.values("select clock_timestamp() + interval '1 hour'")
        made["later"] = await given.queued_job(tx, scheduled_for=later, **fields)
    return made


async def statuses(world: World, made: dict[str, UUID]) -> dict[str, str]:
    return {name: (await world.fl.read(job_id)).status.value for name, job_id in made.items()}


async def test_a_cancel_by_filter_takes_what_waits_and_asks_what_runs(world: World) -> None:
    made = await a_job_of_every_kind(world)
    other = await a_job_of_every_kind(world, tenant=given.OTHER)
    wanted = {"definition_key": "greet"}

    assert await bulk(world, "cancel", filter=wanted, dry_run=True) == moved(3)
    assert (await statuses(world, made))["queued"] == "queued"
    assert await bulk(world, "cancel", filter=wanted) == moved(3)

    after = await statuses(world, made)
    assert (after["queued"], after["later"], after["running"]) == ("canceled", "canceled", "running")
    assert (after["succeeded"], after["failed"]) == ("succeeded", "failed")
    assert (await world.fl.read(made["running"])).cancel_requested_at is not None
    assert (await statuses(world, other))["queued"] == "queued"
    assert await bulk(world, "cancel", filter=wanted) == moved(0)
    [entry] = await given.audit_entries(world, "JOBS_CANCELED")
    assert (entry.actor, entry.resource_id) == ("token:acme.operator", None)
    assert entry.details == {
        "filter": {"definition_key": "greet", "status": ["queued", "running"]},
        "count": 3,
    }


async def test_a_retry_by_filter_queues_what_failed_with_a_fresh_budget(world: World) -> None:
    made = await a_job_of_every_kind(world)

    assert await bulk(
        world, "retry", filter={"status": ["failed", "dead_letter", "running"]}, dry_run=True
    ) == moved(2)
    assert (await bulk(world, "retry", filter={"status": "failed,dead_letter"}))["count"] == 2

    after = await statuses(world, made)
    assert (after["failed"], after["dead_letter"], after["canceled"]) == ("queued", "queued", "canceled")
    job = await world.fl.read(made["failed"])
    assert (job.failure_count, job.finished_at, job.attempt_count) == (0, None, 1)
    [entry] = await given.audit_entries(world, "JOBS_RETRIED")
    assert entry.details["count"] == 2
    claim = await act(world.fl, queue.claim, worker="w", wanted=10, lease_seconds=30)
    assert {made["failed"], made["dead_letter"]} < {one.job_id for one in claim.jobs}


async def test_a_limit_is_kept_and_the_rest_is_told_of(world: World) -> None:
    await world.fl.enqueue_many([{"definition": "anything", "tenant": given.TENANT}] * 25)
    wanted = {"definition_key": "anything"}

    assert await bulk(world, "cancel", filter=wanted, limit=10, dry_run=True) == moved(10, more=True)
    answers = [await bulk(world, "cancel", filter=wanted, limit=10) for _ in range(3)]
    assert [(one["count"], one["more"]) for one in answers] == [(10, True), (10, True), (5, False)]
    again = [await bulk(world, "retry", filter=wanted, limit=20) for _ in range(2)]
    assert [(one["count"], one["more"]) for one in again] == [(20, True), (5, False)]
    assert len(await given.audit_entries(world, "JOBS_CANCELED")) == 3


@pytest.mark.thorough
async def test_thousands_are_moved_in_one_call(world: World) -> None:
    await world.fl.enqueue_many(
        [{"definition": "anything", "tenant": given.TENANT, "dedupe_key": f"k{n}"} for n in range(2500)]
    )

    assert (await bulk(world, "cancel", filter={"status": ["queued"]}, limit=10_000))["count"] == 2500
    assert (await bulk(world, "retry", filter={"status": ["canceled"]}, limit=10_000))["count"] == 2500

    assert await given.count(world, "active_keys") == 2500


async def test_keys_are_freed_by_a_cancel_and_taken_again_by_a_retry(world: World) -> None:
    first = await world.fl.enqueue("anything", tenant=given.TENANT, dedupe_key="k")
    await bulk(world, "cancel", filter={"dedupe_key": "k"})
    second = await world.fl.enqueue("anything", tenant=given.TENANT, dedupe_key="k")
    assert second.id != first.id

    held = await bulk(world, "retry", filter={"dedupe_key": "k"})
    assert held == moved(0, dedupe_key_taken=1)
    assert await given.audit_entries(world, "JOBS_RETRIED") == []
    await bulk(world, "cancel", filter={"dedupe_key": "k"})
    both = await bulk(world, "retry", filter={"dedupe_key": "k"})

    assert both == moved(1, dedupe_key_taken=1)
    entry, _ = await given.audit_entries(world, "JOBS_CANCELED")
    assert entry.details["filter"]["dedupe_key"] == "[redacted]"


async def test_what_may_hold_a_secret_is_masked_in_the_audit_log(world: World) -> None:
    text = "c-hunter2"
    await world.fl.enqueue("anything", tenant=given.TENANT, correlation_id=text, dedupe_key=text)
    names = ("correlation_id", "dedupe_key", "q")

    for what, action in (("cancel", "JOBS_CANCELED"), ("retry", "JOBS_RETRIED")):
        assert (await bulk(world, what, filter=dict.fromkeys(names, text)))["count"] == 1
        [entry] = await given.audit_entries(world, action)
        assert {entry.details["filter"][name] for name in names} == {"[redacted]"}
        assert "hunter2" not in str(entry.details)


async def ended(world: World, **fields: Any) -> UUID:
    return await given.ended_job(world, "failed", **fields)


async def test_a_retry_goes_past_jobs_whose_key_another_holds(world: World) -> None:
    held = [await ended(world, dedupe_key="trigger:1") for _ in range(5)]
    free = [await ended(world) for _ in range(2)]
    await given.queued_job(world, dedupe_key="trigger:1")
    wanted = {"definition_key": "greet"}

    preview = await bulk(world, "retry", filter=wanted, dry_run=True)
    assert preview == moved(2, dedupe_key_taken=5)
    answers = [await bulk(world, "retry", filter=wanted, limit=1) for _ in range(3)]

    assert [(one["count"], one["more"]) for one in answers] == [(1, True), (1, False), (0, False)]
    assert {(await world.fl.read(one)).status for one in free} == {JobStatus.QUEUED}
    assert {(await world.fl.read(one)).status for one in held} == {JobStatus.FAILED}


async def test_a_retry_goes_past_jobs_whose_host_was_removed(world: World) -> None:
    for _ in range(2):
        await ended(world)
    await given.set_job(world, host_id=uuid4())
    job = await ended(world)

    did = await bulk(world, "retry", filter={"definition_key": "greet"}, limit=1)

    assert did == moved(1, host_removed=2)
    assert (await world.fl.read(job)).status is JobStatus.QUEUED


async def test_jobs_of_an_inactive_definition_are_not_retried(world: World) -> None:
    made = await a_job_of_every_kind(world)
    await act(world.fl, definitions.patch, given.TESTER, "greet", {"is_active": False})

    assert (await bulk(world, "retry", filter={"definition_key": "greet"}))["count"] == 0
    assert (await statuses(world, made))["failed"] == "failed"


FOUND: list[tuple[dict[str, Any], int]] = [
    ({"correlation_id": "c"}, 3),
    ({"correlation_id": "d"}, 0),
    ({"source": "manual"}, 3),
    ({"source": "event"}, 0),
    ({"q": "gree"}, 3),
    ({"q": "nothing"}, 0),
    ({"status": ["succeeded"]}, 0),
    ({"status": ["running"]}, 1),
    ({"created_after": "2020-01-01T00:00:00Z"}, 3),
    ({"created_before": "2020-01-01T00:00:00Z"}, 0),
    ({"host_id": "00000000-0000-0000-0000-000000000001"}, 0),
]


async def test_every_filter_of_the_list_works_here(world: World) -> None:
    await a_job_of_every_kind(world, correlation_id="c")
    for wanted, count in FOUND:
        assert (await bulk(world, "cancel", filter=wanted, dry_run=True))["count"] == count, wanted
        listed = await world.call("GET", "/jobs", params=wanted)
        living = [one for one in listed.json()["items"] if one["status"] in ("queued", "running")]
        assert len(living) == count, wanted


@each_case("what", ["cancel", "retry"])
@each_case(
    ("body", "path"),
    [
        ({}, "filter"),
        ({"filter": {}}, "filter"),
        ({"filter": {"status": []}}, "filter.status"),
        ({"filter": {"status": ["odd"]}}, "filter.status.0"),
        ({"filter": {"sort": "x"}}, "filter.sort"),
        ({"filter": {"q": "a"}, "limit": 10_001}, "limit"),
        ({"filter": {"q": "a"}, "limit": 0}, "limit"),
        ({"filter": {"created_after": "2026-01-01T00:00:00"}}, "filter.created_after"),
        ({"filter": {"correlation_id": "a\x00"}}, "filter.correlation_id"),
    ],
)
async def test_a_bulk_action_that_makes_no_sense_is_refused(
    shared_world: World, what: str, body: dict[str, Any], path: str
) -> None:
    made = await a_job_of_every_kind(shared_world)

    answer = await ask(shared_world, what, **body)

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input"), answer.text
    assert [one["path"] for one in answer.json()["errors"]] == [path]
    assert (await statuses(shared_world, made))["queued"] == "queued"


async def test_a_super_admin_acts_everywhere_or_in_the_tenant_it_names(world: World) -> None:
    for tenant in (given.TENANT, given.OTHER):
        await world.fl.enqueue("anything", tenant=tenant)
    body = {"filter": {"definition_key": "anything"}, "dry_run": True}

    one = await world.call(
        "POST", "/jobs/cancel", who="super_admin", headers={"X-Tenant": given.OTHER}, json=body
    )
    every = await world.call("POST", "/jobs/cancel", who="super_admin", json=body)

    assert (one.json()["count"], every.json()["count"]) == (1, 2)


@pytest.mark.thorough
async def test_a_cancel_beside_claims_and_finishes_leaves_nothing_between(world: World) -> None:
    made = await world.fl.enqueue_many([{"definition": "anything", "tenant": given.TENANT}] * 600)
    database = world.fl.database

    async def work(worker: str) -> None:
        source = StoreSource(database, worker=worker, lease_seconds=30)
        while taken := await source.claim(20):
            await source.heartbeat([one.lease for one in taken])
            await source.finish([(one.lease, decide(one.job, Succeeded(1))) for one in taken])

    async def cancel() -> int:
        done = 0
        while (did := await bulk(world, "cancel", filter={"definition_key": "anything"}, limit=50))["more"]:
            done += did["count"]
        return done + int(did["count"])

    _, _, first, second = await asyncio.gather(work("a"), work("b"), cancel(), cancel())

    found = [await world.fl.read(one.id) for one in made]
    canceled = sum(job.status is JobStatus.CANCELED for job in found)
    asked = sum(job.status is JobStatus.SUCCEEDED and job.cancel_requested_at is not None for job in found)
    assert {job.status for job in found} <= {JobStatus.CANCELED, JobStatus.SUCCEEDED}
    assert first + second == canceled + asked
    await given.no_inconsistencies(database)


async def test_two_retries_at_once_move_each_job_once(world: World) -> None:
    await world.fl.enqueue_many([{"definition": "anything", "tenant": given.TENANT}] * 300)
    await bulk(world, "cancel", filter={"status": ["queued"]})

    both = await asyncio.gather(*(bulk(world, "retry", filter={"status": ["canceled"]}) for _ in range(2)))

    assert sum(one["count"] for one in both) == 300
    await given.no_inconsistencies(world.fl.database)
