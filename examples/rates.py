"""Rates and keys: how many jobs start in some seconds, and how many run for one customer.

Run it with: python examples/rates.py
"""

import asyncio
from itertools import pairwise
from uuid import uuid4

from fairlead import Fairlead, KeyLimit, Rate

fl = Fairlead(actor="rates-example")


@fl.job(key="example.mail", rate=Rate(10, burst=2))
async def send_mail(to: str) -> str:
    return f"sent to {to}"


@fl.job(key="example.import", by_key=KeyLimit("/customer", max_running=1, fifo=True))
async def import_orders(customer: str, part: int) -> str:
    return f"part {part} of {customer}"


async def main() -> None:
    async with fl:
        tenant = await fl.add_tenant(f"shop-{uuid4().hex[:8]}")
        mails = [await send_mail.enqueue(tenant=tenant.id, to=f"{n}@example.com") for n in range(6)]
        parts = [await import_orders.enqueue(tenant=tenant.id, customer="ada", part=n) for n in range(4)]
        stop = asyncio.Event()
        worker = asyncio.create_task(fl.work(stop))
        await asyncio.gather(*(job.result(timeout=120) for job in [*mails, *parts]))
        stop.set()
        await worker

        sent = [at for job in mails if (at := (await job.read()).started_at)]
        seconds = (max(sent) - min(sent)).total_seconds()
        print(f"{len(sent)} mails in {seconds:.1f} s, two of them at once")
        imports = [await job.read() for job in parts]
        one_by_one = all(
            one.finished_at and other.started_at and one.finished_at <= other.started_at
            for one, other in pairwise(imports)
        )
        print(f"imports of a customer one by one, in their order: {one_by_one}")


if __name__ == "__main__":
    asyncio.run(main())
