"""One trace from a request to the jobs that it causes, with OpenTelemetry.

Run it with: python examples/traced.py
"""

import asyncio

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fairlead import Context, Fairlead

# yours would be a BatchSpanProcessor and an exporter to your collector
spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer(__name__)

fl = Fairlead(actor="traced")


@fl.job(key="example.order")
async def order(ctx: Context, number: int) -> None:
    with tracer.start_as_current_span("charge the card"):
        await ctx.enqueue(receipt, payload={"number": number})


@fl.job(key="example.receipt")
def receipt(number: int) -> str:
    return f"receipt {number}"


def show(below: ReadableSpan | None, depth: int = 0) -> None:
    """The spans as a tree."""
    place = below.context.span_id if below else None
    for span in spans.get_finished_spans():
        if (span.parent.span_id if span.parent else None) == place:
            print("  " * depth + span.name)
            show(span, depth + 1)


async def main() -> None:
    async with fl:
        await fl.add_tenant("example", exist_ok=True)
        with tracer.start_as_current_span("POST /orders"):
            await order.enqueue(tenant="example", number=1)
        while (await fl.tick()).ran:  # a worker does this, in another process and maybe much later
            pass
    show(None)


if __name__ == "__main__":
    asyncio.run(main())
