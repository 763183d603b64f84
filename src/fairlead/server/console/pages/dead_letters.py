"""Dead letters, grouped by what went wrong."""

from fastapi import APIRouter

from fairlead.server.auth import Guarded

router = APIRouter(route_class=Guarded)
