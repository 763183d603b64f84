"""Limits beside the number of running jobs: how many start in some seconds, and how many run of one key."""

from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec.structs import force_setattr

from fairlead.errors import DefinitionInvalid, Fault
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
        msgspec.Meta(description="How many jobs may start at once. Null: as many as a second allows, and at least 1."),
    ] = None

    def __post_init__(self) -> None:
        """Raise DefinitionInvalid for values out of range."""
        faults = [
            Fault(f"rate.{name}", f"must be a whole number, 1 to {most}")
            for name, most in (("limit", MOST_STARTS), ("per_seconds", MOST_SECONDS), ("burst", MOST_STARTS))
            if not ((value := getattr(self, name)) is None and name == "burst" or _is_whole(value, most))
        ]
        if faults:
            raise DefinitionInvalid(f"Invalid rate: {faults[0].path} {faults[0].message}.", faults)
        if self.burst is None:
            force_setattr(self, "burst", max(1, -(-self.limit // self.per_seconds)))


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
        bool, msgspec.Meta(description="Start the jobs of a key in the order of their enqueues; a retry blocks its key.")
    ] = False

    def __post_init__(self) -> None:
        """Raise DefinitionInvalid for values out of range."""
        checks = {
            "pointer": (self.pointer.startswith("/") and len(self.pointer) <= MAX_POINTER and not find_storage_flaw(self.pointer))
            or f"must be a JSON pointer such as /customerId, of at most {MAX_POINTER} characters",
            "max_running": (self.max_running is None or _is_whole(self.max_running, MOST_STARTS))
            or f"must be a whole number, 1 to {MOST_STARTS}, or left out",
            "rate": (self.max_running is not None or self.rate is not None) or "or max_running must be given",
        }
        if faults := [Fault(f"by_key.{name}", fine) for name, fine in checks.items() if isinstance(fine, str)]:
            raise DefinitionInvalid(f"Invalid limit by key: {faults[0].path} {faults[0].message}.", faults)
