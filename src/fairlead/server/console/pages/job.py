"""One job: its status and reasons, attempts, log, payload and output."""

import re
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from signal import Signals
from typing import Annotated, Any
from uuid import UUID
from zlib import crc32

import msgspec
from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response

from fairlead.actions import (
    audit,
    bulk_jobs,
    durable,
    error_groups,
    events,
    hosts,
    jobs,
    run_steps,
    timeline,
    workflows,
)
from fairlead.actions import why as explanation
from fairlead.db.tx import Tx
from fairlead.errors import FairleadError, NotFound
from fairlead.model import ansi
from fairlead.model.access import Permission
from fairlead.model.job import OPTIONS, Attempt, Job, JobStatus, Source, may_move
from fairlead.model.secrets.redact import MASK
from fairlead.model.workflow.spec import ENGINE_RUN
from fairlead.server.auth import GuardedRoute
from fairlead.server.console.attempt_comparison import compare_attempts
from fairlead.server.console.pages.job_log import AttemptNo
from fairlead.server.console.step_rows import StepRow, list_rows
from fairlead.server.console.step_rows import step_entries as function_entries
from fairlead.server.console.timeline import Timeline, draw_timeline
from fairlead.server.console.timeline_entries import job_entry, run_entry, step_entries
from fairlead.server.console.visit import RequiresVisit, Visit

router = APIRouter(route_class=GuardedRoute)

Reader = Annotated[Visit, Depends(RequiresVisit(Permission.READ_JOBS))]
Writer = Annotated[Visit, Depends(RequiresVisit(Permission.WRITE_JOBS))]

# The options of a job that its page shows in their own words.
SHOWN = {
    "priority",
    "scheduled_for",
    "delay",
    "max_attempts",
    "dedupe_key",
    "correlation_id",
    "host_id",
    "resource_id",
    "tags",
    "timeout",
    "expires_in",
    "unique_for",
    "debounce",
}
MOST_ATTEMPTS = 50
MOST_CHILDREN = 20
# The rows of a timeline, at first and at most.
TimelineRows = Annotated[int, Query(ge=1, le=500)]
FEW_ROWS, MOST_ROWS = 20, 500
# Of a durable function, in one page.
MOST_STEPS = 100
LAST_LINES = 20
TROUBLE = ("failed", "timeout", "lost")
# Larger JSON is shown as text: a tree of that size is unreadable.
LARGEST_TREE = 60_000


@router.get("/jobs/{job_id}")
async def show(
    job_id: UUID, visit: Reader, rows: TimelineRows = FEW_ROWS, after: str | None = None
) -> Response:
    """A job's page; of a durable function, the steps after a place."""
    async with visit.transaction() as tx:
        job, attempts = await jobs.show_job(tx, visit.principal, job_id)
        children = await jobs.list_children(tx, visit.principal, job, limit=MOST_CHILDREN)
        facts = {
            "trail": await audit.list_entries_about_job(tx, visit.principal, job),
            "host": await _find_host(tx, visit, job),
            "origin": await _find_origin(tx, visit, job),
            "own_run": await _find_own_run(tx, visit, job),
            "error_group": await error_groups.find_group_of_job(tx, visit.principal, job),
        }
        facts["steps"] = steps = await _list_steps(tx, visit, job, after)
        facts["timeline"] = await _draw_timeline(
            tx, visit, job, facts["own_run"], steps=steps.rows, rows=rows
        )
    # limits count every tenant's leases; the page names no other tenant's jobs
    async with visit.transaction(as_system=True) as tx:
        why = await explanation.explain_job(tx, visit.principal, job_id)
    return visit.page(
        "job.html",
        job=job,
        attempts=attempts[::-1][:MOST_ATTEMPTS],
        left_out=max(0, job.attempt_count - MOST_ATTEMPTS, job.attempt_count - len(attempts)),
        last_attempt=attempts[-1].attempt_no if attempts else 0,
        trouble=last_trouble(job, attempts),
        why=why,
        children=children,
        more_children=children.more,
        more_rows=visit.to(f"/jobs/{job.id}", rows=MOST_ROWS) if rows < MOST_ROWS else None,
        cancelable=may_move(job.status, JobStatus.CANCELED) and job.cancel_requested_at is None,
        retryable=bulk_jobs.is_retryable(job),
        editable=job.status is JobStatus.QUEUED,
        forbidden=why_forbidden(visit, job),
        signal_name=signal_name,
        curl=lambda api: curl_command(job, api, named=visit.is_super),
        largest_tree=LARGEST_TREE,
        mark=value_mark,
        others={name: getattr(job, name) for name in OPTIONS if name not in SHOWN},
        **facts,
    )


