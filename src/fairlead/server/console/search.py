"""The search box for jobs: words with qualifiers, such as `status:failed definition:report created:>12:00 Ada`."""

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import msgspec

from fairlead.errors import Fault, InvalidInput
from fairlead.model.job import JobStatus, Source, WaitingFor

PAYLOAD = "payload."
CONTAINS = "payload"
TAG = "tag"
# By qualifier: what to write after it.
QUALIFIERS = {
    "status": "queued, running, succeeded, failed, dead_letter, canceled; ready, scheduled, retrying",
    "definition": "a definition's key",
    "error": "a part of the last error",
    "created": ">12:00, <2026-11-16, today, 2h, 2026-11-01..2026-11-16",
    "duration": ">5s, <100ms",
    "payload.": "a path and a value: payload.to:ada@example.com, payload.customer.id:42, payload.to:*@example.com",
    "payload": 'values that the payload has, as JSON: payload:{"customer": {"id": 42}}',
    "tag": "a tag; several: tag:nightly tag:eu finds jobs with both",
    "worker": "a worker's id, or the beginning of it",
    "host": "a host's name or id",
    "source": "manual, event, schedule, system",
    "key": "a dedupe key",
    "correlation": "a correlation id",
    "run": "the id of a workflow run",
}
_WORD = re.compile(
    r"""(?P<name>[A-Za-z_][\w.-]*):(?:"(?P<quoted>[^"]*)"|(?P<value>\S+)) | "(?P<text>[^"]*)" | (?P<word>\S+)""",
    re.VERBOSE,
)
_LENGTH = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|m|min|h|d|w)?")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_TEXTS = {"worker": "worker", "error": "error", "definition": "definition_key", "key": "dedupe_key"}
_TEXTS |= {"correlation": "correlation_id", "run": "workflow_run_id", "host": "host"}
_Kind = TypeVar("_Kind", bound=StrEnum)


class Word(msgspec.Struct, frozen=True):
    """A word of a search as it was written: a qualifier's name (empty without one) and its value."""

    name: str
    value: str
    written: str


def split_words(text: str) -> list[Word]:
    """The words of a search. A quoted text or a JSON object is one word, whatever it has inside."""
    words, at = list[Word](), 0
    while found := _WORD.search(text, at):
        name = _normalize_name(found["name"] or "")
        at = found.end()
        if name == CONTAINS and (end := _find_end_of_json(text, found.start("value"))):
            words.append(Word(name, text[found.start("value") : end], text[found.start() : end]))
            at = end
        else:
            value = found["quoted"] or found["value"] or found["text"] or found["word"] or ""
            words.append(Word(name, value, found[0]))
    return words


def _find_end_of_json(text: str, start: int) -> int | None:
    """Where the JSON object that starts there ends; None if there is none."""
    if start < 0 or text[start] != "{":
        return None
    try:
        return json.JSONDecoder().raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return None


def _normalize_name(name: str) -> str:
    """A qualifier's name in lower case, but a path of the payload as it was written."""
    if name.lower().startswith(PAYLOAD):
        return PAYLOAD + name[len(PAYLOAD) :]
    return name.lower()


def write_word(name: str, value: str) -> str:
    """A qualifier with its value, quoted if necessary."""
    if name == CONTAINS and value.startswith("{"):
        return f"{name}:{value}"
    return f'{name}:"{value}"' if re.search(r'[\s"]', value) or not value else f"{name}:{value}"


def replace_word(text: str, name: str, value: str | None) -> str:
    """The search with another value of a qualifier, or (None) without it."""
    others = [word.written for word in split_words(text) if word.name != name]
    return " ".join([*others, *([write_word(name, value)] if value else [])])


def read_search(text: str, *, now: datetime, zone: ZoneInfo) -> dict[str, Any]:
    """The fields of a JobFilter for a search (`host` as written); raises InvalidInput for what it cannot understand."""
    found: dict[str, Any] = {}
    payload: dict[str, str] = {}
    plain: list[str] = []
    for word in split_words(text):
        if not word.name:
            plain.append(word.value)
        elif word.name.startswith(PAYLOAD) and word.name != PAYLOAD:
            payload[word.name.removeprefix(PAYLOAD)] = word.value
        elif word.name == TAG:
            tags = [*found.get("tags", ()), *map(str.strip, word.value.split(","))]
            found["tags"] = list(dict.fromkeys(filter(None, tags))) or None
        elif word.name in _TEXTS:
            found[_TEXTS[word.name]] = word.value
        elif word.name in _READERS:
            found |= _READERS[word.name](word.value, now.astimezone(zone))
        else:
            raise _unknown_qualifier(word)
    return found | {name: value for name, value in (("payload", payload), ("q", " ".join(plain))) if value}


