"""Metadata of a record's fields, from which the faces derive their own."""

from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo

T = TypeVar("T")

INTERNAL = {"internal": True}
# A field that only the system uses: no response contains it, and users do not set it.
Internal = Annotated[T, msgspec.Meta(extra=INTERNAL)]


def meta_of(field: FieldInfo) -> msgspec.Meta:
    """The description and constraints of a field."""
    kinds = (field.type, *get_args(field.type))
    found = (meta for kind in kinds for meta in getattr(kind, "__metadata__", ()))
    return next((meta for meta in found if isinstance(meta, msgspec.Meta)), _NONE)


def is_internal(field: FieldInfo) -> bool:
    """Whether only the system uses a field."""
    return meta_of(field).extra is INTERNAL


def type_of(field: FieldInfo) -> Any:
    """The type of a field's values other than None; the first of several."""
    return _bare_type(field.type)


def _bare_type(kind: Any) -> Any:
    if get_origin(kind) in (Annotated, Union, UnionType):
        return _bare_type(get_args(kind)[0])
    return kind


_NONE = msgspec.Meta()
