"""References to secrets in payloads: `{"$secret": "name"}`, in the place of a marked field's text.

Only the worker that runs the job replaces them, in its own memory. The database, the API and the console have the reference.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fairlead.errors import Fault, PayloadInvalid

KEY = "$secret"
# What a payload with a reference has as JSON text.
MARK = b'"$secret"'
NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,127}")
NAME_WORDS = "must have 1 to 128 letters, digits, `.`, `_` or `-`, the first a letter"

_LOOKS_LIKE_ONE = {"type": "object", "required": [KEY]}
_SCHEMA = {
    "additionalProperties": False,
    "properties": {KEY: {"type": "string", "pattern": f"^{NAME.pattern}$"}},
}
# Where a schema has schemas: by name, in a list, or one.
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTED = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLE = (
    *("items", "contains", "additionalProperties", "unevaluatedItems", "unevaluatedProperties"),
    *("additionalItems", "if", "then", "else", "not"),
)


def is_reference(value: Any) -> bool:
    """Whether a value of a payload is a reference to a secret."""
    return isinstance(value, dict) and value.keys() == {KEY} and isinstance(value[KEY], str)


def accept_references(schema: Any) -> Any:
    """The schema of a payload, with each field that it marks as secret also accepting a reference."""
    return _accept_below(schema) if isinstance(schema, dict) else schema


def _accept_below(schema: dict[str, Any]) -> dict[str, Any]:
    made = dict(schema)
    for keyword in _NAMED:
        if isinstance(parts := schema.get(keyword), dict):
            made[keyword] = {name: _accept(one) for name, one in parts.items()}
    for keyword in _LISTED:
        if isinstance(parts := schema.get(keyword), list):
            made[keyword] = [_accept(one) for one in parts]
    for keyword in _SINGLE:
        if keyword in schema:
            made[keyword] = _accept(schema[keyword])
    return made


def _accept(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    made = _accept_below(schema)
    if schema.get("writeOnly") is not True and schema.get("x-secret") is not True:
        return made
    return {"if": _LOOKS_LIKE_ONE, "then": _SCHEMA, "else": made}


def list_references(value: Any) -> list[str]:
    """The names of the references in a value, each once, in their order."""
    return list(dict.fromkeys(reference[KEY] for _, reference in _iterate_references(value, ())))


def replace_references(value: Any, texts: Mapping[str, str | None]) -> Any:
    """A copy of the value with the text of each reference in its place."""
    if is_reference(value):
        return texts[value[KEY]]
    if isinstance(value, dict):
        return {name: replace_references(one, texts) for name, one in value.items()}
    if isinstance(value, list):
        return [replace_references(one, texts) for one in value]
    return value


def drop_references(value: Any) -> Any:
    """A copy of the value with None in the place of each reference: a name is no secret."""
    return replace_references(value, dict.fromkeys(list_references(value)))


def refuse_unmarked(key: str, payload: Any) -> None:
    """Raise PayloadInvalid for a reference in a payload from which those in marked fields are dropped."""
    faults = [
        Fault("/" + "/".join(path), "a reference to a secret needs a field that the schema marks as secret")
        for path, _ in _iterate_references(payload, ())
    ]
    if faults:
        first = faults[0]
        raise PayloadInvalid(f"The payload does not fit {key}: {first.path}: {first.message}", faults)


def _iterate_references(value: Any, path: Sequence[str]) -> Iterator[tuple[Sequence[str], dict[str, str]]]:
    if is_reference(value):
        yield path, value
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from _iterate_references(one, (*path, str(name)))
    elif isinstance(value, list):
        for at, one in enumerate(value):
            yield from _iterate_references(one, (*path, str(at)))
