"""Jobs: the record that users read, and the transitions that no worker makes."""

from collections.abc import Awaitable, Mapping, Sequence
from datetime import datetime
from typing import Any, cast
from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlead.db.sql import queries_beside
from fairlead.db.tx import JsonText, Tx, json_text
from fairlead.model.field import type_of
from fairlead.model.job import Attempt, Debounce, Job, NewJob, seconds_of
from fairlead.model.page import Page
from fairlead.model.quota import settings_for_jobs
from fairlead.model.secrets.redact import (
    Mask,
    Patterns,
    build_mask,
    find_secrets,
    mask_dedupe_key,
    mask_payload,
)
from fairlead.model.secrets.sealed_payload import hide_sealed
from fairlead.store import bounded_page, events, job_conditions, sealing
from fairlead.turns.loop_pauses import LoopPauses

sql = queries_beside(__file__)

# A delay is replaced by a time before the request is stored.
_OPTIONAL = {
    field.name: type_of(field)
    for field in msgspec.structs.fields(NewJob)
    if field.default is None and field.name != "delay"
}
_OPTIONS = tuple(_OPTIONAL)

MOST_ATTEMPTS = 1000


class EnqueueOutcome(msgspec.Struct, frozen=True):
    """The result of enqueue_one."""

    job_id: UUID | None
    outcome: str
    definition: Any
    tenant_id: UUID | None
    definition_id: UUID | None
    waits: bool | None
    # the quota that refused it, its use and its limit
    quota: Any = None


class JobTarget(msgspec.Struct, frozen=True):
    """The host and the resource that a job is for, or a refusal."""

    host_id: UUID | None
    resource_id: UUID | None
    refusal: str | None = None


async def enqueue(
    tx: Tx, new: NewJob, *, payload: bytes, version: int, actor: str, trace: str | None = None
) -> EnqueueOutcome:
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
    # each argument costs time on both sides: send only those that are set
    for name in _OPTIONS:
        if (value := getattr(new, name)) is not None:
            arguments[name] = _encode_option(new, name, value)
    if trace is not None:
        arguments["trace"] = trace
    if quotas := settings_for_jobs(tx.settings):
        arguments["quotas"] = json_text(quotas)
    named = ", ".join(f"{name} => %({name})s" for name in arguments)
    # before the statement, so that its commit notifies the listeners even if its answer is lost
    tx.notify("ready" if new.scheduled_for is None else "later")
    [values] = await tx.run_quick(f"{sql.enqueue}({named})", arguments)
    answer = EnqueueOutcome(*values)
    if answer.waits is not None:
        tx.notify("later" if answer.waits else "ready")
    return answer


def _encode_option(new: NewJob, name: str, value: Any) -> Any:
    """An option as enqueue_one takes it."""
    match name:
        case "timeout":
            return new.timeout_seconds
        case "expires_in" | "unique_for":
            return seconds_of(value)
        case "tags":
            return list(value)
        case "debounce":
            return json_text(value.to_json())
    return value


def enqueue_plain(
    tx: Tx, new: NewJob, tenant_id: UUID, definition_id: UUID, *, payload: bytes, version: int, actor: str
) -> Awaitable[list[Any]]:
    """Enqueue a request without options. No row if the definition has another version, is not the tenant's any more,
    or if the tenant's quota has to be counted.
    """
    # in the order in which the statement names them
    values = (tenant_id, definition_id, version, new.id, actor, new.definition, JsonText(payload))
    tx.notify("ready")
    return tx.run_quick(sql.enqueue_plain, values)


class PlainJob(msgspec.Struct, frozen=True):
    """A checked request without options, for a process that knows the ids of its tenant and its definition."""

    id: UUID
    tenant_id: UUID
    definition_id: UUID
    version: int
    key: str
    payload: bytes


def describe_plain(job: PlainJob) -> dict[str, Any]:
    """A job as enqueue_plain_group reads it."""
    return {
        "id": job.id,
        "tenant_id": job.tenant_id,
        "definition_id": job.definition_id,
        "version": job.version,
        "key": job.key,
        "payload": msgspec.Raw(job.payload),
    }


