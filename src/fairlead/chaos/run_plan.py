"""What the checker expects of a run: its tenants, definitions and limits, its schedule and its trigger."""

from collections.abc import Mapping, Sequence

import msgspec

from fairlead.chaos import scenario
from fairlead.chaos.scenario import DefinitionPlan


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The scenario of a run. Only calls of `tenants` are in the history."""

    tenants: Sequence[str] = scenario.TENANTS
    definitions: Sequence[DefinitionPlan] = scenario.DEFINITIONS
    # the tenant that attacks, if one does
    hostile: str | None = scenario.HOSTILE
    tenant_limits: Mapping[str, int] = msgspec.field(default_factory=lambda: scenario.TENANT_LIMITS)
    host: str = scenario.HOST
    host_limit: int = scenario.HOST_LIMIT
    # definitions whose jobs kill their workers, fail for good, or run until they are canceled
    poison: str = scenario.POISON
    fatal: str = scenario.FATAL
    durable: str = scenario.DURABLE
    # the most jobs of a batch, the slots of a worker, and the worker that has the label
    batch_size: int = scenario.BATCH_SIZE
    worker_slots: int = scenario.WORKER_SLOTS
    labeled_worker: str = scenario.LABELED_WORKER
    schedules: Sequence[str] = scenario.SCHEDULES
    clock_seconds: int = scenario.CLOCK_SECONDS
    event_type: str = scenario.EVENT_TYPE
    event_trigger: str = scenario.EVENT_TRIGGER
    lease_seconds: float = scenario.LEASE_SECONDS
    sweep_seconds: float = scenario.SWEEP_SECONDS


SCENARIO = RunPlan()
