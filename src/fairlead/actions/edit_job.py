"""Edit a waiting job: its payload, priority, time and tags, without a cancel and a new job."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from fairlead.actions.catalog import Catalog
from fairlead.actions.jobs import audit_change, get_changeable, get_visible, prepare_payload
from fairlead.db.tx import Tx
from fairlead.errors import Fault, HostUnknown, InvalidInput, JobNotEditable
from fairlead.model.access import Principal
from fairlead.model.job import Job, JobEdit, JobStatus, NewJob
from fairlead.model.request import check_edit
from fairlead.model.secrets.redact import MASK
from fairlead.store import bulk, definitions, hosts, jobs
from fairlead.store.jobs import JobTarget

ROUNDS = 5
# The names of changed values of a payload that the audit log lists.
MOST_NAMES, MOST_NAME = 50, 100


async def edit(tx: Tx, principal: Principal, catalog: Catalog, job_id: UUID, change: JobEdit) -> Job:
    """Change a job that waits; JobNotEditable if it runs or has ended. Either this or a claim of the job wins."""
    check_edit(change)
    _refuse_masked_tags(change)
    job = await _lock(tx, principal, job_id)
    if principal.definitions is not None:
        principal.require_definition(job.definition_key)
    text, target, names = None, None, list[str]()
    if change.payload is not None:
        text, target, names = await _prepare_payload(tx, catalog, job, change.payload)
    due = await _find_time(tx, change)
    if text is None and change.priority is None and due is None and change.tags is None:
        return job  # the payload is the same
    outcome = await jobs.edit_waiting(
        tx,
        job.id,
        actor=principal.actor,
        payload=text,
        target=target,
        priority=change.priority,
        scheduled_for=due,
        tags=change.tags,
    )
    if outcome == "key_taken":
        raise JobNotEditable(
            f"The payload of job {job.id} cannot be edited: its new key has as many jobs as may be at once, and "
            f"{job.definition_key} drops further ones.",
            [Fault("payload", "the key has too many jobs")],
        )
    edited = await get_visible(tx, principal, job_id)
    await audit_change(tx, principal, "JOB_EDITED", job, _describe(job, edited, names))
    return edited


def _refuse_masked_tags(change: JobEdit) -> None:
    """Refuse a tag that was shown masked and is sent back."""
    if any(MASK in tag for tag in change.tags or ()):
        raise InvalidInput(
            f"Enter each tag again: {MASK} is a placeholder for a secret.",
            [Fault("tags", "holds a placeholder")],
        )


async def _lock(tx: Tx, principal: Principal, job_id: UUID) -> Job:
    """The job as it is now, locked against claims until the transaction ends."""
    job = await get_changeable(tx, principal, job_id)
    for _ in range(ROUNDS):
        if job.status is not JobStatus.QUEUED:
            raise JobNotEditable(f"Job {job.id} is {job.status}: only queued jobs can be edited.")
        if await jobs.lock_waiting(tx, job.id):
            return await get_visible(tx, principal, job_id)
        # it was claimed, staged or edited between the two statements
        job = await get_visible(tx, principal, job_id)
    raise JobNotEditable(f"Job {job.id} keeps changing; try again.")


async def _prepare_payload(
    tx: Tx, catalog: Catalog, job: Job, payload: Any
) -> tuple[bytes | None, JobTarget | None, list[str]]:
    """The new payload, encoded, its host and resource, and the names of its changed values; nothing if it is the same."""
    if job.workflow_run_id is not None:
        raise JobNotEditable(
            f"Job {job.id} is a step of a workflow run, which made its payload: that cannot be edited. Its priority and "
            "its time can.",
            [Fault("payload", "made by the workflow run")],
        )
    definition = (await definitions.get_by_keys(tx, [job.definition_key]))[job.definition_key]
    text, target = await prepare_payload(tx, catalog, job, definition, payload, refusal=JobNotEditable)
    if payload == job.payload:
        return None, None, []
    # compared with what is shown: whether a secret is the same is not told
    names = _changed_names(job.payload, msgspec.json.decode(text))
    if target.host_id not in (None, job.host_id) and not await hosts.lock(tx, target.host_id):
        raise HostUnknown(f"There is no host {target.host_id}.", [Fault("payload", "names a removed host")])
    return text, target, names


def _changed_names(old: Any, new: Any) -> list[str]:
    """The names at the top of a payload whose values differ."""
    old, new = (one if isinstance(one, dict) else {} for one in (old, new))
    missing = object()
    return sorted(name for name in {**old, **new} if old.get(name, missing) != new.get(name, missing))


async def _find_time(tx: Tx, change: JobEdit) -> datetime | None:
    """The new time, with a delay counted from the database's clock."""
    if change.delay is None:
        return change.scheduled_for
    asked = NewJob(definition="", tenant="", delay=change.delay)
    return asked.resolve_delay(await bulk.read_clock(tx)).scheduled_for


def _describe(old: Job, new: Job, names: list[str]) -> dict[str, Any]:
    """What an edit changed, for the audit log: of the payload only names, since its values may be secret."""
    changed: dict[str, Any] = {
        name: {"was": getattr(old, name), "is": getattr(new, name)}
        for name in ("priority", "scheduled_for", "host_id", "tags")
        if getattr(old, name) != getattr(new, name)
    }
    if names:
        changed["payload"] = [name[:MOST_NAME] for name in names[:MOST_NAMES]]
    return {"changed": changed, "payload_edited": bool(names)}
