"""Forms out of JSON Schemas: what they ask for, and what comes of it."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import Fault
from fairlead.server.console.schema_form import (
    FieldKind,
    assign_faults,
    can_show,
    defaults_of,
    fields_of,
    payload_of,
    values_of,
)
from tests.tables import each_case
from tests.thorough import examples

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["to", "note"],
    "properties": {
        "to": {"type": "string", "title": "Recipient", "description": "Whom it is for.", "maxLength": 100},
        "body": {"type": "string", "maxLength": 5000},
        "copies": {"type": "integer", "default": 1},
        "ratio": {"type": ["number", "null"]},
        "urgent": {"type": "boolean"},
        "size": {"enum": ["a4", "letter", 3]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "pages": {"type": "array", "items": {"type": "integer"}},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "token": {"type": "string", "x-secret": True, "default": "hunter2"},
        "smtp": {"$ref": "#/$defs/Smtp"},
        "parts": {"type": "array", "items": {"type": "object"}},
    },
    "$defs": {
        "Smtp": {
            "type": "object",
            "required": ["host"],
            "properties": {
                "host": {"type": "string"},
                "auth": {
                    "type": "object",
                    "properties": {
                        "user": {"type": "string"},
                        "deep": {"type": "object", "properties": {"x": {"type": "string"}}},
                    },
                },
            },
        }
    },
}
FIELDS = fields_of(SCHEMA)
BY_NAME = {field.path[-1]: field for field in FIELDS}


@each_case(
    ("name", "kind"),
    [
        ("to", "text"),
        ("body", "long"),
        ("copies", "integer"),
        ("ratio", "number"),
        ("urgent", "choice"),
        ("size", "choice"),
        ("tags", "lines"),
        ("pages", "lines"),
        ("note", "text"),
        ("smtp", "group"),
        ("parts", "json"),
    ],
)
def test_each_type_has_its_kind_of_field(name: str, kind: str) -> None:
    assert BY_NAME[name].kind == kind


def test_a_field_says_what_the_schema_says_of_it() -> None:
    field = BY_NAME["to"]
    assert (field.title, field.description, field.required) == ("Recipient", "Whom it is for.", True)
    assert BY_NAME["copies"].title == "copies"
    assert BY_NAME["token"].secret


def test_objects_below_the_second_level_are_json() -> None:
    auth = BY_NAME["smtp"].fields[1]
    assert auth.kind is FieldKind.GROUP
    assert [one.kind for one in auth.fields] == [FieldKind.TEXT, FieldKind.JSON]


@each_case("schema", [True, {}, {"type": "object"}, {"$ref": "https://elsewhere/x"}, {"$ref": "#"}])
def test_a_schema_that_names_nothing_has_no_fields(schema: Any) -> None:
    assert fields_of(schema) == ()


@each_case(
    "schema",
    [
        {"properties": {"a": {"$ref": "#/properties/a"}}},
        {"properties": {"b": {"enum": [[1]]}, "c": True, "d": {"type": ["string", "integer"]}}},
        {"properties": {"a": {"items": False, "type": "array"}}},
    ],
)
def test_strange_schemas_are_asked_for_as_json(schema: Any) -> None:
    assert {field.kind for field in fields_of(schema)} == {FieldKind.JSON}


def test_a_form_makes_a_payload_of_the_right_types() -> None:
    given = {
        "payload/to": "ada@example.com",
        "payload/body": "one\r\ntwo",
        "payload/copies": " 3",
        "payload/ratio": "0.5",
        "payload/urgent": "false",
        "payload/size": "3",
        "payload/tags": "x\r\n\r\ny",
        "payload/pages": "1\n2",
        "payload/note": "",
        "payload/smtp/host": "mail",
        "payload/smtp/auth/user": "",
        "json/parts": '[{"a": 1}]',
    }

    assert payload_of(FIELDS, given) == (
        {
            "to": "ada@example.com",
            "body": "one\ntwo",
            "copies": 3,
            "ratio": 0.5,
            "urgent": False,
            "size": 3,
            "tags": ["x", "y"],
            "pages": [1, 2],
            "note": None,
            "smtp": {"host": "mail"},
            "parts": [{"a": 1}],
        },
        [],
    )


def test_what_is_empty_is_left_out_and_what_is_wrong_stays_for_the_schema() -> None:
    assert payload_of(FIELDS, {"payload/copies": "three", "payload/to": ""})[0] == {
        "copies": "three",
        "note": None,
    }


def test_text_that_is_not_json_is_a_fault_at_its_place() -> None:
    payload, faults = payload_of(FIELDS, {"json/parts": "[1,"})

    assert "parts" not in payload
    assert [(fault.path, fault.message[:16]) for fault in faults] == [("/parts", "This is not JSON")]


def test_a_new_form_has_the_defaults_but_no_secrets() -> None:
    assert defaults_of(FIELDS) == {"payload/copies": "1"}


@pytest.mark.deeper
@settings(max_examples=examples(100))
@given(
    st.fixed_dictionaries(
        {"to": st.text(), "note": st.none() | st.text()},
        optional={
            "body": st.text() | st.integers(),
            "copies": st.integers() | st.floats(allow_nan=False) | st.text() | st.booleans(),
            "ratio": st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
            "urgent": st.booleans() | st.sampled_from(["true", 1, 0]),
            "size": st.sampled_from(["a4", "letter", 3, 3.0, True, None]),
            "tags": st.lists(st.text()) | st.text(),
            "pages": st.lists(st.integers() | st.text() | st.booleans()),
            "smtp": st.dictionaries(st.sampled_from(["host", "auth", "other"]), st.text() | st.none()),
            "parts": st.lists(st.dictionaries(st.text(), st.integers())),
        },
    )
)
def test_every_payload_survives_its_form(payload: dict[str, Any]) -> None:
    assert can_show(FIELDS, payload)
    sent = {name: text.replace("\n", "\r\n") for name, text in values_of(FIELDS, payload).items()}

    made, faults = payload_of(FIELDS, sent)

    assert faults == []
    # as JSON: 1, 1.0 and true are three things there
    assert json.dumps(made, sort_keys=True) == json.dumps(payload, sort_keys=True)


def test_a_payload_with_other_names_does_not_fit() -> None:
    assert not can_show(FIELDS, {"to": "x", "more": 1})


def test_faults_are_placed_at_their_fields() -> None:
    at, others = assign_faults(
        FIELDS,
        [
            Fault("", '"to" is a required property'),
            Fault("/smtp", '"host" is a required property'),
            Fault("/pages/1", 'the value is not of type "integer"'),
            Fault("/parts/0/a", "the value is too long"),
            Fault("/copies", "one"),
            Fault("/copies", "two"),
            Fault("", "Additional properties are not allowed"),
            Fault("/elsewhere", "unknown"),
        ],
    )

    assert at == {
        "payload/to": "This is required.",
        "payload/smtp/host": "This is required.",
        "payload/pages": 'The value is not of type "integer".',
        "payload/parts": "The value is too long.",
        "payload/copies": "One. Two.",
    }
    assert [fault.path for fault in others] == ["", "/elsewhere"]
