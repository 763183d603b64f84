"""Limits beside the number of running jobs: how many start in some seconds, and how many run of one key."""

import re
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec.structs import force_setattr

from fairlead.errors import DefinitionInvalid, Fault, InvalidInput
from fairlead.model.payload import find_storage_flaw

MOST_STARTS = 1_000_000
MOST_SECONDS = 2_592_000
MAX_POINTER = 500


class Rate(msgspec.Struct, frozen=True):
    """At most `limit` starts in `per_seconds`, of which `burst` may come at once.

    A token bucket: it holds `burst` tokens, each start takes one, and `limit` tokens flow in evenly in `per_seconds`. So no
    window of `per_seconds` has more than `limit + burst - 1` starts. Without `burst`, as many may come at once as a second
    allows, and at least one.
    """

    limit: Annotated[int, msgspec.Meta(description="How many jobs may start in per_seconds.")]
    per_seconds: Annotated[int, msgspec.Meta(description="1 to 2592000 (30 days).")] = 1
    burst: Annotated[
        int | None,
        msgspec.Meta(
            description="How many jobs may start at once. Null: as many as a second allows, and at least 1."
        ),
    ] = None
    cost: Annotated[
        str | None,
        msgspec.Meta(
            description="A JSON pointer to a number in the payload: a start takes that many of the limit. Null: one."
        ),
    ] = None

    def __post_init__(self) -> None:
        """Raise InvalidInput for values out of range."""
        faults = [
            Fault(f"rate.{name}", f"must be a whole number, 1 to {most}")
            for name, most in (("limit", MOST_STARTS), ("per_seconds", MOST_SECONDS), ("burst", MOST_STARTS))
            if not (((value := getattr(self, name)) is None and name == "burst") or _is_whole(value, most))
        ]
        if self.cost is not None and not _is_pointer(self.cost):
            faults.append(Fault("rate.cost", _POINTER_WORDS))
        if faults:
            raise InvalidInput(f"Invalid rate: {faults[0].path} {faults[0].message}.", faults)
        if self.burst is None:
            force_setattr(self, "burst", max(1, -(-self.limit // self.per_seconds)))


def read_rate(given: Any) -> Rate | None:
    """A rate from plain values; InvalidInput if they are none."""
    if given is None or isinstance(given, Rate):
        return given
    try:
        return msgspec.convert(given, Rate)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"Invalid rate: {error}", [Fault("rate", str(error))]) from error


_TEXT = re.compile(
    r"\s*([0-9]{1,7})/([0-9]{0,7})(s|min|h|d)(?:\+([0-9]{1,7}))?(?:\s*|\s+cost\s+(/.*))", re.DOTALL
)
_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}


def parse_rate(text: str) -> Rate:
    """A rate as people write it: 100/min, 10/s, 1000/15min, with a burst 100/min+20, with a cost 100/min+20 cost /tokens."""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise InvalidInput(
            f"{text[:100]!r} is not a rate: write it as 100/min, 10/s or 1000/15min; with a burst, 100/min+20.",
            [Fault("rate", "must be a rate such as 100/min")],
        )
    limit, number, unit, burst, cost = found.groups()
    seconds = int(number or 1) * _UNITS[unit]
    return Rate(int(limit), seconds, None if burst is None else int(burst), cost)


def format_rate(rate: Rate) -> str:
    """A rate as people write it."""
    unit, seconds = next(
        (unit, size) for unit, size in reversed(_UNITS.items()) if rate.per_seconds % size == 0
    )
    number = rate.per_seconds // seconds
    cost = "" if rate.cost is None else f" cost {rate.cost}"
    return f"{rate.limit}/{'' if number == 1 else number}{unit}+{rate.burst}{cost}"


_WORDS = {"s": "second", "min": "minute", "h": "hour", "d": "day"}


def describe_rate(rate: Rate) -> str:
    """A rate in words: 100 per minute, 1,000 per 15 minutes."""
    unit, seconds = next(
        (unit, size) for unit, size in reversed(_UNITS.items()) if rate.per_seconds % size == 0
    )
    number = rate.per_seconds // seconds
    return f"{rate.limit:,} per {_WORDS[unit] if number == 1 else f'{number:,} {_WORDS[unit]}s'}"


_POINTER_WORDS = f"must be a JSON pointer such as /customerId, of at most {MAX_POINTER} characters"


def _is_pointer(text: str) -> bool:
    return text.startswith("/") and len(text) <= MAX_POINTER and not find_storage_flaw(text)


def _is_whole(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


class KeyStrategy(StrEnum):
    """What an enqueue does if as many jobs of its key are active as may run."""

    QUEUE = "queue"
    CANCEL_RUNNING = "cancel_running"
    DROP_NEW = "drop_new"
    REPLACE_QUEUED = "replace_queued"


class KeyLimit(msgspec.Struct, frozen=True):
    """Limits for the jobs of a tenant that have the same value at a place of their payloads."""

    pointer: Annotated[str, msgspec.Meta(description="A JSON pointer into the payload, such as /customerId.")]
    max_running: int | None = None
    rate: Rate | None = None
    strategy: KeyStrategy = KeyStrategy.QUEUE
    fifo: Annotated[
        bool,
        msgspec.Meta(
            description="Start the jobs of a key in the order of their enqueues; a retry blocks its key."
        ),
    ] = False

    def __post_init__(self) -> None:
        """Raise DefinitionInvalid for values out of range."""
        checks = {
            "pointer": _is_pointer(self.pointer) or _POINTER_WORDS,
            "max_running": (self.max_running is None or _is_whole(self.max_running, MOST_STARTS))
            or f"must be a whole number, 1 to {MOST_STARTS}, or left out",
            "rate": (self.max_running is not None or self.rate is not None) or "or max_running must be given",
        }
        if faults := [
            Fault(f"by_key.{name}", fine) for name, fine in checks.items() if isinstance(fine, str)
        ]:
            raise DefinitionInvalid(f"Invalid limit by key: {faults[0].path} {faults[0].message}.", faults)


def format_key_limit(by_key: KeyLimit) -> str:
    """A limit by key in few words."""
    parts = (
        None if by_key.max_running is None else f"{by_key.max_running} running",
        None if by_key.rate is None else format_rate(by_key.rate),
        "in order" if by_key.fifo else None,
    )
    return f"{by_key.pointer}: {', '.join(one for one in parts if one)}"