async def enqueue_plain_group(tx: Tx, plain: Sequence[PlainJob], *, actor: str) -> set[UUID]:
    """`enqueue_plain` for several jobs. The ids of those that were enqueued."""
    documents = [describe_plain(job) for job in plain]
    tx.notify("ready")
    # in the order in which the statement names them
    values = (json_text(documents), len(documents), actor)
    return {job_id for (job_id,) in await tx.run_quick(sql.enqueue_plain_group, values)}


async def get(tx: Tx, job_id: UUID, *, tenant_id: UUID | None = None) -> Job | None:
    """A job of a tenant, or (None) of any."""
    asked, values = job_conditions.build_conditions(tx, {"id": job_id, "tenant_id": tenant_id})
    query = [sql.selected, "fairlead.jobs j", sql.named, "\nand ".join(asked)]
    found = await tx.first(_UnmaskedJob, "\n".join(query), values)
    return None if found is None else _mask_job(found, tx.redact_patterns)


async def find(tx: Tx, filters: Mapping[str, Any], *, limit: int, offset: int = 0) -> Page[Job]:
    """Jobs that match every filter that is not None, newest first, without a bound on the search."""
    asked, values = job_conditions.build_conditions(tx, filters)
    return await fetch_jobs(tx, asked, values, limit=limit, offset=offset)


async def fetch_jobs(
    tx: Tx, conditions: Sequence[str], values: Mapping[str, Any], *, limit: int, offset: int = 0
) -> Page[Job]:
    """The jobs that meet the conditions, newest first, with masked secrets; a page ends at MOST_PAGE_BYTES."""
    query = [sql.selected, "fairlead.jobs j", sql.named, "\nand ".join(conditions or ["true"]), sql.paged]
    found = await bounded_page.fetch_page(
        tx, _UnmaskedJob, "\n".join(query), {**values, "offset": offset}, limit=limit, weighed_json=_LARGE
    )
    shown, pauses = list[Job](), LoopPauses()
    for job in found:
        await pauses.pause_if_due()
        shown.append(_mask_job(job, tx.redact_patterns))
    return found.with_rows(shown)


class _UnmaskedJob(Job, frozen=True, kw_only=True):
    """A job with its unmasked secrets: never shown to users."""

    secret_paths: tuple[str, ...]


_LARGE = ("payload", "output", "error", "progress")


_SHOWN = Job.__struct_fields__
_CHOSEN = [name for name, kind in _OPTIONAL.items() if kind is str and name != "dedupe_key"]
_CHOSEN_TEXTS = sql.chosen_texts.replace("<chosen>", ", ".join(f"j.{name}" for name in _CHOSEN))
_VALUES = ("output", "error", "last_error", "progress")


def _mask_job(job: _UnmaskedJob, patterns: Patterns) -> Job:
    """The job as users may see it, with the secrets of its payload masked in all its fields."""
    shown = {name: getattr(job, name) for name in _SHOWN}
    if job.secret_paths or patterns:
        mask = Mask(find_secrets(job.payload, job.secret_paths), patterns)
        shown["payload"] = hide_sealed(mask_payload(job.payload, job.secret_paths, patterns))
        shown |= {name: mask.mask_chosen(shown[name]) for name in _CHOSEN}
        shown |= {name: mask.value(shown[name]) for name in _VALUES}
        if job.tags:
            shown["tags"] = tuple(mask.mask_chosen(tag) for tag in job.tags)
        if job.dedupe_key is not None:
            shown["dedupe_key"] = mask_dedupe_key(job.dedupe_key, job.definition_key, job.secret_paths, mask)
    else:
        shown["payload"] = hide_sealed(job.payload)
    return Job(**shown)


async def list_attempts(tx: Tx, job_id: UUID, *, after: int = 0, limit: int = MOST_ATTEMPTS) -> Page[Attempt]:
    """The attempts of a job after one of them, first to last."""
    return await _fetch_attempts(
        tx, f"{sql.attempts} {sql.attempts_after}", {"id": job_id, "after": after}, limit=limit
    )


