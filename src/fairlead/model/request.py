"""Reading and checking a request to enqueue."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from fairlead.errors import DefinitionUnknown, Fault, InvalidInput, TenantUnknown
from fairlead.model.definition import KEY
from fairlead.model.field import meta_of, type_of
from fairlead.model.job import EDITABLE, MAX_TAG, Debounce, JobEdit, NewJob, Source, seconds_of
from fairlead.model.payload import find_storage_flaw
from fairlead.model.reserved_key import require_unreserved_key

EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(3000, 1, 1, tzinfo=UTC)
LONGEST_DELAY = timedelta(days=3650)

_TENANT = re.compile(
    r"[a-z0-9][a-z0-9-]{0,62}|[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
)
_DELAY = re.compile(r"(\d{1,9})([smhd])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_FIELDS = {field.name: field for field in msgspec.structs.fields(NewJob)}
_NEEDED = {name for name, field in _FIELDS.items() if field.default is not None}


def check_request(new: NewJob, *, own_key: bool = False) -> NewJob:
    """The request itself; InvalidInput names every invalid field. `own_key` allows a reserved dedupe key."""
    definition, tenant = new.definition, new.tenant
    if (
        new.plain
        and type(new.id) is UUID
        and type(definition) is str
        and type(tenant) is str
        and _names_fit(definition, tenant)
    ):
        return new  # nearly every job of a bulk load
    if found := _find_faults(new):
        raise InvalidInput(f"Cannot enqueue: {found[0].path} {found[0].message}.", found)
    if not _TENANT.fullmatch(new.tenant):
        raise unknown_tenant(new.tenant)
    if not KEY.fullmatch(new.definition):
        raise unknown_definition(new.definition)
    if new.dedupe_key is not None and not own_key:
        require_unreserved_key(new.dedupe_key, "dedupe_key")
    return new


def _find_conflicts(new: NewJob) -> list[Fault]:
    """Options that exclude each other, or need another."""
    found = []
    if new.delay is not None and new.scheduled_for is not None:
        found.append(Fault("delay", "cannot be given together with scheduled_for"))
    if new.unique_for is not None and new.dedupe_key is None:
        found.append(Fault("unique_for", "needs a dedupe_key, which it keeps taken"))
    if new.debounce is not None:
        found += [
            Fault("debounce", f"cannot be given together with {name}")
            for name in ("dedupe_key", "scheduled_for", "delay")
            if getattr(new, name) is not None
        ]
    return found


def _find_faults(new: NewJob) -> list[Fault]:
    """The invalid fields of a request."""
    found = []
    for name, check, meta in _CHECKS:
        value = getattr(new, name)
        if (value is not None or name in _NEEDED) and (message := check(value, meta)):
            found.append(Fault(name, message))
    return found + _find_conflicts(new)


def check_edit(edit: JobEdit) -> None:
    """Raise InvalidInput for an edit that changes nothing, or with the names of its invalid fields."""
    if edit.is_empty:
        names = ", ".join(JobEdit.__struct_fields__)
        raise InvalidInput(f"Give at least one value to change: {names}.", [Fault("", "nothing to change")])
    changed = {name: getattr(edit, name) for name in EDITABLE}
    if found := _find_faults(NewJob(definition="edit", tenant="edit", **changed)):
        raise InvalidInput(f"Cannot edit: {found[0].path} {found[0].message}.", found)


def parse_edit(given: Mapping[str, Any]) -> JobEdit:
    """Read an edit from texts: parse times and lengths of time, and check it."""
    read = {
        name: _READERS[name](value) if name in _READERS and isinstance(value, str) else value
        for name, value in given.items()
    }
    edit = JobEdit(**read)
    check_edit(edit)
    return edit


def parse_request(request: Any) -> NewJob:
    """Read a request from JSON: refuse unknown and missing fields, parse times and ids."""
    if not isinstance(request, Mapping):
        raise InvalidInput(
            "A job to enqueue is an object with at least definition and tenant.",
            [Fault("", "must be an object")],
        )
    faults = [
        *(Fault(str(name), "unknown field") for name in request if name not in _FIELDS),
        *(Fault(name, "is required") for name in ("definition", "tenant") if name not in request),
    ]
    if faults:
        known = ", ".join(sorted(_FIELDS))
        raise InvalidInput(f"Cannot enqueue: {faults[0].path} {faults[0].message}. Fields: {known}.", faults)
    given = dict(request)
    for name, read in _READERS.items():
        if isinstance(given.get(name), str):
            given[name] = read(given[name])
    if isinstance(given.get("debounce"), Mapping):
        given["debounce"] = _build_debounce(given["debounce"])
    if isinstance(given.get("tags"), list):
        given["tags"] = tuple(given["tags"])
    if "payload" in given and given["payload"] is None:
        raise InvalidInput(
            "Cannot enqueue: payload must be an object.", [Fault("payload", "must be an object")]
        )
    for name in ("source", "id"):
        if given.get(name, ...) is None:
            del given[name]
    return check_request(NewJob(**given))


def parse_id(value: Any, whose: str = "job") -> UUID:
    """Parse the id of a job or run."""
    try:
        return value if isinstance(value, UUID) else UUID(value)
    except (ValueError, TypeError, AttributeError) as error:
        article = "an" if whose[0] in "aeiou" else "a"
        raise InvalidInput(
            f"{str(value)[:80]!r} is not {article} {whose}'s id: that is a UUID.", [Fault("id", "not a UUID")]
        ) from error


def unknown_tenant(tenant: str) -> TenantUnknown:
    return TenantUnknown(
        f"There is no tenant {tenant[:80]!r}. Add it with: fairlead tenants add SLUG",
        [Fault("tenant", "unknown")],
    )


def unknown_definition(key: str) -> DefinitionUnknown:
    return DefinitionUnknown(
        f"There is no definition {key[:130]!r}. Register it with @fl.job, or: fairlead definitions put KEY",
        [Fault("definition", "unknown")],
    )


@lru_cache(maxsize=10_000)
def _names_fit(definition: str, tenant: str) -> bool:
    return bool(KEY.fullmatch(definition) and _TENANT.fullmatch(tenant))


def _read_moment(text: str) -> Any:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return text  # check_request refuses it, with the field's name


def _read_delay(text: str) -> Any:
    found = _DELAY.fullmatch(text)
    return text if found is None else timedelta(**{_UNITS[found[2]]: int(found[1])})


def _read_tags(text: str) -> Any:
    return tuple(part.strip() for part in text.split(","))


def _read_debounce(text: str) -> Any:
    """`KEY:SECONDS[:MAX_SECONDS[:first|last]]`, with times such as 5m; the key may contain colons."""
    if text.startswith("{"):
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text
    parts = text.split(":")
    payload = parts.pop() if len(parts) > 2 and parts[-1] in ("first", "last") else "last"
    times: list[str] = []
    while len(parts) > 1 and len(times) < 2 and _is_time(parts[-1]):
        times.insert(0, parts.pop())
    if not times:
        return text
    return {
        "key": ":".join(parts),
        **dict(zip(("seconds", "max_seconds"), times, strict=False)),
        "payload": payload,
    }


def _build_debounce(given: Mapping[str, Any]) -> Any:
    times = {
        name: _read_seconds(given[name])
        for name in ("seconds", "max_seconds")
        if isinstance(given.get(name), str)
    }
    try:
        return Debounce(**{**given, **times})
    except TypeError:
        return given  # check_request refuses it


def _read_seconds(text: str) -> Any:
    return float(text) if text.replace(".", "", 1).isdecimal() else _read_delay(text)


def _is_time(text: str) -> bool:
    # a number without a unit may be a part of the key
    return _DELAY.fullmatch(text) is not None


def _read_uuid(text: str) -> Any:
    try:
        return UUID(text)
    except ValueError:
        return text


def _read_source(text: str) -> Any:
    return Source(text) if text in list(Source) else text


def _check_text(value: Any, meta: Any) -> str | None:
    if type(value) is not str:
        return "must be a string"
    if not 1 <= len(value) <= meta.max_length:
        return f"must have 1 to {meta.max_length} characters"
    return find_storage_flaw(value)


def _check_integer(value: Any, meta: Any) -> str | None:
    if type(value) is not int:
        return "must be an integer"
    return None if meta.ge <= value <= meta.le else f"must be between {meta.ge} and {meta.le}"


def _check_time(value: Any, _: Any) -> str | None:
    if not isinstance(value, datetime):
        return "must be a time such as 2026-02-16T10:30:00Z"
    if value.tzinfo is None:
        return "must name its time zone, such as 2026-02-16T10:30:00Z"
    return None if EARLIEST <= value < LATEST else "must lie between the years 1970 and 3000"


def _check_seconds(value: Any, meta: Any) -> str | None:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if type(value) not in (int, float):
        return "must be seconds, or a time such as 90s, 5m, 2h or 1d"
    longest = meta.le or LONGEST_DELAY.total_seconds()
    if meta.gt is not None:
        # NaN fails this test, too
        return (
            None if meta.gt < value <= longest else f"must be more than 0 and at most {longest:.0f} seconds"
        )
    least = meta.ge or 0
    return None if least <= value <= longest else f"must be between {least} and {longest:.0f} seconds"


def _check_tags(value: Any, meta: Any) -> str | None:
    if not isinstance(value, list | tuple) or not all(type(tag) is str for tag in value):
        return "must be a list of strings"
    if len(value) > meta.max_length:
        return f"must have at most {meta.max_length} tags"
    if len(set(value)) != len(value):
        return "must not name a tag twice"
    return next((flaw for tag in value if (flaw := find_tag_flaw(tag))), None)


def check_tags(tags: Any) -> None:
    """Refuse a filter by tags that no job can have."""
    flaw = _check_tags(tags, meta_of(_FIELDS["tags"])) or (None if tags else "must have at least one tag")
    if flaw:
        raise InvalidInput(f"tags {flaw}.", [Fault("tags", flaw)])


def find_tag_flaw(tag: str) -> str | None:
    """Why this cannot be a tag; None if it can."""
    if not 1 <= len(tag) <= MAX_TAG:
        return f"must consist of tags of 1 to {MAX_TAG} characters"
    if tag != tag.strip() or _NOT_IN_TAG.search(tag):
        return "must consist of tags without commas, control characters and blanks around them"
    return find_storage_flaw(tag)


def find_option_flaw(name: str, value: Any) -> str | None:
    """Why this cannot be the value of an option of a job; None if it can."""
    check, meta = next((check, meta) for one, check, meta in _CHECKS if one == name)
    return check(value, meta)


def _check_debounce(value: Any, _: Any) -> str | None:
    if not isinstance(value, Debounce):
        return "must be an object with key, seconds and optionally max_seconds and payload (last or first)"
    if flaw := _check_text(value.key, _DEBOUNCE_KEY):
        return f"key {flaw}"
    for name in ("seconds", "max_seconds"):
        given = getattr(value, name)
        if given is not None and (flaw := _check_seconds(given, _POSITIVE)):
            return f"{name} {flaw}"
    if value.max_seconds is not None and seconds_of(value.max_seconds) < seconds_of(value.seconds):
        return "max_seconds must not be less than seconds"
    return None if value.payload in ("last", "first") else "payload must be last or first"


def _check_uuid(value: Any, _: Any) -> str | None:
    return None if isinstance(value, UUID) else "must be a UUID"


def _check_source(value: Any, _: Any) -> str | None:
    return None if isinstance(value, Source) else "must be manual, event, schedule or system"


_NOT_IN_TAG = re.compile(r"[,\x00-\x1f\x7f]")
_POSITIVE = msgspec.Meta(gt=0)
_DEBOUNCE_KEY = meta_of(next(one for one in msgspec.structs.fields(Debounce) if one.name == "key"))
_TYPE_CHECKS: dict[Any, Callable[[Any, Any], str | None]] = {
    str: _check_text,
    int: _check_integer,
    float: _check_seconds,
    tuple[str, ...]: _check_tags,
    Debounce: _check_debounce,
    datetime: _check_time,
    UUID: _check_uuid,
    Source: _check_source,
}
_TYPE_READERS = {
    datetime: _read_moment,
    float: _read_delay,
    tuple[str, ...]: _read_tags,
    Debounce: _read_debounce,
    UUID: _read_uuid,
    Source: _read_source,
}
_CHECKS = [
    (name, _TYPE_CHECKS[type_of(field)], meta_of(field))
    for name, field in _FIELDS.items()
    if type_of(field) in _TYPE_CHECKS
]
_READERS = {
    name: _TYPE_READERS[type_of(field)] for name, field in _FIELDS.items() if type_of(field) in _TYPE_READERS
}
