"""Durable functions: their steps, and signals to them."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse
from pydantic import Field

from fairlead.actions import durable
from fairlead.db.tx import Tx
from fairlead.model.access import Permission
from fairlead.model.durable import JobStep
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.idempotency import create_once
from fairlead.server.paging import PageQuery, list_page
from fairlead.server.problems import PREFIX
from fairlead.server.views import Body, Listing, View, to_json

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, tags=["jobs"])

Reader = Annotated[Caller, Depends(Requires(Permission.READ_JOBS))]
Writer = Annotated[Caller, Depends(Requires(Permission.WRITE_JOBS))]


class JobStepsQuery(PageQuery):
    """A page of a durable function's steps."""

    limit: int = Field(durable.MAX_PAGE, ge=1, le=durable.MAX_PAGE)


class SignalBody(Body):
    """The data of a signal: any JSON."""

    data: Any = None


class SignalIdView(View):
    """A stored signal."""

    id: UUID


@router.get("/jobs/{job_id}/steps")
async def list_steps(
    job_id: UUID, query: Annotated[JobStepsQuery, Query()], caller: Reader
) -> Listing[JobStep]:
    """The recorded steps and waits of a durable function."""
    async with caller.transaction() as tx:
        found = await durable.list_steps(tx, caller.principal, job_id, after=query.cursor, limit=query.limit)
    return list_page(found, lambda one: one.place)


@router.post("/jobs/{job_id}/signals/{name}", status_code=202, response_model=SignalIdView)
async def send_signal(
    request: Request, job_id: UUID, name: str, caller: Writer, body: SignalBody | None = None
) -> JSONResponse:
    """Send a signal to a durable function: it ends the first wait for its name, or is kept for the next one."""
    data = None if body is None else body.data

    async def send_in_tx(tx: Tx) -> tuple[int, Any]:
        return 202, to_json(
            SignalIdView(id=await durable.send_signal(tx, caller.principal, job_id, name, data))
        )

    return await create_once(request, caller, send_in_tx)
