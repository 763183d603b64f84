"""Code around every enqueue and every attempt: a request's id in the log, and errors in one place.

Run it with: python examples/middleware.py
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextvars import ContextVar

from msgspec.structs import replace

from fairlead import Context, EnqueueResult, Fairlead, Fatal, NewJob, Snooze, StoreJobs

fl = Fairlead(actor="middleware")
request_id: ContextVar[str | None] = ContextVar("request_id")


@fl.around_enqueue
async def pass_request_id(requests: Sequence[NewJob], store: StoreJobs) -> list[EnqueueResult]:
    return await store([replace(one, correlation_id=request_id.get()) for one in requests])


@fl.around_attempt
def continue_request(ctx: Context) -> Iterator[None]:
    """Set the request's id again while the job runs, for the log."""
    token = request_id.set(ctx.correlation_id)
    yield
    request_id.reset(token)


@fl.around_attempt
def capture_errors(ctx: Context) -> Iterator[None]:
    """Send errors to a tracker; the attempt still fails."""
    try:
        yield
    except Snooze:  # not an error
        raise
    except Exception as error:
        print(f"captured in {request_id.get()}: {type(error).__name__} of {ctx.definition_key}")
        raise


@fl.job(key="example.charge")
def charge(amount: int) -> None:
    print(f"charging {amount} for {request_id.get()}")
    if amount < 0:
        raise Fatal("a negative amount")


async def main() -> None:
    request_id.set("request-1")
    async with fl:
        await fl.add_tenant("example", exist_ok=True)
        await fl.enqueue_many([charge.with_arguments(tenant="example", amount=one) for one in (5, -1)])
        await fl.tick()


if __name__ == "__main__":
    asyncio.run(main())
