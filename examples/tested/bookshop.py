"""An application: orders send receipts, and a night without orders sends a report."""

from fairlead import Fairlead

fl = Fairlead()


@fl.job
async def send_receipt(to: str, cents: int) -> str:
    if cents <= 0:
        raise ValueError(f"{cents} is no price")
    return f"{to} has paid {cents / 100:.2f}"


@fl.cron("0 2 * * *", tenant="test")
@fl.job
async def report() -> str:
    return "all sold"


async def check_out(customer: str, *, tenant: str, cents: int = 1999) -> None:
    await send_receipt.enqueue(tenant=tenant, to=customer, cents=cents)
