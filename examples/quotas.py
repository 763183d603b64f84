"""Quotas: how much a tenant may have waiting, and how a workflow that starts itself comes to its end.

Run it with: python examples/quotas.py
"""

import asyncio
from uuid import uuid4

from fairlead import Fairlead
from fairlead.errors import QueueFull

fl = Fairlead(actor="quotas-example")


@fl.job(key="example.count")
async def count(n: int) -> int:
    return n


wide = fl.workflow("example.wide")
wide.step("each", count, {"n": "{{item}}"}, for_each=list(range(20)))


async def main() -> None:
    async with fl:
        tenant = await fl.add_tenant(f"small-{uuid4().hex[:8]}", quotas={"queued_jobs": 3, "run_jobs": 10})
        for n in range(3):
            await count.enqueue(tenant=tenant.id, n=n)
        try:
            await count.enqueue(tenant=tenant.id, n=3)
        except QueueFull as refusal:
            print(f"refused with {refusal.code}: {refusal.faults[0].message}")

        await fl.set_quotas(tenant.slug, queued_jobs=None)  # as the settings say
        await count.enqueue(tenant=tenant.id, n=3)
        run = await fl.start(wide, tenant=tenant.id)
        [step] = (await run.read()).steps
        print(f"{step.name} is {step.state}: {step.error['code']}")
        for one in await fl.quotas(tenant.slug):
            print(f"{one.quota}: {one.used} of {one.allowed}")


if __name__ == "__main__":
    asyncio.run(main())
