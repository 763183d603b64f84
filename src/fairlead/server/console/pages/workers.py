"""Workers, and those that fell silent."""

from fastapi import APIRouter

from fairlead.server.auth import Guarded

router = APIRouter(route_class=Guarded)
