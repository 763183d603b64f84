"""Payloads with sealed secrets: each secret value is stored as `{"$sealed": "sealed:1:…"}`.

It is bound to the tenant, the definition, the job and its path in the payload. A debounced request may become the payload
of a job that exists already, so it is bound to the definition instead of the job, and says so.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

import msgspec

from fairlead.errors import Fault, PayloadInvalid
from fairlead.keys.sealed import DataKey, is_sealed, open_text, parse_sealed, seal_text
from fairlead.model.secrets.redact import (
    MASK,
    Mask,
    SecretPath,
    find_secrets,
    join_path,
    mask_dedupe_key,
    rewrite_places,
)
from fairlead.model.secrets.reference import is_reference

KEY = "$sealed"
BOUND = "$bound"
# Beside a sealed part of a template: the placeholders that it has.
FIELDS = "$fields"
# What a payload with a sealed value has as JSON text.
MARK = b'"$sealed"'
_KEYS = {KEY, BOUND, FIELDS}


def is_sealed_value(value: Any) -> bool:
    """Whether a value of a stored payload is sealed."""
    return isinstance(value, dict) and KEY in value and value.keys() <= _KEYS and is_sealed(value[KEY])


def seal_values(
    payload: Any, paths: Sequence[str], key: DataKey, *, tenant_id: UUID, definition: str, job_id: UUID | None
) -> Any:
    """The payload with each secret sealed. References, sealed and empty values stay as they are."""

    def seal(value: Any, at: SecretPath) -> Any:
        if value is None or value == "" or is_reference(value) or is_sealed_value(value):
            return value
        text = msgspec.json.encode(value).decode()
        sealed = {KEY: seal_text(key, tenant_id, _describe_purpose(definition, job_id, at), text)}
        return sealed if job_id is not None else {**sealed, BOUND: "definition"}

    return rewrite_places(payload, paths, seal)


def has_sealed(value: Any) -> bool:
    """Whether a part of a value is sealed."""
    return any(True for _ in _iterate_sealed(value))


def list_key_ids(payload: Any) -> set[UUID]:
    """The keys that the sealed values of a payload need."""
    return {parse_sealed(value[KEY]).key_id for value in _iterate_sealed(payload)}


def list_places(payload: Any) -> list[str]:
    """The paths of the sealed values of a payload."""
    found: list[str] = []

    def note(value: Any, at: SecretPath) -> Any:
        found.append(join_path(at))
        return value

    change_sealed(payload, note)
    return found


def open_values(
    payload: Any, keys: Callable[[UUID], DataKey], *, tenant_id: UUID, definition: str, job_id: UUID
) -> Any:
    """The payload with each sealed value opened. SealBroken if one was changed, or is another job's."""

    def open_one(value: Any, at: SecretPath) -> Any:
        sealed = parse_sealed(value[KEY])
        bound = None if BOUND in value else job_id
        purpose = _describe_purpose(definition, bound, at)
        return msgspec.json.decode(open_text(keys(sealed.key_id), tenant_id, purpose, sealed))

    return change_sealed(payload, open_one)


def hide_sealed(payload: Any) -> Any:
    """The payload to show: no ciphertext is in it, wherever the schema marks secrets now."""
    # most payloads have none, and to write one as text takes a fiftieth of a walk through its values
    return _hide(payload) if MARK in msgspec.json.encode(payload) else payload


def _hide(value: Any) -> Any:
    if isinstance(value, dict):
        return MASK if is_sealed_value(value) else {name: _hide(one) for name, one in value.items()}
    return [_hide(one) for one in value] if isinstance(value, list) else value


def change_sealed(value: Any, change: Callable[[Any, SecretPath], Any], at: SecretPath = ()) -> Any:
    """A copy of the value with each sealed part changed; `change` gets the part and its place."""
    if isinstance(value, dict):
        if is_sealed_value(value):
            return change(value, at)
        return {name: change_sealed(one, change, (*at, name)) for name, one in value.items()}
    if isinstance(value, list):
        return [change_sealed(one, change, (*at, str(place))) for place, one in enumerate(value)]
    return value


def _iterate_sealed(value: Any) -> Iterator[dict[str, str]]:
    if is_sealed_value(value):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _iterate_sealed(one)
    elif isinstance(value, list):
        for one in value:
            yield from _iterate_sealed(one)


def _describe_purpose(definition: str, job_id: UUID | None, at: SecretPath) -> str:
    return f"payload\x00{definition}\x00{'' if job_id is None else job_id.hex}\x00{join_path(at)}"


def refuse_sealed(key: str, payload: Any) -> None:
    """Raise PayloadInvalid for a payload that looks sealed already: only Fairlead seals."""
    if has_sealed(payload):
        why = f"has a value with {KEY}: only Fairlead seals values"
        raise PayloadInvalid(f"The payload does not fit {key}: it {why}", [Fault("", why)])


def refuse_copies(
    key: str, payload: Any, paths: Sequence[str], *, dedupe_key: str | None, texts: dict[str, str | None]
) -> None:
    """Raise PayloadInvalid if a text beside the payload, which is stored in plain form, holds one of its secrets."""
    mask = Mask(find_secrets(payload, paths))
    faults = [
        Fault(name, "holds a secret of the payload")
        for name, text in texts.items()
        if mask.mask_chosen(text) != text
    ]
    if dedupe_key is not None and mask_dedupe_key(dedupe_key, key, paths, mask) != dedupe_key:
        faults.append(Fault("dedupe_key", "holds a secret of the payload"))
    if faults:
        raise PayloadInvalid(
            f"The {faults[0].path} of a job of {key} holds a secret of the payload, and would be stored in plain form. Leave "
            "the secret out, or use a hash of it.",
            faults,
        )
