"""Which delivered attempt a report is about, and what shows that the report comes from a worker that has the attempt."""

from hashlib import sha256
from uuid import UUID

import msgspec

# 96 bits: too many to guess, and ids stay short.
SECRET_DIGITS = 24


class AttemptRef(msgspec.Struct, frozen=True):
    """An attempt as a report names it. It counts only with the lease's token or the secret made of it."""

    job_id: UUID
    attempt_no: int
    token: UUID | None = None
    secret: str | None = None
    # where the engine has it; None if reports of all queues arrive in one place
    queue: str | None = None


def make_secret(token: UUID) -> str:
    """A part of an id for engines whose workers must not learn the lease's token. PostgreSQL makes it, too: handovers.sql."""
    return sha256(token.bytes).hexdigest()[:SECRET_DIGITS]
