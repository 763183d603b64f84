"""A disagreement between the queue, the record and what is counted, and whether it can be mended by itself."""

from enum import StrEnum
from uuid import UUID

import msgspec


class Kind(StrEnum):
    """What is wrong, in the order in which it is mended. All but OTHER can be: see `actions/repair.py`."""

    SLEEPING_PARENT = "sleeping_parent"
    RUNNING_WITHOUT_LEASE = "running_without_lease"
    QUEUED_WITHOUT_ROW = "queued_without_row"
    STALE_KEY = "stale_key"
    ACTIVE_WITHOUT_KEY = "active_without_key"
    RUN_COUNTERS = "run_counters"
    COUNTS = "counts"
    OTHER = "other"


class Fault(msgspec.Struct, frozen=True):
    """One fault: of a job, of a workflow run, or (COUNTS) of a tenant, as `id` says."""

    kind: Kind
    id: UUID
    problem: str

    def __str__(self) -> str:
        return f"{self.id}: {self.problem}"
