"""Redirects / to the console."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse

from fairlead.server.auth import GuardedRoute, PublicAccess

router = APIRouter(route_class=GuardedRoute, include_in_schema=False)


@router.get("/")
async def redirect_to_console(
    request: Request, _: Annotated[None, Depends(PublicAccess())]
) -> RedirectResponse:
    """Redirect to the console."""
    return RedirectResponse(f"{request.scope.get('root_path', '')}/console/", status_code=303)
