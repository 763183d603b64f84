"""A form to enqueue a job, made from its definition's schema."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from fairlead.actions import definitions, enqueue, hosts, jobs
from fairlead.db.tx import Tx
from fairlead.errors import FairleadError
from fairlead.model.access import Permission
from fairlead.model.definition import Definition
from fairlead.model.field import meta_of, type_of
from fairlead.model.job import OPTIONS, EnqueueResult, Job
from fairlead.model.request import parse_request
from fairlead.server.auth import GuardedRoute
from fairlead.server.console.payload_form import PayloadForm, refuse_masked
from fairlead.server.console.tenant_choice import choose_tenant
from fairlead.server.console.visit import RequiresVisit, Visit

router = APIRouter(route_class=GuardedRoute)

Writer = Annotated[Visit, Depends(RequiresVisit(Permission.WRITE_JOBS))]

# The options that have their own place in the form; the others are fields with their description.
OWN_FIELDS = {"priority", "scheduled_for", "max_attempts", "host_id", "resource_id"}
OTHERS = {name: meta_of(field).description or "" for name, field in OPTIONS.items() if name not in OWN_FIELDS}
OTHERS |= {
    "tags": f"{OTHERS['tags'].removesuffix(', without commas.')}, with commas between them.",
    "debounce": f"{OTHERS['debounce']} KEY:TIME[:MAX], such as search-42:30s:10m.",
}
MOST_HOSTS = 200


@router.get("/enqueue")
async def show_form(request: Request, visit: Writer) -> Response:
    """The form for the definition in the URL, filled in if the URL names a job to copy."""
    if visit.tenant_id is None:
        return await choose_tenant(visit, what="the job", to="/enqueue")
    given = request.query_params
    async with visit.transaction() as tx:
        copied = await _find_copied_job(tx, visit, given.get("copy", ""))
        key = given.get("definition") or (copied.definition_key if copied else "")
        definition = await definitions.find(tx, visit.principal, key) if key else None
    if definition is None:
        return await _render_page(visit, None)
    payload = PayloadForm.new(definition.arg_schema, copied.payload if copied else None)
    options = {} if copied is None else _options_of(copied)
    return await _render_page(
        visit, definition, payload=payload.without_secrets(), options=options, copied=copied
    )


@router.post("/enqueue")
async def enqueue_job(request: Request, visit: Writer) -> Response:
    """Enqueue the form's job; with `show`, switch between fields and JSON."""
    given = await visit.form()
    options = {name: given[name].strip() for name in OPTIONS if given.get(name, "").strip()}
    async with visit.transaction() as tx:
        definition = await definitions.find(tx, visit.principal, request.query_params.get("definition", ""))
    if definition is None:
        return await _render_page(visit, None, status=422)
    payload = PayloadForm.from_form(definition.arg_schema, given)
    try:
        if "show" in given:
            return await _render_page(visit, definition, payload=payload.switch_view(), options=options)
        made = await _enqueue(visit, definition, payload.payload(), options)
    except FairleadError as error:
        refused = payload.with_faults(error)
        return await _render_page(
            visit, definition, payload=refused, options=options, error=error, status=422
        )
    told = "A job already has this key. Showing that job." if made.deduplicated else "Job enqueued."
    return visit.respond(told, to=visit.to(f"/jobs/{made.id}"))


async def _enqueue(
    visit: Visit, definition: Definition, payload: Any, options: Mapping[str, str]
) -> EnqueueResult:
    refuse_masked(payload)
    request = {"definition": definition.key, "tenant": str(visit.tenant), "payload": payload}
    new = parse_request({**request, **_read_numbers(options)})
    async with visit.transaction() as tx:
        return await enqueue.enqueue(tx, visit.principal, visit.fl.catalog, new)


def _read_numbers(given: Mapping[str, str]) -> dict[str, Any]:
    """The options with numbers where these can be read; the request refuses other texts."""
    read: dict[str, Any] = dict(given)
    for name, text in given.items():
        if (kind := type_of(OPTIONS[name])) in (int, float):
            with suppress(ValueError):
                read[name] = kind(text)
    return read


async def _render_page(
    visit: Visit,
    definition: Definition | None,
    *,
    payload: PayloadForm | None = None,
    options: Mapping[str, str] | None = None,
    error: FairleadError | None = None,
    copied: Job | None = None,
    status: int = 200,
) -> Response:
    async with visit.transaction() as tx:
        known = [one for one in await definitions.list_all(tx, visit.principal) if one.is_active]
        shown = visit.may(Permission.READ_HOSTS)
        offered = await hosts.list_hosts(tx, visit.principal, limit=MOST_HOSTS) if shown else []
        resources = await hosts.list_resources(tx, visit.principal, limit=MOST_HOSTS) if shown else []
    faults = () if error is None else error.faults
    return visit.page(
        "enqueue.html",
        status=status,
        definition=definition,
        definitions=known,
        payload=payload,
        options=dict.fromkeys(OPTIONS, "") | dict(options or {}),
        error=error,
        option_faults={one.path: one.message for one in faults if one.path in OPTIONS},
        others=OTHERS,
        hosts=offered,
        resources=resources,
        copied=copied,
    )


async def _find_copied_job(tx: Tx, visit: Visit, job_id: str) -> Job | None:
    try:
        asked = UUID(job_id) if job_id else None
    except ValueError:
        return None
    return None if asked is None else (await jobs.show_job(tx, visit.principal, asked))[0]


def _options_of(job: Job) -> dict[str, str]:
    """The options that a copy takes over: not the dedupe key, which would deduplicate it, nor the time."""
    given: dict[str, Any] = {
        "priority": job.priority,
        "max_attempts": job.max_attempts,
        "host_id": job.host_id,
    }
    given |= {"tags": ", ".join(job.tags) if job.tags else None, "timeout": job.timeout_seconds}
    return {name: str(value) for name, value in given.items() if value is not None}
