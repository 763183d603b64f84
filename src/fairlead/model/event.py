"""An event that the application emits, in Fairlead's own format or as a CloudEvent."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from uuid_utils.compat import uuid7

from fairlead.errors import EventInvalid, EventReserved, Fault
from fairlead.model.field import Internal
from fairlead.model.job import MAX_CORRELATION_ID
from fairlead.model.payload import find_storage_flaw
from fairlead.model.request import EARLIEST, LATEST

EVENT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._:/@+-]{0,254}")
CLOUD_EVENTS = "1.0"
# Only the system emits these, so that a receiver can trust them. fairlead.emit_one has the same list.
RESERVED = ("job.", "workflow.", "usage.")
_NEEDED = ("id", "source", "type")
_READABLE = ("application/json", "+json")


class NewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A request to emit an event."""

    name: str
    tenant: str
    data: Any = msgspec.field(default_factory=dict)
    correlation_id: str | None = None
    occurred_at: datetime | None = None
    # the job that emits it
    caused_by: UUID | None = None
    id: UUID = msgspec.field(default_factory=uuid7)


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event as it is stored."""

    id: UUID
    tenant_id: UUID
    tenant: str
    name: str
    data: Any
    correlation_id: str | None
    occurred_at: datetime
    recorded_at: datetime
    dispatched_at: datetime | None
    replay_of: UUID | None
    only_trigger_id: UUID | None
    created_by: str | None
    # the job that emitted it, or whose end it reports; and the triggers that led to that job, oldest first
    caused_by: UUID | None = None
    lineage: Internal[tuple[UUID, ...]] = ()
    # the paths of secrets in the data, as its triggers found them
    secret_paths: Internal[tuple[str, ...]] = ()


def check_event(new: NewEvent) -> NewEvent:
    """The request itself; EventInvalid names every invalid field."""
    faults = []
    if flaw := find_name_fault(new.name):
        faults.append(Fault("name", flaw))
    if not isinstance(new.data, Mapping):
        faults.append(Fault("data", "must be an object"))
    if new.correlation_id is not None and not _is_short_text(new.correlation_id):
        faults.append(Fault("correlation_id", f"must be text of 1 to {MAX_CORRELATION_ID} characters"))
    if not _is_job_id(new.caused_by):
        faults.append(Fault("caused_by", "must be the id of a job"))
    if new.occurred_at is not None and not _is_time(new.occurred_at):
        faults.append(Fault("occurred_at", "must be a time with its zone, in the years 1970 to 2999"))
    if faults:
        raise EventInvalid(f"Cannot emit: {faults[0].path} {faults[0].message}.", faults)
    if new.name.startswith(RESERVED):
        raise reserved_name_error(new.name)
    return new


def reserved_name_error(name: str) -> EventReserved:
    return EventReserved(
        f"Cannot emit {name}: names that begin with {', '.join(RESERVED)} are reserved for the system. Choose another.",
        [Fault("name", "is reserved")],
    )


def find_name_fault(name: Any) -> str | None:
    """The fault in an event's name, or None."""
    if isinstance(name, str) and EVENT_NAME.fullmatch(name):
        return None
    return "must begin with a letter and have up to 255 letters, digits and . _ : / @ + -, such as provider.folder.updated"


def is_cloud_event(document: Any) -> bool:
    """Whether a body is a CloudEvent: it has a specversion."""
    return isinstance(document, Mapping) and "specversion" in document


def from_cloud_event(document: Mapping[str, Any], *, tenant: str) -> NewEvent:
    """Read a CloudEvent (1.0, JSON): `type` is the event's name and `data` its data. All other attributes go to
    `cloudevent` in the data, so that templates and filters can use them.
    """
    # in CloudEvents null means unset
    document = {name: value for name, value in document.items() if value is not None}
    faults = [
        Fault(name, "is required, as text")
        for name in _NEEDED
        if not (isinstance(document.get(name), str) and document[name])
    ]
    if document.get("specversion") != CLOUD_EVENTS:
        faults.append(Fault("specversion", f"must be {CLOUD_EVENTS!r}"))
    if "data_base64" in document:
        faults.append(Fault("data_base64", "binary data is not supported; send data as JSON"))
    kind = document.get("datacontenttype", "application/json")
    if not (isinstance(kind, str) and kind.partition(";")[0].strip().lower().endswith(_READABLE)):
        faults.append(Fault("datacontenttype", "must be a JSON media type"))
    data = document.get("data", {})
    if not isinstance(data, Mapping):
        faults.append(Fault("data", "must be an object"))
    occurred_at = document.get("time")
    if occurred_at is not None and not isinstance(moment := _read_time(occurred_at), datetime):
        faults.append(Fault("time", "must be a time such as 2026-02-16T10:30:00Z"))
    if faults:
        raise EventInvalid(f"Invalid CloudEvent: {faults[0].path} {faults[0].message}.", faults)
    attributes = {name: value for name, value in document.items() if name != "data"}
    correlation = document.get("correlationid")
    return check_event(
        NewEvent(
            name=document["type"],
            tenant=tenant,
            data={"cloudevent": attributes, **data},
            correlation_id=correlation if isinstance(correlation, str) else None,
            occurred_at=None if occurred_at is None else moment,
        )
    )


def _read_time(text: Any) -> Any:
    try:
        return datetime.fromisoformat(text)
    except (ValueError, TypeError):
        return text


def _is_short_text(value: Any) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= MAX_CORRELATION_ID and not find_storage_flaw(value)


def _is_job_id(value: Any) -> bool:
    return value is None or isinstance(value, UUID)


def _is_time(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None and EARLIEST <= value < LATEST
