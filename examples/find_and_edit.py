"""Find jobs by their tags and payloads, change them in bulk, and edit one that waits.

Run it with: python examples/find_and_edit.py
"""

import asyncio
from uuid import uuid4

from fairlead import Fairlead, FairleadError, JobFilter

fl = Fairlead(actor="find-and-edit-example")


@fl.job(key="example.invoice")
async def invoice(customer: dict[str, int], amount: int) -> str:
    return f"invoice of {amount} for customer {customer['id']}"


async def main() -> None:
    async with fl:
        tenant = (await fl.add_tenant(f"shop-{uuid4().hex[:8]}")).slug
        nightly = invoice.options(tags=["nightly", "eu"])
        jobs = [await nightly.enqueue(tenant=tenant, customer={"id": n}, amount=100 * n) for n in (1, 2, 3)]
        await invoice.options(tags=["eu"]).enqueue(tenant=tenant, customer={"id": 1}, amount=7)

        page = await fl.list_jobs(JobFilter(tenant=tenant, tags=["eu", "nightly"]))
        print(f"nightly and eu: {len(page.items)} jobs")

        of_customer = JobFilter(tenant=tenant, payload_contains={"customer": {"id": 1}})
        canceled = await fl.cancel_jobs(of_customer)
        print(f"canceled for customer 1: {canceled.count}, all jobs seen: {canceled.next_cursor is None}")

        edited = await jobs[1].edit(
            payload={"customer": {"id": 2}, "amount": 250}, priority=-10, tags=["corrected"]
        )
        print(f"edited: {edited.payload['amount']}, {', '.join(edited.tags or ())}")
        await fl.tick()
        print(await jobs[1].result(timeout=60))

        try:
            await jobs[1].edit(priority=0)
        except FairleadError as error:
            print(f"refused with {error.code}")


if __name__ == "__main__":
    asyncio.run(main())
