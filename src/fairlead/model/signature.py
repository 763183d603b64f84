"""A function's signature as an argument schema."""

import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from fairlead.errors import SignatureInvalid
from fairlead.model.pydantic_models import ModelSchemas, is_model
from fairlead.model.secrets.redact import drop_examples

CONTEXT = "ctx"
RESERVED_PARAMETERS = frozenset({"tenant", "tx"})


def derive_argument_schema(function: Callable[..., Any]) -> dict[str, Any]:
    """The JSON Schema of this function's payload, from its parameters."""
    models = ModelSchemas()
    try:
        found = msgspec.json.schema(build_arguments_type(function), schema_hook=models)
        schema: dict[str, Any] = drop_examples(_inline_arguments(found, models.definitions))
    except (TypeError, ValueError) as error:
        raise _no_json_form(function, error) from error
    return schema


def derive_payload_schema(function: Callable[..., Any], kind: Any) -> dict[str, Any]:
    """The JSON Schema of the payloads of a batch handler, from their type."""
    models = ModelSchemas()
    try:
        found = msgspec.json.schema(kind, schema_hook=models)
    except (TypeError, ValueError) as error:
        raise _no_json_form(function, error) from error
    if "$ref" in found or models.definitions:
        found = _inline_arguments(found, models.definitions)
    if found.get("type") != "object":
        raise SignatureInvalid(
            f"{_function_name(function)} cannot be a job: a payload is a JSON object, and BatchJob has another type. "
            "Use a dataclass, a TypedDict, or a model of msgspec or pydantic."
        )
    schema: dict[str, Any] = drop_examples(found)
    return schema


def build_arguments_type(function: Callable[..., Any]) -> type[msgspec.Struct]:
    """A Struct type of this function's arguments; `**rest` allows unknown fields."""
    parameters = _parameters(function, _function_name(function))
    hints = typing.get_type_hints(function, include_extras=True)
    fields: list[Any] = []
    open_ended = False
    for parameter in parameters:
        hint = _allow_any(hints.get(parameter.name, Any))
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            open_ended = True
        elif parameter.default is inspect.Parameter.empty:
            fields.append((parameter.name, hint))
        else:
            fields.append((parameter.name, hint, _default(parameter.default)))
    try:
        return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=not open_ended)
    except (TypeError, ValueError) as error:
        raise _no_json_form(function, error) from error


def _allow_any(hint: Any) -> Any:
    """The type, with Any in place of `object`, which msgspec does not know."""
    if hint is object:
        return Any
    arguments = typing.get_args(hint)
    allowed = tuple(map(_allow_any, arguments))
    if allowed == arguments:
        return hint
    kind: Any = typing.get_origin(hint)
    return functools.reduce(operator.or_, allowed) if kind is types.UnionType else kind[allowed]


def bind_arguments(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a call by their names, without `ctx` and without defaults; TypeError if they do not fit."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    if parameters and parameters[0].name == CONTEXT:
        signature = signature.replace(parameters=parameters[1:])
    arguments = dict(signature.bind(*args, **kwargs).arguments)
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            arguments |= arguments.pop(parameter.name, {})
    return arguments


def _function_name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


def _no_json_form(function: Callable[..., Any], error: Exception) -> SignatureInvalid:
    return SignatureInvalid(
        f"{_function_name(function)} cannot be a job: {error}. "
        "Annotate its parameters with types that have a JSON form: plain ones, dataclasses, msgspec's or pydantic's models."
    )


def _parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(function).parameters.values())
    if parameters and parameters[0].name == CONTEXT:
        parameters = parameters[1:]
    for parameter in parameters:
        if parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL):
            raise SignatureInvalid(
                f"{name} cannot be a job: {parameter} is positional, and a payload passes arguments by name."
            )
        if parameter.name in RESERVED_PARAMETERS:
            raise SignatureInvalid(
                f"{name} cannot be a job: the parameter {parameter.name!r} is reserved for enqueue; rename it."
            )
    return parameters


def _default(value: Any) -> Any:
    if isinstance(value, list | dict | set) or is_model(type(value)):
        return msgspec.field(default_factory=lambda: value)
    return value


def _inline_arguments(schema: dict[str, Any], of_models: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of the arguments at the top level, with all other types in $defs."""
    definitions = {**schema.pop("$defs", {}), **of_models}
    top: dict[str, Any] = (
        definitions.pop(schema["$ref"].rpartition("/")[2]) if "$ref" in schema else dict(schema)
    )
    top.pop("title", None)
    return {**top, "$defs": definitions} if definitions else top