async def list_last_attempts(tx: Tx, job_id: UUID, *, limit: int = MOST_ATTEMPTS) -> Page[Attempt]:
    """The newest attempts of a job, first to last; `more` means earlier ones."""
    found = await _fetch_attempts(tx, f"{sql.attempts} {sql.attempts_newest}", {"id": job_id}, limit=limit)
    return found.with_rows(reversed(found))


async def _fetch_attempts(tx: Tx, query: str, values: Mapping[str, Any], *, limit: int) -> Page[Attempt]:
    found = await bounded_page.fetch_page(tx, Attempt, query, values, limit=limit, weighed=_TAILS)
    mask = await mask_of(tx, values["id"])
    return found if mask is None else found.map(lambda one: _mask_attempt(one, mask))


def _mask_attempt(attempt: Attempt, mask: Mask | None) -> Attempt:
    if mask is None:
        return attempt
    return replace(attempt, **{name: mask.value(getattr(attempt, name)) for name in _TAILS})


_TAILS = ("error_text", "stdout_tail", "stderr_tail")


async def mask_of(tx: Tx, job_id: UUID) -> Mask | None:
    """The mask for a job's secrets in texts about it; None if there is nothing to mask."""
    payload, paths = await get_secrets(tx, job_id)
    return build_mask(payload, paths, tx.redact_patterns)


async def get_payload(tx: Tx, job_id: UUID) -> Any:
    """A job's payload with its secrets, in plain form."""
    [(found, tenant_id, key)] = await tx.values(sql.payload, {"id": job_id})
    return await sealing.unseal_payload(tx, found, tenant_id=tenant_id, definition=key, job_id=job_id)


async def get_secrets(tx: Tx, job_id: UUID) -> tuple[Any, list[str]]:
    """A job's payload as it is stored, and the paths of its secrets; (None, []) for a job without secrets."""
    found = await tx.values(sql.secrets, {"id": job_id})
    return found[0] if found else (None, [])


async def cancel_queued(tx: Tx, job_id: UUID) -> bool:
    """Cancel a waiting job; False if it is not waiting."""
    canceled = await tx.values(sql.cancel_queued, {"id": job_id})
    if any(released for _, released in canceled):
        tx.notify("ready")
    if canceled:
        await events.emit_ends(tx, [job_id])
    return bool(canceled)


async def lock_waiting(tx: Tx, job_id: UUID) -> bool:
    """Lock a waiting job against claims and other changes until the transaction ends; False if it does not wait."""
    return bool(await tx.values(sql.hold_waiting, {"id": job_id}))


async def edit_waiting(
    tx: Tx,
    job_id: UUID,
    *,
    actor: str,
    payload: bytes | None,
    target: JobTarget | None,
    priority: int | None,
    scheduled_for: datetime | None,
    tags: Sequence[str] | None,
) -> str:
    """Change a locked, waiting job; None leaves a value as it is. The outcome of functions/edit_waiting.sql."""
    values = {
        "id": job_id,
        "actor": actor,
        "payload": None if payload is None else JsonText(payload),
        "priority": priority,
        "scheduled_for": scheduled_for,
        "with_target": target is not None,
        "host_id": None if target is None else target.host_id,
        "resource_id": None if target is None else target.resource_id,
        "tags": None if tags is None else list(tags),
    }
    [(outcome, waits, released)] = await tx.values(sql.edit_waiting, values)
    if released or waits is False:
        tx.notify("ready")
    if waits:
        tx.notify("later")
    return str(outcome)


async def request_cancel(tx: Tx, job_id: UUID) -> bool:
    """Ask the owner of a running job to stop; False if it is not running."""
    if not await tx.values(sql.hold_lease, {"id": job_id}):
        return False
    return bool(await tx.values(sql.request_cancel, {"id": job_id}))


async def add_secret_paths(tx: Tx, job_id: UUID, paths: Sequence[str]) -> None:
    """Mark these paths of a job's payload as secret, in addition to those of its definition, and seal what is there."""
    await tx.run(sql.hide, {"id": job_id, "paths": list(paths)})
    if await sealing.is_on(tx):
        [(payload, tenant_id, definition)] = await tx.values(sql.payload, {"id": job_id})
        key = await sealing.find_current_key(tx, tenant_id)
        sealed = sealing.seal_for_job(key, payload, paths, definition=definition, job_id=job_id)
        await tx.run(sql.seal_payload, {"id": job_id, "payload": json_text(sealed)})


