"""What runs took and cost, for the bill: asked for by hour, and as a table.

Run it with: python examples/usage.py
"""

import asyncio
from uuid import uuid4

from fairlead import Backoff, Context, Fairlead

fl = Fairlead(actor="usage-example")


@fl.job(key="example.translate", max_attempts=2, backoff=Backoff(base_seconds=0))
async def translate(ctx: Context, text: str) -> str:
    ctx.add_cost(len(text))  # a cent a letter, also where it goes wrong
    if ctx.attempt_no == 1 and text == "brillig":
        raise ValueError("the dictionary was away")
    return text.upper()


async def main() -> None:
    async with fl:
        tenant = await fl.add_tenant(f"poet-{uuid4().hex[:8]}", name="A poet")
        for text in ("twas", "brillig"):
            await translate.enqueue(tenant=tenant.id, text=text)
        for _ in range(2):
            await fl.tick()

        report = await fl.usage(tenant=tenant.id, by="day")
        used = report.totals
        print(
            f"{used.runs} runs, {used.succeeded} succeeded, {used.retried} retried, {used.cost_cents} cents"
        )
        print(report.as_csv().splitlines()[0])
        months = await fl.usage(tenant=tenant.id, by="month", per="nothing", timezone="Europe/Paris")
        print(f"this month: {months.items[0].cost_cents / 100:.2f}")


if __name__ == "__main__":
    asyncio.run(main())
