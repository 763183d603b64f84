"""Jobs of one key, in strict order, for real worker processes."""

import asyncio

from fairlead import Fairlead, KeyLimit

fl = Fairlead()


@fl.job(key="in_order", by_key=KeyLimit("/customer", 1, fifo=True))
async def in_order(customer: int, n: int) -> int:
    await asyncio.sleep(0.02)
    return customer + n
