"""Middleware that reports the exceptions of jobs to Sentry, with the job they belong to and without its secrets.

`fl.around_attempt(report_attempt)` and `fl.around_batch(report_batch)`; the application calls `sentry_sdk.init` itself.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from functools import partial
from typing import Any
from uuid import UUID

import structlog

from fairlead.handlers.batch_job import BatchJob
from fairlead.handlers.context import Context, Snooze
from fairlead.handlers.log import render_value
from fairlead.model.secrets.redact import Mask, join_masks

try:
    import sentry_sdk
    from sentry_sdk._types import AnnotatedValue
    from sentry_sdk.utils import event_from_exception
except ModuleNotFoundError as error:
    raise ImportError(
        "fairlead.integrations.sentry needs the package sentry-sdk: pip install 'fairlead[sentry]'."
    ) from error

log = structlog.get_logger(__name__)

NAME = "fairlead"
FLUSH_SECONDS = 5.0
MOST_LISTED_JOBS = 100
DEEPEST = 20
# Parts of an event that only Sentry's SDK writes: a mask could only damage them.
_STRUCTURE = frozenset(
    {
        *("dist", "environment", "event_id", "level", "modules", "platform", "release", "sdk", "server_name"),
        *("start_timestamp", "timestamp", "type"),
    }
)


def report_attempt(ctx: Context) -> Iterator[None]:
    """Report the exception of an attempt, and tag everything that is captured while it runs. A Snooze is no error."""
    facts = {
        "job_id": str(ctx.job_id),
        "tenant": ctx.tenant,
        "definition": ctx.definition_key,
        "attempt": ctx.attempt_no,
    }
    details = {"tenant_id": str(ctx.tenant_id), "max_attempts": ctx.max_attempts}
    with _report_within(ctx.definition_key, facts, details, ctx.mask, is_isolated=ctx.is_isolated):
        yield


def report_batch(jobs: Sequence[BatchJob[Any]]) -> Iterator[None]:
    """Report the exception of a batch handler once, with the ids of its jobs.

    An exception that the handler gives to a single job does not pass here: capture it where you catch it.
    """
    contexts = [job.ctx for job in jobs]
    facts: dict[str, Any] = {"definition": contexts[0].definition_key, "jobs": len(jobs)}
    if len(tenants := {ctx.tenant for ctx in contexts}) == 1:
        facts["tenant"] = tenants.pop()
    details = {"job_ids": [str(ctx.job_id) for ctx in contexts[:MOST_LISTED_JOBS]]}
    mask = join_masks(ctx.mask for ctx in contexts)
    with _report_within(facts["definition"], facts, details, mask, is_isolated=False):
        yield


@contextmanager
def _report_within(
    definition: str, facts: dict[str, Any], details: dict[str, Any], mask: Mask | None, *, is_isolated: bool
) -> Iterator[None]:
    with sentry_sdk.isolation_scope() as scope:
        scope.clear_breadcrumbs()  # those of the worker
        scope.set_transaction_name(definition, source="task")
        scope.set_tags({f"{NAME}.{name}": str(value) for name, value in facts.items()})
        scope.set_context(NAME, {**facts, **details})
        if mask is not None:
            scope.add_event_processor(partial(_mask_or_drop, mask))
        try:
            yield
        except Snooze:
            raise
        except Exception:
            _capture_current_exception()
            raise
        finally:
            if is_isolated:  # the worker kills this process when the function has ended
                sentry_sdk.flush(FLUSH_SECONDS)


def _capture_current_exception() -> None:
    event, hint = event_from_exception(
        sys.exc_info(),
        client_options=sentry_sdk.get_client().options,
        mechanism={"type": NAME, "handled": False},
    )
    sentry_sdk.capture_event(event, hint=hint)


# Secrets


def _mask_or_drop(mask: Mask, event: Any, _: Any) -> Any:
    """The event without secrets. None, which drops it, if that fails: Sentry's SDK would send it as it was."""
    try:
        return _mask_event(mask, event)
    except Exception as error:  # noqa: BLE001 - the event has objects of the application
        log.warning(
            "sentry_event_dropped", reason="its secrets could not be masked", error=type(error).__name__
        )
        return None


def _mask_event(mask: Mask, event: dict[str, Any]) -> dict[str, Any]:
    masked = {
        name: value if name in _STRUCTURE else _mask_value(mask, value) for name, value in event.items()
    }
    if "contexts" in event:  # ids, which may have the digits of a secret
        masked["contexts"] |= {
            name: event["contexts"][name] for name in ("trace", NAME) if name in event["contexts"]
        }
    if isinstance(tags := event.get("tags"), dict):
        masked["tags"] |= {name: value for name, value in tags.items() if name.startswith(f"{NAME}.")}
    return masked


def _mask_value(mask: Mask, value: Any, depth: int = 0) -> Any:
    """The value without secrets; as text if JSON has no form for it, since Sentry's SDK would take its repr."""
    if value is None or isinstance(value, str | int | float):
        return mask.value(value)
    if isinstance(value, date | UUID):
        return value
    if isinstance(value, AnnotatedValue):
        return AnnotatedValue(_mask_value(mask, value.value, depth), value.metadata)
    if isinstance(value, dict) and depth < DEEPEST:
        # local variables may have secrets in other forms, cut or encoded
        return {
            mask.mask_chosen(str(name)): _mask_value(mask, one, depth + 1)
            for name, one in value.items()
            if name != "vars" or not mask.leaves
        }
    if isinstance(value, list | tuple | set | frozenset) and depth < DEEPEST:
        return [_mask_value(mask, one, depth + 1) for one in value]
    return mask.text(render_value(value))
