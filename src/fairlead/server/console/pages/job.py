"""One job: why it stands so, its attempts, its log, its payload and output."""

from fastapi import APIRouter

from fairlead.server.auth import Guarded

router = APIRouter(route_class=Guarded)
