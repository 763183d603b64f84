"""Workers, stale ones, and one worker with its jobs and its drain."""

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from fairlead.actions import system, workers
from fairlead.model.access import Permission
from fairlead.server.auth import GuardedRoute
from fairlead.server.console.visit import RequiresVisit, Visit
from fairlead.server.merged_lists import sum_cells

router = APIRouter(route_class=GuardedRoute)

Reader = Annotated[Visit, Depends(RequiresVisit(Permission.READ_WORKERS, everywhere=True))]
Manager = Annotated[Visit, Depends(RequiresVisit(Permission.MANAGE_SYSTEM, everywhere=True))]

ROWS = 200


@router.get("/workers")
async def list_workers(request: Request, visit: Reader) -> Response:
    """The workers."""
    lease = visit.fl.settings.lease_seconds
    after = request.query_params.get("after", "")
    found = await sum_cells(
        visit,
        lambda tx: system.list_workers(tx, visit.principal, lease_seconds=lease, after=after, limit=ROWS),
        lambda cells: system.merge_workers(cells, limit=ROWS),
    )
    alive = [one for one in found if not one.stale]
    return visit.page(
        "workers.html",
        path_of=worker_path,
        rows=found,
        stale=[one for one in found if one.stale],
        alive=len(alive),
        running=sum(one.running_count for one in alive),
        room=sum(one.concurrency for one in alive),
        after=after,
        next=None if found.last is None else found.last.worker_id,
        stale_seconds=system.STALE_LEASES * lease,
    )


@router.get("/workers/{worker_id}")
async def show(worker_id: str, visit: Reader) -> Response:
    """One worker: its jobs, what it serves, its heartbeats."""
    async with visit.transaction() as tx:
        found = await workers.get_details(tx, visit.principal, worker_id)
    return visit.page(
        "worker.html",
        found=found,
        worker=found.worker,
        to=worker_path(worker_id),
        beat_seconds=visit.fl.settings.lease_seconds / 3,
        most_jobs=workers.MOST_JOBS,
    )


@router.post("/workers/{worker_id}/drain")
async def drain(worker_id: str, visit: Manager) -> Response:
    """Ask a worker to claim nothing more."""
    async with visit.transaction() as tx:
        await workers.drain(tx, visit.principal, worker_id)
    undo = visit.to(f"{worker_path(worker_id)}/resume")
    return visit.respond(
        "Draining: the worker claims no more jobs and finishes those that it runs.", undo=undo
    )


@router.post("/workers/{worker_id}/resume")
async def resume(worker_id: str, visit: Manager) -> Response:
    """Let a worker claim again."""
    async with visit.transaction() as tx:
        await workers.resume(tx, visit.principal, worker_id)
    return visit.respond("Resumed: the worker claims jobs again.")


def worker_path(worker_id: str) -> str:
    """The path of a worker's page. Workers over HTTP choose their names."""
    return f"/workers/{quote(worker_id, safe=':')}"
