"""More than two hundred malformed enqueues: each gets its stable code and leaves no row."""

import string
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from fairlead import Fairlead, FairleadError
from tests import given

UUID_TEXT = "6f46a1d8-6e2b-4ecf-8b46-9ec2e6a37f09"
FINE = {"definition": "greet", "tenant": "acme", "payload": {"name": "Ada"}}
NOT_TEXT: list[Any] = [None, 3, 1.5, True, b"bytes", [], {}, ["acme"], {"a": 1}, object()]
NOT_INTEGER: list[Any] = ["1", 1.5, True, False, [], {}, "", b"1", float("nan"), object()]
BAD_TEXT = ["", "\x00", "a\x00b", "\ud800", "x\udfff"]
NAMES = [
    "",
    " ",
    "a b",
    "a/b",
    "../x",
    "-x",
    "x" * 200,
    "é",
    "a'b",
    'a"b',
    "a;b",
    "a\nb",
    "%s",
    "{}",
    "\x00",
    "\ud800",
]


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


def cases() -> list[tuple[str, Any]]:
    """(the code it must get, the request)."""

    def with_field(code: str, name: str, values: list[Any]) -> list[tuple[str, Any]]:
        return [(code, {**FINE, name: value}) for value in values]

    def with_payload(code: str, payloads: list[Any]) -> list[tuple[str, Any]]:
        return [(code, {**FINE, "definition": "anything", "payload": payload}) for payload in payloads]

    return [
        # the request itself
        *[("invalid_input", value) for value in (None, 1, "text", [], [FINE], b"{}", 1.5, True, object())],
        *[("invalid_input", {key: FINE[key] for key in FINE if key != gone}) for gone in ("definition", "tenant")],
        *[("invalid_input", {**FINE, name: 1}) for name in ("surprise", "Payload", "status", "output", "", "__class__")],
        *[("invalid_input", {**FINE, name: 1}) for name in (1, None, ("a",))],
        # names
        *with_field("invalid_input", "tenant", NOT_TEXT),
        *with_field("invalid_input", "definition", NOT_TEXT),
        *with_field("invalid_input", "tenant", BAD_TEXT),
        *with_field("invalid_input", "definition", BAD_TEXT),
        *with_field("tenant_unknown", "tenant", [name for name in NAMES if name not in ("", "\x00", "\ud800")]),
        *with_field("tenant_unknown", "tenant", ["nowhere", "ACME", "acme ", UUID_TEXT, UUID_TEXT.upper(), UUID_TEXT[:-1]]),
        *with_field("definition_unknown", "definition", [n for n in NAMES if n not in ("", "\x00", "\ud800")]),
        *with_field("definition_unknown", "definition", ["nobody", "GREET", "greet ", "1greet", UUID_TEXT]),
        ("definition_inactive", {**FINE, "definition": "retired"}),
        # numbers
        *with_field("invalid_input", "priority", [*NOT_INTEGER, 10**6 + 1, -(10**6) - 1, 2**31, 2**63, 10**400]),
        *with_field("invalid_input", "max_attempts", [*NOT_INTEGER, 0, -1, 1001, 2**31, 10**400]),
        # times
        *with_field(
            "invalid_input",
            "scheduled_for",
            [
                "tomorrow", "", "2026-02-30T00:00:00Z", "2026-02-16", "2026-02-16T10:30:00", "infinity", "now",
                "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "3000-01-01T00:00:00Z",
                1760000000, 1.5, True, [], {}, datetime(2026, 1, 1), datetime.max, datetime.min,
                datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
            ],
        ),
        # keys and references
        *with_field("invalid_input", "dedupe_key", [*[v for v in NOT_TEXT if v is not None], *BAD_TEXT, "k" * 1_048_577]),
        *with_field("invalid_input", "correlation_id", [*[v for v in NOT_TEXT if v is not None], *BAD_TEXT, "c" * 256]),
        *with_field("invalid_input", "source_ref", [*[v for v in NOT_TEXT if v is not None], *BAD_TEXT, "r" * 1001]),
        *with_field("invalid_input", "source", ["person", "", 1, [], "MANUAL", "manual "]),
        *with_field("invalid_input", "parent_id", ["x", 1, UUID_TEXT[:-1], [], b"x" * 16]),
        *with_field("invalid_input", "id", ["x", 1, UUID_TEXT + "0", [], b"x" * 16]),
        # payloads that are not JSON
        *with_payload("payload_not_json", [
            {"a": float("nan")}, {"a": float("inf")}, {"a": -float("inf")}, {"a": [float("nan")]},
            {"a": "\x00"}, {"a\x00": 1}, {"a": {"b": ["\x00"]}}, {"\ud800": 1}, {"a": "\udfff"},
            {1: 1}, {None: 1}, {("a",): 1}, {True: 1}, {b"a": 1}, {"a": b"x"}, {"a": {1}}, {"a": object()},
            {"a": 1j}, {"a": 2**1025}, {"a": -(2**1025)}, {"a": print}, {"a": range(3)}, {"a": frozenset()}, {"a": int},
        ]),
        *with_payload("payload_too_deep", [nested(65), nested(500), {"a": [[[nested(70)]]]}]),
        *with_payload("payload_too_large", [{"a": "x" * 262_144}, {"a": ["x" * 1000] * 270}, {"x" * 262_144: 1}]),
        # payloads that do not fit
        ("invalid_input", {**FINE, "payload": None}),
        *with_field("payload_invalid", "payload", [
            [], "text", 1, True, {}, {"name": 1}, {"name": None}, {"name": ["Ada"]}, {"name": "Ada", "n": "1"},
            {"name": "Ada", "n": 1.5}, {"name": "Ada", "extra": 1}, {"Name": "Ada"}, {"name": "x" * 201}, {"n": 1},
        ]),
        *[("payload_invalid", {**FINE, "payload": {"name": "Ada", letter: 1}}) for letter in string.ascii_lowercase[:13]],
    ]  # fmt: skip


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
async def test_each_malformed_enqueue_gets_its_code_and_leaves_no_row(fl: Fairlead, *, many: bool) -> None:
    hostile = cases()
    assert len(hostile) >= 200
    wrong = []
    for number, (code, request) in enumerate(hostile):
        try:
            await fl.enqueue_many([FINE, request] if many else [request])
        except FairleadError as error:
            if error.code != code or not error.message:
                wrong.append((number, request, f"got {error.code}: {error.message}, not {code}"))
        else:
            wrong.append((number, request, "was accepted"))
    assert wrong == []
    async with fl.transaction() as tx:
        for table in ("jobs", "ready", "later", "active_keys", "counts"):
            assert await given.count(tx, table) == 0, table


async def test_a_single_enqueue_refuses_them_as_well(fl: Fairlead) -> None:
    wrong = []
    for number, (code, request) in enumerate(cases()):
        if not isinstance(request, dict) or not set(request) <= {
            *FINE,
            "priority",
            "max_attempts",
            "dedupe_key",
        }:
            continue
        options = {name: value for name, value in request.items() if name != "definition"}
        try:
            await fl.enqueue(request.get("definition"), **{"tenant": None, **options})  # type: ignore[arg-type]
        except FairleadError as error:
            # None for a payload means none was given: with this definition that does not fit
            if error.code != code and not (
                options.get("payload", 1) is None and error.code == "payload_invalid"
            ):
                wrong.append((number, request, f"got {error.code}, not {code}"))
        else:
            wrong.append((number, request, "was accepted"))
    assert wrong == []
    assert await given.count(fl, "jobs") == 0