class ShownSteps(msgspec.Struct, frozen=True):
    """A page of the steps of a durable function, and the addresses of the first page and of the next one."""

    rows: list[StepRow]
    first: str | None
    later: str | None


async def _list_steps(tx: Tx, visit: Visit, job: Job, after: str | None) -> ShownSteps:
    found = await durable.list_steps(tx, visit.principal, job.id, after=after, limit=MOST_STEPS)
    address = f"/jobs/{job.id}"
    return ShownSteps(
        list_rows(job, found),
        None if after is None else visit.to(address),
        None if found.last is None else visit.to(address, after=found.last.place),
    )


async def _draw_timeline(
    tx: Tx, visit: Visit, job: Job, own_run: UUID | None, *, steps: Sequence[StepRow], rows: int
) -> Timeline | None:
    """The timeline of a job's attempts, of its steps, of its newest children, and of the run that it waits for."""
    children = await jobs.list_children(tx, visit.principal, job, limit=rows)
    spans = await timeline.list_attempts_of_jobs(tx, visit.principal, [job, *children])
    entries, has_more = [job_entry(visit, job, spans)], children.more or len(steps) > rows
    entries += function_entries(visit, job, steps[:rows], {one.id: one for one in children}, spans)
    if own_run is not None:
        run = await workflows.get_run(tx, visit.principal, own_run)
        steps_of_run, spans_of_steps = await timeline.list_steps(tx, visit.principal, run, limit=rows + 1)
        entries += [run_entry(visit, run), *step_entries(visit, run, steps_of_run[:rows], spans_of_steps)]
        has_more = has_more or len(steps_of_run) > rows
    called = {row.step.child_id for row in steps[:rows]}
    entries += [job_entry(visit, one, spans, level=1) for one in reversed(children) if one.id not in called]
    return draw_timeline(entries, datetime.now(UTC), has_more=has_more)


def why_forbidden(visit: Visit, job: Job) -> str | None:
    """Why the visitor may not cancel or retry this job, or None."""
    if not bulk_jobs.is_forbidden(visit.principal, job):
        return None
    return f"This job runs a workflow. Your role ({visit.principal.role}) lacks the permission {Permission.RUN_WORKFLOWS}."


def value_mark(value: Any) -> str:
    """A short hash of a value, for element ids."""
    return f"{crc32(repr(value).encode()):x}"


def last_trouble(job: Job, attempts: Sequence[Attempt]) -> dict[str, Any] | None:
    """The last attempt's error and its last lines of output; None if the job runs or succeeded since."""
    last = next((one for one in reversed(attempts) if one.status != "running"), None)
    if job.status in (JobStatus.SUCCEEDED, JobStatus.RUNNING) or last is None or last.status not in TROUBLE:
        return None
    told = job.error if isinstance(job.error, dict) else {}
    return {
        "attempt": last,
        "type": told.get("type") or last.status,
        "message": told.get("message") or last.error_text or job.last_error or "",
        "traceback": told.get("traceback"),
        "lines": _last_lines(last.stderr_tail or last.stdout_tail or ""),
    }


def _last_lines(text: str) -> str:
    return "\n".join(ansi.strip_ansi(text).rstrip().splitlines()[-LAST_LINES:])


def signal_name(number: int | None) -> str:
    """`SIGKILL`, for 9."""
    try:
        return "" if number is None else Signals(number).name
    except ValueError:
        return f"signal {number}"


