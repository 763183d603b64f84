"""Converts a JSON Schema to form fields, a payload to field values, and field values to a payload.

Values that no field can represent (a list of objects, or an empty text, which means "not given") are edited as JSON.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from fairlead.errors import Fault
from fairlead.model.payload import json_pointer

# Levels of nested objects that have their own fields; deeper ones are edited as JSON.
MOST_LEVELS = 2
MOST_HOPS = 20
LONG_TEXT = 300
NOTHING: Any = object()

_INTEGER = re.compile(r"-?[0-9]{1,300}")
_REQUIRED = re.compile(r'(".*") is a required property')
_SCALARS = (str, int, float, bool)


class FieldKind(StrEnum):
    TEXT = "text"
    LONG = "long"
    INTEGER = "integer"
    NUMBER = "number"
    CHOICE = "choice"
    LINES = "lines"
    GROUP = "group"
    JSON = "json"


_SIMPLE = {"string": FieldKind.TEXT, "integer": FieldKind.INTEGER, "number": FieldKind.NUMBER}


class FormField(msgspec.Struct, frozen=True, kw_only=True):
    """A form field for one path of a payload."""

    path: tuple[str, ...]
    kind: FieldKind
    title: str
    description: str = ""
    required: bool = False
    nullable: bool = False
    secret: bool = False
    default: Any = NOTHING
    # for a choice
    options: tuple[Any, ...] = ()
    # for a group
    fields: tuple["FormField", ...] = ()
    # for lines: the kind of each line
    line: FieldKind = FieldKind.TEXT

    @property
    def name(self) -> str:
        """The name of its input."""
        return "payload" + json_pointer(self.path)

    @property
    def json_name(self) -> str:
        """The name of its JSON input."""
        return "json" + json_pointer(self.path)

    @property
    def choices(self) -> list[tuple[str, str]]:
        """The value and the label of each option."""
        return [(_json(one), one if isinstance(one, str) else _json(one)) for one in self.options]


# From a schema to fields


def fields_of(schema: Any) -> tuple[FormField, ...]:
    """The fields of an object's schema; none if it has no properties."""
    root = _resolve_schema(schema, schema)[0]
    return _build_fields(root, schema, (), 0) if _is_object(root) else ()


def _build_fields(schema: Any, root: Any, path: tuple[str, ...], level: int) -> tuple[FormField, ...]:
    asked = schema.get("required")
    required = set(asked) if isinstance(asked, list) else set()
    found = [
        _build_field(one, root, (*path, name), level, required=name in required)
        for name, one in schema["properties"].items()
    ]
    # jsonb does not keep the order of names: required fields come first
    return tuple(sorted(found, key=lambda field: not field.required))


def _build_field(given: Any, root: Any, path: tuple[str, ...], level: int, *, required: bool) -> FormField:
    schema, nullable = _resolve_schema(given, root)
    facts = {
        "path": path,
        "title": _schema_text(schema, "title") or path[-1],
        "description": _schema_text(schema, "description"),
        "required": required,
        "nullable": nullable,
        "secret": any(schema.get(mark) is True for mark in ("writeOnly", "x-secret")),
        "default": schema.get("default", NOTHING),
    }
    if options := _options(schema):
        return FormField(kind=FieldKind.CHOICE, options=options, **facts)
    if _is_object(schema) and level < MOST_LEVELS:
        return FormField(kind=FieldKind.GROUP, fields=_build_fields(schema, root, path, level + 1), **facts)
    if schema.get("type") == "array" and (line := _line_kind(schema, root)):
        return FormField(kind=FieldKind.LINES, line=line, **facts)
    kind = _SIMPLE.get(str(schema.get("type")), FieldKind.JSON)
    if kind is FieldKind.TEXT and not facts["secret"] and _number(schema.get("maxLength")) > LONG_TEXT:
        kind = FieldKind.LONG
    return FormField(kind=kind, **facts)


def _resolve_schema(schema: Any, root: Any) -> tuple[dict[str, Any], bool]:
    """Resolve references and single alternatives; also return whether null is allowed."""
    nullable = False
    for _ in range(MOST_HOPS):
        if not isinstance(schema, dict):
            return {}, nullable
        own = {name: one for name, one in schema.items() if name not in ("$ref", "anyOf", "oneOf", "allOf")}
        if isinstance(schema.get("$ref"), str):
            schema = {**_follow_reference(schema["$ref"], root), **own}
        elif forms := next((schema[one] for one in ("anyOf", "oneOf", "allOf") if one in schema), None):
            left = [one for one in forms if not (isinstance(one, dict) and one.get("type") == "null")]
            nullable |= len(left) < len(forms)
            if len(left) != 1:
                return own, nullable
            schema = {**left[0], **own} if isinstance(left[0], dict) else {}
        else:
            break
    kinds = schema.get("type")
    if isinstance(kinds, list):
        left = [one for one in kinds if one != "null"]
        nullable |= len(left) < len(kinds)
        schema = {**schema, "type": left[0] if len(left) == 1 else None}
    return schema, nullable


def _follow_reference(reference: str, root: Any) -> dict[str, Any]:
    """The schema that a local reference names; {} for any other reference."""
    found = root
    for part in reference.split("/")[1:] if reference.startswith("#/") else [reference]:
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _is_object(schema: Any) -> bool:
    return (
        isinstance(schema, dict)
        and schema.get("type", "object") == "object"
        and isinstance(schema.get("properties"), dict)
    )


