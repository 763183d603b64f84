"""OpenTelemetry: spans of enqueues and attempts, and the trace context that a job carries.

The package is looked for once, on import. Without it, or without a tracer provider, no spans are created.
A job carries its trace context as text: a W3C `traceparent` and, if there is one, a blank and the `tracestate`.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

from fairlead.errors import FairleadError
from fairlead.version import __version__

try:
    from opentelemetry import context as contexts
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:  # the extra `otel` is not installed
    INSTALLED = False
else:
    INSTALLED = True
    # looks up the application's provider on use, so that it may be set later
    _tracer = trace.get_tracer("fairlead", __version__)
    _w3c = TraceContextTextMapPropagator()

# W3C requires this length to be propagated; a longer one may be dropped, and is.
LONGEST_TRACESTATE = 512

# Whether the environment names a provider, which OpenTelemetry then creates on first use.
_NAMED = "OTEL_PYTHON_TRACER_PROVIDER" in os.environ
_SYSTEM = {"messaging.system": "fairlead"}
_ENQUEUE = {**_SYSTEM, "messaging.operation.name": "enqueue", "messaging.operation.type": "send"}
_RUN = {**_SYSTEM, "messaging.operation.name": "run", "messaging.operation.type": "process"}


def has_tracer_provider() -> bool:
    """Whether the application has set a tracer provider."""
    # get_tracer_provider() reads the environment each time, which costs 1/100 of an enqueue. _TRACER_PROVIDER is private:
    # if it is missing, get_tracer_provider() is called.
    if not INSTALLED or (not _NAMED and getattr(trace, "_TRACER_PROVIDER", trace) is None):
        return False
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def current_trace() -> str | None:
    """The trace context of the current span as text; None without a span."""
    return _serialize_span(trace.get_current_span()) if INSTALLED else None


@contextmanager
def continue_trace(carrier: str | Mapping[str, Sequence[str]] | None) -> Iterator[None]:
    """Make the span of a job's trace context or of request headers current in the block, unless there is a current span."""
    if not INSTALLED or carrier is None or trace.get_current_span().get_span_context().is_valid:
        yield
        return
    headers = _parse_trace(carrier) if isinstance(carrier, str) else carrier
    token = contexts.attach(_w3c.extract(headers, context=Context()))
    try:
        yield
    finally:
        contexts.detach(token)


def _serialize_span(span: "Span") -> str | None:
    if not span.get_span_context().is_valid:
        return None
    headers: dict[str, str] = {}
    _w3c.inject(headers, context=trace.set_span_in_context(span, Context()))
    state = headers.get("tracestate", "")
    kept = state if len(state) <= LONGEST_TRACESTATE else ""
    return f"{headers['traceparent']} {kept}".rstrip()


def _parse_trace(text: str) -> dict[str, Sequence[str]]:
    parent, _, state = text.partition(" ")
    return {"traceparent": [parent], "tracestate": [state]} if state else {"traceparent": [parent]}


# Enqueueing


class EnqueueSpan:
    """The span of an enqueue: it ends with the block, as an error if the block raises."""

    def __init__(self, span: "Span") -> None:
        self._span = span
        self.carried = _serialize_span(span)

    def set_job_id(self, job_id: object, *, deduplicated: bool) -> None:
        """Set the id of a single enqueued job."""
        about = {"messaging.message.id": str(job_id), "fairlead.job_id": str(job_id)}
        self._span.set_attributes({**about, "fairlead.deduplicated": deduplicated})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is not None and kind is not None:
            # without its message, which may contain values of the payload
            self._span.set_attribute(
                "error.type", error.code if isinstance(error, FairleadError) else kind.__name__
            )
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


def may_trace() -> bool:
    """Whether there is a tracer provider or a current span."""
    # the usual case, so it must be fast: an empty context has no span
    if not INSTALLED or not (has_tracer_provider() or contexts.get_current()):
        return False
    return has_tracer_provider() or trace.get_current_span().get_span_context().is_valid


