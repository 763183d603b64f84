"""Running jobs over HTTP: what a worker in any language sees."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from fairlead.actions import leases
from fairlead.actions import workers as worker_actions
from fairlead.db.tx import Tx
from fairlead.model.job import Job
from fairlead.server import http_claims
from fairlead.store import audit, workers
from tests import given
from tests.acting import act
from tests.server.world import World, listening, world_on
from tests.tables import each_case
from tests.waiting import SECONDS

ENDS: dict[str, dict[str, Any]] = {
    "heartbeat": {},
    "complete": {"output": {"done": True}},
    "fail": {"error": {"type": "Broken", "message": "it broke"}},
    "release": {},
    "progress": {"percent": 10},
    "logs": {"chunks": [{"seq": 0, "text": "hello\n"}]},
}


async def enqueued(world: World, tenant: str = given.TENANT, **fields: Any) -> UUID:
    job = await world.fl.enqueue(
        **{"definition": "anything", "tenant": tenant, "payload": {"a": 1}, **fields}
    )
    return job.id


async def claim(world: World, **body: Any) -> httpx2.Response:
    tenant = body.pop("tenant", None)
    body = {"definitions": None, **body}
    return await world.call("POST", "/worker/jobs/claim", who="worker", tenant=tenant, json=body)


async def claimed(world: World, **body: Any) -> dict[str, Any]:
    answer = await claim(world, **body)
    assert answer.status_code == 200, answer.text
    [item] = answer.json()["items"]
    return dict(item)


async def tell(
    world: World, item: dict[str, Any], what: str, tenant: str | None = None, **body: Any
) -> httpx2.Response:
    lease = {name: item[name] for name in ("attempt_no", "lease_token")}
    path = f"/worker/jobs/{item['job_id']}/{what}"
    return await world.call("POST", path, who="worker", tenant=tenant, json={**lease, **body})


async def read(world: World, job_id: Any) -> Job:
    return await world.fl.read(job_id)


async def test_a_job_is_claimed_reported_and_completed(world: World) -> None:
    job_id = await enqueued(world, correlation_id="c-1")

    item = await claimed(world, worker_id="box-1", definitions=["anything"])

    assert item["job_id"] == str(job_id)
    assert (item["attempt_no"], item["tenant"], item["payload"]) == (1, given.TENANT, {"a": 1})
    assert (item["max_attempts"], item["timeout_seconds"], item["lease_seconds"]) == (5, 3600, 30)
    assert (item["definition_key"], item["correlation_id"], item["parent_id"]) == ("anything", "c-1", None)
    assert (await tell(world, item, "heartbeat")).json() == {"lease_seconds": 30, "cancel_requested": False}
    assert (await tell(world, item, "progress", percent=40, message="half")).status_code == 200
    assert (await read(world, job_id)).progress == {"percent": 40.0, "message": "half"}
    ending: dict[str, Any] = {"cost_cents": 7, "stdout_tail": "out\x00", "stderr_tail": "err", "exit_code": 0}
    ended = await tell(world, item, "complete", output={"n": 1}, **ending)
    assert (ended.status_code, ended.json()) == (200, {"job_id": str(job_id), "status": "succeeded"})

    job = await read(world, job_id)
    assert (job.status, job.output, job.cost_cents) == ("succeeded", {"n": 1}, 7)
    assert str(job.claimed_by_worker).endswith(":box-1")
    shown = await world.call("GET", f"/jobs/{job_id}/attempts", who="viewer")
    [attempt] = shown.json()["items"]
    assert (attempt["stdout_tail"], attempt["stderr_tail"], attempt["exit_code"]) == ("out\\x00", "err", 0)
    entry = (await act(world.fl, audit.list_recent))[0]
    assert (entry.action, entry.actor, entry.resource_id) == (
        "JOB_SUCCEEDED",
        "token:all.worker",
        str(job_id),
    )


async def test_a_failure_is_retried_after_its_backoff(world: World) -> None:
    job_id = await enqueued(world)
    error = {"type": "Broken", "message": "it broke", "traceback": "line 1"}

    failed = await tell(world, await claimed(world), "fail", error=error, timed_out=True)

    job = await read(world, job_id)
    assert failed.json()["status"] == "queued"
    assert job.scheduled_for > job.queued_at
    assert (job.last_error, job.error) == ("Broken: it broke", error)
    assert await act(world.fl, Tx.values, "select status from fairlead.attempts") == [("timeout",)]


async def test_a_released_job_is_there_again_and_not_charged(world: World) -> None:
    job_id = await enqueued(world)

    assert (await tell(world, await claimed(world), "release")).json()["status"] == "queued"
    again = await claimed(world)
    assert again["attempt_no"] == 2
    assert (await tell(world, again, "release", delay_seconds=3600)).json()["status"] == "queued"

    assert (await claim(world)).json()["items"] == []
    assert (await read(world, job_id)).failure_count == 0


async def test_a_cancel_is_told_at_the_next_heartbeat_and_ends_the_job_when_it_is_released(
    world: World,
) -> None:
    job_id = await enqueued(world)
    item = await claimed(world)
    asked = await world.call("POST", f"/jobs/{job_id}/cancel", who="operator")
    assert (asked.status_code, asked.json()["status"]) == (200, "running")

    assert (await tell(world, item, "heartbeat")).json()["cancel_requested"] is True
    assert (await tell(world, item, "release")).json()["status"] == "canceled"


async def beat(world: World, *items: dict[str, Any], tenant: str | None = None) -> list[dict[str, Any]]:
    leases = [{name: item[name] for name in ("job_id", "attempt_no", "lease_token")} for item in items]
    answer = await world.call(
        "POST", "/worker/jobs/heartbeat", who="worker", tenant=tenant, json={"leases": leases}
    )
    assert answer.status_code == 200, answer.text
    return list(answer.json()["leases"])


async def test_many_leases_are_renewed_at_once(world: World) -> None:
    for _ in range(3):
        await enqueued(world)
    kept, canceled, ended = (await claim(world, limit=3)).json()["items"]
    await world.fl.cancel(canceled["job_id"])
    await tell(world, ended, "complete")
    before = await given.lease_end(world)

    beats = await beat(world, kept, {**kept, "lease_token": str(uuid4())}, canceled, ended)

    told = [(one["lost"], one["renewed"], one["cancel_requested"]) for one in beats]
    assert told == [(False, True, False), (True, False, False), (False, True, True), (True, False, False)]
    assert await given.lease_end(world) > before


async def test_leases_of_other_tenants_and_definitions_are_not_renewed(world: World) -> None:
    await enqueued(world)
    item = await claimed(world)

    async with world.fl.database.transaction() as tx:
        await tx.run(
            "update fairlead.tokens set definitions = '{greet}' where id = %s",
            [world.token_ids[given.TENANT, "worker"]],
        )

    assert [one["lost"] for one in await beat(world, item, tenant=given.OTHER)] == [True]
    assert [one["lost"] for one in await beat(world, item, tenant=given.TENANT)] == [True]
    assert [one["lost"] for one in await beat(world, item)] == [False]


@each_case("what", ["heartbeat", "progress", "logs"])
async def test_an_expired_lease_says_nothing_more_even_before_it_is_rescued(world: World, what: str) -> None:
    await enqueued(world)
    item = await claimed(world)
    async with world.fl.transaction() as tx:
        await tx.run("update fairlead.leases set expires_at = clock_timestamp() - interval '1 second'")

    assert (await tell(world, item, what, **ENDS[what])).json()["code"] == "lease_lost"


@each_case("what", sorted(ENDS))
@each_case("wrong", ["job_id", "attempt_no", "lease_token", "tenant"])
async def test_a_lease_that_is_not_the_callers_is_lost_to_it(
    shared_world: World, what: str, wrong: str
) -> None:
    job_id = await enqueued(shared_world)
    item = await claimed(shared_world)
    tenant = given.OTHER if wrong == "tenant" else None
    other: Any = 2 if wrong == "attempt_no" else str(uuid4())

    refused = await tell(shared_world, {**item, wrong: other}, what, tenant=tenant, **ENDS[what])

    assert (refused.status_code, refused.json()["code"]) == (409, "lease_lost")
    job = await read(shared_world, job_id)
    assert (job.status, job.progress) == ("running", None)
    assert await given.count(shared_world.fl, "log_chunks") == 0


async def test_an_end_that_is_repeated_because_its_answer_was_lost_is_answered_again(world: World) -> None:
    job_id = await enqueued(world)
    item = await claimed(world)
    first = await tell(world, item, "complete", output=1, exit_code=0)

    again = await tell(world, item, "complete", output=2, exit_code=9)

    assert (again.status_code, again.json()) == (200, first.json())
    assert (await read(world, job_id)).output == 1
    assert await act(world.fl, Tx.values, "select exit_code from fairlead.attempts") == [(0,)]
    assert (await tell(world, item, "heartbeat")).status_code == 409


async def test_a_tenants_worker_gets_that_tenants_jobs_only(world: World) -> None:
    theirs = await enqueued(world, tenant=given.OTHER)
    assert (await claim(world, tenant=given.TENANT, limit=10)).json()["items"] == []
    mine = await enqueued(world)

    assert (await claimed(world, tenant=given.TENANT, limit=10))["job_id"] == str(mine)
    named = await claim(world, tenant=given.TENANT, limit=10, definitions=["anything", "greet"])
    assert named.json()["items"] == []
    assert (await claimed(world, limit=10))["job_id"] == str(theirs)


async def test_a_super_admin_may_claim_and_bind_itself_to_a_tenant(world: World) -> None:
    await enqueued(world, tenant=given.OTHER)
    body = {"definitions": None, "limit": 5}

    bound = await world.call(
        "POST", "/worker/jobs/claim", who="super_admin", headers={"X-Tenant": given.TENANT}, json=body
    )
    free = await world.call("POST", "/worker/jobs/claim", who="super_admin", json=body)

    assert bound.json()["items"] == []
    assert len(free.json()["items"]) == 1


async def test_only_the_definitions_that_are_asked_for_are_claimed(world: World) -> None:
    await enqueued(world)

    assert (await claim(world, definitions=["greet"])).json()["items"] == []
    unknown = await claim(world, definitions=["anything", "nothing"])
    assert (unknown.status_code, unknown.json()["code"]) == (422, "definition_unknown")


async def test_a_long_poll_is_woken_by_a_job(world: World) -> None:
    waiting = asyncio.create_task(claim(world, wait=30))
    claims = world.app.state.claims
    async with asyncio.timeout(SECONDS):
        while not claims._polls._subscribers:
            await asyncio.sleep(0.01)
        job_id = await enqueued(world)
        answer = await waiting

    assert [one["job_id"] for one in answer.json()["items"]] == [str(job_id)]
    assert claims._polls._listener is None  # nobody waits, nobody listens


async def test_a_long_poll_without_work_ends_empty_in_its_time(world: World) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()

    assert (await claim(world, wait=0.2)).json() == {"items": [], "next_cursor": None, "lease_seconds": 30.0}
    assert loop.time() - began >= 0.2


async def test_a_token_that_is_revoked_while_it_waits_gets_nothing(world: World) -> None:
    waiting = asyncio.create_task(claim(world, wait=30, tenant=given.TENANT))
    async with asyncio.timeout(SECONDS):
        while not world.app.state.claims._polls._subscribers:
            await asyncio.sleep(0.01)
        await act(world.fl, Tx.run, "update fairlead.tokens set revoked_at = clock_timestamp()")
        answer = await waiting

    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")


async def test_what_nobody_waits_for_any_more_is_given_back(world: World) -> None:
    job_id = await enqueued(world)
    claims = world.app.state.claims
    served = await act(world.fl, leases.resolve_scope, given.TESTER, None)

    async def gone() -> bool:
        return False

    assert await claims.claim("w", served, keys=None, limit=1, wait=0, waits=gone) == []
    job = await read(world, job_id)
    assert (job.status, job.failure_count, job.lost_count) == ("queued", 0, 0)


async def test_a_worker_that_hung_up_while_it_waited_is_given_nothing(world: World) -> None:
    polls = world.app.state.claims._polls
    body = b'{"definitions": null, "wait": 30}'
    head = [
        "POST /api/v1/worker/jobs/claim HTTP/1.1",
        "Host: x",
        f"Authorization: Bearer {world.secrets[None, 'worker']}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    async with listening(world) as port, asyncio.timeout(SECONDS):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write("\r\n".join([*head, "", ""]).encode() + body)
        while not polls._subscribers:
            await asyncio.sleep(0.01)
        writer.transport.abort()
        job_id = await enqueued(world)
        while polls._subscribers:
            await asyncio.sleep(0.01)
    job = await read(world, job_id)
    assert (job.status, job.failure_count, job.lost_count) == ("queued", 0, 0)


async def test_a_job_whose_worker_died_is_given_to_the_next_where_nobody_else_sweeps(
    database_url: str,
) -> None:
    async with world_on(database_url, sweep_seconds=0.1, poll_seconds=0.1) as world:
        job_id = await enqueued(world)
        await claimed(world)
        async with world.fl.transaction() as tx:
            await tx.run("update fairlead.leases set expires_at = clock_timestamp() - interval '1 hour'")

        again = await claimed(world, wait=30)

        assert (again["job_id"], again["attempt_no"]) == (str(job_id), 2)
        assert (await tell(world, again, "complete")).status_code == 200


async def listed_workers(world: World) -> set[str]:
    async with world.transaction() as tx:
        rows = await tx.values("select worker_id from fairlead.job_workers")
    return {worker_id.rpartition(":")[2] for (worker_id,) in rows}


async def test_names_of_a_tenants_workers_that_are_used_once_are_not_listed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(name: str, wait: float = 0.0) -> None:
        body = {"definitions": ["anything"], "worker_id": name, "wait": wait}
        answer = await world.call("POST", "/worker/jobs/claim", who="worker", json=body)
        assert answer.status_code == 200, answer.text

    for number in range(30):
        await ask(f"ghost-{number}", wait=number % 2 * 0.001)
    assert await listed_workers(world) == set()

    await enqueued(world)
    await ask("busy")
    assert await listed_workers(world) == {"busy"}

    monkeypatch.setattr(http_claims, "LIST_WORKER_SECONDS", 0.0)
    await ask("ghost-0")
    assert await listed_workers(world) == {"busy", "ghost-0"}


async def test_a_tenants_worker_that_waits_is_listed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_claims, "LIST_WORKER_SECONDS", 0.05)
    monkeypatch.setattr(http_claims.HttpClaims, "_count_pause", lambda *_: 0.01)
    body = {"definitions": ["anything"], "worker_id": "waiting", "wait": 30}
    waiting = asyncio.create_task(world.call("POST", "/worker/jobs/claim", who="worker", json=body))

    async with asyncio.timeout(SECONDS):
        while await listed_workers(world) != {"waiting"}:
            await asyncio.sleep(0.01)
    await enqueued(world)
    assert len((await waiting).json()["items"]) == 1


@each_case(
    ("body", "path"),
    [
        ({}, "definitions"),
        ({"definitions": []}, "definitions"),
        ({"definitions": None, "limit": 0}, "limit"),
        ({"definitions": None, "limit": 1001}, "limit"),
        ({"definitions": None, "wait": 31}, "wait"),
        ({"definitions": None, "wait": -1}, "wait"),
        ({"definitions": None, "worker_id": ""}, "worker_id"),
        ({"definitions": None, "worker_id": "a\x00"}, "worker_id"),
        ({"definitions": None, "more": 1}, "more"),
        ({"definitions": None, "claim_id": "mine"}, "claim_id"),
        ({"definitions": ["a\x00"]}, "definitions.0"),
    ],
)
async def test_a_claim_that_makes_no_sense_is_refused(
    shared_world: World, body: dict[str, Any], path: str
) -> None:
    answer = await shared_world.call("POST", "/worker/jobs/claim", who="worker", tenant=None, json=body)

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
    assert [one["path"] for one in answer.json()["errors"]] == [path]


@each_case(
    ("what", "body", "path"),
    [
        ("heartbeat", {"attempt_no": 0}, "attempt_no"),
        ("heartbeat", {"attempt_no": 2**31}, "attempt_no"),
        ("heartbeat", {"lease_token": "x"}, "lease_token"),
        ("heartbeat", {"extra": 1}, "extra"),
        ("complete", {"cost_cents": -1}, "cost_cents"),
        ("complete", {"exit_code": 2**31}, "exit_code"),
        ("fail", {}, "error"),
        ("fail", {"error": {"type": "", "message": ""}}, "error.type"),
        ("fail", {"error": {"type": "A", "message": "b", "c": 1}}, "error.c"),
        ("release", {"delay_seconds": -1}, "delay_seconds"),
        ("release", {"delay_seconds": 1e12}, "delay_seconds"),
        ("progress", {"percent": 101}, "percent"),
        ("progress", {}, "percent"),
        ("logs", {"chunks": []}, "chunks"),
        ("logs", {"chunks": [{"seq": -1, "text": ""}]}, "chunks.0.seq"),
        ("logs", {"chunks": [{"seq": 2**31 - 1, "text": ""}]}, "chunks.0.seq"),
        ("logs", {"chunks": [{"seq": 1, "text": "", "stream": "x"}]}, "chunks.0.stream"),
        ("logs", {"chunks": [{"seq": 1, "text": "x" * 65_537}]}, "chunks.0.text"),
    ],
)
async def test_a_report_that_makes_no_sense_is_refused(
    shared_world: World, what: str, body: dict[str, Any], path: str
) -> None:
    lease = {"attempt_no": 1, "lease_token": str(uuid4()), **body}

    answer = await shared_world.call(
        "POST", f"/worker/jobs/{uuid4()}/{what}", who="worker", tenant=None, json=lease
    )

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
    assert [one["path"] for one in answer.json()["errors"]] == [path]


async def test_an_output_that_cannot_be_kept_is_refused_and_the_job_still_runs(world: World) -> None:
    job_id = await enqueued(world)
    item = await claimed(world)

    large = await tell(world, item, "complete", output="x" * 1_100_000)
    odd = await tell(world, item, "complete", output={"a": "\x00"})

    assert (large.status_code, large.json()["code"]) == (413, "payload_too_large")
    assert (odd.status_code, odd.json()["code"]) == (422, "payload_not_json")
    assert (await read(world, job_id)).status == "running"


async def test_long_tails_keep_their_ends(world: World) -> None:
    job_id = await enqueued(world)
    item = await claimed(world)

    await tell(world, item, "complete", stdout_tail="a" * 100_000 + "the end", stderr_tail="é" * 50_000)

    [attempt] = (await world.call("GET", f"/jobs/{job_id}/attempts", who="viewer")).json()["items"]
    assert attempt["stdout_tail"].startswith("…a")
    assert attempt["stdout_tail"].endswith("the end")
    assert len(attempt["stderr_tail"].encode()) <= 65_536


async def test_a_worker_over_http_is_listed_with_what_it_holds_and_its_own_version(world: World) -> None:
    for _ in range(3):
        await enqueued(world)
    for limit in (1, 2):
        assert (await claim(world, worker_id="box-1", version="2.7", limit=limit)).status_code == 200

    answer = await world.call("GET", "/admin/workers", who="super_admin")

    [listed] = [one for one in answer.json()["items"] if "box-1" in one["worker_id"]]
    assert (listed["running_count"], listed["version"]) == (3, "2.7")
    assert listed["metadata"] == {"transport": "http"}
    assert listed["worker_id"].startswith("token:all.worker:")


async def test_a_worker_of_one_tenant_serves_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_claims, "LIST_WORKER_SECONDS", 0.0)
    job = await enqueued(world, given.OTHER)
    body = {"definitions": None, "limit": 1, "worker_id": "w"}
    await world.call("POST", "/worker/jobs/claim", who="worker", tenant=given.TENANT, json=body)

    why = await world.call("GET", f"/jobs/{job}/why", tenant=given.OTHER)
    [listed] = (await world.call("GET", "/admin/workers", who="super_admin")).json()["items"]

    assert why.json()["reasons"][0]["code"] == "no_worker"
    assert listed["tenant"] == given.TENANT


async def test_the_registry_has_so_many_workers_of_a_tenant_and_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "MOST_OF_A_TENANT", 3)
    monkeypatch.setattr(http_claims, "LIST_WORKER_SECONDS", 0.0)
    for name in "abcdea":
        body = {"definitions": None, "limit": 1, "worker_id": name}
        assert await world.status("POST", "/worker/jobs/claim", who="worker", json=body) == 200

    listed = (await world.call("GET", "/admin/workers", who="super_admin")).json()["items"]
    assert [one["worker_id"][-2:] for one in listed] == [":a", ":b", ":c"]


async def test_a_worker_that_drains_gets_no_jobs_until_it_is_resumed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def take() -> list[str]:
        asked = {"worker_id": "one", "limit": 1, "definitions": ["greet"]}
        return [one["job_id"] for one in (await claim(world, tenant=given.TENANT, **asked)).json()["items"]]

    monkeypatch.setattr(http_claims, "RECORD_WORKER_SECONDS", 0.0)
    async with world.fl.transaction() as tx:
        jobs = [str(await given.queued_job(tx)) for _ in range(2)]
    assert await take() == jobs[:1]
    async with world.fl.transaction() as tx:
        [worker] = await workers.list_page(tx, stale_seconds=60, after="", limit=2)
        name = worker.worker_id
        assert (await worker_actions.drain(tx, given.TESTER, name)).drain_requested_by == "tester"
        details = await worker_actions.get_details(tx, given.TESTER, name)
        assert [str(job.job_id) for job in details.jobs] == jobs[:1]

    assert await take() == []

    await act(world.fl, worker_actions.resume, given.TESTER, name)
    assert await take() == jobs[1:]
