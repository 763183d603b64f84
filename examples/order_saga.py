"""A saga as a durable function: when a later step fails, the earlier ones are compensated, each once.

Run it with: python examples/order_saga.py
"""

import asyncio

from fairlead import Backoff, Context, Fairlead, Fatal, Retry, StepFailed

fl = Fairlead()


def reserve(item: str) -> str:
    print(f"reserved {item}")
    return f"reservation of {item}"


def charge(order: int, cents: int) -> str:
    if cents > 10_000:
        raise Fatal("card declined")
    print(f"charged {cents} cents")
    return f"charge of order {order}"


def give_back(what: str) -> None:
    print(f"gave back the {what}")


def send(item: str) -> None:
    if item == "piano":
        raise ConnectionError("the carrier does not answer")
    print(f"sent {item}")


@fl.job(key="example.order", durable=True)
async def order(ctx: Context, number: int, item: str, cents: int) -> str:
    made = []
    try:
        made.append(await ctx.step("reserve", reserve, item))
        made.append(await ctx.step("charge", charge, number, cents))
        await ctx.step("send", send, item, retry=Retry(3, Backoff(base_seconds=0.01)))
    except StepFailed as error:
        for what in reversed(made):
            await ctx.step("give back", give_back, what)
        return f"order {number} was canceled: {error.message}"
    return f"order {number} is on its way"


async def main() -> None:
    async with fl:
        await fl.add_tenant("acme", exist_ok=True)
        for number, (item, cents) in enumerate([("book", 900), ("car", 900_000), ("piano", 9_000)]):
            job = await order.enqueue(tenant="acme", number=number, item=item, cents=cents)
            await fl.tick()
            print(await job.result(timeout=30))


asyncio.run(main())
