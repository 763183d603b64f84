"""Workflows: publish, show and start them; show, cancel and retry their runs."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse
from pydantic import Field

from fairlead.actions import workflows
from fairlead.db.tx import Tx
from fairlead.model.access import GLOBAL_TENANT, Permission
from fairlead.model.workflow.run import RunStatus
from fairlead.model.workflow.spec import MAX_STEPS
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.idempotency import create_once
from fairlead.server.paging import PageQuery, page_of
from fairlead.server.rest.workflow_views import (
    PublishedView,
    RunDetailView,
    StartBody,
    StartedRunView,
    WorkflowBody,
    WorkflowRunView,
    WorkflowSummaryView,
)
from fairlead.server.views import ListOf, OneOf, Parameters, ReadableText, to_json

router = APIRouter(route_class=GuardedRoute, tags=["workflows"])

Reader = Annotated[Caller, Depends(Requires(Permission.READ_WORKFLOWS))]
Manager = Annotated[Caller, Depends(Requires(Permission.MANAGE_WORKFLOWS))]
RunReader = Annotated[Caller, Depends(Requires(Permission.READ_RUNS))]
Starter = Annotated[Caller, Depends(Requires(Permission.START_WORKFLOWS))]
RunManager = Annotated[Caller, Depends(Requires(Permission.RUN_WORKFLOWS))]


class VersionQuery(Parameters):
    """The version to show; by default the newest."""

    version: int | None = Field(None, ge=1, le=2_147_483_647)


class RunsQuery(PageQuery):
    """Filters of runs."""

    key: ReadableText | None = None
    status: OneOf[RunStatus] | None = None


class StepsQuery(Parameters):
    """The first step to show, of up to 1000."""

    first: int = Field(0, ge=0, le=MAX_STEPS, description="`next_first` of the previous response.")


@router.get("/workflows")
async def list_workflows(query: Annotated[PageQuery, Query()], caller: Reader) -> ListOf[WorkflowSummaryView]:
    """The workflows that the tenant can start, by key: its own, and shared ones that it does not replace."""
    key, tenant_id = workflows.decode_place(query.after)
    async with caller.transaction() as tx:
        found = await workflows.list_workflows(
            tx, caller.principal, after=key, after_tenant=tenant_id, limit=query.limit
        )
    return page_of(WorkflowSummaryView, found, workflows.encode_place)


@router.post(
    "/workflows", status_code=201, response_model=PublishedView, responses={200: {"model": PublishedView}}
)
async def publish(request: Request, body: WorkflowBody, caller: Manager) -> JSONResponse:
    """Publish a workflow: 201 with its new version, or 200 with the newest if nothing changed.

    Without X-Tenant, a super admin publishes for all tenants.
    """
    tenant = _tenant_name(caller)

    async def publish_in_tx(tx: Tx) -> tuple[int, Any]:
        made, is_new = await workflows.publish(tx, caller.principal, tenant, body.document())
        shown = await workflows.get(tx, caller.principal, tenant, made.key, version=made.version)
        return (201 if is_new else 200), to_json(PublishedView.of(shown))

    return await create_once(request, caller, publish_in_tx)


# Before /workflows/{key}; no workflow can have the key `runs`.


@router.get("/workflows/runs")
async def runs(query: Annotated[RunsQuery, Query()], caller: RunReader) -> ListOf[WorkflowRunView]:
    """Runs, newest first."""
    async with caller.transaction() as tx:
        found = await workflows.list_runs(
            tx,
            caller.principal,
            key=query.key,
            status=query.status,
            before=query.after_id,
            limit=query.limit,
        )
    return page_of(WorkflowRunView, found, lambda one: one.id)


@router.get("/workflows/runs/{run_id}")
async def show_run(run_id: UUID, query: Annotated[StepsQuery, Query()], caller: RunReader) -> RunDetailView:
    """A run, its steps, and the number of steps in each state."""
    async with caller.transaction() as tx:
        return RunDetailView.of(await workflows.show_run(tx, caller.principal, run_id, first=query.first))


@router.post("/workflows/runs/{run_id}/cancel")
async def cancel(run_id: UUID, caller: RunManager) -> WorkflowRunView:
    """Cancel a run: waiting steps at once, running steps at their next heartbeat; no further step starts."""
    async with caller.transaction() as tx:
        return WorkflowRunView.of(await workflows.cancel(tx, caller.principal, run_id))


@router.post("/workflows/runs/{run_id}/retry")
async def retry(run_id: UUID, caller: RunManager) -> WorkflowRunView:
    """Retry a failed or canceled run from the steps that did not succeed."""
    async with caller.transaction() as tx:
        return WorkflowRunView.of(await workflows.retry(tx, caller.principal, run_id))


@router.get("/workflows/{key}")
async def show(key: str, query: Annotated[VersionQuery, Query()], caller: Reader) -> PublishedView:
    """The tenant's own workflow with this key, or else the shared one."""
    async with caller.transaction() as tx:
        found = await workflows.get(tx, caller.principal, _tenant_name(caller), key, version=query.version)
    return PublishedView.of(found)


@router.post(
    "/workflows/{key}/runs",
    status_code=201,
    response_model=StartedRunView,
    responses={200: {"model": StartedRunView}},
)
async def start(request: Request, key: str, caller: Starter, body: StartBody | None = None) -> JSONResponse:
    """Start a run: 201, or 200 if the tenant has a run with the same `key`."""
    asked = (body or StartBody()).to_start(caller.tenant)

    async def start_in_tx(tx: Tx) -> tuple[int, Any]:
        made = await workflows.start(tx, caller.principal, key, asked)
        run = (await workflows.show_run(tx, caller.principal, made.id, limit=1)).run
        view = StartedRunView.of(run).model_copy(update={"deduplicated": made.deduplicated})
        return (200 if made.deduplicated else 201), to_json(view)

    return await create_once(request, caller, start_in_tx)


def _tenant_name(caller: Caller) -> str:
    """The caller's tenant; without one, the global tenant of shared workflows."""
    return GLOBAL_TENANT if caller.tenant_id is None else str(caller.tenant_id)
