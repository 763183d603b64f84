"""The payload that an argv template expects: its fields and their types, as a check and as JSON Schema.

A field has one type wherever it is used: a given value must fit even where its part is left out.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from fairlead.errors import Fault
from fairlead.model.command.argv_parts import (
    ITEM,
    ArgvFlag,
    ArgvText,
    ConditionalParts,
    JoinedItems,
    Part,
    RepeatedParts,
)
from fairlead.model.command.slot import (
    Slot,
    derive_slot_schema,
    format_value,
    has_forbidden_dash,
    list_json_types,
)
from fairlead.model.template.path import MISSING, Flaw, Path

MAX_ITEMS = 1_000
ABSENT = "is missing, and the command needs it"
DASHED = "must not begin with -, which the program could take for an option"


class Field(msgspec.Struct):
    """A value in the payload, and every use that the template makes of it."""

    # whether the command needs it, whatever other values are given
    required: bool = False
    fields: dict[str, "Field"] = msgspec.field(default_factory=dict)
    items: "Field | None" = None
    # the slots that it fills, and for each whether its text begins an argument
    slots: dict[Slot, bool] = msgspec.field(default_factory=dict)
    flag: bool = False


class _Scope(msgspec.Struct, frozen=True):
    field: Field
    # whether the current parts are always present
    sure: bool


_Scopes = Mapping[str, _Scope]


def derive_shape(parts: Iterable[Part]) -> Field:
    """The shape of the payload that fills these parts."""
    payload = Field(required=True)
    _add_parts(parts, {"payload": _Scope(payload, sure=True)})
    return payload


def _add_parts(parts: Iterable[Part], scopes: _Scopes) -> None:
    for part in parts:
        match part:
            case ArgvText():
                _add_text(part, scopes)
            case ArgvFlag():
                _field_at(part.path, _make_optional(scopes)).flag = True
            case ConditionalParts():
                _field_at(part.path, _make_optional(scopes))
                _add_parts((*part.then, *part.otherwise), _make_optional(scopes))
            case RepeatedParts():
                items = _item_field(_field_at(part.path, scopes))
                _add_parts(part.argv, {**_make_optional(scopes), ITEM: _Scope(items, sure=True)})
            case JoinedItems():
                items = _item_field(_field_at(part.path, scopes))
                _add_slot(part.slot, {ITEM: _Scope(items, sure=True)}, leading=False)


def _add_text(text: ArgvText, scopes: _Scopes) -> None:
    for index, piece in enumerate(text.pieces):
        if isinstance(piece, Slot):
            _add_slot(piece, scopes, leading=index == 0)


def _add_slot(slot: Slot, scopes: _Scopes, *, leading: bool) -> None:
    slots = _field_at(slot.path, scopes).slots
    slots[slot] = slots.get(slot, False) or leading


def _make_optional(scopes: _Scopes) -> _Scopes:
    return {name: replace(scope, sure=False) for name, scope in scopes.items()}


def _item_field(one: Field) -> Field:
    one.items = one.items or Field()
    return one.items


def _field_at(path: Path, scopes: _Scopes) -> Field:
    """The field at a path, created if missing; a throw-away field if the path is not in the payload."""
    root, *names = path.segments
    if root not in scopes:
        return Field()
    found, sure = scopes[root].field, scopes[root].sure
    found.required |= sure
    for name in names:
        found = found.fields.setdefault(name, Field())
        found.required |= sure
    return found


# As a check


def find_payload_faults(one: Field, value: Any, name: str) -> Iterator[Fault]:
    """Where and why a payload does not fit. No fault contains a value."""
    if value is MISSING or value is None:
        if one.required:
            yield Fault(name, ABSENT)
        return
    if one.flag and type(value) is not bool:
        yield Fault(name, "must be true or false")
    yield from _find_slot_faults(one, value, name)
    if one.items is not None:
        yield from _find_item_faults(one.items, value, name)
    if one.fields and type(value) is not dict:
        yield Fault(name, "must be an object")
    elif one.fields:
        for key, below in one.fields.items():
            yield from find_payload_faults(below, value.get(key, MISSING), f"{name}.{Path((key,))}")


def _find_slot_faults(one: Field, value: Any, name: str) -> Iterator[Fault]:
    for slot, leading in one.slots.items():
        try:
            text = format_value(slot, value)
        except Flaw as flaw:
            yield Fault(name, flaw.message)
        else:
            if leading and has_forbidden_dash(slot, text):
                yield Fault(name, DASHED)


def _find_item_faults(items: Field, value: Any, name: str) -> Iterator[Fault]:
    if type(value) is not list:
        yield Fault(name, "must be a list")
    elif len(value) > MAX_ITEMS:
        yield Fault(name, f"must have at most {MAX_ITEMS} items")
    else:
        for index, item in enumerate(value):
            yield from find_payload_faults(items, item, f"{name}[{index}]")


def find_contradictions(one: Field, name: str) -> Iterator[str]:
    """Fields that the template uses with types that exclude each other."""
    uses = [list_json_types(slot) for slot in one.slots]
    uses += [frozenset({kind}) for kind, used in _containers(one) if used]
    if uses and not frozenset.intersection(*uses):
        listed = sorted({"/".join(sorted(use)) for use in uses})
        yield f"{name} cannot be all of {', '.join(listed)} at once"
    if one.items is not None:
        yield from find_contradictions(one.items, f"{name}[]")
    for key, below in one.fields.items():
        yield from find_contradictions(below, f"{name}.{Path((key,))}")


def _containers(one: Field) -> list[tuple[str, bool]]:
    return [("boolean", one.flag), ("array", one.items is not None), ("object", bool(one.fields))]


# As a schema


def payload_schema(payload: Field) -> dict[str, Any]:
    """A JSON Schema for the payloads that the template accepts; it forbids fields that no part uses."""
    return _object_schema(payload)


def _field_schema(one: Field) -> dict[str, Any]:
    forms = [derive_slot_schema(slot, leading=leading) for slot, leading in one.slots.items()]
    if one.flag:
        forms.append({"type": "boolean"})
    if one.items is not None:
        forms.append({"type": "array", "maxItems": MAX_ITEMS, "items": _field_schema(one.items)})
    if one.fields:
        forms.append(_object_schema(one))
    if not one.required:
        forms = [_allow_null(form) for form in forms]
    unique = [form for index, form in enumerate(forms) if form not in forms[:index]]
    return {"allOf": unique} if len(unique) > 1 else unique[0] if unique else {}


def _object_schema(one: Field) -> dict[str, Any]:
    required = [key for key, below in one.fields.items() if below.required]
    return {
        "type": "object",
        "properties": {key: _field_schema(below) for key, below in one.fields.items()},
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _allow_null(form: dict[str, Any]) -> dict[str, Any]:
    if "enum" in form:
        return {**form, "enum": [*form["enum"], None]}
    return {**form, "type": [form["type"], "null"]}
