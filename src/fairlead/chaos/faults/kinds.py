"""Every kind of fault that a run can have."""

from collections.abc import Sequence

from fairlead.chaos.faults.clock_faults import CLOCK_FAULTS
from fairlead.chaos.faults.connection_faults import CONNECTION_FAULTS
from fairlead.chaos.faults.fault import FaultKind
from fairlead.chaos.faults.key_faults import KEY_FAULTS
from fairlead.chaos.faults.postgres_faults import POSTGRES_FAULTS
from fairlead.chaos.faults.process_faults import PROCESS_FAULTS
from fairlead.chaos.faults.session_faults import SESSION_FAULTS
from fairlead.chaos.faults.upgrade_faults import UPGRADE_FAULTS
from fairlead.errors import InvalidInput

FAULT_KINDS = (
    *PROCESS_FAULTS,
    *POSTGRES_FAULTS,
    *SESSION_FAULTS,
    *CONNECTION_FAULTS,
    *CLOCK_FAULTS,
    *KEY_FAULTS,
    *UPGRADE_FAULTS,
)


def choose_kinds(names: Sequence[str] | None) -> list[FaultKind]:
    """The kinds with these names, or all; refuses unknown names."""
    if names is None:
        return list(FAULT_KINDS)
    known = {kind.name: kind for kind in FAULT_KINDS}
    if unknown := sorted(set(names) - set(known)):
        raise InvalidInput(
            f"There is no fault {', '.join(unknown)}. The faults are: {', '.join(sorted(known))}."
        )
    return [known[name] for name in dict.fromkeys(names)]