def curl_command(job: Job, api: str, *, named: bool) -> str:
    """A curl command that enqueues a copy. The user assigns each secret to a variable: the shell stops without it."""
    secrets: list[str] = []
    payload = _mark_secrets(job.payload, "SECRET", secrets)
    body = {"definition_key": job.definition_key, "payload": payload, "priority": job.priority}
    if job.host_id is not None:
        body["host_id"] = str(job.host_id)
    headers = ["Authorization: Bearer <token>", "Content-Type: application/json"]
    headers += [f"X-Tenant: {job.tenant}"] if named else []
    text = msgspec.json.encode(body).decode()
    said = " ".join(f"-H {shlex.quote(one)}" for one in headers)
    data = shlex.quote(text)
    for name in secrets:
        data = data.replace(_MARK.format(name), f"'\"${{{name}:?}}\"'")
    command = f"curl -X POST {shlex.quote(f'{api}/jobs')} {said} -d {data}"
    if not secrets:
        return command
    assigned = "\n".join(f"{name}=''" for name in secrets)
    return f"# Secrets are not copied: fill them in, escaped as in JSON.\n{assigned}\n{command}"


# Characters of a private area, which no shell and no JSON escapes.
_MARK = "\ue000{}\ue001"


def _mark_secrets(value: Any, name: str, found: list[str]) -> Any:
    """The value with each masked secret replaced by a mark that names its variable."""
    if isinstance(value, dict):
        return {key: _mark_secrets(one, f"{name}_{key}", found) for key, one in value.items()}
    if isinstance(value, list):
        return [_mark_secrets(one, f"{name}_{index}", found) for index, one in enumerate(value)]
    if not isinstance(value, str) or MASK not in value:
        return value
    variable = re.sub(r"[^A-Za-z0-9_]", "_", name)
    while variable in found:
        variable += "_"
    found.append(variable)
    return value.replace(MASK, _MARK.format(variable))


async def _find_host(tx: Tx, visit: Visit, job: Job) -> Any:
    """The job's host, if it exists and the visitor may see it."""
    if job.host_id is None or not visit.may(Permission.READ_HOSTS):
        return None
    try:
        return await hosts.get(tx, visit.principal, job.host_id)
    except FairleadError:
        return None  # it was removed


async def _find_own_run(tx: Tx, visit: Visit, job: Job) -> UUID | None:
    """The workflow run that the job waits for, if the visitor may see it."""
    if job.definition_key != ENGINE_RUN or not visit.may(Permission.READ_WORKFLOWS):
        return None
    return await run_steps.find_awaited_run(tx, visit.principal, job.id)


class JobOrigin(msgspec.Struct, frozen=True):
    """The trigger and the event that created a job."""

    trigger: UUID | None = None
    event: UUID | None = None


async def _find_origin(tx: Tx, visit: Visit, job: Job) -> JobOrigin:
    """The trigger and the event that created the job, if the visitor may see them."""
    reference = _parse_uuid(job.source_ref)
    if job.source is not Source.EVENT:
        # from a schedule, or fired manually
        return JobOrigin(trigger=reference) if visit.may(Permission.READ_TRIGGERS) else JobOrigin()
    if reference is None or not visit.may(Permission.READ_EVENTS):
        return JobOrigin()
    if not await events.is_stored(tx, visit.principal, reference):
        return JobOrigin()  # retention has removed it
    firing = await events.find_firing_of_job(tx, visit.principal, reference, job.id)
    return JobOrigin(None if firing is None else firing.trigger_id, reference)


def _parse_uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None


# Its attempts


@router.get("/jobs/{job_id}/attempts/compare")
async def compare(job_id: UUID, visit: Reader, left: AttemptNo = None, right: AttemptNo = None) -> Response:
    """Two attempts side by side; by default the last two. Of a job with fewer, a page that says so."""
    async with visit.transaction() as tx:
        job, attempts = await jobs.show_job(tx, visit.principal, job_id)
        if len(attempts) < 2:
            return visit.page("attempts.html", job=job, found=None)
        chosen = [
            await _get_attempt(tx, visit, job_id, number or default.attempt_no)
            for number, default in zip((left, right), attempts[-2:], strict=True)
        ]
    numbers = {one.attempt_no for one in (*attempts[-MOST_ATTEMPTS:], *chosen)}
    return visit.page(
        "attempts.html",
        job=job,
        found=compare_attempts(*chosen),
        numbers=sorted(numbers, reverse=True),
        signal_name=signal_name,
    )


async def _get_attempt(tx: Tx, visit: Visit, job_id: UUID, number: int) -> Attempt:
    found = await jobs.list_attempts(tx, visit.principal, job_id, after=max(0, number - 1), limit=1)
    if not found or found[0].attempt_no != number:
        raise NotFound(f"Job {job_id} has no attempt {number}.")
    return found[0]
