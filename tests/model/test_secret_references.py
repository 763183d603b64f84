"""References to secrets: which fields accept them, and what is shown of them."""

from typing import Any

import pytest

from fairlead.errors import PayloadInvalid
from fairlead.model.definition import check_payload, compile_schema
from fairlead.model.secrets.redact import (
    build_mask,
    check_references,
    fill_references,
    find_references,
    find_secrets,
    mask_paths,
    secret_paths,
)
from tests.tables import each_case

TOKEN = {"type": "string", "minLength": 12, "x-secret": True}
SCHEMA = {
    "type": "object",
    "properties": {
        "to": {"type": "string"},
        "token": TOKEN,
        "maybe": {"anyOf": [TOKEN, {"type": "null"}]},
        "shared": {"$ref": "#/$defs/Token"},
        "users": {
            "type": "array",
            "items": {"type": "object", "properties": {"pin": {"type": "string", "writeOnly": True}}},
        },
        # a field with this name is no mark
        "writeOnly": True,
    },
    "additionalProperties": False,
    "$defs": {"Token": TOKEN},
}
PATHS = secret_paths(SCHEMA)
REFERENCE = {"$secret": "stripe"}


def check(payload: Any) -> None:
    check_payload(compile_schema(SCHEMA), "pay", payload)
    check_references("pay", payload, PATHS)


@each_case(
    "payload",
    [
        {"token": REFERENCE},
        {"token": "a real secret of some length"},
        {"maybe": REFERENCE, "shared": REFERENCE},
        {"maybe": None},
        {"users": [{"pin": REFERENCE}, {"pin": "x"}]},
        {"writeOnly": 5},
    ],
)
def test_a_marked_field_accepts_a_reference(payload: Any) -> None:
    check(payload)


@each_case(
    ("payload", "path"),
    [
        ({"to": REFERENCE}, "/to"),
        ({"token": {"$secret": ""}}, "/token/$secret"),
        ({"token": {"$secret": "a b"}}, "/token/$secret"),
        ({"token": {"$secret": 5}}, "/token/$secret"),
        ({"token": {"$secret": "stripe", "more": 1}}, "/token"),
        ({"token": {"secret": "stripe"}}, "/token"),
        ({"token": "short"}, "/token"),
        ({"writeOnly": [REFERENCE]}, "/writeOnly/0"),
    ],
)
def test_other_fields_and_other_objects_are_refused_with_their_path(payload: Any, path: str) -> None:
    with pytest.raises(PayloadInvalid) as refused:
        check(payload)
    assert refused.value.faults[0].path == path


def test_a_pointer_into_a_marked_object_still_compiles() -> None:
    schema = {
        "type": "object",
        "properties": {
            "login": {"type": "object", "x-secret": True, "properties": {"user": {"type": "string"}}},
            "other": {"$ref": "#/properties/login/properties/user"},
        },
    }
    check_payload(compile_schema(schema), "pay", {"login": {"user": "ada"}, "other": "x"})
    with pytest.raises(PayloadInvalid):
        check_payload(compile_schema(schema), "pay", {"other": 5})


def test_references_are_found_filled_and_shown_and_their_names_are_no_secrets() -> None:
    payload = {
        "to": "ada",
        "token": REFERENCE,
        "users": [{"pin": {"$secret": "pin"}}, {"pin": "literal-pin"}],
    }

    assert find_references(payload, PATHS) == ["stripe", "pin"] or find_references(payload, PATHS) == [
        "pin",
        "stripe",
    ]
    filled = fill_references(payload, PATHS, {"stripe": "sk_live_1234567", "pin": "pin-of-someone"})
    assert filled == {
        "to": "ada",
        "token": "sk_live_1234567",
        "users": [{"pin": "pin-of-someone"}, {"pin": "literal-pin"}],
    }
    assert payload["token"] == REFERENCE
    assert mask_paths(payload, PATHS) == {
        **payload,
        "users": [{"pin": {"$secret": "pin"}}, {"pin": "[redacted]"}],
    }
    assert find_secrets(payload, PATHS) == ["literal-pin"]
    mask = build_mask(filled, PATHS)
    assert mask is not None
    assert (
        mask.text("stripe said sk_live_1234567 to pin-of-someone") == "stripe said [redacted] to [redacted]"
    )
