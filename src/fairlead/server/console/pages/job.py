"""One job: its status and reasons, attempts, log, payload and output."""

import shlex
from collections.abc import AsyncIterator, Sequence
from signal import Signals
from typing import Annotated, Any
from uuid import UUID
from zlib import crc32

import msgspec
from fastapi import APIRouter, Depends, Query
from fastapi.responses import JSONResponse, Response, StreamingResponse

from fairlead.actions import audit, bulk_jobs, definitions, events, hosts, jobs, logs, run_steps
from fairlead.actions import why as explanation
from fairlead.db.tx import Tx
from fairlead.errors import FairleadError
from fairlead.model import ansi
from fairlead.model.access import Permission
from fairlead.model.job import OPTIONS, Attempt, Job, JobStatus, Source, may_move
from fairlead.model.workflow.spec import ENGINE_RUN
from fairlead.server.auth import GuardedRoute
from fairlead.server.console.payload_form import PayloadForm
from fairlead.server.console.visit import RequiresVisit, Visit
from fairlead.server.log_tailing import remove_ansi
from fairlead.server.views import to_json

router = APIRouter(route_class=GuardedRoute)

Reader = Annotated[Visit, Depends(RequiresVisit(Permission.READ_JOBS))]
Writer = Annotated[Visit, Depends(RequiresVisit(Permission.WRITE_JOBS))]
AttemptNo = Annotated[int | None, Query(ge=1, le=2_147_483_647)]

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
}
MOST_ATTEMPTS = 50
MOST_CHILDREN = 20
LAST_LINES = 20
# The size of one page of a log.
LOOK_CHUNKS, LOOK_BYTES = 400, 131_072
TROUBLE = ("failed", "timeout", "lost")
# Larger JSON is shown as text: a tree of that size is unreadable.
LARGEST_TREE = 60_000


@router.get("/jobs/{job_id}")
async def show(job_id: UUID, visit: Reader) -> Response:
    """A job's page."""
    async with visit.transaction() as tx:
        job, attempts = await jobs.show_job(tx, visit.principal, job_id)
        children = await jobs.list_children(tx, visit.principal, job, limit=MOST_CHILDREN)
        facts = {
            "trail": await audit.list_entries_about_job(tx, visit.principal, job),
            "host": await _find_host(tx, visit, job),
            "origin": await _find_origin(tx, visit, job),
            "own_run": await _find_own_run(tx, visit, job),
        }
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
        cancelable=may_move(job.status, JobStatus.CANCELED) and job.cancel_requested_at is None,
        retryable=bulk_jobs.is_retryable(job),
        forbidden=why_forbidden(visit, job),
        signal_name=signal_name,
        curl=lambda api: curl_command(job, api, named=visit.is_super),
        largest_tree=LARGEST_TREE,
        mark=value_mark,
        others={name: getattr(job, name) for name in OPTIONS if name not in SHOWN},
        **facts,
    )


def why_forbidden(visit: Visit, job: Job) -> str | None:
    """Why the visitor may not cancel or retry this job, or None."""
    if not bulk_jobs.is_forbidden(visit.principal, job):
        return None
    return f"It runs a workflow: your role ({visit.principal.role}) lacks the permission {Permission.RUN_WORKFLOWS}."


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
    """A curl command that enqueues a copy; the user must fill in masked values."""
    body = {"definition_key": job.definition_key, "payload": job.payload, "priority": job.priority}
    if job.host_id is not None:
        body["host_id"] = str(job.host_id)
    headers = ["Authorization: Bearer <token>", "Content-Type: application/json"]
    headers += [f"X-Tenant: {job.tenant}"] if named else []
    text = msgspec.json.encode(body).decode()
    said = " ".join(f"-H {shlex.quote(one)}" for one in headers)
    return f"curl -X POST {shlex.quote(f'{api}/jobs')} {said} -d {shlex.quote(text)}"


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


# Its log


@router.get("/jobs/{job_id}/log")
async def show_log(
    job_id: UUID, visit: Reader, before: str | None = None, attempt: AttemptNo = None
) -> Response:
    """The end of a job's log, or the page before a cursor. The script reads and follows later output over the API."""
    async with visit.transaction() as tx:
        page = await logs.read_back(
            tx,
            visit.principal,
            job_id,
            attempt_no=attempt,
            before=before,
            limit=LOOK_CHUNKS,
            page_bytes=LOOK_BYTES,
        )
    items = [to_json(one) for one in remove_ansi(page.items)]
    return JSONResponse({"items": items, "earlier": page.earlier, "later": page.later})


@router.get("/jobs/{job_id}/log.txt")
async def download(job_id: UUID, visit: Reader, attempt: AttemptNo = None) -> Response:
    """All of a job's log as text, page by page."""
    first = await _read_log_page(
        visit, job_id, attempt, None
    )  # errors must be raised before the first byte is sent

    async def text() -> AsyncIterator[str]:
        page, streams = first, dict[tuple[int, str], ansi.AnsiStripper]()
        while page.items:
            for one in page.items:
                yield streams.setdefault((one.attempt_no, one.stream), ansi.AnsiStripper()).text(one.text)
            if page.next_cursor is None:
                break
            page = await _read_log_page(visit, job_id, attempt, page.next_cursor)

    name = f"{job_id}.log" if attempt is None else f"{job_id}.{attempt}.log"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(text(), media_type="text/plain; charset=utf-8", headers=headers)


async def _read_log_page(visit: Visit, job_id: UUID, attempt: int | None, cursor: str | None) -> logs.LogPage:
    async with visit.transaction() as tx:
        return await logs.read(tx, visit.principal, job_id, attempt_no=attempt, cursor=cursor)


# Retry with another payload


@router.get("/jobs/{job_id}/edit")
async def edit(job_id: UUID, visit: Writer) -> Response:
    """A form to retry the job with another payload."""
    async with visit.transaction() as tx:
        job, _ = await jobs.show_job(tx, visit.principal, job_id)
        schema = await _find_schema(tx, visit, job)
    return _render_edit_page(visit, job, PayloadForm.new(schema, job.payload))


@router.post("/jobs/{job_id}/edit")
async def retry_edited(job_id: UUID, visit: Writer) -> Response:
    """Retry the job with the form's payload; with `show`, switch between fields and JSON."""
    given = await visit.form()
    async with visit.transaction() as tx:
        job, _ = await jobs.show_job(tx, visit.principal, job_id)
        form = PayloadForm.from_form(await _find_schema(tx, visit, job), given)
    try:
        if "show" in given:
            return _render_edit_page(visit, job, form.switch_view())
        payload = form.payload()
        async with visit.transaction() as tx:
            await jobs.retry(tx, visit.principal, visit.fl.catalog, job_id, payload=payload)
    except FairleadError as error:
        return _render_edit_page(visit, job, form.with_faults(error), error=error)
    return visit.respond("Queued again, with the new payload.", to=visit.to(f"/jobs/{job_id}"))


async def _find_schema(tx: Tx, visit: Visit, job: Job) -> Any:
    found = await definitions.find(tx, visit.principal, job.definition_key)
    return {} if found is None else found.arg_schema


def _render_edit_page(
    visit: Visit, job: Job, form: PayloadForm, error: FairleadError | None = None
) -> Response:
    return visit.page(
        "job_edit.html",
        status=200 if error is None else 422,
        job=job,
        payload=form,
        error=error,
        retryable=bulk_jobs.is_retryable(job),
        forbidden=why_forbidden(visit, job),
    )
