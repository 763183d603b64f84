"""Errors as RFC 9457 problem details: a stable code, what was wrong and where, never a traceback."""

import re
import traceback
from collections.abc import Callable
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.db.database_errors import translate_error
from fairlead.errors import (
    BodyNotJson,
    DatabaseRefused,
    DatabaseUnreachable,
    FairleadError,
    Fault,
    InternalError,
    InvalidInput,
    MethodNotAllowed,
    NotFound,
    Refused,
)
from fairlead.server.all_cells import unreachable_error
from fairlead.server.handover import note_refusal

log = structlog.get_logger(__name__)

MEDIA_TYPE = "application/problem+json"
# The path of the API.
PREFIX = "/api/v1"
# The console's mount path, which its routes do not contain.
CONSOLE = "/console"
UNKNOWN_ROUTE = "(none)"
MOST_FAULTS = 100
MOST_FRAMES = 12
LONGEST_TEXT = 1000


def hide_details(error: FairleadError) -> FairleadError:
    """The error for clients: where the database is, and what PostgreSQL says, is only in the log."""
    if isinstance(error, DatabaseUnreachable):
        return DatabaseUnreachable(
            "The database cannot be reached. Try again in a moment; the server's log says why.", error.faults
        )
    if isinstance(error, DatabaseRefused):
        return DatabaseRefused("The database could not do this. The server's log says why.", error.faults)
    return error


def problem_response(error: FairleadError, headers: dict[str, str] | None = None) -> JSONResponse:
    """An error as a problem response."""
    error = hide_details(error)
    status = error.http_status
    body = {"type": "about:blank", "title": type(error).__name__, "status": status, **error.as_dict()}
    body["detail"] = _printable(body["detail"])
    body["errors"] = [
        {"path": _printable(fault.path), "message": _printable(fault.message)}
        for fault in error.faults[:MOST_FAULTS]
    ]
    more = {"Cache-Control": "no-store", **(headers or {})}
    if status == 401:
        more["WWW-Authenticate"] = "Bearer"
    return JSONResponse(body, status_code=status, headers=more, media_type=MEDIA_TYPE)


def add_problems(app: FastAPI) -> None:
    """Answer every error with a problem."""

    @app.exception_handler(FairleadError)
    async def render_problem(request: Request, error: FairleadError) -> JSONResponse:
        error = name_unreachable_cell(request, error)
        note_refusal(request.scope, error)
        if error.http_status >= 500:
            log.error("request_failed", path=route_of(request.scope), code=error.code, why=error.message)
        wait = getattr(error, "retry_after", None)
        return problem_response(error, {"Retry-After": str(wait)} if wait else None)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return problem_response(_describe_invalid(error))

    @app.exception_handler(HTTPException)
    async def framework(_: Request, error: HTTPException) -> JSONResponse:
        kinds: dict[int, type[Refused]] = {400: BodyNotJson, 404: NotFound, 405: MethodNotAllowed}
        kind = kinds.get(error.status_code, InvalidInput)
        advice = {
            400: "The body cannot be read as JSON: send UTF-8, and nest values less deeply.",
            404: "There is nothing at this address. The API is described at /api/v1/openapi.json.",
            405: "There is no such method at this address. The API is described at /api/v1/openapi.json.",
        }
        return problem_response(
            kind(advice.get(error.status_code, str(error.detail))), dict(error.headers or {})
        )

    # The innermost middleware, so that the others see a response. (Starlette re-raises after a handler for Exception,
    # and the server would log the whole message.)
    app.user_middleware.append(Middleware(ErrorBoundary))


class ErrorBoundary:
    """Middleware that answers unexpected exceptions of the application."""

    def __init__(self, app: ASGIApp, answer: Callable[[Request, Exception], Response] | None = None) -> None:
        self._app = app
        self._answer = answer or _answer_unexpected

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def begin(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, begin)
        except ClientDisconnect:
            log.info(
                "request_unfinished",
                path=route_of(scope),
                why="the client disconnected before it had sent its body",
            )
        except ResponseUnfinished:  # of the console
            raise
        except Exception as error:  # noqa: BLE001 - logged, and answered for
            if begun and isinstance(
                refusal := error.__cause__, FairleadError
            ):  # raised while it was streamed
                log.warning("response_ended", path=route_of(scope), code=refusal.code, why=refusal.message)
                raise ResponseUnfinished from None
            answer = self._answer(Request(scope), error)
            if begun:  # too late for another response: end the connection
                raise ResponseUnfinished from None
            await answer(scope, receive, send)


