"""The log of a command: lines for people, or JSON for machines."""

import sys

import structlog
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import Processor

from fairlead.cli.session import Session
from fairlead.errors import FairleadError
from fairlead.model.redact import Mask
from fairlead.settings import compiled


def set_up(level: int, session: Session) -> None:
    """Write what is of this level or above to standard error, in the form that the settings say."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        processors=_json(_mask(session)) if _format(session) == "json" else _console(_mask(session)),
    )


def _format(session: Session) -> str:
    try:
        return session.settings().log_format
    except FairleadError:
        return "console"  # the command itself will say what is wrong with the settings


def _mask(session: Session) -> list[Processor]:
    """What keeps lines free of what matches `redact_patterns`."""
    try:
        patterns = compiled(session.settings().redact_patterns)
    except FairleadError:
        return []
    mask = Mask((), patterns)
    return [lambda _logger, _method, event: dict(mask.value(dict(event)))] if patterns else []


def _console(masked: list[Processor]) -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.dev.set_exc_info,
        structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
        # without the values of variables, unlike structlog's own: a payload may be among them
        structlog.processors.format_exc_info,
        *masked,
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
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
