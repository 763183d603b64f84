"""Enqueueing a job by hand: a form made from its definition's schema."""

from fastapi import APIRouter

from fairlead.server.auth import Guarded

router = APIRouter(route_class=Guarded)
