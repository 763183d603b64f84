"""A schedule with jitter and an end, and a backfill of last week: one job for each night, however often it is asked for.

Run it with: python examples/backfill.py
"""

import asyncio
from datetime import UTC, datetime, timedelta

from fairlead import Fairlead

fl = Fairlead(actor="backfill-example", name="backfill-example")
today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
last_week = today - timedelta(days=7), today


@fl.cron(
    "0 2 * * *",
    timezone="UTC",
    jitter=timedelta(minutes=10),
    end_at=today + timedelta(days=365),
    payload={"night": "{{schedule.scheduled_for}}"},
)
@fl.job(key="example.report")
async def report(night: str) -> None:
    print(f"report of {night[:10]}")


async def main() -> None:
    async with fl:
        [schedule] = await fl.sync_schedules()
        if schedule.next_instant and schedule.next_fire_at:
            print(f"the next run is for {schedule.next_instant:%H:%M:%S}")
            print(f"jitter delays it: {schedule.next_fire_at > schedule.next_instant}")

        preview = await fl.preview_backfill(report, *last_week)
        print(f"{preview.count} nights, {preview.fired} with a report")
        for _ in range(2):
            done = await fl.backfill(report, *last_week)
            print(f"enqueued {done.enqueued}, had one already {done.fired}")
        await fl.tick()
        preview = await fl.preview_backfill(report, *last_week)
        print(", ".join(f"{number} {status}" for status, number in preview.jobs.items()))


if __name__ == "__main__":
    asyncio.run(main())
