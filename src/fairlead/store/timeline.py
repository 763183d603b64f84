"""The times of jobs and steps, for drawings."""

from collections.abc import Sequence
from uuid import UUID

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.timeline import AttemptSpan, StepTimes

sql = queries_beside(__file__)


async def list_attempts(tx: Tx, job_ids: Sequence[UUID], *, each: int) -> list[AttemptSpan]:
    """The first attempts of each of these jobs, in order."""
    return await tx.all(AttemptSpan, sql.attempts, {"ids": list(job_ids), "each": each})


async def list_steps(tx: Tx, run_id: UUID, *, limit: int) -> list[StepTimes]:
    """The first steps of a run in the order of their release."""
    return await tx.all(StepTimes, sql.steps, {"run_id": run_id, "limit": limit})
