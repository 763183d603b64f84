"""Failed jobs, grouped by definition and kind of error."""

import msgspec

from fairlead.db.tx import Tx
from fairlead.model.access import Permission, Principal
from fairlead.model.error_groups import ErrorGroup, group_errors
from fairlead.model.job import JobStatus
from fairlead.store import failed_jobs, stats

# The most jobs that are read.
LOOK = 3000


class ErrorReport(msgspec.Struct, frozen=True):
    """Kinds of error, the most frequent first; the jobs read, those with the status, and the total with the status."""

    groups: list[ErrorGroup]
    looked_at: int
    seen: int
    total: int

    @property
    def partial(self) -> bool:
        """Whether there are more jobs than were read."""
        return self.seen < self.total


async def group_by_error(tx: Tx, principal: Principal, *, status: JobStatus) -> ErrorReport:
    """The newest jobs with this status, by definition and kind of error: of a tenant, or of all."""
    principal.require(Permission.READ_JOBS, principal.tenant_id)
    counts = await stats.count_jobs(tx, tenant_id=principal.tenant_id)
    found, looked_at = await failed_jobs.list_newest(
        tx, tenant_id=principal.tenant_id, status=status, look=LOOK
    )
    return ErrorReport(group_errors(found), looked_at, len(found), counts.by_status[status])
