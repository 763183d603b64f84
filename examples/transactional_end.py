"""A job whose changes and whose end commit together: an order is paid once, however often its worker dies.

Run it with: python examples/transactional_end.py
"""

import asyncio
from uuid import uuid4

from fairlead import Backoff, Context, Fairlead

fl = Fairlead(actor="transactional-end-example")


@fl.job(key="example.pay", backoff=Backoff(base_seconds=0.1))
async def pay(ctx: Context, order: str) -> None:
    async with ctx.tx() as connection:
        await connection.execute(
            "insert into public.example_payments values (%s, %s)", [order, ctx.attempt_no]
        )
        await ctx.succeed({"paid": order}, tx=connection)
        if ctx.attempt_no == 1:
            raise ConnectionError("the bank did not answer")  # takes the payment and the end back


async def main() -> None:
    async with fl:
        tenant = await fl.add_tenant(f"shop-{uuid4().hex[:8]}")
        async with fl.transaction() as tx:
            await tx.run(
                "create table if not exists public.example_payments (order_id text, attempt_no integer)"
            )
        order = f"order-{uuid4().hex[:8]}"
        job = await pay.enqueue(tenant=tenant.id, order=order)
        stop = asyncio.Event()
        worker = asyncio.create_task(fl.work(stop))
        output = await job.result(timeout=120)
        stop.set()
        await worker
        async with fl.transaction() as tx:
            payments = await tx.values(
                "select attempt_no from public.example_payments where order_id = %s", [order]
            )
        print(f"the job has its output: {output == {'paid': order}}")
        print(f"paid {len(payments)} time, by attempt {payments[0][0]}")


if __name__ == "__main__":
    asyncio.run(main())
