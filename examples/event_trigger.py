"""An event becomes a job: a trigger says how, a scheduler does it. Events join your own transaction.

Run it with: python examples/event_trigger.py
"""

import asyncio
import json
import subprocess
import sys
from typing import Any

import psycopg

from fairlead import Fairlead

EVENT = "example.folder.updated"
PHOTOS = {"path": {"prefix": "/photos/"}}
PAYLOAD = {"path": "{{event.path}}", "limit": "{{event.limit | default: 100}}"}
COMMAND = (sys.executable, "-m", "fairlead.cli")
fl = Fairlead(actor="event-example")


@fl.on(EVENT, tenant="global", filter=PHOTOS, payload=PAYLOAD, window=0)
@fl.job(key="example.sync")
async def sync(path: str, limit: int) -> str:
    return f"synced {path}, {limit} files at most"


async def fairlead(*argv: str) -> Any:
    """What a command answers; in earnest you would type it."""
    done = await asyncio.to_thread(
        subprocess.run, [*COMMAND, *argv, "--json"], check=True, stdout=subprocess.PIPE
    )
    return json.loads(done.stdout)


async def main() -> None:
    async with fl:
        await fl.sync_schedules()  # a worker does it as it starts
        async with await psycopg.AsyncConnection.connect(fl.direct_url) as connection:
            await fl.emit(EVENT, tenant="global", data={"path": "/photos/old"}, tx=connection)
            await connection.rollback()  # it never happened
            told = await fl.emit(EVENT, tenant="global", data={"path": "/photos/new"}, tx=connection)
        await fl.emit(EVENT, tenant="global", data={"path": "/music"})

        scheduler = await asyncio.create_subprocess_exec(*COMMAND, "scheduler", stdout=subprocess.DEVNULL)
        while not (firings := (await fairlead("events", "show", str(told)))["firings"]):
            print("waiting for the scheduler")
        scheduler.terminate()
        await scheduler.wait()
        print(f"{EVENT}: {firings[0]['outcome']} {firings[0]['job_id']}")
        await fl.tick()
        print((await fl.read(firings[0]["job_id"])).output)


if __name__ == "__main__":
    asyncio.run(main())
