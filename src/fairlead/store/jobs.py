"""Jobs: the record that people read, and the transitions that are not a worker's."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import JsonText, Tx
from fairlead.model.job import Attempt, Job, JobStatus, NewJob

sql = queries_beside(__file__)

_OPTIONS = (
    "priority",
    "scheduled_for",
    "max_attempts",
    "dedupe_key",
    "correlation_id",
    "source_ref",
    "parent_id",
)
_TROUBLED = {JobStatus.FAILED, JobStatus.DEAD_LETTER, JobStatus.CANCELED}


@dataclass(frozen=True, slots=True)
class Answer:
    """What enqueue_one answered."""

    job_id: UUID | None
    outcome: str
    definition: Any
    tenant_id: UUID | None
    definition_id: UUID | None


async def enqueue(tx: Tx, new: NewJob, *, payload: bytes, version: int, actor: str) -> Answer:
    """Enqueue a checked request whose payload was validated against that version of its definition."""
    arguments = {
        "tenant": new.tenant,
        "definition_key": new.definition,
        "payload": JsonText(payload),
        "source": new.source.value,
        "actor": actor,
        "id": new.id,
        "expected_version": version,
    }
    # each argument costs time on both sides: send only those that say something
    for name in _OPTIONS:
        if (value := getattr(new, name)) is not None:
            arguments[name] = value
    named = ", ".join(f"{name} => %({name})s" for name in arguments)
    [answer] = await tx.values(f"{sql.enqueue}({named})", arguments)
    return Answer(*answer)


async def enqueue_plain(
    tx: Tx, new: NewJob, tenant_id: UUID, definition_id: UUID, *, payload: bytes, version: int, actor: str
) -> bool:
    """Enqueue a request without options; False if the definition is no longer that version."""
    values = (new.id, tenant_id, actor, JsonText(payload), definition_id, version, new.definition)
    return bool(await tx.quick(sql.enqueue_plain, values))


async def get(tx: Tx, job_id: UUID, *, tenant_id: UUID | None = None) -> Job | None:
    """A job, if it is that tenant's (or anybody's, for None)."""
    found = await find(tx, {"id": job_id, "tenant_id": tenant_id}, limit=1)
    return found[0] if found else None


async def find(tx: Tx, filters: Mapping[str, Any], *, limit: int, offset: int = 0) -> list[Job]:
    """Jobs that match every given filter, newest first. A filter that is None is not one."""
    given = {name: value for name, value in filters.items() if value is not None}
    conditions = [getattr(sql, f"where_{name}") for name in given]
    if wanted := given.get("status"):
        if _TROUBLED.issuperset(wanted):
            conditions.append(sql.where_troubled)
        elif set(wanted) == {JobStatus.RUNNING}:
            conditions.append(sql.where_running)
        given["status"] = [status.value for status in wanted]
    query = "\n".join([sql.selected, "\nand ".join(conditions or ["true"]), sql.paged])
    return await tx.all(Job, query, {**given, "limit": limit, "offset": offset})


async def attempts(tx: Tx, job_id: UUID) -> list[Attempt]:
    """The attempts of a job, first to last."""
    return await tx.all(Attempt, sql.attempts, {"id": job_id})


async def cancel_queued(tx: Tx, job_id: UUID) -> bool:
    """End a waiting job as canceled; False if it is not waiting."""
    return bool(await tx.values(sql.cancel_queued, {"id": job_id}))


async def request_cancel(tx: Tx, job_id: UUID) -> bool:
    """Ask the owner of a running job to stop; False if it is not running."""
    if not await tx.values(sql.hold_lease, {"id": job_id}):
        return False
    return bool(await tx.values(sql.request_cancel, {"id": job_id}))


async def hold_terminal(tx: Tx, job_id: UUID) -> bool:
    """Keep others from retrying this job until the transaction ends; False if it cannot be retried."""
    return bool(await tx.values(sql.hold_terminal, {"id": job_id}))


async def requeue(tx: Tx, job: Job, *, payload: bytes | None) -> None:
    """Put a held terminal job back, with a fresh budget."""
    text = None if payload is None else JsonText(payload)
    await tx.run(sql.requeue, {"id": job.id, "payload": text, "was": job.status.value})


async def inconsistencies(tx: Tx) -> list[tuple[UUID | None, str]]:
    """Every disagreement between the queue and the record. Empty is right."""
    return [(job_id, problem) for job_id, problem in await tx.values(sql.inconsistencies)]


def joined(requests: list[tuple[NewJob, bytes, int]], *, actor: str) -> str:
    """The document that enqueue_joined takes, for checked requests with their payloads and versions."""
    documents = []
    for new, payload, version in requests:
        document = {name: value for name in _OPTIONS if (value := getattr(new, name)) is not None}
        document |= {
            "tenant": new.tenant,
            "definition": new.definition,
            "payload": msgspec.Raw(payload),
            "source": new.source,
            "actor": actor,
            "id": new.id,
            "expected_version": version,
        }
        documents.append(document)
    return msgspec.json.encode(documents).decode()