def start_enqueue_span(definition: str, tenant: str) -> EnqueueSpan | None:
    """Start the span of an enqueue; None without tracing."""
    if not may_trace():
        return None
    span = _tracer.start_span(f"enqueue {definition!s:.128}", kind=SpanKind.PRODUCER, attributes=_ENQUEUE)
    if not span.get_span_context().is_valid:
        return None
    span.set_attributes({**_definition_attributes(definition), "fairlead.tenant": f"{tenant!s:.128}"})
    return EnqueueSpan(span)


def start_bulk_enqueue_span(definitions: Iterable[str]) -> EnqueueSpan | None:
    """Start the span of a bulk enqueue of these definitions; None without tracing."""
    if not may_trace():
        return None
    asked = Counter(map(str, definitions))
    only = next(iter(asked)) if len(asked) == 1 else None
    name = f"enqueue {only:.128}" if only else "enqueue"
    span = _tracer.start_span(name, kind=SpanKind.PRODUCER, attributes=_ENQUEUE)
    if only:
        span.set_attributes(_definition_attributes(only))
    span.set_attribute("messaging.batch.message_count", asked.total())
    return EnqueueSpan(span)


def _definition_attributes(key: str) -> dict[str, Any]:
    # not validated yet: the key may be any text
    short = f"{key!s:.128}"
    return {"messaging.destination.name": short, "fairlead.definition_key": short}


# Running


class SpanError(NamedTuple):
    """The error of an attempt, without secrets."""

    kind: str
    message: str
    traceback: str | None = None


class RunSpan:
    """The span of an attempt: current in the block that starts the handler; `ended` ends it."""

    def __init__(self, span: "Span") -> None:
        self._span = span

    @property
    def span_context(self) -> Any:
        return self._span.get_span_context()

    def __enter__(self) -> Self:
        self._token = contexts.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(self, *_: object) -> None:
        contexts.detach(self._token)

    def end_run(self, outcome: str, error: SpanError | None) -> None:
        """End the span with the attempt's outcome."""
        self._span.set_attribute("fairlead.outcome", outcome)
        if error is not None:
            told = {"exception.type": error.kind, "exception.message": error.message}
            if error.traceback is not None:
                told["exception.stacktrace"] = error.traceback
            self._span.add_event("exception", told)
            self._span.set_attribute("error.type", error.kind)
            self._span.set_status(StatusCode.ERROR, f"{error.kind}: {error.message}")
        self._span.end()


def start_run_span(
    definition: str,
    *,
    trace_of_job: str | None,
    job_id: object,
    tenant: str,
    tenant_id: object,
    attempt_no: int,
    worker_id: str | None,
) -> RunSpan | None:
    """Start the span of an attempt, as a child of the enqueue's span and linked to it; None without the package."""
    if not INSTALLED:
        return None
    # not a child of the worker's own span
    above = _w3c.extract(_parse_trace(trace_of_job or ""), context=Context())
    enqueued = trace.get_current_span(above).get_span_context()
    about = {
        **_RUN,
        **_definition_attributes(definition),
        "messaging.message.id": str(job_id),
        "fairlead.job_id": str(job_id),
        "fairlead.tenant": tenant,
        "fairlead.tenant_id": str(tenant_id),
        "fairlead.attempt_no": attempt_no,
    }
    if worker_id is not None:
        about |= {"messaging.client.id": worker_id, "fairlead.worker_id": worker_id}
    span = _tracer.start_span(
        f"run {definition}",
        context=above,
        kind=SpanKind.CONSUMER,
        attributes=about,
        links=[Link(enqueued)] if enqueued.is_valid else [],
    )
    return RunSpan(span)


def start_batch_span(definition: str, runs: Sequence[RunSpan]) -> RunSpan | None:
    """Start the span of a call of a batch handler, with links to the runs of its jobs; None without the package."""
    if not INSTALLED:
        return None
    about = {**_RUN, **_definition_attributes(definition), "messaging.batch.message_count": len(runs)}
    span = _tracer.start_span(
        f"batch {definition}",
        context=Context(),
        kind=SpanKind.CONSUMER,
        attributes=about,
        links=[Link(run.span_context) for run in runs],
    )
    return RunSpan(span)
