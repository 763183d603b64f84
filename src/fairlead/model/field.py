"""Metadata of a record's fields, from which the faces derive their own."""

from typing import Annotated, TypeVar

import msgspec
from msgspec.structs import FieldInfo

T = TypeVar("T")

_INTERNAL = msgspec.Meta(extra={"internal": True})
# A field that no response contains.
Internal = Annotated[T, _INTERNAL]


def meta_of(field: FieldInfo) -> msgspec.Meta:
    """The description and constraints of a field."""
    found = (one for one in getattr(field.type, "__metadata__", ()) if isinstance(one, msgspec.Meta))
    return next(found, _NONE)


def is_internal(field: FieldInfo) -> bool:
    """Whether a field is left out of responses."""
    return meta_of(field) is _INTERNAL


_NONE = msgspec.Meta()