async def lock_terminal(tx: Tx, job_id: UUID) -> bool:
    """Lock a job against other retries until the transaction ends; False if it cannot be retried."""
    return bool(await tx.values(sql.hold_terminal, {"id": job_id}))


async def get_dedupe_key(tx: Tx, job_id: UUID) -> str | None:
    """A job's unmasked dedupe key."""
    [(key,)] = await tx.values(sql.dedupe_key, {"id": job_id})
    return cast("str | None", key)


async def get_chosen_texts(tx: Tx, job_id: UUID) -> dict[str, str]:
    """The unmasked texts that a caller chose for a job beside its payload; a dedupe key without its payload values."""
    [(definition_key, paths, key, tags, *chosen)] = await tx.values(_CHOSEN_TEXTS, {"id": job_id})
    found = dict(zip(_CHOSEN, chosen, strict=True))
    found |= {f"tags[{place}]": tag for place, tag in enumerate(tags or ())}
    if key is not None:
        found["dedupe_key"] = mask_dedupe_key(key, definition_key, paths, Mask(()))
    return {name: text for name, text in found.items() if text is not None}


async def find_target(tx: Tx, job: Job, *, payload: bytes) -> JobTarget:
    """The host and resource of a payload, if it were enqueued now as this job's."""
    [found] = await tx.all(JobTarget, sql.target, {"id": job.id, "payload": JsonText(payload)})
    return found


async def requeue(tx: Tx, job: Job, target: JobTarget, *, payload: bytes | None) -> None:
    """Requeue a locked terminal job for this host, with a fresh retry budget."""
    values = {"id": job.id, "host_id": target.host_id, "resource_id": target.resource_id}
    text = None if payload is None else JsonText(payload)
    await tx.run(sql.requeue, {**values, "payload": text, "was": job.status.value})


async def list_inconsistencies(tx: Tx) -> list[tuple[UUID | None, str]]:
    """Every disagreement between the queue and the record. Empty if they agree."""
    return [(job_id, problem) for job_id, problem in await tx.values(sql.inconsistencies)]


def encode_joined(
    requests: list[tuple[NewJob, bytes, int]],
    *,
    actor: str,
    trace: str | None = None,
    quotas: Mapping[str, int] | None = None,
) -> str:
    """The document that enqueue_joined takes, for checked requests with their payloads and versions."""
    documents = []
    for new, payload, version in requests:
        document = {
            name: value.to_json() if isinstance(value, Debounce) else _encode_option(new, name, value)
            for name in _OPTIONS
            if (value := getattr(new, name)) is not None
        }
        document |= {
            "tenant": new.tenant,
            "definition": new.definition,
            "payload": msgspec.Raw(payload),
            "source": new.source,
            "actor": actor,
            "id": new.id,
            "expected_version": version,
        }
        if new.delay is not None:  # counted from the database's clock
            document["delay"] = new.delay_seconds
        if trace is not None:
            document["trace"] = trace
        if quotas:
            document["quotas"] = quotas
        documents.append(document)
    return msgspec.json.encode(documents).decode()


class _JoinedRead(msgspec.Struct, frozen=True):
    """The result of read_joined."""

    job: _UnmaskedJob | None
    attempts: list[Attempt]


def encode_joined_read(job_id: UUID) -> str:
    """The document that read_joined takes."""
    return msgspec.json.encode({"job_id": job_id, "limit": MOST_ATTEMPTS}).decode()


def decode_joined_read(answer: str, patterns: Patterns) -> tuple[Job, list[Attempt]] | None:
    """A job and its newest attempts, first to last, with masked secrets; None if there is no such job."""
    read = msgspec.json.decode(answer, type=_JoinedRead)
    if read.job is None:
        return None
    mask = build_mask(read.job.payload, read.job.secret_paths, patterns)
    return _mask_job(read.job, patterns), [_mask_attempt(one, mask) for one in read.attempts]
