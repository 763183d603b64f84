"""Jobs over HTTP: each route with good and bad input."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from psycopg import AsyncCursor
from pydantic import TypeAdapter

from fairlead import Fairlead
from fairlead.actions.catalog import Catalog
from tests import given
from tests.server.world import World, world_on
from tests.tables import each_case

GREET: dict[str, Any] = {"definition_key": "greet", "payload": {"name": "Ada"}}


async def post(world: World, path: str, who: str = "operator", **json: Any) -> Any:
    return await world.call("POST", path, who=who, json=json)


async def created(world: World, **more: Any) -> Any:
    answer = await post(world, "/jobs", **{**GREET, **more})
    assert answer.status_code == 201, answer.text
    return answer.json()


def faults(answer: Any) -> list[str]:
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == answer.status_code
    return [one["path"] for one in answer.json()["errors"]]


# Enqueueing


async def test_a_job_is_enqueued_with_all_its_options(world: World) -> None:
    options = {
        "priority": 7,
        "max_attempts": 2,
        "dedupe_key": "k",
        "correlation_id": "c",
        "tags": ["red", "blue"],
    }
    job = await created(world, **options, scheduled_for="2030-02-16T10:30:00Z", timeout=1.5, expires_in=3600)

    assert job.items() >= options.items()
    assert (job["status"], job["definition_key"], job["deduplicated"]) == ("queued", "greet", False)
    assert (job["scheduled_for"], job["expires_at"]) == ("2030-02-16T10:30:00Z", "2030-02-16T11:30:00Z")
    assert (job["payload"], job["timeout_seconds"]) == ({"name": "Ada"}, 2)
    assert (job["tenant"], job["created_by"]) == (given.TENANT, "token:acme.operator")
    again = await post(world, "/jobs", **GREET, dedupe_key="k")
    assert (again.status_code, again.json()["id"], again.json()["deduplicated"]) == (200, job["id"], True)


@each_case(
    ("body", "status", "code", "paths"),
    [
        ({**GREET, "more": 1}, 422, "invalid_input", ["more"]),
        ({**GREET, "payload": {"name": 1}}, 422, "payload_invalid", ["/name"]),
        ({**GREET, "priority": 10**9}, 422, "invalid_input", ["priority"]),
        ({**GREET, "scheduled_for": "2030-02-16T10:30:00"}, 422, "invalid_input", ["scheduled_for"]),
        ({**GREET, "debounce": {"key": "k"}}, 422, "invalid_input", ["debounce.seconds"]),
        ({**GREET, "tags": ["a", "a"]}, 422, "invalid_input", ["tags"]),
        ({"definition_key": "nothing"}, 422, "definition_unknown", None),
        (
            {"definition_key": "anything", "payload": {"a": "x" * 300_000}},
            413,
            "payload_too_large",
            None,
        ),
    ],
)
async def test_a_job_that_cannot_be_is_refused_with_its_fault(
    shared_world: World, body: dict[str, Any], status: int, code: str, paths: list[str] | None
) -> None:
    jobs = await _count_jobs(shared_world)
    answer = await post(shared_world, "/jobs", **body)

    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    found = faults(answer)
    assert paths is None or found == paths
    assert await _count_jobs(shared_world) == jobs


async def _count_jobs(world: World) -> int:
    return await given.count(world, "jobs")


async def test_many_jobs_are_enqueued_all_or_none(world: World) -> None:
    two: dict[str, Any] = {"jobs": [GREET, {**GREET, "dedupe_key": "k"}]}
    made = await post(world, "/jobs/bulk", **two)
    assert made.status_code == 201
    assert [one["deduplicated"] for one in made.json()["items"]] == [False, False]
    again = await post(world, "/jobs/bulk", **two)
    assert [one["deduplicated"] for one in again.json()["items"]] == [False, True]

    refused = await post(world, "/jobs/bulk", jobs=[GREET, {**GREET, "payload": {"name": 1}}])
    assert (refused.status_code, faults(refused)) == (422, ["[1]/name"])
    assert faults(await post(world, "/jobs/bulk", jobs=[])) == ["jobs"]
    assert await given.count(world, "jobs") == 3


# Listing


async def test_the_list_is_filtered_by_every_field(world: World) -> None:
    one = await created(world, correlation_id="c", dedupe_key="k")
    other = await created(world)
    await world.call("POST", f"/jobs/{other['id']}/cancel")
    an_hour = timedelta(hours=1)
    now = datetime.now(UTC)

    async def ids(**params: Any) -> list[str]:
        answer = await world.call("GET", "/jobs", who="viewer", params=params)
        assert answer.status_code == 200, answer.text
        return [item["id"] for item in answer.json()["items"]]

    both = [other["id"], one["id"]]
    assert await ids() == both
    assert await ids(status="canceled") == [other["id"]]
    assert await ids(status="queued,canceled") == both
    assert await ids(status=["queued", "canceled"]) == both
    assert await ids(status=["queued, running", "failed"]) == [one["id"]]
    assert await ids(source="manual") == both
    assert await ids(source="event") == []
    assert await ids(definition_key="greet") == both
    assert await ids(definition_key="anything") == []
    assert await ids(dedupe_key="k") == [one["id"]]
    assert await ids(correlation_id="c") == [one["id"]]
    assert await ids(host_id=str(uuid4())) == []
    assert await ids(workflow_run_id=str(uuid4())) == []
    assert await ids(created_after=(now - an_hour).isoformat()) == both
    assert await ids(created_before=(now - an_hour).isoformat()) == []
    assert await ids(q=one["id"]) == [one["id"]]
    assert await ids(q="gree") == both
    assert await ids(limit=1, offset=1) == [one["id"]]


@each_case(
    "params",
    [{"created_after": "0001-01-01T00:00:00+14:00"}, {"created_before": "9999-12-31T23:59:59-14:00"}],
)
async def test_the_first_and_the_last_moment_are_times_as_any(
    shared_world: World, params: dict[str, Any]
) -> None:
    assert await shared_world.status("GET", "/jobs", who="viewer", params=params) == 200


@each_case(
    ("params", "path"),
    [
        ({"status": "odd"}, "status"),
        ({"status": "queued,odd"}, "status"),
        ({"status": ""}, "status"),
        ({"source": "odd"}, "source"),
        ({"host_id": "x"}, "host_id"),
        ({"created_after": "2026-01-01T00:00:00"}, "created_after"),
        ({"created_before": "yesterday"}, "created_before"),
        ({"duration_over": "1e400"}, "duration_over"),
        ({"duration_over": "nan"}, "duration_over"),
        ({"duration_under": 1e12}, "duration_under"),
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"limit": "many"}, "limit"),
        ({"offset": -1}, "offset"),
        ({"cursor": "x"}, "cursor"),
        ({"q": ""}, "q"),
        ({"q": "x" * 201}, "q"),
        ({"definition_key": "\x00"}, "definition_key"),
        ({"correlation_id": "\x00"}, "correlation_id"),
        ({"dedupe_key": "\x00"}, "dedupe_key"),
    ],
)
async def test_a_list_that_makes_no_sense_is_refused(
    shared_world: World, params: dict[str, Any], path: str
) -> None:
    answer = await shared_world.call("GET", "/jobs", who="viewer", params=params)

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input"), answer.text
    assert faults(answer) == [path]


# One job


async def test_a_job_is_shown_with_its_attempts_and_reasons(world: World) -> None:
    job = await created(world)
    shown = await world.call("GET", f"/jobs/{job['id']}", who="viewer")
    assert {**shown.json(), "deduplicated": False} == job
    assert (await world.call("GET", f"/jobs/{job['id']}/attempts", who="viewer")).json()["items"] == []
    why = (await world.call("GET", f"/jobs/{job['id']}/why", who="viewer")).json()
    assert (why["job_id"], why["status"]) == (job["id"], "queued")
    assert "no_worker" in [reason["code"] for reason in why["reasons"]]


async def test_a_job_is_canceled_and_retried_with_another_payload(world: World) -> None:
    job = await created(world)
    path = f"/jobs/{job['id']}"

    assert (await world.call("POST", f"{path}/retry")).json()["code"] == "job_not_retryable"
    canceled = await world.call("POST", f"{path}/cancel")
    assert (canceled.status_code, canceled.json()["status"]) == (200, "canceled")
    bad = await post(world, f"{path}/retry", payload={"name": 1})
    assert (bad.status_code, bad.json()["code"], faults(bad)) == (422, "payload_invalid", ["/name"])
    assert faults(await post(world, f"{path}/retry", priority=1)) == ["priority"]
    retried = await post(world, f"{path}/retry", payload={"name": "Eve"})

    assert (retried.status_code, retried.json()["status"]) == (200, "queued")
    assert retried.json()["payload"] == {"name": "Eve"}


# Summary


async def test_the_summary_counts_by_status_and_tells_the_oldest_that_waits(world: World) -> None:
    empty = (await world.call("GET", "/jobs/summary", who="viewer")).json()
    assert (empty["oldest_queued_age_seconds"], empty["oldest_queued_at"]) == (None, None)
    async with world.fl.transaction() as tx:
        oldest = await given.queued_job(tx)
        await given.queued_job(tx)
        await given.running_job(tx)
        await given.ended_job(tx, "failed")
        await given.queued_job(tx, tenant=given.OTHER)

    told = (await world.call("GET", "/jobs/summary", who="viewer")).json()

    assert told["counts"] == {
        "queued": 2,
        "running": 1,
        "succeeded": 0,
        "failed": 1,
        "dead_letter": 0,
        "canceled": 0,
    }
    assert (told["queued"], told["running"]) == (2, 1)
    due = (await world.fl.read(oldest)).scheduled_for
    assert datetime.fromisoformat(told["oldest_queued_at"]) == due
    assert 0 <= told["oldest_queued_age_seconds"] <= (datetime.now(UTC) - due).total_seconds()


async def test_a_super_admin_names_the_tenant_of_a_summary(world: World) -> None:
    unnamed = await world.call("GET", "/jobs/summary", who="super_admin")
    named = await world.call("GET", "/jobs/summary", who="super_admin", headers={"X-Tenant": given.OTHER})

    assert (unnamed.status_code, faults(unnamed)) == (422, ["X-Tenant"])
    assert named.status_code == 200


# Times

PERCENTILES = {"p50", "p95", "p99"}


async def test_the_times_are_those_of_the_tenants_jobs_that_have_ended(world: World) -> None:
    empty = (await world.call("GET", "/jobs/times", who="viewer")).json()
    assert empty == {"jobs": 0, "wait_ms": None, "run_ms": None, "definitions": []}
    async with world.fl.transaction() as tx:
        for _ in range(3):
            await given.ended_job(tx, "succeeded", definition="anything", payload={})
        await given.running_job(tx)
        await given.ended_job(tx, "failed", tenant=given.OTHER)

    told = (await world.call("GET", "/jobs/times", who="viewer")).json()

    [part] = told.pop("definitions")
    assert part == {"definition_key": "anything", **told}
    assert (told["jobs"], set(told["wait_ms"]), set(told["run_ms"])) == (3, PERCENTILES, PERCENTILES)


# Tick


async def test_a_tick_is_not_there_unless_it_is_enabled(world: World) -> None:
    answer = await post(world, "/jobs/tick", who="super_admin")

    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_a_tick_runs_due_jobs_of_the_process_and_tells_how_they_stand(database_url: str) -> None:
    async with world_on(database_url, enable_tick=True) as world:
        _with_a_function(world.fl)
        await created(world)
        await world.fl.enqueue("anything", tenant=given.TENANT)  # nobody's function

        ticked = await post(world, "/jobs/tick", who="super_admin", limit=10)
        assert (ticked.status_code, ticked.json()) == (
            200,
            {"ok": True, "ran": 1, "statuses": {"succeeded": 1}},
        )
        plain = await world.call("POST", "/jobs/tick", who="super_admin")
        assert plain.json() == {"ok": True, "ran": 0, "statuses": {}}
        assert faults(await post(world, "/jobs/tick", who="super_admin", limit=0)) == ["limit"]


def _with_a_function(fl: Fairlead) -> None:
    @fl.job(key="greet")
    async def greet(name: str) -> str:
        return name


async def test_a_job_that_is_larger_than_a_page_comes_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.store.bounded_page.MOST_PAGE_BYTES", 10)
    for _ in range(2):
        await world.call("POST", "/jobs", json={"definition_key": "anything", "payload": {"a": "x" * 5000}})

    first = (await world.call("GET", "/jobs")).json()
    second = (await world.call("GET", "/jobs", params={"cursor": first["next_cursor"]})).json()

    assert [len(page["items"]) for page in (first, second)] == [1, 1]
    assert second["next_cursor"] is None


async def test_values_that_are_small_only_on_disk_fill_a_page(world: World) -> None:
    """Each payload is a quarter of a megabyte in memory, and a few kilobytes as PostgreSQL stores it."""
    job = {"definition_key": "anything", "payload": {"a": [{}] * 30_000}}
    for _ in range(12):
        assert await world.status("POST", "/jobs", json=job) == 201

    sizes, asked = list[int](), dict[str, Any](limit=12)
    while asked.get("cursor", "first"):
        page = (await world.call("GET", "/jobs", params=asked)).json()
        sizes.append(len(page["items"]))
        asked = {"limit": 12, "cursor": page["next_cursor"]}

    assert sum(sizes) == 12
    assert 1 < sizes[0] < 12


class Turns:
    """Counts the turns that another task has at the event loop."""

    def __init__(self) -> None:
        self.count = 0

    @asynccontextmanager
    async def beside(self) -> AsyncIterator[None]:
        other = asyncio.create_task(self._count())
        try:
            yield
        finally:
            other.cancel()

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.count += 1

    def noted(self, notes: list[int], function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which notes how many turns there were at each call."""

        def run(*args: Any, **options: Any) -> Any:
            notes.append(self.count)
            return function(*args, **options)

        return run


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    """Without a slice to use up, others have a turn between any two parts of long work."""
    monkeypatch.setattr("fairlead.turns.loop_pauses.SLICE_SECONDS", 0)
    return Turns()