def _unknown_qualifier(word: Word) -> InvalidInput:
    known = ", ".join(f"{name}:" if not name.endswith(".") else f"{name}…:" for name in QUALIFIERS)
    return InvalidInput(
        f"There is no qualifier {word.name[:40]}: in this search. Use one of {known} or quote the text to search for it: "
        f'"{word.written[:80]}".',
        [Fault("q", "unknown qualifier")],
    )


def _read_contained(value: str, _now: datetime) -> dict[str, Any]:
    try:
        return {"payload_contains": json.loads(value)}
    except (ValueError, RecursionError):
        raise InvalidInput(
            f'payload:{value[:40]} is not JSON. Write payload:{{"customer": {{"id": 42}}}}, or '
            "payload.customer.id:42.",
            [Fault("payload", "not JSON")],
        ) from None


def _read_status(value: str, _now: datetime) -> dict[str, Any]:
    texts = [one.lower() for one in value.split(",") if one]
    waiting = [one for one in texts if one in set(WaitingFor)]
    if not waiting:
        return {
            "status": [_read_member(JobStatus, "status", one, [*JobStatus, *WaitingFor]) for one in texts]
        }
    if len(texts) > 1:
        raise InvalidInput(
            f"status:{waiting[0]} stands alone: it is a part of the queued jobs.",
            [Fault("status", "use one")],
        )
    return {"waiting_for": WaitingFor(waiting[0])}


def _read_source(value: str, _now: datetime) -> dict[str, Any]:
    return {"source": _read_member(Source, "source", value, list(Source))}


def _read_member(kind: type[_Kind], name: str, text: str, known: Sequence[StrEnum]) -> _Kind:
    try:
        return kind(re.sub(r"[ -]", "_", text.lower()))
    except ValueError:
        raise InvalidInput(
            f"There is no {name} {text[:40]!r}. Use one of: {', '.join(known)}.", [Fault(name, "unknown")]
        ) from None


def _read_created(value: str, now: datetime) -> dict[str, Any]:
    """`>12:00`, `<2026-11-16`, `2h` (the last two hours), `today`, `2026-11-16`, `2026-11-01..2026-11-16`."""
    first, dots, last = value.partition("..")
    if dots:
        start, end = (
            _read_period(first, now)[0] if first else None,
            _read_period(last, now)[1] if last else None,
        )
    elif value.startswith(">"):
        start, end = _read_period(value.lstrip(">="), now)[0], None
    elif value.startswith("<"):
        start, end = None, _read_period(value.lstrip("<="), now)[0]
    else:
        start, end = _read_period(value, now)
    bounds = {"created_after": start, "created_before": end}
    return {name: at.astimezone(UTC) for name, at in bounds.items() if at is not None}


def _read_period(text: str, now: datetime) -> tuple[datetime, datetime]:
    """The beginning and the end of a day, of a time or of the last hours."""
    midnight = datetime.combine(now.date(), time(), now.tzinfo)
    day = timedelta(days=1)
    if text.lower() in ("today", "yesterday"):
        start = midnight if text.lower() == "today" else midnight - day
        return start, start + day
    if (length := _LENGTH.fullmatch(text)) and length["unit"]:
        return now - timedelta(seconds=_seconds(length)), now
    try:
        if re.fullmatch(r"\d{1,2}:\d{2}(:\d{2})?", text):
            at = datetime.combine(now.date(), time.fromisoformat(text.zfill(5)), now.tzinfo)
            return at, at
        at = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"created:{text[:40]} is not a time. Write {QUALIFIERS['created']}.",
            [Fault("created", "not a time")],
        ) from None
    at = at if at.tzinfo else at.replace(tzinfo=now.tzinfo)
    return at, at + day if len(text) <= len("2026-11-16") else at


def _read_duration(value: str, _now: datetime) -> dict[str, Any]:
    found = _LENGTH.fullmatch(value.lstrip("<>="))
    if found is None or value[0] not in "<>":
        raise InvalidInput(
            f"duration:{value[:40]} is not a length. Write {QUALIFIERS['duration']}.",
            [Fault("duration", "not a length")],
        )
    return {"duration_over" if value[0] == ">" else "duration_under": _seconds(found)}


def _seconds(length: re.Match[str]) -> float:
    return min(float(length["number"]) * _SECONDS[length["unit"] or "s"], 3.2e9)


_READERS: dict[str, Callable[[str, datetime], dict[str, Any]]] = {
    CONTAINS: _read_contained,
    "status": _read_status,
    "source": _read_source,
    "created": _read_created,
    "duration": _read_duration,
}
