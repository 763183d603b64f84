"""What is sent as JSON is taken as it is, or refused with the place and what to send."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests import given
from tests.server.world import World
from tests.tables import each_case

INTEGER = "must be a valid integer"
TIME = "must be a time with its zone, such as 2026-01-31T08:00:00Z"


@each_case("value", [True, "7", 7.0, 7.5, [7], {}])
@each_case("field", ["priority", "max_attempts"])
async def test_a_number_is_a_number(shared_world: World, field: str, value: Any) -> None:
    answer = await shared_world.call("POST", "/jobs", json={"definition_key": "anything", field: value})

    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"] == [{"path": field, "message": INTEGER}]


@each_case("value", [1_900_000_000, 1.9e9, "1900000000", True])
async def test_a_time_is_text_with_a_zone(shared_world: World, value: Any) -> None:
    answer = await shared_world.call(
        "POST", "/jobs", json={"definition_key": "anything", "scheduled_for": value}
    )

    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"] == [{"path": "scheduled_for", "message": TIME}]


async def test_times_ids_and_enumerations_come_as_text(shared_world: World) -> None:
    body = {"definition_key": "anything", "scheduled_for": "2026-01-31T08:00:00+01:00", "priority": 7}
    job = await shared_world.call("POST", "/jobs", json=body)
    soon = (datetime.now(UTC) + timedelta(days=30)).isoformat()
    token = await shared_world.call(
        "POST", "/tokens", who="tenant_admin", json={"name": "t", "role": "viewer", "expires_at": soon}
    )

    assert (job.status_code, job.json()["scheduled_for"]) == (201, "2026-01-31T07:00:00Z")
    assert (token.status_code, token.json()["role"]) == (201, "viewer")


# Every route with a body: a number, a truth, a time or an id, of another type than its own.
WRONG: list[tuple[str, str, dict[str, Any], str]] = [
    ("POST", "/jobs/bulk", {"jobs": [{"definition_key": "anything", "priority": "7"}]}, "jobs.0.priority"),
    ("POST", "/jobs/cancel", {"filter": {}, "limit": "7"}, "limit"),
    ("POST", "/jobs/retry", {"filter": {"created_after": 1}}, "filter.created_after"),
    ("POST", "/jobs/cancel", {"filter": {}, "dry_run": "yes"}, "dry_run"),
    ("POST", "/jobs/tick", {"limit": "1"}, "limit"),
    ("POST", "/events", {"name": "a.b", "occurred_at": 1}, "occurred_at"),
    ("POST", "/jobs/triggers", {"every_seconds": "60"}, "every_seconds"),
    ("POST", "/jobs/triggers", {"is_enabled": 1}, "is_enabled"),
    ("POST", "/jobs/triggers/preview", {"count": "5"}, "count"),
    (
        "POST",
        "/workflows",
        {"key": "w", "steps": [{"name": "a", "definition": "b", "priority": "1"}]},
        "steps.0.priority",
    ),
    ("POST", "/workflows/w/runs", {"version": "1"}, "version"),
    ("POST", "/hosts", {"name": "h", "max_running": "1"}, "max_running"),
    ("POST", "/tokens", {"name": "t", "role": "viewer", "expires_at": 1}, "expires_at"),
    ("POST", "/admin/jobs/definitions", {"key": "d", "timeout_seconds": "1"}, "timeout_seconds"),
    ("POST", "/admin/jobs/definitions", {"key": "d", "backoff": {"jitter": "1"}}, "backoff.jitter"),
    ("POST", "/admin/tenants", {"slug": "t", "weight": "1"}, "weight"),
    ("PUT", "/admin/system", {"online": 1}, "online"),
    ("POST", "/worker/jobs/claim", {"definitions": None, "limit": "1"}, "limit"),
    ("POST", "/worker/jobs/claim", {"definitions": None, "wait": "1"}, "wait"),
]


@each_case(("method", "path", "body", "wrong"), WRONG)
async def test_no_route_turns_one_type_into_another(
    shared_world: World, method: str, path: str, body: dict[str, Any], wrong: str
) -> None:
    headers = {"X-Tenant": given.TENANT}
    answer = await shared_world.call(method, path, who="super_admin", json=body, headers=headers)

    assert answer.status_code == 422, answer.text
    assert wrong in [one["path"] for one in answer.json()["errors"]], answer.text


@each_case(
    ("body", "path", "message"),
    [
        ([1], "", "must be a JSON object"),
        ({"definition_key": "anything", "payload": [1]}, "payload", "must be a JSON object"),
        ({"definition_key": "anything", "tags": "a"}, "tags", "must be a list"),
        ({"definition_key": 7}, "definition_key", "must be a string"),
        ({}, "definition_key", "is required"),
    ],
)
async def test_a_wrong_type_is_named_in_the_words_of_json(
    shared_world: World, body: Any, path: str, message: str
) -> None:
    answer = await shared_world.call("POST", "/jobs", json=body)

    assert answer.json()["errors"] == [{"path": path, "message": message}]
    assert f"{path or 'body'}: {message}." in answer.json()["detail"]


async def test_parameters_of_an_address_are_text(shared_world: World) -> None:
    assert await shared_world.status("GET", "/jobs?limit=7&created_after=2026-01-31T08:00:00Z") == 200


@pytest.mark.parametrize(
    ("kind", "said"),
    [(None, ""), ("application/x-www-form-urlencoded", ", not 'application/x-www-form-urlencoded'")],
)
async def test_a_body_without_the_content_type_of_json_is_told_what_to_send(
    shared_world: World, kind: str | None, said: str
) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    answer = await shared_world.call(
        "POST", "/jobs", content=b'{"definition_key": "anything"}', headers=headers
    )

    assert (answer.status_code, answer.json()["code"]) == (415, "content_type_unsupported")
    assert answer.json()["detail"] == f"Send JSON with the header Content-Type: application/json{said}."


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"payload": {}}x', "line 1, column 16: Extra data"),
        ('{\n  "payload": {,}\n}', "line 2, column 15: Expecting property name enclosed in double quotes"),
    ],
)
async def test_a_body_that_is_no_json_is_told_where(shared_world: World, text: str, where: str) -> None:
    answer = await shared_world.call(
        "POST", "/jobs", content=text.encode(), headers={"Content-Type": "application/json; charset=utf-8"}
    )

    assert (answer.status_code, answer.json()["code"]) == (422, "body_not_json")
    assert answer.json()["detail"] == f"The body is not JSON: {where}."
    assert answer.json()["errors"] == [{"path": "body", "message": where}]


async def test_a_body_that_is_no_utf8_is_told_so(shared_world: World) -> None:
    answer = await shared_world.call(
        "POST", "/jobs", content=b'{"a": "\xff"}', headers={"Content-Type": "application/json"}
    )

    assert (answer.status_code, answer.json()["code"]) == (422, "body_not_json")
    assert "UTF-8" in answer.json()["detail"]
