"""Liveness and readiness probes."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse

from fairlead.db import migrate
from fairlead.errors import DatabaseUnreachable, FairleadError
from fairlead.library.app import Fairlead
from fairlead.server.auth import GuardedRoute, PublicAccess
from fairlead.version import __version__

READY_SECONDS = 2.0

router = APIRouter(route_class=GuardedRoute, tags=["health"])
Public = Annotated[None, Depends(PublicAccess())]


@router.get("/healthz")
async def healthz(_: Public) -> dict[str, str]:
    """Whether the process answers."""
    return {"status": "ok", "version": __version__}


@router.get("/readyz")
async def readyz(request: Request, _: Public) -> JSONResponse:
    """Whether the database answers and its schema has this version."""
    fl: Fairlead = request.app.state.fl
    try:
        async with asyncio.timeout(READY_SECONDS):
            await fl.database.reach(lambda tx: migrate.check_connection(tx.connection, tx.schema))
    except TimeoutError:
        return JSONResponse({"status": "unavailable", "code": DatabaseUnreachable.code}, status_code=503)
    except FairleadError as error:
        return JSONResponse({"status": "unavailable", **error.as_dict()}, status_code=503)
    return JSONResponse({"status": "ready", "version": __version__})
