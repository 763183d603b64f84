"""Reasons why a job is not running: their codes and their form."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec


class ReasonCode(StrEnum):
    """The codes of reasons, the most decisive first."""

    TERMINAL = "terminal"
    RUNNING = "running"
    WORKER_LOST = "worker_lost"
    WAITING_FOR_JOBS = "waiting_for_jobs"
    STEP_BACKING_OFF = "step_backing_off"
    SLEEPING = "sleeping"
    WAITING_FOR_EVENT = "waiting_for_event"
    WAITING_FOR_SIGNAL = "waiting_for_signal"
    WAITING_FOR_APPROVAL = "waiting_for_approval"
    WAITING_FOR_CHILD = "waiting_for_child"
    NOT_DUE = "not_due"
    BACKING_OFF = "backing_off"
    ENCRYPTION_KEY = "encryption_key"
    SUSPECT = "suspect"
    SYSTEM_PAUSED = "system_paused"
    TENANT_PAUSED = "tenant_paused"
    DEFINITION_PAUSED = "definition_paused"
    HOST_PAUSED = "host_paused"
    HOST_DRAINING = "host_draining"
    TENANT_LIMIT = "tenant_limit"
    DEFINITION_LIMIT = "definition_limit"
    DEFINITION_TENANT_LIMIT = "definition_tenant_limit"
    HOST_LIMIT = "host_limit"
    KEY_LIMIT = "key_limit"
    KEY_ORDER = "key_order"
    SYSTEM_RATE = "system_rate"
    TENANT_RATE = "tenant_rate"
    DEFINITION_RATE = "definition_rate"
    DEFINITION_TENANT_RATE = "definition_tenant_rate"
    KEY_RATE = "key_rate"
    NO_WORKER = "no_worker"
    LABELS = "labels"
    SLOTS = "slots"
    NO_AGENT = "no_agent"
    PREFERRED_LABELS = "preferred_labels"
    QUEUED_BEHIND = "queued_behind"
    EXPIRES = "expires"
    READY = "ready"


class Reason(msgspec.Struct, frozen=True):
    """One reason: a code for machines, a sentence for people, and its facts."""

    code: ReasonCode
    message: str
    facts: dict[str, Any]


def format_time(at: datetime) -> str:
    """A time for people, in UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def format_span(start: datetime, end: datetime) -> str:
    """The rounded time between two moments."""
    seconds = max(0.0, (end - start).total_seconds())
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
