"""Request and response bodies of the API."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import Enum
from functools import cache
from types import UnionType
from typing import Annotated, Any, Generic, Self, TypeVar, Union, get_args, get_origin
from uuid import UUID

import msgspec
from msgspec.structs import FieldInfo
from pydantic import (
    AfterValidator,
    AliasChoices,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    create_model,
)

from fairlead.errors import Fault, InvalidInput
from fairlead.model.field import is_internal, meta_of, type_of
from fairlead.model.payload import find_storage_flaw

T = TypeVar("T")


def _require_readable(text: str) -> str:
    if flaw := find_storage_flaw(text):
        raise ValueError(flaw)
    return text


def _require_id_text(given: Any) -> Any:
    if isinstance(given, str):
        return given
    raise ValueError("must be a UUID, as text")


def _require_time_text(given: Any) -> Any:
    # pydantic would accept "1700000000" too
    if isinstance(given, str) and _DATE.match(given):
        return given
    raise ValueError("must be a time with its zone, such as 2026-01-31T08:00:00Z")


_DATE = re.compile(r"\d{4}-\d\d-\d\d")

# Text that PostgreSQL can store.
ReadableText = Annotated[str, AfterValidator(_require_readable)]
# JSON has no ids, times or enumerations: they must be strings.
Id = Annotated[UUID, BeforeValidator(_require_id_text), Field(strict=False)]
Time = Annotated[AwareDatetime, BeforeValidator(_require_time_text), Field(strict=False)]
OneOf = Annotated[T, Field(strict=False)]
# Field names of the library and the CLI are accepted, too; the first is the documented one.
DEFINITION_KEY = AliasChoices("definition_key", "definition")
STEP_DEFINITION = AliasChoices("definition", "definition_key")
DELAY = AliasChoices("delay_seconds", "delay")


def choose_alias(**given: Any) -> Any:
    """The value of a parameter with two names, of which a request may use one."""
    said = {name: value for name, value in given.items() if value is not None}
    if len(said) > 1:
        names = " and ".join(given)
        raise InvalidInput(
            f"{names} are names of the same parameter: send only one.",
            [Fault(name, "given twice") for name in said],
        )
    return next(iter(said.values()), None)


class Body(BaseModel):
    """A JSON request body: unknown fields and wrong types are rejected."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Parameters(Body):
    """Query parameters: numbers arrive as text."""

    model_config = ConfigDict(strict=False)


class View(BaseModel):
    """A response body."""

    model_config = ConfigDict(from_attributes=True)

    @classmethod
    def of(cls, thing: Any) -> Self:
        """The view of a record."""
        return cls.model_validate(thing)


class ListOf(View, Generic[T]):
    """A list, and the cursor of its next page, if any."""

    items: Sequence[T]
    next_cursor: str | None = None


class FaultView(View):
    """A fault and its path."""

    path: str
    message: str


def derive_body(fields: Iterable[FieldInfo], *, text: Any = str, name: str = "DerivedBody") -> type[Body]:
    """The base of a request body with these fields of a record; its texts have the type `text`."""
    types = {str: text, UUID: Id, datetime: Time}
    made: dict[str, Any] = {}
    for one in fields:
        record = kind = type_of(one)
        nullable = type(None) in get_args(one.type)
        default = ... if one.default is msgspec.NODEFAULT else one.default
        if is_record(record):
            kind = derive_body(msgspec.structs.fields(record), text=text, name=f"{record.__name__}Body")
            default = None if nullable else kind()
        kind = types.get(kind, kind)
        by_text = False if issubclass(record, Enum) else None
        made[one.name] = (
            kind | None if nullable else kind,
            Field(default, description=meta_of(one).description, strict=by_text),
        )
    return create_model(name, __base__=Body, **made)


class Listing(msgspec.Struct, Generic[T], frozen=True):
    """A list of records, and the cursor of its next page, if any."""

    items: Sequence[T]
    next_cursor: str | None = None


def is_record(kind: Any) -> bool:
    """Whether this is the type of a record."""
    return isinstance(plain := get_origin(kind) or kind, type) and issubclass(plain, msgspec.Struct)


@cache
def view_of(record: Any) -> type[View]:
    """The pydantic model of a record, for responses and their schema. It has all fields but internal ones."""
    fields: dict[str, Any] = {
        one.name: (_view_type(one.type), Field(description=meta_of(one).description))
        for one in sorted(msgspec.structs.fields(record), key=lambda one: one.name != "id")
        if not is_internal(one)
    }
    return create_model(_view_name(record), __base__=View, __doc__=record.__doc__, **fields)


def _view_type(kind: Any) -> Any:
    """The type of a field, with a view in place of each record."""
    if kind is Fault:
        return FaultView
    if is_record(kind):
        return view_of(kind)
    inner = get_args(kind)
    if get_origin(kind) is Annotated:
        return _view_type(inner[0])
    if get_origin(kind) in (Union, UnionType):
        return Union[tuple(_view_type(one) for one in inner)]  # noqa: UP007 - of types that are known only now
    return get_origin(kind)[tuple(_view_type(one) for one in inner)] if inner else kind


def _view_name(record: Any) -> str:
    return "_".join([(get_origin(record) or record).__name__, *map(_view_name, get_args(record))])


def to_json(answer: View | msgspec.Struct) -> Any:
    """A response body as JSON values."""
    view = answer if isinstance(answer, View) else view_of(type(answer)).of(answer)
    return view.model_dump(mode="json")
