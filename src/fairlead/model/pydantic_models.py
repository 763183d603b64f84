"""Pydantic's models as parameters, in payloads and as outputs, for applications that have them.

It is never imported here: what is no model of it needs none of it, and importing it would take longer than all of ours.
"""

import sys
from typing import Any

import msgspec

# What pydantic writes in the place of a secret: the job would get that, and nothing else.
_ASTERISKS = b'"**********"'


def is_model(kind: Any) -> bool:
    """Whether this is a class made from pydantic's BaseModel; without pydantic there is none."""
    pydantic: Any = sys.modules.get("pydantic.main")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def dumped(value: Any) -> Any:
    """A model as JSON values, by the names that it is read by; what is none is refused."""
    if not is_model(type(value)):
        raise TypeError(f"{type(value).__name__} has no JSON form")
    plain = value.model_dump(mode="json", by_alias=True)
    if _ASTERISKS in msgspec.json.encode(plain):
        raise TypeError(
            f"{type(value).__name__} has a SecretStr, and pydantic gives asterisks for it. Make it a str that is marked "
            'with Field(json_schema_extra={"writeOnly": True})'
        )
    return plain


def validated(kind: Any, value: Any) -> Any:
    """The model that JSON values say. The refusal names places, and never a value."""
    if not is_model(kind):
        raise NotImplementedError
    try:
        # as JSON: there even a strict model reads a time from text
        return kind.model_validate_json(msgspec.json.encode(value))
    except ValueError as error:
        raise ValueError(_told(error)) from None


def _told(error: Any) -> str:
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(": ".join(filter(None, [".".join(map(str, one["loc"])), one["msg"]])) for one in faults)


class ModelSchemas:
    """Schemas of the models that are asked for, and beside them those that they refer to."""

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}
        self._names: dict[Any, str] = {}

    def __call__(self, kind: Any) -> dict[str, Any]:
        """The schema of a model."""
        if not is_model(kind):
            raise TypeError(f"{getattr(kind, '__qualname__', kind)} has no JSON form")
        name = self._name(kind)
        schema: dict[str, Any] = kind.model_json_schema(ref_template=f"#/$defs/{name}.{{model}}")
        for part, said in schema.pop("$defs", {}).items():
            self.definitions[f"{name}.{part}"] = said
        return schema

    def _name(self, kind: Any) -> str:
        """Two models of one name, of two modules, may refer to two that share a name."""
        if kind not in self._names:
            same = sum(one.__name__ == kind.__name__ for one in self._names)
            self._names[kind] = f"{kind.__name__}.{same}" if same else kind.__name__
        return self._names[kind]