async def test_a_large_bulk_lets_others_have_their_turns(
    world: World, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.db.binary_copy._BLOCK", 1)
    parsed, prepared = list[int](), list[int]()
    reader = SimpleNamespace(loads=turns.noted(parsed, json.loads))
    monkeypatch.setattr("fairlead.server.large_bodies.json", reader)
    monkeypatch.setattr(Catalog, "prepare", turns.noted(prepared, Catalog.prepare))
    load = {"jobs": [{"definition_key": "anything", "payload": {"a": [{}] * 6_000}} for _ in range(30)]}

    async with turns.beside():
        answer = await world.call("POST", "/jobs/bulk", json=load)

    assert answer.status_code == 201, answer.text[:500]
    assert len(answer.json()["items"]) == 30
    for notes in (parsed, prepared):
        assert len(set(notes)) == len(notes) == 30


async def test_a_page_lets_others_have_their_turns_between_its_rows(
    world: World, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = {"jobs": [{"definition_key": "anything", "payload": {"n": n}} for n in range(20)]}
    await world.call("POST", "/jobs/bulk", json=load)
    read, written = list[int](), list[int]()
    monkeypatch.setattr(AsyncCursor, "fetchone", turns.noted(read, AsyncCursor.fetchone))
    monkeypatch.setattr(TypeAdapter, "dump_json", turns.noted(written, TypeAdapter.dump_json))

    async with turns.beside():
        answer = await world.call("GET", "/jobs?limit=20")

    assert [job["payload"]["n"] for job in answer.json()["items"]] == [*reversed(range(20))]
    assert answer.json()["next_cursor"] is None
    assert len(set(read)) == len(read) >= 20
    assert len(set(written)) == len(written) == 20


@pytest.mark.parametrize(
    "body", [b'{"jobs": [' + b"1," * 200_000, b'{"jobs": "' + b"x" * 300_000, b"[" * 300_000]
)
async def test_a_large_body_that_is_not_json_is_refused_as_a_small_one(world: World, body: bytes) -> None:
    answer = await world.call(
        "POST", "/jobs/bulk", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.json()["code"] == "body_not_json"
