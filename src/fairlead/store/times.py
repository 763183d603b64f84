"""Waiting and run times, of a sample of the attempts that ended lately."""

from uuid import UUID

from fairlead.db.sql import queries_beside
from fairlead.db.tx import TypedQuery
from fairlead.model.summary import JobTimes

sql = queries_beside(__file__)


def sample(
    *,
    tenant_id: UUID | None,
    seconds: int,
    look: int,
    most: int = 0,
    definition_id: UUID | None = None,
) -> TypedQuery[JobTimes]:
    """Times of all sampled attempts of the last `seconds`, then of the `most` slowest definitions.

    Each part of the sample has at most `look` jobs. The transaction must prefer indexes.
    """
    values = {
        "tenant_id": tenant_id,
        "definition_id": definition_id,
        "seconds": seconds,
        "look": look,
        "most": most,
    }
    return TypedQuery(JobTimes, sql.sampled, values)
