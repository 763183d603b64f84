"""Every error is a problem that says what was wrong, and nothing more; no input breaks the server."""

import json
from typing import Any

import pytest
from fastapi import APIRouter, Depends
from structlog.testing import capture_logs

from fairlead import errors
from fairlead.errors import Fault, InvalidInput, Refused
from fairlead.server.auth import GuardedRoute, PublicAccess
from fairlead.server.problems import LONGEST_TEXT, MEDIA_TYPE, MOST_FAULTS, problem_response
from tests.server.world import BASE, World
from tests.tables import each_case

CANARY = "canary-in-an-error"


def every_error() -> list[type[errors.FairleadError]]:
    found, queue = [], [errors.FairleadError]
    while queue:
        kind = queue.pop()
        found.append(kind)
        queue += kind.__subclasses__()
    return [kind for kind in found if kind.__module__ == "fairlead.errors"]


@each_case("kind", every_error())
def test_every_error_is_a_problem_with_its_code(kind: type[errors.FairleadError]) -> None:
    answer = problem_response(kind("What to do.", [Fault("a.b", "wrong")]))
    body = json.loads(bytes(answer.body))
    assert answer.media_type == MEDIA_TYPE
    assert body["code"] == kind.code
    assert body["status"] == answer.status_code
    assert body["errors"] == [{"path": "a.b", "message": "wrong"}]
    assert (answer.status_code < 500) or not issubclass(kind, Refused)


# What is not there is said in the body, or in code: the address itself is right.
IN_THE_BODY = (
    errors.DefinitionUnknown,
    errors.TimezoneUnknown,
    errors.RegistrationUnknown,
    errors.StepUnknown,
)


def test_unknown_things_are_not_found() -> None:
    for kind in every_error():
        if kind.__name__.endswith("Unknown") and kind not in IN_THE_BODY:
            assert kind.http_status == 404, kind
        if kind.__name__.endswith(("Exists", "Clash", "Taken")) and issubclass(kind, Refused):
            assert kind.http_status == 409, kind


def test_an_answer_can_hold_what_was_sent_whatever_it_was() -> None:
    answer = problem_response(InvalidInput("\ud800" * 5000, [Fault("\udfff" * 5000, "x")] * 5000))
    body = json.loads(bytes(answer.body))
    assert len(body["detail"]) <= LONGEST_TEXT + 1
    assert len(body["errors"]) == MOST_FAULTS
    assert len(answer.body) < MOST_FAULTS * (LONGEST_TEXT + 100) * 2


@each_case(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'"x"',
        b"NaN",
        b"\xff\xfe",
        b"\x00",
        b'{"definition_key": "\\ud800"}',
        b'{"definition_key": "\\u0000"}',
        b'{"\\ud800": 1, "definition_key": "greet"}',
        b'{"definition_key": "greet", "payload": {"name": "\\ud800"}}',
        b'{"definition_key": "greet", "payload": {"name": "\\u0000"}}',
        b'{"definition_key": "greet", "payload": {"\\u0000": 1}}',
        b'{"definition_key": "anything", "payload": {"n": NaN}}',
        b'{"definition_key": "anything", "payload": {"n": Infinity}}',
        b'{"definition_key": "anything", "payload": {"n": 1e999}}',
        b'{"definition_key": "anything", "payload": {"n": ' + b"9" * 5000 + b"}}",
        b'{"definition_key": "anything", "priority": 99999999999999999999}',
        b'{"definition_key": "anything", "max_attempts": 1e400}',
        b'{"definition_key": "anything", "scheduled_for": "99999-01-01"}',
        b'{"definition_key": "anything", "scheduled_for": 1e300}',
        b'{"definition_key": "anything", "payload": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
        b"[" * 100_000,
        b'{"definition_key": "anything", "payload": {"a": ' + b"[" * 900 + b"]" * 900 + b"}}",
        b"{" + b",".join(b'"f%d": 0' % n for n in range(20_000)) + b"}",
    ],
)
async def test_no_body_breaks_the_server(shared_world: World, content: bytes) -> None:
    answer = await shared_world.call(
        "POST", "/jobs", content=content, headers={"Content-Type": "application/json"}
    )
    assert 400 <= answer.status_code < 500, answer.text[:300]
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert len(answer.content) < 100_000


