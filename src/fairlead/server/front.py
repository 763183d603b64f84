"""Redirects / to the console."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse

from fairlead.server.auth import Guarded, Open

router = APIRouter(route_class=Guarded, include_in_schema=False)


@router.get("/")
async def front(request: Request, _: Annotated[None, Depends(Open())]) -> RedirectResponse:
    """Redirect to the console."""
    return RedirectResponse(f"{request.scope.get('root_path', '')}/console/", status_code=303)
