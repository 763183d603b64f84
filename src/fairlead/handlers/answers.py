"""What the answers of other people's servers mean for an attempt."""

from datetime import UTC, datetime

from fairlead.handlers.context import Context, Fatal, Snooze
from fairlead.model.retry_after import retry_after

# Client errors that pass: Request Timeout, Too Early, Too Many Requests.
_PASSING = frozenset({408, 425, 429})
# A server that is busy for longer than so many attempts uses up the job's budget like any other trouble.
MOST_SNOOZES = 20


class PermanentFailure(Fatal):
    """It was refused, and would be again."""


class TemporaryFailure(Exception):
    """It did not work this time."""


def passes(status: int) -> bool:
    """Whether it makes sense to ask again after this answer."""
    return status >= 500 or status in _PASSING


def unwelcome(ctx: Context, status: int, wait: str | None, message: str) -> Exception:
    """What to raise for an answer that was not hoped for; `wait` is its Retry-After."""
    if not passes(status):
        return PermanentFailure(message)
    seconds = retry_after(wait, datetime.now(UTC))
    if seconds is None or ctx.attempt_no > MOST_SNOOZES:
        return TemporaryFailure(message)
    ctx.log.warning("asked_to_wait", status=status, seconds=seconds)
    return Snooze(seconds)