@each_case(
    "kind", ["text/plain", "application/xml", "multipart/form-data", "application/json; charset=utf-16", ""]
)
async def test_a_body_of_another_kind_is_refused(shared_world: World, kind: str) -> None:
    content = b'{"definition_key": "greet", "payload": {"name": "Ada"}}'
    answer = await shared_world.call("POST", "/jobs", content=content, headers={"Content-Type": kind})
    assert answer.status_code == (201 if "json" in kind else 415)


@each_case(
    "path",
    [
        "/jobs/%00",
        "/jobs/not-an-id",
        "/jobs/" + "9" * 5000,
        "/jobs?definition_key=%00",
        "/jobs?dedupe_key=%00",
        "/jobs?correlation_id=%ff%fe",
        "/jobs?cursor=%00",
        "/jobs?limit=99999999999999999999999999",
        "/jobs?limit=-1",
        "/jobs?offset=1e3",
        "/jobs?status=nothing",
        "/jobs?created_after=nonsense",
        "/jobs?nonsense=1",
        "/jobs?" + "x" * 5000 + "=1",
    ],
)
async def test_no_address_breaks_the_server(shared_world: World, path: str) -> None:
    answer = await shared_world.call("GET", path)
    assert answer.status_code in (200, 404, 422), answer.text[:300]
    assert len(answer.content) < 5000
    if answer.status_code != 200:
        assert answer.headers["content-type"] == MEDIA_TYPE


@each_case("method", ["HEAD", "OPTIONS", "TRACE", "PUT", "CONNECT", "BREW"])
async def test_other_methods_are_refused(shared_world: World, method: str) -> None:
    for who in (None, "super_admin"):
        answer = await shared_world.call(method, "/jobs", who=who)
        assert answer.status_code == 405
        assert "access-control-allow-origin" not in answer.headers


@each_case("path", ["/jobs/", "//jobs", "/jobs//", "/JOBS", "/jobs;x"])
async def test_an_address_is_spelt_in_one_way(shared_world: World, path: str) -> None:
    answer = await shared_world.call("GET", path, headers={"Host": "evil.test"})
    assert answer.status_code in (404, 422)
    assert "location" not in answer.headers


async def test_unknown_parameters_are_named(shared_world: World) -> None:
    answer = await shared_world.call("GET", "/jobs?staus=failed")
    assert answer.status_code == 422
    assert answer.json()["errors"] == [{"path": "staus", "message": "unknown parameter"}]


async def test_a_wrong_value_of_a_parameter_is_named_by_the_parameter(shared_world: World) -> None:
    answer = await shared_world.call("GET", "/jobs?status=failed&status=happy")
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("The request is not valid: status: must be 'queued', ")
    assert [fault["path"] for fault in answer.json()["errors"]] == ["status"]


async def test_what_breaks_is_logged_by_kind_and_answered_without_a_word_about_it(world: World) -> None:
    router = APIRouter(route_class=GuardedRoute, dependencies=[Depends(PublicAccess())])

    @router.get("/broken")
    async def broken(n: int) -> Any:
        secret = CANARY
        try:
            dict[str, str]()[secret]
        except KeyError as cause:
            raise RuntimeError(f"with {secret}") from cause

    world.app.include_router(router)
    with capture_logs() as lines:
        answer = await world.call("GET", f"{BASE}/broken?n=1", who=None)
    assert answer.status_code == 500
    assert answer.json()["code"] == "internal_error"
    assert CANARY not in answer.text + repr(lines)
    [line] = [line for line in lines if line["event"] == "request_broken"]
    assert line["why"] == "RuntimeError"
    assert any("test_problems.py" in frame for frame in line["where"])
    assert "after KeyError" in line["where"]


async def test_a_database_that_is_gone_is_said_without_its_password(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg  # noqa: PLC0415

    monkeypatch.setattr(
        world.fl.database, "url", f"postgresql://somebody:{CANARY}@db.example:5432/prod?sslpassword={CANARY}"
    )

    def gone(*_: object, **__: object) -> Any:
        raise psycopg.OperationalError(f"connection to db.example failed\nDETAIL: {CANARY}")

    monkeypatch.setattr(world.fl.database, "transaction", gone)
    with capture_logs() as lines:
        answer = await world.call("GET", "/jobs", who="viewer")
        ready = await world.call("GET", f"{BASE}/readyz", who=None)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["code"] == "database_unreachable"
    assert CANARY not in answer.text + ready.text + repr(lines)
