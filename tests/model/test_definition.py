from typing import Any

import pytest

from fairlead.actions.definitions import parse
from fairlead.errors import DefinitionInvalid, PayloadInvalid
from fairlead.model.definition import DefinitionSpec, check_payload, compile_schema
from tests.tables import each_case

SEED = {
    "type": "object",
    "properties": {"provider_id": {"type": "string", "format": "uuid"}, "path_prefix": {"type": "string"}},
    "required": ["provider_id"],
    "additionalProperties": False,
}


def test_a_payload_that_fits_passes() -> None:
    check_payload(compile_schema(SEED), "sync", {"provider_id": "6f46a1d8-6e2b-4ecf-8b46-9ec2e6a37f09"})


@each_case(
    ("payload", "paths"),
    [
        ({}, {""}),
        ({"provider_id": "not-a-uuid"}, {"/provider_id"}),
        ({"provider_id": 3, "path_prefix": 4}, {"/provider_id", "/path_prefix"}),
        ({"provider_id": "6f46a1d8-6e2b-4ecf-8b46-9ec2e6a37f09", "extra": 1}, {""}),
        ([], {""}),
        ("text", {""}),
        (None, {""}),
    ],
)
def test_a_payload_that_does_not_fit_is_refused_with_every_place(payload: Any, paths: set[str]) -> None:
    with pytest.raises(PayloadInvalid) as refused:
        check_payload(compile_schema(SEED), "sync", payload)
    assert {fault.path for fault in refused.value.faults} == paths


@each_case(
    "rule",
    [
        {"type": "integer"},
        {"enum": ["a", "b"]},
        {"const": "a"},
        {"pattern": "^a$"},
        {"maxLength": 3},
        {"format": "email"},
        {"not": {"type": "string"}},
        {"anyOf": [{"type": "integer"}, {"enum": ["a"]}]},
        {"oneOf": [{"type": "integer"}, {"const": "a"}]},
    ],
)
def test_a_refusal_never_repeats_a_value(rule: dict[str, Any]) -> None:
    with pytest.raises(PayloadInvalid) as refused:
        check_payload(compile_schema({"properties": {"password": rule}}), "k", {"password": "hunter2"})
    error = refused.value
    assert {fault.path for fault in error.faults} == {"/password"}
    assert "hunter2" not in f"{error.as_dict()} {error.__cause__!r} {error.__context__!r}"


@each_case(
    "schema",
    [
        {"$ref": "http://example.com/schema.json"},
        {"$ref": "https://json-schema.org/not-there"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "other.json"},
        {"type": "strin"},
        {"pattern": "(?=look)ahead"},
        {"pattern": "("},
        {"required": "name"},
        {"properties": {"a": 3}},
        {"description": "nul \x00"},
        "object",
        None,
        ["list"],
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: Any) -> None:
    with pytest.raises(DefinitionInvalid) as refused:
        compile_schema(schema)
    assert refused.value.faults[0].path == "arg_schema"


def test_patterns_match_in_linear_time() -> None:
    """A backtracking engine would take longer than the universe has had; this test's time limit is shorter."""
    compiled = compile_schema({"properties": {"a": {"pattern": "^(a+)+$"}}})
    with pytest.raises(PayloadInvalid):
        check_payload(compiled, "k", {"a": "a" * 50_000 + "!"})


@each_case(
    "values",
    [
        {"key": "1starts-with-digit"},
        {"key": "with space"},
        {"key": ""},
        {"key": "k", "timeout_seconds": 0},
        {"key": "k", "max_attempts": 0},
        {"key": "k", "max_attempts": "3"},
        {"key": "k", "max_running": 0},
        {"key": "k", "retention_days": -1},
        {"key": "k", "kind": "shell"},
        {"key": "k", "resource_pointer": "no-slash"},
        {"key": "k", "backoff": {"base_seconds": -1}},
        {"key": "k", "backoff": {"jitter": 2}},
        {"key": "k", "surprise": 1},
        {"description": "no key"},
        {"key": "k", "kind": "delivered", "engine": "sqs", "requires": {"gpu": "true"}},
        {"key": "k", "kind": "bullmq", "engine": "redis", "prefers": {"gpu": "true"}},
    ],
)
def test_a_definition_that_makes_no_sense_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(DefinitionInvalid):
        parse(values)


def test_defaults_are_those_of_the_design() -> None:
    spec = DefinitionSpec(key="k")
    assert (spec.timeout_seconds, spec.max_attempts, spec.default_priority) == (3600, 3, 100)
    assert (spec.backoff.base_seconds, spec.backoff.factor, spec.backoff.cap_seconds) == (10, 2, 3600)
    assert spec.audit_action == "JOB_SUCCEEDED"
