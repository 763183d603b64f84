"""Failed, dead-lettered and canceled jobs: a bounded number of them, to be grouped by error."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.error_groups import FailedJob
from fairlead.model.job import JobStatus
from fairlead.model.secrets.redact import build_mask
from fairlead.store import bounded_page

sql = queries_beside(__file__)


class _UnmaskedFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A failed job with its unmasked secrets: never shown to users."""

    job_id: UUID
    tenant: str
    definition_key: str
    status: JobStatus
    finished_at: datetime
    error: str | None
    secret_paths: tuple[str, ...]
    payload: Any


async def list_newest(
    tx: Tx, *, tenant_id: UUID | None, status: JobStatus, look: int
) -> tuple[list[FailedJob], int]:
    """The jobs with this status among the newest `look` failed ones, with secrets masked; and how many were read."""
    await tx.prefer_indexes()
    values = {"tenant_id": tenant_id, "look": look}
    found = await bounded_page.fetch_page(
        tx, _UnmaskedFailure, sql.newest, values, limit=look, weighed=("payload", "error")
    )
    return [_mask_failure(tx, one) for one in found if one.status == status], len(found)


def _mask_failure(tx: Tx, one: _UnmaskedFailure) -> FailedJob:
    mask = build_mask(one.payload, one.secret_paths, tx.redact_patterns)
    error = one.error if mask is None or one.error is None else mask.text(one.error)
    return FailedJob(one.job_id, one.tenant, one.definition_key, one.finished_at, error)
