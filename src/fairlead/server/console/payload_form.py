"""A payload as a form: field by field, or as JSON."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from fairlead.errors import FairleadError, Fault, InvalidInput
from fairlead.model.payload import json_pointer
from fairlead.model.secrets.redact import MASK
from fairlead.server.console.schema_form import (
    FormField,
    assign_faults,
    can_show,
    defaults_of,
    fields_of,
    payload_of,
    values_of,
)

RAW = "raw"
# Form fields: the payload as JSON, and whether it is edited as fields or as JSON.
TEXT, WAY = "payload_text", "payload_way"


class PayloadForm(msgspec.Struct, frozen=True):
    """A form's fields (none: JSON only), their values and their faults."""

    fields: tuple[FormField, ...]
    raw: bool
    values: Mapping[str, str]
    text: str
    faults: Mapping[str, str] = msgspec.field(default_factory=dict)
    # faults that belong to no field
    others: tuple[Fault, ...] = ()
    # whether the schema marks a secret: the browser then keeps no draft of the JSON
    has_secrets: bool = False

    @classmethod
    def new(cls, schema: Any, payload: Any = None) -> "PayloadForm":
        """The form of a payload, or (None) an empty form with defaults."""
        fields = fields_of(schema)
        if payload is None:
            values = defaults_of(fields)
            text = format_payload(payload_of(fields, values)[0])
            return cls(fields, not fields, values, text, has_secrets=_marks_secrets(schema))
        simple = bool(fields) and can_show(fields, payload)
        values = values_of(fields, payload) if simple else {}
        return cls(fields, not simple, values, format_payload(payload), has_secrets=_marks_secrets(schema))

    @classmethod
    def from_form(cls, schema: Any, form: Mapping[str, str]) -> "PayloadForm":
        """The form as the browser sent it."""
        fields = fields_of(schema)
        values = {name: text for name, text in form.items() if name.startswith(("payload/", "json/"))}
        raw = form.get(WAY) == RAW or not fields
        return cls(fields, raw, values, form.get(TEXT, ""), has_secrets=_marks_secrets(schema))

    def payload(self) -> Any:
        """Read the payload, or raise InvalidInput where it is not JSON."""
        if not self.raw:
            payload, faults = payload_of(self.fields, self.values)
            if faults:
                raise InvalidInput("Some of the payload is not JSON.", faults)
            return payload
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(
                f"The payload is not JSON: {error}.", [Fault("", f"not JSON: {error}")]
            ) from None

    def switch_view(self) -> "PayloadForm":
        """Switch from fields to JSON, or from JSON to fields if they can represent it."""
        payload = self.payload()
        if not self.raw:
            return replace(self, raw=True, text=format_payload(payload))
        if not can_show(self.fields, payload):
            raise InvalidInput(
                "The form can't show this payload: it has fields that the schema does not define.",
                [Fault("", "has names that no field has")],
            )
        return replace(self, raw=False, values=values_of(self.fields, payload))

    def with_faults(self, error: FairleadError) -> "PayloadForm":
        """The form with the payload's faults: at their fields, or in `others` if they have none."""
        if self.raw:
            return replace(self, others=tuple(payload_faults(error.faults)))
        at, others = assign_faults(self.fields, payload_faults(error.faults))
        return replace(self, faults=at, others=tuple(others))

    def without_secrets(self) -> "PayloadForm":
        """The form of a copy: masked values are empty."""
        return replace(self, values={name: "" if one == MASK else one for name, one in self.values.items()})


def _marks_secrets(schema: Any) -> bool:
    text = json.dumps(schema, default=str)
    return '"x-secret"' in text or '"writeOnly"' in text


def payload_faults(faults: Iterable[Fault]) -> list[Fault]:
    """The faults of the payload: their paths are JSON pointers."""
    return [fault for fault in faults if fault.path == "" or fault.path.startswith("/")]


def refuse_masked(payload: Any) -> None:
    """Reject a payload that contains the mask of a secret, such as a copied one."""
    if faults := [
        Fault(json_pointer(path), f"Enter it again. {MASK} is a placeholder for a secret.")
        for path in _masked_paths(payload, ())
    ]:
        raise InvalidInput("Secrets are not copied. Enter them again.", faults)


def _masked_paths(value: Any, path: tuple[str | int, ...]) -> Iterable[tuple[str | int, ...]]:
    if isinstance(value, str) and MASK in value:
        yield path
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from _masked_paths(one, (*path, name))
    elif isinstance(value, list):
        for at, one in enumerate(value):
            yield from _masked_paths(one, (*path, at))


def format_payload(payload: Any) -> str:
    """A payload as indented JSON."""
    return json.dumps(payload, indent=2, ensure_ascii=False, default=str)
