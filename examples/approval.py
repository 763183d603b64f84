"""A human approval: a refund waits for an answer, reminds its team after a day, and pays what the form says.

Run it with: python examples/approval.py
"""

import asyncio
from datetime import timedelta
from typing import Any

from fairlead import Context, Fairlead, testing

fl = Fairlead(actor="ada@example.com")
FORM = {"type": "object", "properties": {"amount": {"type": "integer", "minimum": 1}}, "required": ["amount"]}
ONE_DAY = timedelta(days=1)


def pay(order: int, amount: int) -> str:
    print(f"paying {amount} euros for order {order}")
    return f"payment-{order}"


@fl.job(key="example.refund", durable=True)
async def refund(ctx: Context, order: int) -> str:
    late = {"escalate": "refund.overdue", "escalate_after": ONE_DAY}
    options: dict[str, Any] = {"form": FORM, "roles": ["tenant_admin"], "timeout": 7 * ONE_DAY, **late}
    answer = await ctx.wait_for_approval("refund", title=f"Refund order {order}?", **options)
    if answer is None:
        return f"order {order}: no answer within a week"
    if not answer:
        return f"order {order}: rejected by {answer.answered_by}, {answer.comment}"
    return str(await ctx.step("pay", pay, order, answer.values["amount"]))


@fl.on("refund.overdue", tenant="acme", payload={"title": "{{event.title}}"})
@fl.job(key="example.remind")
async def remind(title: str) -> None:
    print(f"reminder: {title}")


async def main() -> None:
    async with fl:
        await fl.add_tenant("acme", exist_ok=True)
        first, second, third = [await refund.enqueue(tenant="acme", order=number) for number in (1, 2, 3)]
        await testing.run_due(fl)
        asked = {one.job_id: one for one in (await fl.list_approvals(tenant="acme")).items}
        print(f"{asked[first.id].title} is {asked[first.id].status}")
        await fl.approve(asked[first.id].id, {"amount": 20})
        await fl.reject(asked[second.id].id, comment="it was used")
        await testing.run_due(fl)
        print(await first.result(timeout=30))
        print(await second.result(timeout=30))
        # shortened for you: a day passes at once, and then the rest of the week
        for days in (1, 6):
            await testing.pass_time(fl, days=days)
            await testing.run_due(fl)
        print(await third.result(timeout=30))


asyncio.run(main())
