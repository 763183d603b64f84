"""Sealed literals in templates and filters: `{"$sealed": "sealed:1:…", "$fields": ["{{event.id}}"]}`.

A literal is sealed where a job's payload would have a secret. `$fields` has the placeholders of the sealed text, so that the
data that a template uses can be found without a key.
"""

from collections.abc import Callable, Sequence
from typing import Any

from fairlead.errors import Fault, TemplateInvalid
from fairlead.model.secrets.redact import SecretPath, rewrite_places
from fairlead.model.secrets.reference import is_reference
from fairlead.model.secrets.sealed_payload import (
    FIELDS,
    KEY,
    change_sealed,
    has_sealed,
    is_sealed_value,
    list_places,
)
from fairlead.model.template.path import MISSING
from fairlead.model.template.placeholder import OPEN, Placeholder, TemplateText, parse_template_string

# Seals a value for its place in the document.
Seal = Callable[[Any, SecretPath], str]


def seal_literals(template: Any, secret_paths: Sequence[str], seal: Seal) -> Any:
    """The template with its literal secrets sealed. Bare placeholders, references and empty values stay."""

    def change(value: Any, at: SecretPath) -> Any:
        if value is None or value == "" or is_bare_placeholder(value):
            return value
        if is_reference(value) or is_sealed_value(value):
            return value
        fields = _list_fields(value)
        return {KEY: seal(value, at), **({FIELDS: fields} if fields else {})}

    def before(value: Any, at: SecretPath) -> Any:
        # an object with a secret belongs here: a valid text can only be a placeholder, and its default may have the secret
        return change(value, at) if isinstance(value, str) else value

    return rewrite_places(template, secret_paths, change, before)


def is_bare_placeholder(value: Any) -> bool:
    """Whether a value of a template only names a path."""
    place = parse_template_string(value) if isinstance(value, str) else None
    return isinstance(place, Placeholder) and place.default is MISSING


def show_fields(template: Any) -> Any:
    """The template with the placeholders of each sealed part instead of the part; to find the data that it uses."""
    return change_sealed(template, _read_fields) if has_sealed(template) else template


def refuse_sealed_literals(document: Any, what: str) -> None:
    """Raise TemplateInvalid for a document that looks sealed already: only Fairlead seals."""
    if has_sealed(document):
        why = f"has a value with {KEY}: only Fairlead seals values"
        faults = [Fault(place, why) for place in list_places(document)[:20]]
        raise TemplateInvalid(f"The {what} is not valid: it {why}.", faults)


def _read_fields(part: Any, _: SecretPath) -> Any:
    fields = part.get(FIELDS, [])
    return fields[0] if len(fields) == 1 else fields


def _list_fields(value: Any) -> list[str]:
    """The placeholders of a part of a valid template, without their defaults."""
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return list(dict.fromkeys(field for part in parts for field in _list_fields(part)))
    parsed = parse_template_string(value) if isinstance(value, str) and OPEN in value else None
    places = parsed.places if isinstance(parsed, TemplateText) else [parsed]
    return [f"{{{{{place.path}}}}}" for place in places if isinstance(place, Placeholder)]
