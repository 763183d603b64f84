"""The log of a command: lines for people, or JSON for machines."""

import logging
import os
import sys
from typing import Any

import structlog
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import EventDict, Processor, WrappedLogger

from fairlead.cli import output
from fairlead.cli.session import Session
from fairlead.errors import FairleadError
from fairlead.model.ansi import without_controls
from fairlead.model.redact import Mask
from fairlead.runtime import failures
from fairlead.settings import compiled


def set_up(level: int, session: Session) -> None:
    """Write what is of this level or above to standard error, in the form that the settings say."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        processors=_json(_mask(session))
        if session.logs_json
        else _console(_mask(session), verbose=level <= logging.INFO),
    )
    # what libraries log, unless the application has set up Python's logging itself: then that is its own affair
    logging.lastResort = Foreign(max(level, logging.WARNING))


def announce(session: Session, event: str, text: str, *, stderr: bool = False, **fields: Any) -> None:
    """Say what a command that stays is at: a sentence for people, or a line of the log for machines."""
    if session.logs_json:
        anything = structlog.make_filtering_bound_logger(logging.NOTSET)
        structlog.wrap_logger(None, wrapper_class=anything).info(event, **fields)
    else:
        output.console(stderr=stderr).print(text)


class Foreign(logging.StreamHandler[Any]):
    """Passes on what comes through Python's own logging (from psycopg, uvicorn, asyncio) as lines like ours."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            event = record.getMessage()
            structlog.get_logger(record.name).log(
                record.levelno, event, logger=record.name, exc_info=record.exc_info
            )
        except Exception:  # noqa: BLE001 - a line that cannot be written must not stop the work
            self.handleError(record)


def _mask(session: Session) -> list[Processor]:
    """What keeps lines free of what matches `redact_patterns`."""
    try:
        patterns = compiled(session.settings().redact_patterns)
    except FairleadError:
        return []
    mask = Mask((), patterns)
    return [lambda _logger, _method, event: dict(mask.value(dict(event)))] if patterns else []


def _console(masked: list[Processor], *, verbose: bool) -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.dev.set_exc_info,
        structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
        _with_traceback if verbose else _without_traceback,
        _in_one_line,
        # without the values of variables, unlike structlog's own: a payload may be among them
        structlog.processors.format_exc_info,
        *masked,
        _without_controls,
        structlog.dev.ConsoleRenderer(colors=_coloured(), exception_formatter=structlog.dev.plain_traceback),
    ]


def _json(masked: list[Processor]) -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.dev.set_exc_info,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False)),
        *masked,
        structlog.processors.JSONRenderer(default=str),
    ]


def _with_traceback(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """The traceback of a failed attempt below its line."""
    if event["event"] == failures.EVENT and failures.TRACEBACK in event:
        event["exception"] = event.pop(failures.TRACEBACK).rstrip()
    return event


def _without_traceback(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Only the line itself: many may fail at once, and `jobs show` has the traceback."""
    if event["event"] == failures.EVENT:
        event.pop(failures.TRACEBACK, None)
    return event


def _in_one_line(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """PostgreSQL says what it has to say in several; only a traceback may take more than one."""
    return {
        name: " ".join(value.split())
        if isinstance(value, str) and "\n" in value and name != "exception"
        else value
        for name, value in event.items()
    }


def _without_controls(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """An error may hold what a tenant wrote: a terminal must not obey it."""
    return {
        name: without_controls(value) if isinstance(value, str) else value for name, value in event.items()
    }


def _coloured() -> bool:
    """Whether a person reads along, and has not asked for plain text (no-color.org)."""
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR")
