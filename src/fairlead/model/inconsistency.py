"""An inconsistency between the queue, the job records and the counters."""

from enum import StrEnum
from uuid import UUID

import msgspec


class InconsistencyKind(StrEnum):
    """The types of inconsistency, in the order of their repair. All except OTHER can be repaired: `actions/repair.py`."""

    SLEEPING_PARENT = "sleeping_parent"
    SLEEPING_FUNCTION = "sleeping_function"
    QUEUED_WITHOUT_ROW = "queued_without_row"
    STALE_KEY = "stale_key"
    ACTIVE_WITHOUT_KEY = "active_without_key"
    LIMIT_KEY = "limit_key"
    HELD_IN_VAIN = "held_in_vain"
    RUN_COUNTERS = "run_counters"
    COUNTS = "counts"
    OTHER = "other"


class Inconsistency(msgspec.Struct, frozen=True):
    """One inconsistency; `id` is the job, the workflow run, or (COUNTS) the tenant."""

    kind: InconsistencyKind
    id: UUID
    problem: str

    def __str__(self) -> str:
        return f"{self.id}: {self.problem}"
