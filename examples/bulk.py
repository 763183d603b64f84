"""Many jobs in one transaction: all of them or none, with dedupe keys, and what a bad one does.

Run it with: python examples/bulk.py
"""

import asyncio
import time

from fairlead import Fairlead, NewJob
from fairlead.errors import PayloadInvalid

JOBS = 5000
fl = Fairlead(actor="bulk")


@fl.job(key="example.invoice")
async def invoice(ctx: object, customer: int) -> None:
    """Write one customer's invoice."""


async def main() -> None:
    async with fl:
        await fl.add_tenant("example", exist_ok=True)

        begun = time.perf_counter()
        load = [invoice.with_arguments(tenant="example", customer=n) for n in range(JOBS)]
        stored = await fl.enqueue_many(load)
        print(f"enqueued {len(stored)} jobs in {time.perf_counter() - begun:.2f} s")

        load[1234] = invoice.with_arguments(tenant="example", customer="somebody")
        try:
            await fl.enqueue_many(load)
        except PayloadInvalid as error:
            print(f"refused, nothing stored: {error.faults[0].path} {error.faults[0].message}")

        # the same customer twice in a load, under one key: one job, and both requests are told its id
        keyed = [
            NewJob(definition=invoice.key, tenant="example", payload={"customer": 7}, dedupe_key="invoice-7")
            for _ in range(2)
        ]
        first, second = await fl.enqueue_many(keyed)
        print(f"one job for two requests: {first.id == second.id and second.deduplicated}")
        await fl.cancel(first.id)


if __name__ == "__main__":
    asyncio.run(main())