def _options(schema: Mapping[str, Any]) -> tuple[Any, ...]:
    """The allowed values of an enumeration, constant or boolean."""
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(listed, list) and all(isinstance(one, _SCALARS) or one is None for one in listed):
        return tuple(one for one in listed if one is not None)
    return (True, False) if schema.get("type") == "boolean" else ()


def _line_kind(schema: Mapping[str, Any], root: Any) -> FieldKind | None:
    items, nullable = _resolve_schema(schema.get("items"), root)
    return None if nullable else _SIMPLE.get(str(items.get("type")))


def _schema_text(schema: Mapping[str, Any], name: str) -> str:
    return str(schema[name]) if isinstance(schema.get(name), str) else ""


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) else 0


# From a payload to field values, and back


def can_show(fields: Sequence[FormField], payload: Any) -> bool:
    """Whether each name of a payload has a field."""
    return isinstance(payload, dict) and payload.keys() <= {field.path[-1] for field in fields}


def defaults_of(fields: Sequence[FormField]) -> dict[str, str]:
    """The default values of the fields."""
    said: dict[str, str] = {}
    for field in fields:
        if field.default is not NOTHING and not field.secret:
            said |= _field_texts(field, field.default)
        elif field.kind is FieldKind.GROUP:
            said |= defaults_of(field.fields)
    return said


def values_of(fields: Sequence[FormField], payload: Mapping[str, Any]) -> dict[str, str]:
    """The field values of a payload, by input name."""
    said: dict[str, str] = {}
    for field in fields:
        if field.path[-1] in payload:
            said |= _field_texts(field, payload[field.path[-1]])
    return said


def _field_texts(field: FormField, value: Any) -> dict[str, str]:
    if field.kind is FieldKind.GROUP:
        if value and can_show(field.fields, value):
            return values_of(field.fields, value)
    elif field.kind is not FieldKind.JSON:
        text = _format_value(field, value)
        read = _parse_value(field, text)
        if (type(read), read) == (type(value), value):
            return {field.name: text}
    return {field.json_name: json.dumps(value, indent=2, ensure_ascii=False)}


def _format_value(field: FormField, value: Any) -> str:
    """A value as its input's text; the caller checks that the text can be read back."""
    if value is None:
        return ""
    if field.kind is FieldKind.LINES:
        return "\n".join(map(str, value)) if isinstance(value, list) else ""
    return _json(value) if field.kind is FieldKind.CHOICE else str(value)


def payload_of(fields: Sequence[FormField], given: Mapping[str, str]) -> tuple[dict[str, Any], list[Fault]]:
    """The payload of a form without its empty fields, and the fields that are not JSON."""
    payload: dict[str, Any] = {}
    faults: list[Fault] = []
    for field in fields:
        value, wrong = _read_field(field, given)
        faults += wrong
        if value is not NOTHING:
            payload[field.path[-1]] = value
    return payload, faults


def _read_field(field: FormField, given: Mapping[str, str]) -> tuple[Any, list[Fault]]:
    text = given.get(field.json_name, "").strip()
    if text:
        try:
            return json.loads(text), []
        except (ValueError, RecursionError) as error:
            return NOTHING, [Fault(json_pointer(field.path), f"This is not JSON: {error}.")]
    if field.kind is FieldKind.GROUP:
        inner, faults = payload_of(field.fields, given)
        return (inner if inner or field.required else NOTHING), faults
    return _parse_value(field, given.get(field.name, "")), []


def _parse_value(field: FormField, text: str) -> Any:
    """The value of a field's text; an unreadable text is left for the schema to reject."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")  # browsers normalize line ends
    if not text.strip():
        return None if field.required and field.nullable else NOTHING
    if field.kind is FieldKind.LINES:
        return [_parse_scalar(field.line, one) for one in text.split("\n") if one.strip()]
    if field.kind is FieldKind.CHOICE:
        return next((one for one in field.options if _json(one) == text), text)
    return _parse_scalar(field.kind, text)


def _parse_scalar(kind: FieldKind, text: str) -> Any:
    if kind in (FieldKind.INTEGER, FieldKind.NUMBER):
        if _INTEGER.fullmatch(text.strip()):
            return int(text)
        try:
            return float(text) if kind is FieldKind.NUMBER else text
        except ValueError:
            return text
    return text


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# From faults to fields


def assign_faults(fields: Sequence[FormField], faults: Iterable[Fault]) -> tuple[dict[str, str], list[Fault]]:
    """The messages of each field by input name, and the faults that belong to no field."""
    known = {field.path: field for field in _walk_fields(fields)}
    at: dict[str, list[str]] = {}
    others: list[Fault] = []
    for fault in faults:
        path, message = _fault_path(fault)
        field = next((known[path[:end]] for end in range(len(path), 0, -1) if path[:end] in known), None)
        if field is None:
            others.append(fault)
        else:
            at.setdefault(field.name, []).append(_as_sentence(message))
    return {name: " ".join(messages) for name, messages in at.items()}, others


def _fault_path(fault: Fault) -> tuple[tuple[str, ...], str]:
    """A fault's path and message; a missing property belongs to its own field, not to its parent."""
    parts = [one.replace("~1", "/").replace("~0", "~") for one in fault.path.split("/")[1:]]
    if missing := _REQUIRED.fullmatch(fault.message):
        return (*parts, str(json.loads(missing[1]))), "This is required."
    return tuple(parts), fault.message


def _as_sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _walk_fields(fields: Iterable[FormField]) -> Iterator[FormField]:
    for field in fields:
        yield field
        yield from _walk_fields(field.fields)
