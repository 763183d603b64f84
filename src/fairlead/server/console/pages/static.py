"""Static files of the console, and its start page."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response

from fairlead.server.auth import Guarded, Open
from fairlead.server.console import assets
from fairlead.server.console.visit import address_of

router = APIRouter(route_class=Guarded)

Anybody = Annotated[None, Depends(Open())]


@router.get("/static/{name}")
async def file(name: str, _: Anybody) -> Response:
    """A static file; its name changes with its content, so that browsers may cache it forever."""
    data, kind = assets.content(name)
    return Response(data, media_type=kind, headers={"Cache-Control": "public, max-age=31536000, immutable"})


@router.get("/")
async def begin(request: Request, _: Annotated[None, Depends(Open())]) -> Response:
    """Redirect to the jobs."""
    return RedirectResponse(address_of(request, "/jobs", None, {}), status_code=303)
