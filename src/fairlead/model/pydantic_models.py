"""Pydantic models as parameters, in payloads and as outputs, for applications that use them.

This module never imports pydantic: only applications that use it have models, and the import is slow.
"""

import sys
from typing import Any

import msgspec

# Pydantic dumps a secret as these asterisks: the job would not receive the secret.
_ASTERISKS = b'"**********"'


def is_model(kind: Any) -> bool:
    """Whether this is a subclass of pydantic's BaseModel; False if pydantic is not imported."""
    pydantic: Any = sys.modules.get("pydantic.main")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def dump_model(value: Any) -> Any:
    """A model as JSON values, with its aliases; TypeError for any other value."""
    if not is_model(type(value)):
        raise TypeError(f"{type(value).__name__} has no JSON form")
    plain = value.model_dump(mode="json", by_alias=True)
    if _ASTERISKS in msgspec.json.encode(plain):
        raise TypeError(
            f"{type(value).__name__} has a SecretStr, which pydantic dumps as asterisks. Make it a str that is marked "
            'with Field(json_schema_extra={"writeOnly": True})'
        )
    return plain


def validate_model(kind: Any, value: Any) -> Any:
    """The model from JSON values. The error has paths, never values."""
    if not is_model(kind):
        raise NotImplementedError
    try:
        # as JSON: in JSON mode even a strict model parses times from text
        return kind.model_validate_json(msgspec.json.encode(value))
    except ValueError as error:
        raise ValueError(_describe_errors(error)) from None


def _describe_errors(error: Any) -> str:
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(": ".join(filter(None, [".".join(map(str, one["loc"])), one["msg"]])) for one in faults)


class ModelSchemas:
    """Creates the schemas of models, and collects the definitions that they refer to."""

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
        """A unique name: models of two modules may have the same name."""
        if kind not in self._names:
            same = sum(one.__name__ == kind.__name__ for one in self._names)
            self._names[kind] = f"{kind.__name__}.{same}" if same else kind.__name__
        return self._names[kind]
