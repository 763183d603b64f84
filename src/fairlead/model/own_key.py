"""Keys of the system's own: no dedupe key and no key of a run that is given begins as they do."""

from uuid import UUID

from fairlead.errors import Fault, KeyReserved

# fairlead.refusal_of has the same.
OWN = "fairlead:"


def key_of_trigger(trigger_id: UUID) -> str:
    """The dedupe key of a schedule's jobs: while one of them is active, the database admits no other."""
    return f"{OWN}trigger:{trigger_id}"


def key_of_part(job_id: UUID, part: str) -> str:
    """The key of a run that is a part of a job: the job that runs again finds it."""
    return f"{OWN}job:{job_id}:{part}"


def require_free(key: str, field: str) -> None:
    """Refuse a key that is the system's own."""
    if key.startswith(OWN):
        raise reserved(field)


def reserved(field: str) -> KeyReserved:
    return KeyReserved(
        f"{field} cannot begin with {OWN!r}: such keys are the system's own. Choose another.",
        [Fault(field, f"begins with {OWN}")],
    )
