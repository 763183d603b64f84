"""Fields that users set: a struct names their types, descriptions and limits once, for every face."""

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple, get_origin

import msgspec
from msgspec.structs import FieldInfo

from fairlead.errors import Fault
from fairlead.model.field import meta_of, type_of
from fairlead.model.payload import find_storage_flaw

_WORDS = {str: "text", bool: "true or false", int: "an integer"}
_WORDS |= {datetime: "a time such as 2026-02-16T10:30:00Z"}


class InputLimits(NamedTuple):
    """The limits of a number, or of the length of a text. Unlike those of `msgspec.Meta`, stored records may exceed them."""

    least: int
    most: int
    # the upper limit in other words
    note: str = ""


class InputField(NamedTuple):
    """A field of a struct: its type without None, whether it is required, its description and its limits."""

    type: Any
    required: bool
    description: str | None
    limits: InputLimits | None

    @property
    def is_json(self) -> bool:
        """Whether it holds JSON: the checks of its meaning find its faults."""
        return self.type is Any or get_origin(self.type) is dict

    def convert(self, value: Any) -> Any:
        """The value in the field's type; msgspec.ValidationError if it does not fit."""
        found = msgspec.convert(value, self.type)
        if self.limits is None:
            return found
        if not self.limits.least <= (found if self.type is int else len(found)) <= self.limits.most:
            raise msgspec.ValidationError("not within its limits")
        if self.type is str and find_storage_flaw(found):
            raise msgspec.ValidationError("PostgreSQL cannot store it")
        return found

    def describe(self) -> str:
        """The values that the field takes."""
        words = _WORDS.get(self.type) or " or ".join(self.type)
        if self.limits is None:
            return words
        least, most, note = self.limits
        words += f" between {least} and {most}" if self.type is int else f" of {least} to {most} characters"
        return f"{words} ({note})" if note else words


@cache
def list_input_fields(struct: type[msgspec.Struct]) -> dict[str, InputField]:
    """The fields of a struct by name, in its order."""
    return {
        one.name: InputField(type_of(one), one.required, meta_of(one).description, _limits_of(one))
        for one in msgspec.structs.fields(struct)
    }


def _limits_of(field: FieldInfo) -> InputLimits | None:
    notes = getattr(field.type, "__metadata__", ())
    return next((note for note in notes if isinstance(note, InputLimits)), None)


def read_input(
    struct: type[msgspec.Struct], document: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Fault]]:
    """The valid fields of a document, as the struct has them, and the faults of all others. None means not given."""
    fields, found = list_input_fields(struct), dict[str, Any]()
    faults = [Fault(str(name), "unknown field") for name in document if name not in fields]
    for name, field in fields.items():
        value = document.get(name)
        if value is None:
            faults += [Fault(name, "is required")] if field.required else []
            continue
        try:
            found[name] = value if field.is_json else field.convert(value)
        except (msgspec.ValidationError, UnicodeError):  # half a surrogate pair is no UTF-8
            faults.append(Fault(name, f"must be {field.describe()}"))
    return found, faults
