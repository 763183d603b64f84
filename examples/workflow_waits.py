"""A workflow that waits: for a payment, for a person's approval, and for three days. No worker is needed meanwhile.

Run it with: python examples/workflow_waits.py
"""

import asyncio
from datetime import timedelta

from fairlead import Fairlead, testing

fl = Fairlead(actor="ada@example.com")


@fl.job(key="example.say")
async def say(text: str) -> str:
    print(text)
    return text


flow = fl.workflow("example.order")
invoice = flow.step("invoice", say, {"text": "invoice for order {{input.order}}"})
paid = flow.wait_for_event(
    "paid", "order.paid", where={"order": "{{input.order}}"}, timeout=timedelta(days=14), after=invoice
)
checked = flow.approval("check", "Ship order {{input.order}}?", timeout=timedelta(days=2), after=paid)
ship = flow.step(
    "ship", say, {"text": "shipped, paid by {{steps.paid.output.data.by}}"}, after=[paid, checked]
)
rest = flow.sleep("rest", timedelta(days=3), after=ship)
flow.step("thank", say, {"text": "thank you"}, after=rest)


async def main() -> None:
    async with fl:
        await fl.add_tenant("acme", exist_ok=True)
        run = await fl.start(flow, tenant="acme", input={"order": 7})
        await testing.run_due(fl)
        await fl.emit("order.paid", tenant="acme", data={"order": 7, "by": "ada"})
        await testing.run_due(fl)
        [asked] = (await fl.list_approvals(tenant="acme")).items
        print(asked.title)
        await fl.approve(asked.id)
        await testing.run_due(fl)
        print(", ".join(f"{step.name} {step.state}" for step in (await run.read()).steps))
        # shortened for you: three days pass at once
        await testing.pass_time(fl, days=3)
        await testing.run_due(fl)
        print(await run.result(timeout=30))


asyncio.run(main())
