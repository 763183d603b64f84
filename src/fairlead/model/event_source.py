"""Sources of events: what a broker's messages become, and how a source fares."""

import re
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from fairlead.errors import Fault, MessageInvalid, PayloadNotJson, PayloadTooDeep
from fairlead.model.access import GLOBAL_TENANT, GLOBAL_TENANT_ID
from fairlead.model.event import RESERVED, NewEvent, check_event, find_name_fault
from fairlead.model.payload import find_storage_flaw
from fairlead.model.request import unknown_tenant

LONGEST_MESSAGE_ID = 500
# A source whose process has not reported for this long has stopped.
SILENT_SECONDS = 30.0
# From 5 to 80 seconds.
MOST_DOUBLINGS = 4

_PLACEHOLDER = re.compile(r"\{([a-z]+)\}")
_SELECTOR = re.compile(r"header:(?P<header>[^:\s]+)|(?P<attribute>[a-z]+)(?::(?P<token>[1-9][0-9]?))?")


class SourceState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    # its last attempt to reach the broker or to store messages failed; it is tried again
    FAILING = "failing"
    # no process runs it
    STOPPED = "stopped"


class EventSource(msgspec.Struct, frozen=True, kw_only=True):
    """A source as the processes that run it last described it."""

    name: str
    driver: str
    # None: each message names its tenant
    tenant_id: UUID | None
    tenant: str | None
    event: str
    state: SourceState
    # how many messages became events, came again, and can never become events
    messages: int
    duplicates: int
    refused: int
    last_message_at: datetime | None
    last_refusal: str | None
    failing_since: datetime | None
    last_error: str | None
    paused_at: datetime | None
    paused_by: str | None
    note: str | None
    seen_at: datetime


class SourceMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a broker."""

    # the same at each delivery of this message, and different for every other message of its source
    id: str
    data: bytes
    headers: Mapping[str, str]
    # what the broker says of it, such as its subject or topic
    attributes: Mapping[str, str]
    occurred_at: datetime | None = None
    # messages with the same value are stored in the order of their arrival; None: in any order
    order: str | None = None
    # how often the broker has delivered it, if it counts
    deliveries: int = 1
    # the broker's own object
    handle: Any = None


def postponed_seconds(message: SourceMessage, seconds: float) -> float:
    """When to deliver a message again that waits for room in a queue: later each time, so that many leave time for others."""
    return seconds * 2.0 ** min(message.deliveries - 1, MOST_DOUBLINGS)


class SourceRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the messages of a source become."""

    # the event's name; {subject}, {topic} and other attributes of the message are filled in
    event: str
    tenant: str | None = None
    # where a message names its tenant: header:NAME, key, subject:2 (its second token) and so on
    tenant_from: str | None = None
    # how long the id of a message is remembered
    remember_days: int = 30


def find_rules_fault(rules: SourceRules, attributes: frozenset[str]) -> Fault | None:
    """The fault in the rules of a source whose messages have these attributes, or None."""
    if why := _find_event_fault(rules.event, attributes):
        return Fault("event", why)
    if (rules.tenant is None) == (rules.tenant_from is None):
        return Fault("tenant", "is needed, or tenant_from: one of the two")
    if rules.tenant_from is not None and (why := _find_selector_fault(rules.tenant_from, attributes)):
        return Fault("tenant_from", why)
    if not 1 <= rules.remember_days <= 3650:
        return Fault("remember_days", "must be 1 to 3650")
    return None


def _find_event_fault(event: str, attributes: frozenset[str]) -> str | None:
    if unknown := set(_PLACEHOLDER.findall(event)) - attributes:
        return f"has the placeholder {{{min(unknown)}}}; there are {_list(attributes)}"
    if event.startswith(RESERVED):
        return f"is reserved for the system: it begins with one of {', '.join(RESERVED)}"
    return find_name_fault(_PLACEHOLDER.sub("x", event))


def _find_selector_fault(selector: str, attributes: frozenset[str]) -> str | None:
    found = _SELECTOR.fullmatch(selector)
    if found is None or (found["attribute"] is not None and found["attribute"] not in attributes):
        return f"must be header:NAME, or one of {_list(attributes)}, which may be followed by the number of a token, such as subject:2"
    return None


def _list(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def read_message(rules: SourceRules, message: SourceMessage) -> NewEvent:
    """The event that a message becomes; its tenant and its data are not checked here. Refused if it can never become one."""
    if not 1 <= len(message.id) <= LONGEST_MESSAGE_ID or find_storage_flaw(message.id):
        raise MessageInvalid(
            f"The id of a message must have 1 to {LONGEST_MESSAGE_ID} characters.", [Fault("id", "not valid")]
        )
    name = _PLACEHOLDER.sub(lambda found: message.attributes.get(found[1], ""), rules.event)
    return check_event(
        NewEvent(
            name=name,
            tenant=_read_tenant(rules, message),
            data=_read_body(message.data),
            occurred_at=message.occurred_at,
        )
    )


def _read_body(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise PayloadTooDeep("The body of the message is nested too deeply.") from None
    except (msgspec.DecodeError, ValueError):
        raise PayloadNotJson("The body of the message is not JSON.") from None


def _read_tenant(rules: SourceRules, message: SourceMessage) -> str:
    if rules.tenant is not None:
        return rules.tenant
    named = _select(rules.tenant_from or "", message)
    # a message must not reach the system's own tenant by naming it
    if not named or find_storage_flaw(named) or named.lower() in {GLOBAL_TENANT, str(GLOBAL_TENANT_ID)}:
        raise unknown_tenant(named)
    return named


def _select(selector: str, message: SourceMessage) -> str:
    """The part of a message that a selector names; empty if the message lacks it."""
    found = _SELECTOR.fullmatch(selector)
    if found is None:
        return ""
    if found["header"] is not None:
        return message.headers.get(found["header"], "")
    value = message.attributes.get(found["attribute"], "")
    if found["token"] is None:
        return value
    tokens = value.split(".")
    place = int(found["token"])
    return tokens[place - 1] if place <= len(tokens) else ""
