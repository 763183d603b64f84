"""The interface of a delivery engine: it carries attempts to workers elsewhere, and reports back what became of them.

PostgreSQL stays the record, the limiter and the referee. `fairlead bridge` claims jobs, keeps their leases, and writes
outcomes; an engine only delivers. It may deliver an attempt twice or lose it: the first outcome of an attempt counts, and
those of an attempt that has ended are refused.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

import msgspec

from fairlead.integrations.configuration import ConnectionTable, Driver
from fairlead.model.delivery import AttemptRef
from fairlead.model.job import Lease
from fairlead.model.outcome import Failed, Succeeded


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that an engine delivers."""

    lease: Lease
    tenant: str
    tenant_id: UUID
    definition_key: str
    # the queue, subject or address, with its placeholders filled in
    queue: str
    payload: Any
    timeout_seconds: int
    max_attempts: int
    # when the time limit ends
    deadline: datetime
    correlation_id: str | None = None
    parent_id: UUID | None = None
    host: str | None = None

    @property
    def id(self) -> str:
        """The same for every delivery of this attempt, and different for every other one."""
        return f"{self.lease.job_id}-{self.lease.attempt_no}"

    def encode_message(self) -> bytes:
        """The message for a worker: the fields of an answer of `POST /worker/jobs/claim`, so that it can report there."""
        return msgspec.json.encode(
            {
                "job_id": self.lease.job_id,
                "attempt_no": self.lease.attempt_no,
                "lease_token": self.lease.token,
                "definition_key": self.definition_key,
                "payload": self.payload,
                "tenant": self.tenant,
                "tenant_id": self.tenant_id,
                "timeout_seconds": self.timeout_seconds,
                "max_attempts": self.max_attempts,
                "correlation_id": self.correlation_id,
                "parent_id": self.parent_id,
                "deadline": self.deadline,
            }
        )


class DeliveryProgress(msgspec.Struct, frozen=True):
    """How far an attempt is."""

    percent: float
    message: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine says of an attempt.

    The attempt counts only if this engine carries it. `acknowledge` is called when the report is stored, or refused for good.
    """

    attempt: AttemptRef
    what: Succeeded | Failed | DeliveryProgress
    log: str | None = None
    acknowledge: Callable[[], Awaitable[None]] | None = None


class Engine(Protocol):
    """A connection to an engine."""

    async def hand_over(self, handovers: Sequence[Handover]) -> Mapping[str, str]:
        """Deliver attempts. Repeating it must not deliver twice what the engine can recognise by `Handover.id`.

        Returns why attempts can never be delivered (too large, for instance), by `Handover.id`. Raises EngineUnavailable
        if the engine cannot be reached: the bridge tries again.
        """

    def results(self) -> AsyncIterator[Sequence[Report]]:
        """Reports as they arrive, until the connection is closed. Raises EngineUnavailable during an outage."""

    async def find_lost(self, handovers: Sequence[Handover]) -> Sequence[Report]:
        """Reports on those of these attempts that the engine has ended: results whose messages were lost, and attempts
        that it no longer has. Called every few seconds with everything that is handed over.
        """

    async def cancel(self, handovers: Sequence[Handover]) -> set[str]:
        """Take attempts back, or tell their workers to stop. Returns the ids of those that no worker has begun."""


class Connect(Protocol):
    """Every driver's module has `connect`, which opens an engine as its table in fairlead.toml describes it.

    It also has OPTIONS, the type of the table's options.
    """

    def __call__(self, table: ConnectionTable) -> AbstractAsyncContextManager[Engine]: ...


DRIVERS = {
    "bullmq": Driver("fairlead.integrations.bullmq", "bullmq"),
    "cloud_tasks": Driver("fairlead.integrations.cloud_tasks", "cloud-tasks"),
    "nats": Driver("fairlead.integrations.nats", "nats"),
    "sqs": Driver("fairlead.integrations.sqs", "sqs"),
}
