"""A payload as people write it: field by field, or all of it as JSON."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from fairlead.errors import FairleadError, Fault, InvalidInput
from fairlead.model.payload import pointer
from fairlead.model.redact import MASK
from fairlead.server.console.schema_form import (
    Field,
    defaults_of,
    fields_of,
    fits,
    payload_of,
    placed,
    values_of,
)

RAW = "raw"
# What the form calls the whole payload, and the way that it is written.
TEXT, WAY = "payload_text", "payload_way"


class PayloadForm(msgspec.Struct, frozen=True):
    """What is shown of it: the fields (none: there is only JSON), what they say, and what is wrong at them."""

    fields: tuple[Field, ...]
    raw: bool
    values: Mapping[str, str]
    text: str
    faults: Mapping[str, str] = msgspec.field(default_factory=dict)
    # what is wrong with the payload, but at no field
    others: tuple[Fault, ...] = ()

    @classmethod
    def new(cls, schema: Any, payload: Any = None) -> "PayloadForm":
        """For a payload, or (None) for a new one."""
        fields = fields_of(schema)
        if payload is None:
            values = defaults_of(fields)
            return cls(fields, not fields, values, written(payload_of(fields, values)[0]))
        simple = bool(fields) and fits(fields, payload)
        return cls(fields, not simple, values_of(fields, payload) if simple else {}, written(payload))

    @classmethod
    def sent(cls, schema: Any, form: Mapping[str, str]) -> "PayloadForm":
        """As somebody has filled it in."""
        fields = fields_of(schema)
        values = {name: text for name, text in form.items() if name.startswith(("payload/", "json/"))}
        return cls(fields, form.get(WAY) == RAW or not fields, values, form.get(TEXT, ""))

    def payload(self) -> Any:
        """The payload that it means, or a refusal that says where it is not JSON."""
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

    def the_other_way(self) -> "PayloadForm":
        """The same as JSON where it was fields, and as fields where it was JSON (if they can say it)."""
        payload = self.payload()
        if not self.raw:
            return replace(self, raw=True, text=written(payload))
        if not fits(self.fields, payload):
            raise InvalidInput(
                "The fields cannot show all of this payload: it has names that the schema does not know.",
                [Fault("", "has names that no field has")],
            )
        return replace(self, raw=False, values=values_of(self.fields, payload))

    def refused(self, error: FairleadError) -> "PayloadForm":
        """With what is wrong, where it is."""
        if self.raw:
            return replace(self, others=tuple(of_payload(error.faults)))
        at, others = placed(self.fields, of_payload(error.faults))
        return replace(self, faults=at, others=tuple(others))

    def without_secrets(self) -> "PayloadForm":
        """For a copy: what was hidden has to be typed again."""
        return replace(self, values={name: "" if one == MASK else one for name, one in self.values.items()})


def of_payload(faults: Iterable[Fault]) -> list[Fault]:
    """Those that are about the payload: their places are pointers into it."""
    return [fault for fault in faults if fault.path == "" or fault.path.startswith("/")]


def refuse_masked(payload: Any) -> None:
    """Refuse a payload that holds what stands for a secret: whoever copied it has not seen what it stands for."""
    if faults := [
        Fault(pointer(path), f"Type it again: {MASK} stands for a secret.") for path in _masked(payload, ())
    ]:
        raise InvalidInput("Secrets are not copied: type them again.", faults)


def _masked(value: Any, path: tuple[str | int, ...]) -> Iterable[tuple[str | int, ...]]:
    if isinstance(value, str) and MASK in value:
        yield path
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from _masked(one, (*path, name))
    elif isinstance(value, list):
        for at, one in enumerate(value):
            yield from _masked(one, (*path, at))


def written(payload: Any) -> str:
    """A payload as people edit it."""
    return json.dumps(payload, indent=2, ensure_ascii=False, default=str)
