"""Schedules in code: written to the database when a worker starts, removed when the code drops them.

Run it with: python examples/schedules.py
"""

import asyncio
import subprocess
import sys

from fairlead import Fairlead

COMMAND = (sys.executable, "-m", "fairlead.cli")
fl = Fairlead(actor="schedule-example", name="schedule-example")
beats = asyncio.Queue[str]()


@fl.every(1, payload={"at": "{{schedule.scheduled_for}}"})
@fl.job(key="example.beat")
async def beat(at: str) -> None:
    beats.put_nowait(at)


@fl.cron("30 2 * * 1-5", timezone="America/New_York")
@fl.job(key="example.nightly")
async def nightly() -> None:
    """Runs at half past two on working days, whatever clocks do."""


async def show_schedules() -> None:
    listing = [*COMMAND, "triggers", "list", "--definition", beat.key]
    await asyncio.to_thread(subprocess.run, listing, check=True)


async def main() -> None:
    async with fl:
        stop = asyncio.Event()
        working = asyncio.create_task(fl.work(stop))
        scheduler = await asyncio.create_subprocess_exec(*COMMAND, "scheduler", stdout=subprocess.DEVNULL)
        for _ in range(2):
            print(f"beat at {await beats.get()}")
        await show_schedules()
        scheduler.terminate()
        await scheduler.wait()
        stop.set()
        await working

    later = Fairlead(
        actor="schedule-example", name="schedule-example"
    )  # the same code base, without schedules
    later.job(key=beat.key)(beat.function)
    async with later:
        await later.sync_schedules()
        await show_schedules()


if __name__ == "__main__":
    asyncio.run(main())
