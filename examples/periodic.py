"""Functions that run again and again: registered while the program runs, and schedules that the code keeps.

Run it with: python examples/periodic.py
"""

import asyncio
from datetime import UTC, datetime, timedelta

from fairlead import Context, Fairlead
from fairlead.errors import AlreadyRegistered

fl = Fairlead(actor="periodic", name="example")
ticks: asyncio.Queue[int] = asyncio.Queue()


@fl.cron("0 2 * * *", timezone="Europe/Berlin", tenant="example", payload={"days": 30})
@fl.every(timedelta(hours=6), tenant="example", name="often", payload={"days": 1})
async def clean_up(ctx: Context, days: int) -> None:
    """Remove what is older."""


async def count(ctx: Context) -> None:
    """Runs once a second, in one instance at a time."""
    ticks.put_nowait(ctx.attempt_no)


async def once() -> None:
    print("the one-shot ran")


async def main() -> None:
    async with fl:
        await fl.add_tenant("example", exist_ok=True)

        trigger = await fl.register("example", "count", datetime.now(UTC), 1, count)
        print(f"{trigger.label} runs every {trigger.every_seconds} s, next at {trigger.next_fire_at}")
        await fl.register("example", "once", datetime.now(UTC), 0, once)
        try:
            await fl.register("example", "count", datetime.now(UTC), 60, count)
        except AlreadyRegistered as error:
            print(f"refused with {error.code}")
        for _ in range(3):
            await ticks.get()
        print("it ran three times")
        await fl.unregister("example", "count")
        await fl.cancel_periodic()  # what still runs ends; the schedule of `once` stays, and is over

        # a worker does this as it starts: the database then says what the decorators say
        for schedule in await fl.sync_schedules():
            print(f"kept by the code: {schedule.label}, next at {schedule.next_fire_at}")


if __name__ == "__main__":
    asyncio.run(main())
