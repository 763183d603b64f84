"""Edit a job that waits, or retry an ended one with another payload."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends
from fastapi.responses import Response

from fairlead.actions import bulk_jobs, definitions, edit_job, jobs
from fairlead.db.tx import Tx
from fairlead.errors import FairleadError
from fairlead.model.access import Permission
from fairlead.model.job import EDITABLE, Job, JobEdit, JobStatus
from fairlead.model.request import parse_edit
from fairlead.server.auth import GuardedRoute
from fairlead.server.console.pages.job import why_forbidden
from fairlead.server.console.payload_form import PayloadForm
from fairlead.server.console.visit import RequiresVisit, Visit

router = APIRouter(route_class=GuardedRoute)

Writer = Annotated[Visit, Depends(RequiresVisit(Permission.WRITE_JOBS))]

# The form of a waiting job sends this: a job that has ended meanwhile is then not retried.
OF_WAITING = "waiting"


@router.get("/jobs/{job_id}/edit")
async def edit(job_id: UUID, visit: Writer) -> Response:
    """A form to change a job that waits, or to retry an ended one with another payload."""
    async with visit.transaction() as tx:
        job, _ = await jobs.show_job(tx, visit.principal, job_id)
        schema = await _find_schema(tx, visit, job)
    form = PayloadForm.new(schema, job.payload)
    return _render_page(visit, job, form, waiting=job.status is JobStatus.QUEUED, options=_options_of(job))


@router.post("/jobs/{job_id}/edit")
async def send_edit(job_id: UUID, visit: Writer) -> Response:
    """Change or retry the job with the form's values; with `show`, switch between fields and JSON."""
    given = await visit.form()
    waiting = OF_WAITING in given
    options = {name: given[name].strip() for name in EDITABLE if name in given}
    async with visit.transaction() as tx:
        job, _ = await jobs.show_job(tx, visit.principal, job_id)
        form = PayloadForm.from_form(await _find_schema(tx, visit, job), given)
    try:
        if "show" in given:
            return _render_page(visit, job, form.switch_view(), waiting=waiting, options=options)
        told = await (_edit(visit, job, form, options) if waiting else _retry(visit, job, form))
    except FairleadError as error:
        return _render_page(
            visit, job, form.with_faults(error), waiting=waiting, options=options, error=error
        )
    return visit.respond(told, to=visit.to(f"/jobs/{job_id}"))


async def _retry(visit: Visit, job: Job, form: PayloadForm) -> str:
    payload = form.payload()
    async with visit.transaction() as tx:
        await jobs.retry(tx, visit.principal, visit.fl.catalog, job.id, payload=payload)
    return "Job queued again with the new payload."


async def _edit(visit: Visit, job: Job, form: PayloadForm, options: Mapping[str, str]) -> str:
    # a step of a workflow keeps its payload: its form has none
    payload = None if job.workflow_run_id else form.payload()
    changes: dict[str, Any] = {} if payload in (None, job.payload) else {"payload": payload}
    changes |= _read_options(job, options)
    if not changes:
        return "Nothing was changed."
    change: JobEdit = parse_edit(changes)
    async with visit.transaction() as tx:
        await edit_job.edit(tx, visit.principal, visit.fl.catalog, job.id, change)
    return "Job edited."


def _options_of(job: Job) -> dict[str, str]:
    """The values of a job that the form begins with; a time that is over has no meaning any more."""
    waits = job.scheduled_for > datetime.now(UTC)
    return {
        "priority": str(job.priority),
        "scheduled_for": job.scheduled_for.isoformat() if waits else "",
        "tags": ", ".join(job.tags or ()),
    }


def _read_options(job: Job, options: Mapping[str, str]) -> dict[str, Any]:
    """The options that differ from the job's. Without a time, a job that waited for its time is due now."""
    own = _options_of(job)
    changed: dict[str, Any] = {
        name: text for name, text in options.items() if text and text != own.get(name, "")
    }
    if "priority" in changed:
        with suppress(ValueError):
            changed["priority"] = int(changed["priority"])
    if own["tags"] and options.get("tags") == "":
        changed["tags"] = ()
    if own["scheduled_for"] and options.get("scheduled_for") == "":
        changed["delay"] = 0
    return changed


async def _find_schema(tx: Tx, visit: Visit, job: Job) -> Any:
    found = await definitions.find(tx, visit.principal, job.definition_key)
    return {} if found is None else found.arg_schema


def _render_page(
    visit: Visit,
    job: Job,
    form: PayloadForm,
    *,
    waiting: bool,
    options: Mapping[str, str],
    error: FairleadError | None = None,
) -> Response:
    faults = () if error is None else error.faults
    return visit.page(
        "job_edit.html",
        status=200 if error is None else 422,
        job=job,
        payload=form,
        waiting=waiting,
        editable=job.status is JobStatus.QUEUED,
        options=dict.fromkeys(EDITABLE, "") | dict(options),
        option_faults={one.path: one.message for one in faults if one.path in EDITABLE},
        error=error,
        retryable=bulk_jobs.is_retryable(job),
        forbidden=why_forbidden(visit, job),
    )
