"""The OpenAPI document and its Swagger UI page, served from this package alone."""

import asyncio
from collections.abc import Set as AbstractSet
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from fairlead.server.auth import COOKIE, GuardedRoute, PublicAccess
from fairlead.server.problems import MEDIA_TYPE, PREFIX

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, include_in_schema=False)

Public = Annotated[None, Depends(PublicAccess())]
Asset = Literal["swagger-ui.css", "swagger-ui-bundle.js", "start.js"]

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_METHODS = {"get", "put", "post", "patch", "delete"}
_PROBLEM = {
    "type": "object",
    "title": "Problem",
    "description": "What was wrong, where, and what to do (RFC 9457).",
    "required": ["type", "title", "status", "code", "detail", "errors"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "description": "Stable, for machines."},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["path", "message"],
                "properties": {"path": {"type": "string"}, "message": {"type": "string"}},
            },
        },
    },
}


@router.get("/docs")
async def show_docs(_: Public) -> Response:
    """The Swagger UI page."""
    return Response(_read_file("index.html"), media_type="text/html", headers=_HEADERS)


@router.get("/docs/{name}")
async def send_asset(name: Asset, _: Public) -> Response:
    """A file of the Swagger UI page."""
    kind = "text/css" if name.endswith(".css") else "text/javascript"
    return Response(_read_file(name), media_type=kind, headers=_HEADERS | {"Cache-Control": "max-age=3600"})


@cache
def _read_file(name: str) -> bytes:
    return files("fairlead.server").joinpath("static", "docs", name).read_bytes()


def extend_openapi(app: FastAPI, known: AbstractSet[tuple[str, str]]) -> None:
    """Add problems, and the operations (path and method) that need authentication, to the OpenAPI document.

    It takes a second to build: a thread does it for the first request, so that the others go on meanwhile.
    """
    building = asyncio.Lock()
    route = next(one for one in app.routes if isinstance(one, Route) and one.path == app.openapi_url)
    show = route.app

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _build_openapi(app, known)
        return app.openapi_schema

    async def build_and_show(scope: Scope, receive: Receive, send: Send) -> None:
        async with building:
            if app.openapi_schema is None:
                await asyncio.to_thread(describe)
        await show(scope, receive, send)

    app.openapi = describe  # type: ignore[method-assign]
    route.app = build_and_show


def _build_openapi(app: FastAPI, known: AbstractSet[tuple[str, str]]) -> dict[str, Any]:
    schema = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        servers=app.servers,
    )
    parts = schema.setdefault("components", {})
    parts["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "fairlead tokens create"},
        "session": {"type": "apiKey", "in": "cookie", "name": COOKIE, "description": "POST /login"},
    }
    shapes = parts.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):  # we answer with Problem
        shapes.pop(name, None)
    shapes["Problem"] = _PROBLEM
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            if method in _METHODS:
                _sort_path_parameters(path, operation)
                _complete_operation(operation, for_tenants=(path, method.upper()) in known)
    return schema


def _sort_path_parameters(path: str, operation: dict[str, Any]) -> None:
    """Sort parameters as the path has them: FastAPI puts those of dependencies last."""
    operation.get("parameters", []).sort(
        key=lambda one: path.index(f"{{{one['name']}}}") if one["in"] == "path" else len(path)
    )


def _complete_operation(operation: dict[str, Any], *, for_tenants: bool) -> None:
    # FastAPI would derive it from the function's name
    operation["summary"] = operation.get("description", operation["summary"]).split(". ")[0].rstrip(".")
    problem = {"schema": {"$ref": "#/components/schemas/Problem"}}
    operation["responses"].pop("422", None)
    operation["responses"]["default"] = {"description": "A problem", "content": {MEDIA_TYPE: problem}}
    if for_tenants:
        operation["security"] = [{"token": []}, {"session": []}]
        operation.setdefault("parameters", []).append(
            {
                "name": "X-Tenant",
                "in": "header",
                "required": False,
                "schema": {"type": "string"},
                "description": "The tenant that a super admin acts in: id or slug.",
            }
        )
