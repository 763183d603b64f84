"""Replay an ended job: a new job with its payload and, of a durable function, with copies of its records before a step."""

from typing import Any
from uuid import UUID

from fairlead.actions import enqueue, jobs
from fairlead.actions.catalog import Catalog
from fairlead.actions.durable_restart import copy_before
from fairlead.db.tx import Tx
from fairlead.errors import JobNotReplayable
from fairlead.model.access import Permission, Principal
from fairlead.model.job import Job, NewJob
from fairlead.store import definitions, durable
from fairlead.store import jobs as stored_jobs


async def replay(
    tx: Tx, principal: Principal, catalog: Catalog, job_id: UUID, *, from_step: str | int | None = None
) -> Job:
    """Enqueue an ended job again as a new job, which the original stays beside.

    A durable function gets copies of the records before `from_step`, which is a step's name or place: it runs again from there.
    Without a step it runs from the start.
    """
    job = await jobs.get_visible(tx, principal, job_id)
    principal.require(Permission.ENQUEUE_JOBS, job.tenant_id)
    if not await durable.lock_ended(tx, job.id):
        raise JobNotReplayable(
            f"Job {job.id} is {job.status}: only jobs that have ended can be replayed. Cancel it, or wait for its end."
        )
    job = await jobs.get_visible(tx, principal, job_id)
    new = await _build_request(tx, job)
    await enqueue.enqueue(tx, principal, catalog, new)
    await _copy_secret_paths(tx, job, new.id)
    details: dict[str, Any] = {"replay_of": str(job.id)}
    if from_step is None:
        await durable.copy_steps(tx, job.id, (), new_id=new.id)
    else:
        start = await copy_before(tx, job, from_step, new_id=new.id)
        details["from_step"] = {"place": start.place, "name": start.name}
    made = await jobs.get_visible(tx, principal, new.id)
    await jobs.audit_change(tx, principal, "JOB_REPLAYED", made, details)
    return made


async def _build_request(tx: Tx, job: Job) -> NewJob:
    """The request for a job like this one, with its secrets. It has no dedupe key: the original may run beside it."""
    texts = await stored_jobs.get_chosen_texts(tx, job.id)
    return NewJob(
        definition=job.definition_key,
        tenant=str(job.tenant_id),
        payload=await stored_jobs.get_payload(tx, job.id),
        priority=job.priority,
        max_attempts=job.max_attempts,
        correlation_id=texts.get("correlation_id"),
        tags=None if job.tags is None else tuple(texts[f"tags[{at}]"] for at in range(len(job.tags))),
        timeout=job.timeout_seconds,
        # the resource may be on another host by now
        host_id=job.host_id if job.resource_id is None else None,
        resource_id=job.resource_id,
        # the first attempt of a job with a parent reads its records
        parent_id=job.id,
    )


async def _copy_secret_paths(tx: Tx, job: Job, new_id: UUID) -> None:
    """Mask what only this job masks: the payload of a workflow's step, for instance, has secrets of its run."""
    _, paths = await stored_jobs.get_secrets(tx, job.id)
    if not paths:
        return
    known = (await definitions.get_by_keys(tx, [job.definition_key]))[job.definition_key].secret_paths
    if own := [path for path in paths if path not in known]:
        await stored_jobs.add_secret_paths(tx, new_id, own)
