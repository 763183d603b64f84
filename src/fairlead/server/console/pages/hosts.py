"""Hosts: machines whose jobs only their agents run."""

from fastapi import APIRouter

from fairlead.server.auth import Guarded

router = APIRouter(route_class=Guarded)
