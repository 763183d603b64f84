"""Keys that are reserved for the system: dedupe keys and run keys of users may not have this prefix."""

from uuid import UUID

from fairlead.errors import Fault, KeyReserved

# fairlead.refusal_of has the same prefix.
OWN = "fairlead:"


def key_of_trigger(trigger_id: UUID) -> str:
    """The dedupe key of a schedule's jobs: only one of them can be active."""
    return f"{OWN}trigger:{trigger_id}"


def key_of_part(job_id: UUID, part: str) -> str:
    """The key of a workflow run that a job starts: the next attempt of the job finds the run by it."""
    return f"{OWN}job:{job_id}:{part}"


def require_free(key: str, field: str) -> None:
    """Raise KeyReserved for a key with the system's prefix."""
    if key.startswith(OWN):
        raise reserved(field)


def reserved(field: str) -> KeyReserved:
    return KeyReserved(
        f"{field} cannot begin with {OWN!r}: such keys are reserved for the system. Choose another.",
        [Fault(field, f"begins with {OWN}")],
    )
