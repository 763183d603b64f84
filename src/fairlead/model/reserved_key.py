"""Keys that are reserved for the system: dedupe keys and run keys of users may not have this prefix."""

from uuid import UUID

from fairlead.errors import Fault, KeyReserved

# fairlead.refusal_of has the same prefix.
RESERVED_PREFIX = "fairlead:"


def build_trigger_key(trigger_id: UUID) -> str:
    """The dedupe key of a schedule's jobs: only one of them can be active."""
    return f"{RESERVED_PREFIX}trigger:{trigger_id}"


def build_part_key(job_id: UUID, part: str) -> str:
    """The key of a workflow run that a job starts: the next attempt of the job finds the run by it."""
    return f"{RESERVED_PREFIX}job:{job_id}:{part}"


def require_unreserved_key(key: str, field: str) -> None:
    """Raise KeyReserved for a key with the system's prefix."""
    if key.startswith(RESERVED_PREFIX):
        raise reserved_key_error(field)


def reserved_key_error(field: str) -> KeyReserved:
    return KeyReserved(
        f"{field} cannot begin with {RESERVED_PREFIX!r}: such keys are reserved for the system. Choose another.",
        [Fault(field, f"begins with {RESERVED_PREFIX}")],
    )
