"""When the attempts of a job, its children and the steps of a run waited and ran."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from fairlead.db.tx import Tx
from fairlead.model.access import Permission, Principal
from fairlead.model.job import Job
from fairlead.model.timeline import AttemptSpan, StepTimes
from fairlead.model.workflow.run import Run
from fairlead.store import timeline

# Later attempts of a job are not drawn.
MOST_ATTEMPTS = 20

Spans = Mapping[UUID, Sequence[AttemptSpan]]


async def list_attempts_of_jobs(tx: Tx, principal: Principal, found: Iterable[Job]) -> Spans:
    """The first attempts of each of these jobs, which the principal has read; one more than MOST_ATTEMPTS if there are more."""
    principal.require(Permission.READ_JOBS, principal.tenant_id)
    return await _list_attempts(tx, [one.id for one in found])


async def list_steps(
    tx: Tx, principal: Principal, run: Run, *, limit: int
) -> tuple[Sequence[StepTimes], Spans]:
    """The first steps of a run in the order of their release, and the attempts of their jobs."""
    principal.require(Permission.READ_RUNS, run.tenant_id)
    steps = await timeline.list_steps(tx, run.id, limit=limit)
    return steps, await _list_attempts(tx, [one.job_id for one in steps if one.job_id is not None])


async def _list_attempts(tx: Tx, job_ids: Sequence[UUID]) -> Spans:
    found: dict[UUID, list[AttemptSpan]] = defaultdict(list)
    for one in await timeline.list_attempts(tx, job_ids, each=MOST_ATTEMPTS + 1):
        found[one.job_id].append(one)
    return found
