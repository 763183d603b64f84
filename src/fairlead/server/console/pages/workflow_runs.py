"""Runs of workflows: the list, each run with its steps, cancel and retry."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from fairlead.actions import run_steps, timeline, workflows
from fairlead.actions.workflows import RunDetails
from fairlead.db.tx import Tx
from fairlead.errors import NotFound
from fairlead.model.access import Permission
from fairlead.model.job import JobStatus
from fairlead.model.page import Page
from fairlead.model.workflow.run import Run, RunStatus, RunStep, StepState, StepSummary
from fairlead.server.auth import GuardedRoute
from fairlead.server.console import workflow_drawing
from fairlead.server.console.graph_layout import MOST_STEPS
from fairlead.server.console.newest_first import fetch_newest
from fairlead.server.console.pages.job import LARGEST_TREE, value_mark
from fairlead.server.console.timeline import Timeline, draw_timeline
from fairlead.server.console.timeline_entries import run_entry, step_entries
from fairlead.server.console.visit import RequiresVisit, Visit
from fairlead.server.console.workflow_drawing import WorkflowPicture

router = APIRouter(route_class=GuardedRoute)

Reader = Annotated[Visit, Depends(RequiresVisit(Permission.READ_WORKFLOWS))]
RunManager = Annotated[Visit, Depends(RequiresVisit(Permission.RUN_WORKFLOWS))]
StepPlace = Annotated[int, Query(ge=0, le=2_147_483_647)]

ROWS = 50
ITEMS = 100
# The rows of a timeline, at first and at most.
TimelineRows = Annotated[int, Query(ge=1, le=1000)]
FEW_ROWS, MOST_ROWS = 40, 1000


@router.get("/workflow-runs")
async def list_runs(request: Request, visit: Reader) -> Response:
    """The runs, newest first."""
    filters = read_filters(request)
    async with visit.transaction() as tx:

        async def fetch(before: UUID | None, limit: int) -> Page[Run]:
            return await workflows.list_runs(tx, visit.principal, before=before, limit=limit, **filters)

        page = await fetch_newest(request, ROWS, fetch)
    return visit.page(
        "workflow_runs.html",
        **page.facts(),
        runs=page.items,
        asked={"workflow": filters["key"], "status": filters["status"]},
        statuses=list(RunStatus),
    )


def read_filters(request: Request) -> dict[str, Any]:
    """The filters of the URL."""
    given = request.query_params
    return {
        "key": given.get("workflow", "").strip() or None,
        "status": RunStatus(given["status"]) if given.get("status") in list(RunStatus) else None,
    }


@router.get("/workflow-runs/{run_id}")
async def show(run_id: UUID, visit: Reader, first: StepPlace = 0, rows: TimelineRows = FEW_ROWS) -> Response:
    """A run and its steps."""
    async with visit.transaction() as tx:
        shown = await workflows.show_run(tx, visit.principal, run_id, first=first, limit=MOST_STEPS)
        seen, marks = await _draw_run(tx, visit, shown)
        run = shown.run
        culprit = await _find_failed_step(tx, visit, shown, marks)
        retryable = await workflows.is_retryable(tx, visit.principal, run)
        times = await draw_run_timeline(tx, visit, run, rows)
    return visit.page(
        "workflow_run.html",
        run=run,
        steps=shown.steps,
        states={state: shown.states[state] for state in StepState if state in shown.states},
        picture=seen,
        named=workflow_drawing.list_notable_steps(marks),
        culprit=culprit,
        timeline=times,
        more_rows=visit.to(f"/workflow-runs/{run.id}", rows=MOST_ROWS) if rows < MOST_ROWS else None,
        links=[_step_url(visit, run, one) for one in shown.steps],
        first=first,
        page_size=MOST_STEPS,
        next_place=shown.next_place,
        done=workflow_drawing.count_done_items,
        cancelable=run.status is RunStatus.RUNNING and run.cancel_requested_at is None,
        retryable=retryable,
        largest_tree=LARGEST_TREE,
        mark=value_mark,
    )


async def draw_run_timeline(tx: Tx, visit: Visit, run: Run, rows: int) -> Timeline | None:
    """The timeline of a run's first steps."""
    steps, spans = await timeline.list_steps(tx, visit.principal, run, limit=rows + 1)
    entries = [run_entry(visit, run), *step_entries(visit, run, steps[:rows], spans)]
    return draw_timeline(entries, datetime.now(UTC), has_more=len(steps) > rows)


