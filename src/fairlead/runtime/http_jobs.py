"""Jobs and their outcomes as they are sent over HTTP, to and from agents and workers."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Backoff, Change
from fairlead.runtime.job_source import HeldJob
from fairlead.store.queue import AttemptTerms, Claimed, HeartbeatResult, TenantName


class ReceivedJob(msgspec.Struct):
    """A job and its lease, as the server sends them."""

    job_id: UUID
    attempt_no: int
    lease_token: UUID
    tenant: str
    tenant_id: UUID
    definition_key: str
    payload: Any
    max_attempts: int
    timeout_seconds: int
    correlation_id: str | None = None
    parent_id: UUID | None = None
    slots: int = 1

    def to_held(self) -> HeldJob:
        """The job as a worker holds it. The retry fields are empty: the server decides about retries."""
        claimed = Claimed(
            self.job_id,
            self.attempt_no,
            str(self.tenant_id),
            0,
            self.payload,
            self.max_attempts,
            0,
            0,
            self.parent_id,
            self.correlation_id,
            whose=TenantName(self.tenant_id, self.tenant),
            terms=AttemptTerms(self.definition_key, self.timeout_seconds, Backoff(), slots=self.slots),
        )
        return HeldJob(Lease(self.job_id, self.attempt_no, self.lease_token), claimed)


class _LeaseAnswer(msgspec.Struct):
    lost: bool
    renewed: bool
    cancel_requested: bool


class HeartbeatAnswer(msgspec.Struct):
    """The server's answer to a heartbeat for several leases, in the order of the request."""

    leases: list[_LeaseAnswer]

    def alive(self, asked: Sequence[Lease]) -> dict[Lease, HeartbeatResult]:
        """The leases that are not lost."""
        return {
            lease: HeartbeatResult(one.renewed, one.cancel_requested)
            for lease, one in zip(asked, self.leases, strict=False)
            if not one.lost
        }


def lease_body(lease: Lease) -> dict[str, Any]:
    """The fields that identify a lease in the body of a report."""
    return {"attempt_no": lease.attempt_no, "lease_token": str(lease.token)}


def is_release(change: Change) -> bool:
    """Whether the attempt is reported as released. The server cancels a released job where a cancel was requested."""
    return change.attempt_status in ("released", "canceled")


def end_fields(change: Change) -> dict[str, Any]:
    """The fields of a report that an attempt has ended, with any outcome but a release."""
    ran = change.ran or {}
    return {
        "cost_cents": change.cost_cents,
        "stdout_tail": change.log,
        "stderr_tail": ran.get("stderr"),
        "exit_code": ran.get("exit_code"),
    }


def failure_fields(change: Change) -> dict[str, Any]:
    """The fields of a report that an attempt has failed."""
    error = change.error or {}
    return {
        "error": {name: error[name] for name in ("type", "message", "traceback")},
        "retryable": change.status is not JobStatus.FAILED,
        "timed_out": change.attempt_status == "timeout",
    }
