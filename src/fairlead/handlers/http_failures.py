"""Maps HTTP status codes of external servers to failures and snoozes."""

from datetime import UTC, datetime

from fairlead.handlers.context import Context, Fatal, Snooze
from fairlead.model.messages.retry_after import parse_retry_after

# Temporary client errors: Request Timeout, Too Early, Too Many Requests.
_TEMPORARY = frozenset({408, 425, 429})
# After this many attempts a busy server's answer counts as a failure, not as a snooze.
MOST_SNOOZES = 20


class PermanentFailure(Fatal):
    """The request was refused; a retry would be refused too."""


class TemporaryFailure(Exception):
    """The request failed; a retry may succeed."""


def is_temporary(status: int) -> bool:
    """Whether a request with this answer may be retried."""
    return status >= 500 or status in _TEMPORARY


def failure_for_answer(ctx: Context, status: int, wait: str | None, message: str) -> Exception:
    """The exception for an unexpected answer; `wait` is its Retry-After header."""
    if not is_temporary(status):
        return PermanentFailure(message)
    seconds = parse_retry_after(wait, datetime.now(UTC))
    if seconds is None or ctx.attempt_no > MOST_SNOOZES:
        return TemporaryFailure(message)
    ctx.log.warning("asked_to_wait", status=status, seconds=seconds)
    return Snooze(seconds)
