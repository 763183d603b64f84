"""The hostile tenant as a tool: its requests, its victims, and what it reports."""

import asyncio
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead import Fairlead
from fairlead.chaos.hostile.attacker import SentRecord
from fairlead.chaos.hostile.report import HostileResult, find_excesses, find_recovery, find_suspects, render
from fairlead.chaos.hostile.requests import (
    LEFT_OUT,
    METHODS,
    MOST_BODY_BYTES,
    RequestMaker,
    encode_body,
    list_operations,
)
from fairlead.chaos.hostile.run import HostileOptions, run_hostile
from fairlead.chaos.hostile.victims import Answered
from fairlead.chaos.spread import measure_spread
from fairlead.server.app import create_app

FOREIGN = "01a1f000-0000-7000-8000-000000000001"


@pytest.fixture(scope="module")
def document() -> Any:
    return create_app(Fairlead()).openapi()


@pytest.mark.thorough
def test_requests_are_made_of_every_route_and_are_the_same_for_a_seed(document: Any) -> None:
    operations = list_operations(document)
    routes = {
        (method, path) for path, item in document["paths"].items() for method in METHODS if method in item
    }
    left_out = routes - {(operation.method, operation.path) for operation in operations}
    assert all(any(part in path for part in LEFT_OUT) for _, path in left_out)

    def make(seed: int) -> list[Any]:
        maker = RequestMaker(document, random.Random(seed), [FOREIGN])  # noqa: S311
        return [maker.fill(operation) for operation in operations for _ in range(3)]

    requests = make(7)
    assert requests == make(7) != make(8)
    assert {request.method for request in requests} == {method.upper() for method in METHODS}
    assert all(len(request.body or b"") <= MOST_BODY_BYTES for request in requests)
    assert any(FOREIGN in request.path for request in requests)
    assert any(len(request.body or b"") > 100_000 for request in requests)


def test_ids_of_responses_are_used_in_later_requests(document: Any) -> None:
    maker = RequestMaker(document, random.Random(1), [])  # noqa: S311
    maker.learn("/api/v1/jobs", msgspec.json.encode({"items": [{"id": "the-id"}]}))
    paths = {maker.make().path for _ in range(3000)}
    assert any(path.startswith("/api/v1/jobs/the-id") for path in paths)


def test_values_are_written_however_deep_they_are() -> None:
    value: Any = {"a": [1, "x", None], "b": {}}
    for _ in range(5000):
        value = [value, {"c": 2}]
    text = encode_body(value)
    assert text.startswith(b"[[[")
    assert text.endswith(b',{"c":2}]')
    assert b'{"a":[1,"x",null],"b":{}}' in text


def result(**changes: Any) -> HostileResult:
    calm = measure_spread([0.01] * 100)
    fine = HostileResult(
        seed=1,
        seconds=60.0,
        alone=calm,
        beside=calm,
        routes={"GET /jobs": calm},
        waits_of_jobs=calm,
        waits_of_events=calm,
        refused={},
        restarts={},
        memory={"server": 1 << 20},
        recovered_after=0.0,
        sent=10,
        answers={200: 10},
        attacks={"guess_tokens": 1},
        suspects={},
        longest_step=0.01,
    )
    return msgspec.structs.replace(fine, **changes)


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        ({"beside": measure_spread([0.01] * 98 + [0.3] * 2)}, "p99 of victims: 0.300 s, more than 0.250 s"),
        ({"waits_of_jobs": measure_spread([0.1, 2.5])}, "a victim's jobs waited 2.50 s"),
        ({"waits_of_events": measure_spread([0.1, 2.5])}, "a victim's events waited 2.50 s"),
        ({"refused": {"GET /jobs: 503": 2}}, "victims got GET /jobs: 503, 2 times"),
        ({"restarts": {"server-0": 1}}, "server-0 ended, 1 times"),
        ({"memory": {"server": 600 << 20}}, "server had 600 MB"),
        ({"recovered_after": 6.0}, "all was well 6.0 s after the attack"),
    ],
)
def test_what_exceeds_the_bounds_is_a_finding(changes: dict[str, Any], finding: str) -> None:
    assert find_excesses(result()) == []
    [excess] = find_excesses(result(**changes))
    assert finding in excess
    assert f"FINDING: {excess}" in render(result(**changes, findings=[excess]))


def test_recovery_and_suspects_are_found_in_the_records() -> None:
    slow, quick = Answered(10.0, 4.0, "GET /jobs", 200), Answered(11.0, 0.1, "GET /jobs", 200)
    assert find_recovery([slow, quick], ended_at=12.0, bound=0.25) == 2.0
    assert find_recovery([quick], ended_at=12.0, bound=0.25) == 0.0
    afterwards = Answered(13.0, 0.1, "GET /jobs", 200)
    assert find_recovery([slow, *[afterwards] * 98], ended_at=12.0, bound=0.25) == 2.0
    assert find_recovery([slow, *[afterwards] * 99], ended_at=12.0, bound=0.25) == 0.0
    sent = [SentRecord(9.0, 11.0, "POST /jobs/bulk?x=1", 201), SentRecord(15.0, 16.0, "GET /later", 200)]
    assert find_suspects([slow], sent) == {"POST /jobs/bulk": 1}


@pytest.mark.thorough
async def test_a_run_attacks_and_measures(tmp_path: Path) -> None:
    """Not how long victims wait: other tests run beside it."""
    options = HostileOptions(folder=tmp_path, seed=3, seconds=6.0, alone_seconds=2.0)
    told = list[str]()
    shown = await run_hostile(options, told.append, asyncio.Event())

    assert shown.sent > 20
    assert shown.alone.number > 10
    assert shown.beside.number > 10
    assert shown.waits_of_jobs.number > 0
    assert shown.restarts == {}
    assert shown.memory["server"] > 10 << 20
    assert not [finding for finding in shown.findings if ": 5" in finding], "no victim gets an error"