async def _find_failed_step(
    tx: Tx, visit: Visit, shown: RunDetails, marks: Sequence[StepSummary]
) -> RunStep | None:
    """The step whose failure failed the run, also if it is not on this page."""
    name = (shown.run.error or {}).get("step")
    if name is None:
        return None
    place = next((one.place for one in marks if one.name == name), None)
    if place is not None and all(one.place != place for one in shown.steps):
        shown = await workflows.show_run(tx, visit.principal, shown.run.id, first=place, limit=1)
    return next((one for one in shown.steps if one.name == name), None)


def _step_url(visit: Visit, run: Run, one: RunStep) -> str:
    """The URL of the step's job; of its own page, if it has no job yet or several."""
    if one.job_id is not None and one.items is None:
        return visit.to(f"/jobs/{one.job_id}")
    return visit.to(f"/workflow-runs/{run.id}/step", place=one.place)


async def _draw_run(tx: Tx, visit: Visit, shown: RunDetails) -> tuple[WorkflowPicture, list[StepSummary]]:
    """The drawing; for a run that is too large, its layers and a mark for each step."""
    if shown.run.steps <= MOST_STEPS and len(shown.steps) == shown.run.steps:
        return workflow_drawing.draw_run(shown.steps), []
    marks = await run_steps.list_step_summaries(tx, visit.principal, shown.run)
    groups = await run_steps.list_step_groups(tx, visit.principal, shown.run)
    return await asyncio.to_thread(workflow_drawing.summarize_run, groups, marks), marks


@router.get("/workflow-runs/{run_id}/graph")
async def show_graph(run_id: UUID, visit: Reader) -> Response:
    """The layout of a run's graph, and the state of each step, for the script that draws large graphs."""
    async with visit.transaction() as tx:
        run = await workflows.get_run(tx, visit.principal, run_id)
        marks = await run_steps.list_step_summaries(tx, visit.principal, run)
        groups = await run_steps.list_step_groups(tx, visit.principal, run)
    graph = await asyncio.to_thread(workflow_drawing.lay_out_run, groups, marks)
    return Response(msgspec.json.encode(graph), media_type="application/json")


@router.get("/workflow-runs/{run_id}/graph-states")
async def show_graph_states(run_id: UUID, visit: Reader) -> Response:
    """The state of each step, as a digit."""
    async with visit.transaction() as tx:
        run = await workflows.get_run(tx, visit.principal, run_id)
        states = await run_steps.list_states(tx, visit.principal, run)
    return Response(workflow_drawing.write_states(states), media_type="text/plain")


@router.get("/workflow-runs/{run_id}/step")
async def show_step(
    run_id: UUID, visit: Reader, place: StepPlace = 0, status: str = "", first: StepPlace = 0
) -> Response:
    """One step of a run, and the job of each of its items."""
    wanted = JobStatus(status) if status in list(JobStatus) else None
    async with visit.transaction() as tx:
        shown = await workflows.show_run(tx, visit.principal, run_id, first=place, limit=1)
        if not shown.steps:
            raise NotFound(f"There is no such step of run {run_id}.")
        items = await run_steps.list_items(
            tx, visit.principal, shown.run, place, first=first, status=wanted, limit=ITEMS
        )
    return visit.page(
        "workflow_step.html",
        run=shown.run,
        step=shown.steps[0],
        items=items,
        next_item=None if items.last is None else items.last.item + 1,
        first=first,
        wanted=wanted,
        done=workflow_drawing.count_done_items,
    )


# Actions


@router.post("/workflow-runs/{run_id}/cancel")
async def cancel(run_id: UUID, visit: RunManager) -> Response:
    """Cancel a run: waiting steps at once, running steps at their next heartbeat."""
    async with visit.transaction() as tx:
        run = await workflows.cancel(tx, visit.principal, run_id)
    return visit.respond(
        "Run canceled." if run.status is RunStatus.CANCELED else "Cancel requested. No other step starts."
    )


@router.post("/workflow-runs/{run_id}/retry")
async def retry(run_id: UUID, visit: RunManager) -> Response:
    """Retry a run from the steps that did not succeed."""
    async with visit.transaction() as tx:
        await workflows.retry(tx, visit.principal, run_id)
    return visit.respond("Run retried. It continues from the steps that did not succeed.")
