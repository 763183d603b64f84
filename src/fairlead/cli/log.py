"""The log of a command: console lines or JSON."""

import logging
import os
import sys
from typing import Any

import click
import structlog
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import EventDict, Processor, WrappedLogger

from fairlead.cli.session import CommandSession
from fairlead.errors import FairleadError
from fairlead.model.ansi import strip_controls
from fairlead.model.secrets.redact import Mask
from fairlead.runtime import failure_log
from fairlead.settings import compile_patterns


def set_up(level: int, session: CommandSession) -> None:
    """Log this level and above to standard error, in the configured format."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        processors=_json_processors(_mask_processors(session))
        if session.logs_json
        else _console_processors(_mask_processors(session), verbose=level <= logging.INFO),
    )
    # for logs of libraries; not used if the application configures Python's logging itself
    logging.lastResort = LoggingBridge(max(level, logging.WARNING))


def announce(session: CommandSession, event: str, text: str, *, stderr: bool = False, **fields: Any) -> None:
    """Report a long-running command's state: a sentence on the console, or a log line if the log is JSON."""
    if session.logs_json:
        anything = structlog.make_filtering_bound_logger(logging.NOTSET)
        structlog.wrap_logger(None, wrapper_class=anything).info(event, **fields)
    else:
        click.echo(strip_controls(text), err=stderr)


class LoggingBridge(logging.StreamHandler[Any]):
    """Forwards records of Python's logging (from psycopg, uvicorn, asyncio) to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            event = record.getMessage()
            structlog.get_logger(record.name).log(
                record.levelno, event, logger=record.name, exc_info=record.exc_info
            )
        except Exception:  # noqa: BLE001 - a log line that fails must not stop the command
            self.handleError(record)


def _mask_processors(session: CommandSession) -> list[Processor]:
    """Processors that mask matches of `redact_patterns`."""
    try:
        patterns = compile_patterns(session.settings().redact_patterns)
    except FairleadError:
        return []
    mask = Mask((), patterns)
    return [lambda _logger, _method, event: dict(mask.value(dict(event)))] if patterns else []


def _console_processors(masked: list[Processor], *, verbose: bool) -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.dev.set_exc_info,
        structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
        _format_traceback if verbose else _drop_traceback,
        _join_lines,
        # without the values of variables, unlike structlog's default: they may contain a payload
        structlog.processors.format_exc_info,
        *masked,
        _remove_controls,
        structlog.dev.ConsoleRenderer(
            colors=_use_colours(), exception_formatter=structlog.dev.plain_traceback
        ),
    ]


def _json_processors(masked: list[Processor]) -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.dev.set_exc_info,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False)),
        *masked,
        structlog.processors.JSONRenderer(default=str),
    ]


def _format_traceback(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Print the traceback of a failed attempt below its line."""
    if event["event"] == failure_log.EVENT and failure_log.TRACEBACK in event:
        event["exception"] = event.pop(failure_log.TRACEBACK).rstrip()
    return event


def _drop_traceback(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Drop the traceback of a failed attempt: many may fail together, and `jobs show` has it."""
    if event["event"] == failure_log.EVENT:
        event.pop(failure_log.TRACEBACK, None)
    return event


def _join_lines(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Join the lines of a value, such as a PostgreSQL message; only a traceback may have several."""
    return {
        name: " ".join(value.split())
        if isinstance(value, str) and "\n" in value and name != "exception"
        else value
        for name, value in event.items()
    }


def _remove_controls(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Remove control characters: an error may contain a tenant's text, which must not control the terminal."""
    return {name: strip_controls(value) if isinstance(value, str) else value for name, value in event.items()}


def _use_colours() -> bool:
    """Whether standard error is a terminal and NO_COLOR is not set (no-color.org)."""
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR")
