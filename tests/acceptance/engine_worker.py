"""A worker behind a delivery engine, as a process that may be killed: it notes in a file what it begins and ends.

Started with: python -m tests.acceptance.engine_worker ADDRESS FILE, where ADDRESS is the JSON of an `Address`.
"""

import asyncio
import json
import os
import sys
import time
from datetime import UTC, datetime
from uuid import uuid4

from tests.acceptance.engine_clients import OPEN, Address, Client, Delivery, Http

# Work that cannot end before its attempt's time limit is not begun: another attempt may run by then.
LEAST_SECONDS = 1.0


async def main(address: Address, path: str) -> None:
    notes = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    # work of this process, by run
    tasks: set[asyncio.Task[None]] = set()
    client: Client

    def note(delivery: Delivery, run: str, *, begins: bool) -> None:
        body = delivery.body
        line = [begins, body["job_id"], body["tenant"], run, os.getpid(), time.time() * 1000]
        os.write(notes, (json.dumps(line) + "\n").encode())

    async def work(delivery: Delivery) -> None:
        body = delivery.body
        if await http.is_current(delivery) and _seconds_left(delivery) > LEAST_SECONDS:
            run = str(uuid4())
            note(delivery, run, begins=True)
            await asyncio.sleep(body["payload"]["ms"] / 1000)
            note(delivery, run, begins=False)
            await client.report(delivery, status="succeeded", output={"echo": body["payload"]["value"]})
        await delivery.done()

    async def begin(delivery: Delivery) -> None:
        task = asyncio.ensure_future(work(delivery))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    http = Http(address)
    async with OPEN[address.engine](address, begin) as client:
        print("working", flush=True)  # noqa: T201
        await asyncio.Event().wait()


def _seconds_left(delivery: Delivery) -> float:
    return (datetime.fromisoformat(delivery.body["deadline"]) - datetime.now(UTC)).total_seconds()


if __name__ == "__main__":
    asyncio.run(main(Address(*json.loads(sys.argv[1])), sys.argv[2]))
