"""Finding jobs by tags and payloads, and editing waiting ones, over HTTP: a tenant's own only."""

import json
from typing import Any

from tests.given import OTHER, TENANT
from tests.server.world import World


async def enqueue(world: World, **fields: Any) -> str:
    body = {"definition_key": "anything", **fields}
    answer = await world.call("POST", "/jobs", who="application", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def found(world: World, *, tenant: str = TENANT, **params: str) -> list[str]:
    answer = await world.call("GET", "/jobs", tenant=tenant, params=params)
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["items"]]


def refused(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


async def test_jobs_are_found_by_tags_and_payload(world: World) -> None:
    first = await enqueue(world, tags=["eu", "nightly"], payload={"customer": {"id": 42, "vip": True}})
    second = await enqueue(world, tags=["eu"], payload={"customer": {"id": 43}})

    assert await found(world, tags="eu") == [second, first]
    assert await found(world, tags="eu,nightly") == [first]
    assert await found(world, payload_contains='{"customer": {"id": 42}}') == [first]
    assert await found(world, payload_contains='{"customer": {"id": 43}}', tags="nightly") == []
    for params in ({"tags": "eu"}, {"payload_contains": '{"customer": {}}'}):
        assert await found(world, tenant=OTHER, **params) == []


async def test_bad_filters_are_refused_with_a_code(world: World) -> None:
    for params in (
        {"payload_contains": "{}"},
        {"payload_contains": "[1]"},
        {"payload_contains": "nonsense"},
        {"payload_contains": "[" * 3000},
        {"payload_contains": json.dumps({"a": "x" * 3000})},
        {"payload_contains": '{"a": "\\u0000"}'},
        {"tags": ","},
        {"tags": "x" * 65},
        {"tags": ",".join(str(n) for n in range(17))},
    ):
        answer = await world.call("GET", "/jobs", params=params)
        assert refused(answer) == (422, "invalid_input"), (params, answer.text)


async def test_matching_jobs_are_canceled_and_retried(world: World) -> None:
    mine = await enqueue(world, tags=["eu"], payload={"customer": {"id": 42}})
    body = {"filter": {"tags": ["eu"], "payload_contains": {"customer": {"id": 42}}}}

    theirs = await world.call("POST", "/jobs/cancel", tenant=OTHER, json=body)
    canceled = await world.call("POST", "/jobs/cancel", json=body)
    again = await world.call("POST", "/jobs/retry", json=body)

    assert theirs.json()["count"] == 0
    for answer in (canceled, again):
        assert answer.json() == {"count": 1, "more": False, "skipped": 0, "reasons": {}, "next_cursor": None}
    assert (await world.call("GET", f"/jobs/{mine}")).json()["status"] == "queued"
    wrong = await world.call("POST", "/jobs/cancel", json={**body, "cursor": "x"})
    assert refused(wrong)[0] == 422


async def test_a_waiting_job_is_edited(world: World) -> None:
    job = await enqueue(world, tags=["old"], payload={"n": 1})
    change = {"payload": {"n": 2}, "priority": 3, "delay_seconds": 3600, "tags": ["new"]}

    answer = await world.call("PATCH", f"/jobs/{job}", json=change)

    assert answer.status_code == 200, answer.text
    edited = answer.json()
    assert (edited["payload"], edited["priority"], edited["tags"]) == ({"n": 2}, 3, ["new"])
    assert edited["scheduled_for"] > edited["queued_at"]
    assert (await world.call("PATCH", f"/jobs/{job}", json={"tags": []})).json()["tags"] is None


async def test_an_edit_is_refused_with_a_code(world: World) -> None:
    job = await enqueue(world)
    for body in ({}, {"priority": "1"}, {"priority": 2_000_000}, {"status": "failed"}, {"tags": ["a,b"]}):
        assert refused(await world.call("PATCH", f"/jobs/{job}", json=body))[0] == 422, body

    assert refused(await world.call("PATCH", f"/jobs/{job}", tenant=OTHER, json={"priority": 1})) == (
        404,
        "job_unknown",
    )
    await world.call("POST", f"/jobs/{job}/cancel")
    assert refused(await world.call("PATCH", f"/jobs/{job}", json={"priority": 1})) == (
        409,
        "job_not_editable",
    )
