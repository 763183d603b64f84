"""Reads a verified delivery: its type, what identifies it, and its data as the event will have them."""

import hashlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from fairlead.errors import BodyNotJson, ContentTypeUnsupported, Fault
from fairlead.model.hooks.hook import NO_TYPE, Scheme, UniqueBy
from fairlead.model.job import MAX_CORRELATION_ID

FORM = "application/x-www-form-urlencoded"
LONGEST_ID = MAX_CORRELATION_ID
MOST_FORM_FIELDS = 200
# The field of the event's data that describes the delivery; a field of this name in the body replaces it.
ABOUT = "webhook"


class HookDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """A verified delivery."""

    type: str
    # the sender's id; None if it has none
    id: str | None
    # identifies the delivery among those of its hook
    key: bytes
    data: dict[str, Any]
    is_form: bool = False
    # Slack's question whether this address is ours, to be answered at once; not an event
    challenge: str | None = None
    is_probe: bool = False


def read_delivery(
    scheme: Scheme, headers: Mapping[str, str], body: bytes, *, hook: str, unique_by: UniqueBy
) -> HookDelivery:
    """Read a delivery whose signature was verified."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    is_form = scheme is Scheme.SLACK and kind == FORM
    document = _read_form(body) if is_form else _read_json(kind, body)
    fields = document if isinstance(document, dict) else {}
    sent_type = _read_type(scheme, headers, fields)
    sent_id = _read_id(scheme, headers, fields)
    about = {"hook": hook, "scheme": str(scheme), "type": sent_type, "id": sent_id}
    return HookDelivery(
        type=sent_type,
        id=sent_id,
        key=_hash_key(scheme, headers, body, sent_id if unique_by is UniqueBy.ID else None, unique_by),
        data={ABOUT: about, **(document if isinstance(document, dict) else {"body": document})},
        is_form=is_form,
        challenge=_read_challenge(scheme, fields),
        is_probe=scheme is Scheme.SLACK and "ssl_check" in fields and "command" not in fields,
    )


def _read_json(kind: str, body: bytes) -> Any:
    if (
        kind
        and kind != "application/json"
        and not (kind.startswith("application/") and kind.endswith("+json"))
    ):
        raise ContentTypeUnsupported(
            f"This hook takes JSON, not {kind[:80]!r}: choose application/json where the webhook is configured.",
            [Fault("Content-Type", "must be application/json")],
        )
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _not_json() from None


def _read_form(body: bytes) -> dict[str, Any]:
    """The fields of a form; Slack sends interactions as JSON in its field `payload`."""
    try:
        fields = dict(
            parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MOST_FORM_FIELDS)
        )
        if "payload" not in fields:
            return fields
        return msgspec.json.decode(fields["payload"], type=dict[str, Any])
    except (ValueError, RecursionError):  # also what msgspec raises
        raise _not_json() from None


def _not_json() -> BodyNotJson:
    return BodyNotJson("The body cannot be read as JSON.", [Fault("body", "is not JSON")])


def _read_type(scheme: Scheme, headers: Mapping[str, str], fields: Mapping[str, Any]) -> str:
    found: Any = fields.get("type")
    if scheme is Scheme.GITHUB:
        found = headers.get("x-github-event")
    elif scheme is Scheme.SLACK:
        inner = fields.get("event")
        if found == "event_callback" and isinstance(inner, dict):
            found = inner.get("type")
        elif "command" in fields:
            found = "command"
    return found if isinstance(found, str) and found else NO_TYPE


def _read_id(scheme: Scheme, headers: Mapping[str, str], fields: Mapping[str, Any]) -> str | None:
    found: Any = {
        Scheme.STANDARD: headers.get("webhook-id"),
        Scheme.GITHUB: headers.get("x-github-delivery"),
        Scheme.STRIPE: fields.get("id"),
        Scheme.SLACK: fields.get("event_id"),
    }[scheme]
    return found if isinstance(found, str) and 0 < len(found) <= LONGEST_ID else None


def _read_challenge(scheme: Scheme, fields: Mapping[str, Any]) -> str | None:
    if scheme is not Scheme.SLACK or fields.get("type") != "url_verification":
        return None
    found = fields.get("challenge")
    return found if isinstance(found, str) else None


def _hash_key(
    scheme: Scheme, headers: Mapping[str, str], body: bytes, sent_id: str | None, unique_by: UniqueBy
) -> bytes:
    """The hash of the sender's id; without one, of the body and (by id) the time at which it was signed."""
    if sent_id is not None:
        return hashlib.sha256(b"id\n" + sent_id.encode()).digest()
    moment = ""
    if unique_by is UniqueBy.ID and scheme is Scheme.SLACK:
        moment = headers.get("x-slack-request-timestamp", "")
    return hashlib.sha256(f"body\n{moment}\n".encode() + body).digest()
