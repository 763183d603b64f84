"""Static files of the console, and its start page."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response

from fairlead.server.auth import GuardedRoute, PublicAccess
from fairlead.server.console import assets
from fairlead.server.console.visit import page_url

router = APIRouter(route_class=GuardedRoute)

Public = Annotated[None, Depends(PublicAccess())]


@router.get("/static/{name}")
async def send_file(name: str, _: Public) -> Response:
    """A static file; its name changes with its content, so that browsers may cache it forever."""
    data, kind = assets.read_asset(name)
    return Response(data, media_type=kind, headers={"Cache-Control": "public, max-age=31536000, immutable"})


@router.get("/")
async def redirect_to_overview(request: Request, _: Annotated[None, Depends(PublicAccess())]) -> Response:
    """Redirect to the home page."""
    return RedirectResponse(page_url(request, "/overview", None, {}), status_code=303)
