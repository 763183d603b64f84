"""Request bodies with the fields of a struct, which only the action checks."""

import inspect
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import msgspec
from pydantic import AliasChoices, ConfigDict, Field, GetJsonSchemaHandler, SkipValidation
from pydantic_core import CoreSchema

from fairlead.model.input_fields import list_input_fields
from fairlead.server.views import Body


class StructBody(Body):
    """A request body with the fields of a struct, all optional if `partial`. The action checks their values."""

    model_config = ConfigDict(extra="allow")
    struct: ClassVar[type[msgspec.Struct]]
    required: ClassVar[list[str]] = []

    def __init_subclass__(
        cls,
        of: type[msgspec.Struct] | None = None,
        *,
        partial: bool = False,
        aliases: Mapping[str, AliasChoices] | None = None,
    ) -> None:
        super().__init_subclass__()
        if of is None:
            return
        cls.struct, annotations = of, dict[str, Any]()
        for name, field in list_input_fields(of).items():
            required = field.required and not partial
            cls.required = [*cls.required, *([name] if required else [])]
            annotations[name] = Annotated[
                field.type if required or field.type is Any else field.type | None, SkipValidation
            ]
            # a factory, because a default would be in the schema
            info = Field(
                default_factory=lambda: None,
                description=field.description,
                validation_alias=(aliases or {}).get(name),
            )
            setattr(cls, name, info)
        cls.__annotations__ = annotations | inspect.get_annotations(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The schema of what the action accepts: no other fields, and the required ones."""
        schema = handler(core)
        described = handler.resolve_ref_schema(schema)
        described["additionalProperties"] = False
        if cls.required:
            described["required"] = cls.required
        return schema

    @property
    def document(self) -> dict[str, Any]:
        """The fields of the struct that the request contains, and unknown ones, which the action refuses."""
        sent = [name for name in self.struct.__struct_fields__ if name in self.model_fields_set]
        return {name: getattr(self, name) for name in sent} | (self.model_extra or {})
