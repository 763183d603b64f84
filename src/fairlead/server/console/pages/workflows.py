"""Workflows: the list, each workflow as a graph, and a form to start one."""

import asyncio
from typing import Annotated, Any
from uuid import UUID

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from fairlead.actions import run_steps, workflows
from fairlead.actions.workflows import RunRequest, StartedRun
from fairlead.db.tx import Tx
from fairlead.errors import FairleadError, Fault, InvalidInput
from fairlead.model.access import Permission
from fairlead.model.workflow.run import PublishedWorkflow, Run
from fairlead.model.workflow.waits import describe_work
from fairlead.server.auth import GuardedRoute
from fairlead.server.console import workflow_drawing
from fairlead.server.console.forms import uuid_of
from fairlead.server.console.graph_layout import MOST_STEPS
from fairlead.server.console.lists import tenant_slugs
from fairlead.server.console.payload_form import PayloadForm, refuse_masked
from fairlead.server.console.tenant_choice import choose_tenant
from fairlead.server.console.visit import RequiresVisit, Visit

router = APIRouter(route_class=GuardedRoute)

Reader = Annotated[Visit, Depends(RequiresVisit(Permission.READ_WORKFLOWS))]
RunManager = Annotated[Visit, Depends(RequiresVisit(Permission.RUN_WORKFLOWS))]
Version = Annotated[int | None, Query(ge=1, le=2_147_483_647)]

ROWS = 50
# How many of a workflow's last runs its row shows, and its page.
MARKS = 8
RUNS = 10
OPTIONS = ("key", "correlation_id")


@router.get("/workflows")
async def list_workflows(request: Request, visit: Reader) -> Response:
    """The workflows, by key."""
    key, tenant_id = workflows.decode_place(request.query_params.get("after", ""))
    async with visit.transaction() as tx:
        found = await workflows.list_workflows(
            tx, visit.principal, after=key, after_tenant=tenant_id, limit=ROWS
        )
        shown = hide_shadowed(visit, found)
        recent = await run_steps.list_recent_runs(tx, visit.principal, {one.key for one in shown}, each=MARKS)
        inline = await workflows.list_runs(tx, visit.principal, limit=1)
        slugs = await tenant_slugs(tx, visit)
    return visit.page(
        "workflows.html",
        workflows=shown,
        recent=recent,
        slugs=slugs,
        after=key,
        has_runs=bool(inline),
        next_after=None if found.last is None else workflows.encode_place(found.last),
    )


def hide_shadowed(visit: Visit, found: list[PublishedWorkflow]) -> list[PublishedWorkflow]:
    """Leave out shared workflows that the tenant's own workflow of the same key replaces."""
    own = {one.key for one in found if not one.is_shared}
    return [one for one in found if visit.tenant_id is None or not (one.is_shared and one.key in own)]


@router.get("/workflows/{workflow_key}")
async def show(workflow_key: str, visit: Reader, version: Version = None) -> Response:
    """A workflow as a graph, and its last runs."""
    async with visit.transaction() as tx:
        workflow = await workflows.get(tx, visit.principal, visit.tenant_slug, workflow_key, version=version)
        newest = workflow if version is None else await _find_newest(tx, visit, workflow_key)
        runs = await workflows.list_runs(tx, visit.principal, key=workflow_key, limit=RUNS)
    return visit.page(
        "workflow.html",
        workflow=workflow,
        spec=workflow.spec,
        newest=newest.version,
        picture=await asyncio.to_thread(workflow_drawing.draw_workflow, workflow.spec),
        links=[f"#step-{place}" for place in range(len(workflow.spec["steps"]))],
        most_steps=MOST_STEPS,
        work=describe_work,
        runs=runs,
        more_runs=runs.more,
    )


@router.get("/workflows/{workflow_key}/graph")
async def show_graph(workflow_key: str, visit: Reader, version: Version = None) -> Response:
    """The layout of a workflow's graph, for the script that draws large graphs."""
    async with visit.transaction() as tx:
        workflow = await workflows.get(tx, visit.principal, visit.tenant_slug, workflow_key, version=version)
    graph = await asyncio.to_thread(workflow_drawing.lay_out_workflow, workflow.spec)
    return Response(msgspec.json.encode(graph), media_type="application/json")


async def _find_newest(tx: Tx, visit: Visit, key: str) -> PublishedWorkflow:
    return await workflows.get(tx, visit.principal, visit.tenant_slug, key)


# Start


@router.get("/workflows/{workflow_key}/start")
async def show_form(workflow_key: str, visit: RunManager, copy: str = "") -> Response:
    """The form of the workflow's input schema, filled in if the URL names a run to copy."""
    if visit.tenant_id is None:
        return await choose_tenant(visit, what="the run", to=f"/workflows/{workflow_key}/start")
    async with visit.transaction() as tx:
        workflow = await _find_newest(tx, visit, workflow_key)
        copied = await _find_copied_run(tx, visit, copy)
    given = PayloadForm.new(_input_schema(workflow), None if copied is None else copied.input)
    return _render_form(visit, workflow, given.without_secrets(), {}, copied=copied)


@router.post("/workflows/{workflow_key}/start")
async def start(workflow_key: str, visit: RunManager) -> Response:
    """Start a run with the form's input; with `show`, switch between fields and JSON."""
    sent = await visit.form()
    options = {name: sent[name].strip() for name in OPTIONS if sent.get(name, "").strip()}
    async with visit.transaction() as tx:
        workflow = await _find_newest(tx, visit, workflow_key)
    given = PayloadForm.from_form(_input_schema(workflow), sent)
    try:
        if "show" in sent:
            return _render_form(visit, workflow, given.switch_view(), options)
        made = await _start_run(visit, workflow, given.payload(), options)
    except FairleadError as error:
        return _render_form(visit, workflow, given.with_faults(_relocate_faults(error)), options, error=error)
    told = "A run with this key exists. Showing that run." if made.deduplicated else "Run started."
    return visit.respond(told, to=visit.to(f"/workflow-runs/{made.id}"))


async def _start_run(
    visit: Visit, workflow: PublishedWorkflow, given: Any, options: dict[str, str]
) -> StartedRun:
    refuse_masked(given)
    asked = RunRequest(
        tenant=str(visit.tenant_slug),
        input=given,
        version=workflow.version,
        unique_key=options.get("key"),
        correlation_id=options.get("correlation_id"),
    )
    async with visit.transaction() as tx:
        return await workflows.start(tx, visit.principal, workflow.key, asked)


def _relocate_faults(error: FairleadError) -> FairleadError:
    """The error with its paths relative to the input."""
    faults = [Fault(fault.path.removeprefix("/input"), fault.message) for fault in error.faults]
    return InvalidInput(error.message, faults)


def _input_schema(workflow: PublishedWorkflow) -> Any:
    return workflow.spec.get("input_schema", True)


def _render_form(
    visit: Visit,
    workflow: PublishedWorkflow,
    given: PayloadForm,
    options: dict[str, str],
    *,
    copied: Run | None = None,
    error: FairleadError | None = None,
) -> Response:
    faults = () if error is None else error.faults
    return visit.page(
        "workflow_start.html",
        status=200 if error is None else 422,
        workflow=workflow,
        payload=given,
        options=dict.fromkeys(OPTIONS, "") | options,
        option_faults={one.path: one.message for one in faults if one.path in OPTIONS},
        copied=copied,
        error=error,
    )


async def _find_copied_run(tx: Tx, visit: Visit, run_id: str) -> Run | None:
    asked: UUID | None = uuid_of(run_id)
    return None if asked is None else (await workflows.show_run(tx, visit.principal, asked, limit=1)).run
