"""Find the cause that broke most jobs, repair it, and retry exactly those: python examples/errors.py

The routes are GET /errors and POST /errors/{id}/retry; `fairlead errors` and the console do the same.
"""

import asyncio
from uuid import uuid4

from fairlead import Fairlead
from fairlead.actions import error_groups, overview
from fairlead.model.error_groups import ErrorGroup, GroupOrder

fl = Fairlead(actor="errors-example")
printer = {"has_paper": False}


@fl.job(key="example.print", max_attempts=1)
async def print_label(order: int) -> str:
    if order == 13:
        raise ValueError("order 13 has no address")
    if not printer["has_paper"]:
        raise RuntimeError(f"no paper for order {order}")
    return f"label {order}"


async def list_groups(tenant: str, failed: int) -> list[ErrorGroup]:
    """The largest first, once all failures are in: a worker adds them within seconds."""
    async with asyncio.timeout(120):
        while True:
            async with fl.transaction() as tx:
                wanted = error_groups.GroupFilter(definition_key="example.print")
                found = await error_groups.list_groups(tx, fl.principal, wanted, order=GroupOrder.JOBS)
            mine = [group for group in found if group.tenant == tenant]
            if sum(group.jobs for group in mine) == failed:
                return mine
            await asyncio.sleep(0.2)


async def main() -> None:
    stop = asyncio.Event()
    async with fl, asyncio.TaskGroup() as tasks:
        tasks.create_task(fl.work(stop))
        tenant = await fl.add_tenant(f"shop-{uuid4().hex[:8]}")
        jobs = [await print_label.enqueue(tenant=tenant.id, order=order) for order in (11, 12, 13)]
        groups = await list_groups(tenant.slug, failed=len(jobs))
        for group in groups:
            print(f"{group.jobs} x {group.pattern}")
        async with fl.transaction() as tx:
            print("overview:", (await overview.get_overview(tx, fl.principal, tenant=tenant.slug)).summary)
            printer["has_paper"] = True
            did = await error_groups.retry(tx, fl.principal, groups[0].id, error_groups.JobChoice())
        print(f"retried: {did.count}", [await job.result() for job in jobs[:2]])
        stop.set()


if __name__ == "__main__":
    asyncio.run(main())
