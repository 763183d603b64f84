"""OpenTelemetry: spans from enqueue to run, and the context that a job carries in between.

Whether the package is there is decided once, on import. Without it, and where nobody traces, nothing is made or kept.
What a job carries is a text: a W3C `traceparent`, then, where there is one, a blank and the `tracestate`.
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
    # asks for the application's provider when it is used, so that it may be set later
    _tracer = trace.get_tracer("fairlead", __version__)
    _w3c = TraceContextTextMapPropagator()

# As much of it as W3C asks everybody to pass on; a longer one is left out, as it may be.
LONGEST_TRACESTATE = 512

# Whether the environment names a provider, to be made when it is asked for.
_NAMED = "OTEL_PYTHON_TRACER_PROVIDER" in os.environ
_SYSTEM = {"messaging.system": "fairlead"}
_ENQUEUE = {**_SYSTEM, "messaging.operation.name": "enqueue", "messaging.operation.type": "send"}
_RUN = {**_SYSTEM, "messaging.operation.name": "run", "messaging.operation.type": "process"}


def provided() -> bool:
    """Whether the application has set a tracer provider."""
    # Asking for it looks at the environment each time, which costs a hundredth of an enqueue. This name is not public:
    # where it is gone, it is asked for.
    if not INSTALLED or (not _NAMED and getattr(trace, "_TRACER_PROVIDER", trace) is None):
        return False
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def carried() -> str | None:
    """The current span as a job carries it; None if there is none."""
    return _text(trace.get_current_span()) if INSTALLED else None


@contextmanager
def continued(carrier: str | Mapping[str, Sequence[str]] | None) -> Iterator[None]:
    """Within the block, what a job carried or a request's headers name is the current span, unless there is one."""
    if not INSTALLED or carrier is None or trace.get_current_span().get_span_context().is_valid:
        yield
        return
    headers = _headers(carrier) if isinstance(carrier, str) else carrier
    token = contexts.attach(_w3c.extract(headers, context=Context()))
    try:
        yield
    finally:
        contexts.detach(token)


def _text(span: "Span") -> str | None:
    if not span.get_span_context().is_valid:
        return None
    headers: dict[str, str] = {}
    _w3c.inject(headers, context=trace.set_span_in_context(span, Context()))
    state = headers.get("tracestate", "")
    kept = state if len(state) <= LONGEST_TRACESTATE else ""
    return f"{headers['traceparent']} {kept}".rstrip()


def _headers(text: str) -> dict[str, Sequence[str]]:
    parent, _, state = text.partition(" ")
    return {"traceparent": [parent], "tracestate": [state]} if state else {"traceparent": [parent]}


# Enqueueing


class Enqueueing:
    """The span of an enqueue: as long as the block, an error if that raises."""

    def __init__(self, span: "Span") -> None:
        self._span = span
        self.carried = _text(span)

    def made(self, job_id: object, *, deduplicated: bool) -> None:
        """Of a single job: which one it is."""
        about = {"messaging.message.id": str(job_id), "fairlead.job_id": str(job_id)}
        self._span.set_attributes({**about, "fairlead.deduplicated": deduplicated})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is not None and kind is not None:
            # not its message, which may show what is in the payload
            self._span.set_attribute(
                "error.type", error.code if isinstance(error, FairleadError) else kind.__name__
            )
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


def enqueueing(definition: str, tenant: str) -> Enqueueing | None:
    """The span of enqueueing a job; None where nobody traces."""
    # nearly every enqueue ends here
    if not INSTALLED or not (provided() or trace.get_current_span().get_span_context().is_valid):
        return None
    span = _tracer.start_span(f"enqueue {definition!s:.128}", kind=SpanKind.PRODUCER, attributes=_ENQUEUE)
    if not span.get_span_context().is_valid:
        return None
    span.set_attributes({**_definition(definition), "fairlead.tenant": f"{tenant!s:.128}"})
    return Enqueueing(span)


def enqueueing_many(definitions: Iterable[str]) -> Enqueueing | None:
    """The one span of enqueueing many jobs, of these definitions; None where nobody traces."""
    if not INSTALLED or not (provided() or trace.get_current_span().get_span_context().is_valid):
        return None
    asked = Counter(map(str, definitions))
    only = next(iter(asked)) if len(asked) == 1 else None
    name = f"enqueue {only:.128}" if only else "enqueue"
    span = _tracer.start_span(name, kind=SpanKind.PRODUCER, attributes=_ENQUEUE)
    if only:
        span.set_attributes(_definition(only))
    span.set_attribute("messaging.batch.message_count", asked.total())
    return Enqueueing(span)


def _definition(key: str) -> dict[str, Any]:
    # a request that is about to be refused may name anything
    short = f"{key!s:.128}"
    return {"messaging.destination.name": short, "fairlead.definition_key": short}


# Running


class Error(NamedTuple):
    """What went wrong in an attempt, without its secrets."""

    kind: str
    message: str
    traceback: str | None = None


class Running:
    """The span of an attempt: current within the block, from which the handler is started; over when it says so."""

    def __init__(self, span: "Span") -> None:
        self._span = span

    def __enter__(self) -> Self:
        self._token = contexts.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(self, *_: object) -> None:
        contexts.detach(self._token)

    def ended(self, outcome: str, error: Error | None) -> None:
        """The attempt has ended so."""
        self._span.set_attribute("fairlead.outcome", outcome)
        if error is not None:
            told = {"exception.type": error.kind, "exception.message": error.message}
            if error.traceback is not None:
                told["exception.stacktrace"] = error.traceback
            self._span.add_event("exception", told)
            self._span.set_attribute("error.type", error.kind)
            self._span.set_status(StatusCode.ERROR, f"{error.kind}: {error.message}")
        self._span.end()


def running(
    definition: str,
    *,
    trace_of_job: str | None,
    job_id: object,
    tenant: str,
    tenant_id: object,
    attempt_no: int,
    worker_id: str | None,
) -> Running | None:
    """The span of an attempt, below the span that enqueued the job and linked to it; None without the package."""
    if not INSTALLED:
        return None
    # not below whatever the worker itself was started in
    above = _w3c.extract(_headers(trace_of_job or ""), context=Context())
    enqueued = trace.get_current_span(above).get_span_context()
    about = {
        **_RUN,
        **_definition(definition),
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
    return Running(span)
