"""The log of one job: its end, the part around a match, a search, and all of it as text."""

from collections.abc import AsyncIterator
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query
from fastapi.responses import JSONResponse, Response, StreamingResponse

from fairlead.actions import logs
from fairlead.model import ansi
from fairlead.model.access import Permission
from fairlead.server.auth import GuardedRoute, Readmission
from fairlead.server.console.visit import RequiresVisit, Visit
from fairlead.server.views import to_json

router = APIRouter(route_class=GuardedRoute)

Reader = Annotated[Visit, Depends(RequiresVisit(Permission.READ_JOBS))]
AttemptNo = Annotated[int | None, Query(ge=1, le=2_147_483_647)]

# The size of one page.
LOOK_CHUNKS, LOOK_BYTES = 400, 131_072
STREAMS = ("stdout", "stderr", "log")


@router.get("/jobs/{job_id}/log")
async def show_log(
    job_id: UUID,
    visit: Reader,
    *,
    before: str | None = None,
    around: str | None = None,
    attempt: AttemptNo = None,
) -> Response:
    """The end of a job's log, or the page before or around a cursor. The script reads and follows later output over the API."""
    async with visit.transaction() as tx:
        if around is not None:
            part = await logs.read_around(
                tx,
                visit.principal,
                job_id,
                around=around,
                attempt_no=attempt,
                limit=LOOK_CHUNKS,
                page_bytes=LOOK_BYTES,
            )
            return JSONResponse(to_json(part))
        page = await logs.read_back(
            tx,
            visit.principal,
            job_id,
            attempt_no=attempt,
            before=before,
            limit=LOOK_CHUNKS,
            page_bytes=LOOK_BYTES,
        )
    return JSONResponse({**to_json(page), "more": False})


@router.get("/jobs/{job_id}/log/search")
async def search_log(
    job_id: UUID,
    visit: Reader,
    *,
    q: Annotated[str, Query(max_length=200)] = "",
    stream: Annotated[tuple[str, ...], Query()] = STREAMS,
    attempt: AttemptNo = None,
    cursor: str | None = None,
) -> Response:
    """The chunks of a job's log with matching lines, from a cursor on."""
    async with visit.transaction() as tx:
        found = await logs.search(
            tx, visit.principal, job_id, q, streams=stream, attempt_no=attempt, cursor=cursor
        )
    return JSONResponse(to_json(found))


@router.get("/jobs/{job_id}/log.txt")
async def download(job_id: UUID, visit: Reader, attempt: AttemptNo = None) -> Response:
    """All of a job's log as text, page by page. It breaks off when the visitor's sign-in ends."""
    first = await _read_log_page(
        visit, job_id, attempt, None
    )  # errors must be raised before the first byte is sent

    async def text() -> AsyncIterator[str]:
        page, streams = first, dict[tuple[int, str], ansi.AnsiStripper]()
        readmission = Readmission(visit.current_request)
        while page.items:
            for one in page.items:
                await readmission.check()
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