class ResponseUnfinished(Exception):
    """A response broke off after it had begun. The log says why."""


def _answer_unexpected(request: Request, error: Exception) -> JSONResponse:
    refusal = log_unexpected_error(request, error)
    note_refusal(request.scope, refusal)
    wait = getattr(refusal, "retry_after", 1)
    return problem_response(
        refusal, None if isinstance(refusal, InternalError) else {"Retry-After": str(wait)}
    )


def name_unreachable_cell(request: Request, error: FairleadError) -> FairleadError:
    """Say that the database of a cell cannot be reached, not that of the whole server."""
    is_of_cell = isinstance(error, DatabaseUnreachable) and request.app.state.fl.cell is not None
    return unreachable_error() if is_of_cell else error


def log_unexpected_error(request: Request, error: Exception) -> FairleadError:
    """Log an unexpected exception, and return the error to answer with."""
    if (refusal := translate_error(error, request.app.state.fl.database.url)) is not None:
        log.warning("database_failed", path=route_of(request.scope), why=refusal.message)
        return name_unreachable_cell(request, refusal)
    # the message may contain a password: log only the type and the stack
    log.error("request_broken", path=route_of(request.scope), why=type(error).__name__, where=stack_of(error))
    return InternalError("An unexpected error occurred. It was logged; try again.")


def stack_of(error: BaseException) -> list[str]:
    """The innermost frames of the stack, and those of the cause."""
    frames = traceback.extract_tb(error.__traceback__)[-MOST_FRAMES:]
    way = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    cause = error.__cause__ or error.__context__
    return way if cause is None else [*way, f"after {type(cause).__name__}", *stack_of(cause)[-3:]]


def route_of(scope: Scope) -> str:
    """The route's pattern: paths contain ids and user input."""
    # an included router's route lacks its prefix: FastAPI keeps the full route beside it
    whole = scope.get("fastapi", {}).get("effective_route_context") or scope.get("route")
    path = getattr(whole, "path_format", None) or getattr(whole, "path", None)
    if path is None:
        return UNKNOWN_ROUTE
    return f"{CONSOLE}{path}" if str(scope.get("root_path", "")).endswith(CONSOLE) else str(path)


def _describe_invalid(error: RequestValidationError) -> Refused:
    first_one = next(iter(error.errors()), None)
    if first_one is not None and first_one["type"] == "json_invalid":
        return _not_json(error, first_one)
    faults = [Fault(_field_path(one["loc"]), _fault_message(one)) for one in error.errors()[:MOST_FAULTS]]
    first = faults[0] if faults else Fault("", "not valid")
    return InvalidInput(f"The request is not valid: {first.path or 'body'}: {first.message}.", faults)


def _not_json(error: RequestValidationError, one: Any) -> BodyNotJson:
    """The line and column where the body stops being JSON."""
    at = int(one["loc"][-1])
    before = str(error.body)[:at]
    line, column = before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1
    where, why = f"line {line}, column {column}", one["ctx"]["error"]
    return BodyNotJson(f"The body is not JSON: {where}: {why}.", [Fault("body", f"{where}: {why}")])


def _field_path(where: Any) -> str:
    if where[:1] == ("query",):  # a parameter with several values has no places that its sender wrote
        where = [part for part in where if not isinstance(part, int)]
    parts = [str(part) for part in where]
    # the client knows `body.payload.name` as `payload.name`; headers and cookies keep their prefix
    return ".".join(parts[1:] if parts[:1] in (["body"], ["query"], ["path"]) else parts)


def _printable(text: str) -> str:
    """Text that may contain client input, as valid UTF-8 and shortened."""
    whole = text.encode("utf-8", "replace").decode()
    return whole if len(whole) <= LONGEST_TEXT else whole[:LONGEST_TEXT] + "…"


# What pydantic says in the words of its own objects, by the type of the error.
_MESSAGES = {
    "extra_forbidden": "unknown field",
    "missing": "is required",
    "model_attributes_type": "must be a JSON object",
    "model_type": "must be a JSON object",
    "dict_type": "must be a JSON object",
    "list_type": "must be a list",
    "string_type": "must be a string",
}


def _fault_message(one: Any) -> str:
    if (message := _MESSAGES.get(one["type"])) is not None:
        return message
    message = str(one["msg"]).removeprefix("Value error, ")
    return re.sub(r"^Input should be ", "must be ", message)
