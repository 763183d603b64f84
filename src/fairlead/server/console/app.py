"""The console: a separate application, mounted beside the API."""

from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.datastructures import URL
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.errors import (
    FairleadError,
    Forbidden,
    InvalidInput,
    NotFound,
    SecondFactorSetupRequired,
    Unauthenticated,
)
from fairlead.server.auth import add_routes
from fairlead.server.console import render
from fairlead.server.console.pages import (
    account,
    account_links,
    addresses,
    approvals,
    audit,
    bulk,
    definitions,
    downloads,
    enqueue,
    errors,
    events,
    hooks,
    hosts,
    job,
    job_edit,
    job_log,
    jobs,
    limits,
    members,
    overview,
    palette,
    second_factor,
    sign_in,
    sign_in_with,
    sources,
    static,
    system,
    tenants,
    tokens,
    trigger_backfill,
    trigger_editor,
    triggers,
    usage,
    views,
    webhooks,
    workers,
    workflow_runs,
    workflows,
)
from fairlead.server.console.visit import ChosenTenantUnknown, is_htmx, page_url
from fairlead.server.handover import note_refusal
from fairlead.server.problems import (
    ErrorBoundary,
    hide_details,
    log_unexpected_error,
    name_unreachable_cell,
    route_of,
)

log = structlog.get_logger(__name__)

PAGES = (
    account.router,
    account_links.router,
    addresses.router,
    approvals.router,
    audit.router,
    bulk.router,
    definitions.router,
    downloads.router,
    enqueue.router,
    errors.router,
    events.router,
    hooks.router,
    hosts.router,
    job.router,
    job_edit.router,
    job_log.router,
    jobs.router,
    limits.router,
    members.router,
    overview.router,
    palette.router,
    second_factor.router,
    sign_in.router,
    sign_in_with.router,
    sources.router,
    static.router,
    system.router,
    tenants.router,
    tokens.router,
    trigger_editor.router,
    trigger_backfill.router,
    triggers.router,
    usage.router,
    webhooks.router,
    views.router,
    workers.router,
    workflow_runs.router,
    workflows.router,
)
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def create_console(**state: Any) -> FastAPI:
    """Create the console; `state` holds objects that it shares with the API."""
    app = FastAPI(
        title="Fairlead console", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False
    )
    for name, value in state.items():
        setattr(app.state, name, value)
    add_routes(app, PAGES)
    _add_error_pages(app)
    app.add_middleware(SecurityHeaders)
    app.user_middleware.append(Middleware(ErrorBoundary, answer=_answer_unexpected))
    return app


class SecurityHeaders:
    """Middleware that adds security headers to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                there = {name.lower() for name, _ in message["headers"]}
                message["headers"] += [
                    (name.lower().encode(), value.encode())
                    for name, value in HEADERS.items()
                    if name.lower().encode() not in there
                ]
            await send(message)

        await self._app(scope, receive, send_with_headers)


def _add_error_pages(app: FastAPI) -> None:
    @app.exception_handler(FairleadError)
    async def show_refusal(request: Request, error: FairleadError) -> Response:
        return error_response(request, error)

    @app.exception_handler(ChosenTenantUnknown)
    async def offer_tenants(request: Request, unknown: ChosenTenantUnknown) -> Response:
        if is_htmx(request):
            return error_response(request, unknown.error)
        status = unknown.error.http_status
        return unknown.visit.page(
            "unknown_tenant.html", status=status, named=unknown.named, near=unknown.near
        )

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, _: RequestValidationError) -> Response:
        # a mistyped URL
        return error_response(request, NotFound("There is no such page."))

    @app.exception_handler(HTTPException)
    async def framework(request: Request, error: HTTPException) -> Response:
        kind = NotFound if error.status_code in (404, 405) else InvalidInput
        return error_response(request, kind("There is no such page."))


def error_response(request: Request, error: FairleadError) -> Response:
    """The response for an error: a toast for htmx, a redirect to the sign-in or to the set-up that it needs, or an error page."""
    error = name_unreachable_cell(request, error)
    note_refusal(request.scope, error)
    status = error.http_status
    if status >= 500:
        log.error("page_failed", path=route_of(request.scope), code=error.code, why=error.message)
        error = hide_details(error)
    if isinstance(error, Unauthenticated | SecondFactorSetupRequired):
        page = "/sign-in" if isinstance(error, Unauthenticated) else second_factor.PAGE
        to = page_url(request, page, None, {"next": _page_of_visitor(request)})
        if is_htmx(request):
            return Response(status_code=status, headers={"HX-Redirect": to})
        return RedirectResponse(to, status_code=303)
    wait = getattr(error, "retry_after", None)
    headers = {"Retry-After": str(wait)} if wait else {}
    if is_htmx(request):
        toast = {"fairlead:toast": {"text": error.message, "kind": "error"}}
        headers |= {"HX-Trigger": render.header_json(toast), "HX-Reswap": "none"}
        return Response(status_code=status, headers=headers)
    title = {403: "Not for your role", 404: "Not found", 503: "Not right now"}.get(
        status, "That did not work"
    )
    text = render.render_page(
        "error.html", request, title=title, status=status, error=error, forbidden=isinstance(error, Forbidden)
    )
    return HTMLResponse(text, status_code=status, headers=headers)


def _page_of_visitor(request: Request) -> str | None:
    """The console's page that the browser shows, to return to after the sign-in. Never a page of another site."""
    root = str(request.scope.get("root_path", ""))
    url = request.url
    if request.method != "GET" or is_htmx(request):
        # an action: back to the page that sent it
        url = URL(request.headers.get("referer", ""))
        if url.netloc != request.url.netloc or not url.path.startswith(f"{root}/"):
            return None
    return f"{url.path.removeprefix(root)}?{url.query}".rstrip("?")


def _answer_unexpected(request: Request, error: Exception) -> Response:
    return error_response(request, log_unexpected_error(request, error))
