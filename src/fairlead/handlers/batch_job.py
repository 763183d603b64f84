"""A job of a batch, as its handler sees it."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec

from fairlead.errors import SignatureInvalid
from fairlead.handlers.context import Context, Snooze

T = TypeVar("T")

MOST_JOBS = 1000
LONGEST_WAIT = 60.0
DEFAULT_WAIT = 0.1


class BatchOptions(msgspec.Struct, frozen=True):
    """How jobs are collected: at most `size`, for at most `wait` seconds, of one tenant or of several."""

    size: int
    wait: float = DEFAULT_WAIT
    across_tenants: bool = False

    def __post_init__(self) -> None:
        """Raise SignatureInvalid for values out of range."""
        if not _is_number(self.size, int) or not 1 <= self.size <= MOST_JOBS:
            raise SignatureInvalid(f"batch must be a whole number, 1 to {MOST_JOBS}, not {self.size!r}.")
        if not _is_number(self.wait, int | float) or not 0 <= self.wait <= LONGEST_WAIT:
            raise SignatureInvalid(
                f"batch_wait must be a number of seconds, 0 to {LONGEST_WAIT:.0f}, not {self.wait!r}."
            )


def _is_number(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


class BatchFailure(Exception):
    """The failure of a job that its batch handler described as text."""


class BatchJob(Generic[T]):
    """One job of a batch: its payload, its context, and how it ends.

    `succeed`, `fail` and `snooze` end the job at once, while the batch goes on; the first of them counts. They may be
    called from any thread.
    """

    __slots__ = ("_end", "ctx", "payload")

    def __init__(self, ctx: Context, payload: T, end: Callable[[Any, bool], None]) -> None:
        """`end` is called with the job's result, as a batch handler may return it, and whether a failure is retryable."""
        self.ctx = ctx
        self.payload = payload
        self._end = end

    @property
    def id(self) -> UUID:
        return self.ctx.job_id

    @property
    def tenant(self) -> str:
        return self.ctx.tenant

    @property
    def is_canceled(self) -> bool:
        """Whether the handler should leave this job out: canceled, out of time, lost, or the worker shuts down."""
        return self.ctx.is_canceled

    def succeed(self, output: Any = None) -> None:
        """End the job with this output."""
        self._end(output, True)

    def fail(self, error: Exception | str, *, retryable: bool = True) -> None:
        """Fail the job. It is not retried if the error is a `Fatal`, or with `retryable=False`."""
        self._end(BatchFailure(error) if isinstance(error, str) else error, retryable)

    def snooze(self, delay: float | timedelta) -> None:
        """Let the job run again after `delay`; no attempt is charged."""
        self._end(Snooze(delay), True)

    def __repr__(self) -> str:
        return f"<job {self.id} of a batch>"
