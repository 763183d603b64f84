"""The load while primaries are killed: jobs that note each run, and a client that notes each acknowledged enqueue.

The client is started with: python -m tests.acceptance.failover_load FOLDER PAUSE_SECONDS
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from uuid import uuid4

from fairlead import Backoff, Context, Fairlead, FairleadError

LIMIT = 2
TENANT = "acme"
ENQUEUERS = 4
SOON = Backoff(base_seconds=0.05, factor=1, cap_seconds=1, jitter=0)
STOP = "stop"

fl = Fairlead()


class Notes:
    """A file of one process, with a line for each thing that happened."""

    def __init__(self, folder: str, kind: str) -> None:
        self._file = os.open(Path(folder, f"{kind}.{os.getpid()}"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def add(self, *line: object) -> None:
        os.write(self._file, (json.dumps([*line, time.time()], default=str) + "\n").encode())


def read_notes(folder: Path, kind: str) -> list[list[object]]:
    """The lines of all processes."""
    return [json.loads(line) for file in folder.glob(f"{kind}.*") for line in read_lines(file)]


def read_lines(file: Path) -> list[str]:
    """The complete lines: its process may be writing another one."""
    return file.read_text().rpartition("\n")[0].splitlines()


_runs: dict[str, Notes] = {}


async def _run(ctx: Context, folder: str, seconds: float) -> str:
    """Note the run before it can end. Its output names it, so that a job's outcome shows whose it is."""
    run = uuid4().hex
    _runs.setdefault(folder, Notes(folder, "runs")).add(ctx.job_id, ctx.attempt_no, run)
    await asyncio.sleep(seconds)
    return run


@fl.job(max_attempts=20, backoff=SOON)
async def noted(ctx: Context, folder: str) -> str:
    return await _run(ctx, folder, 0.01)


@fl.job(max_running=LIMIT, max_attempts=20, backoff=SOON)
async def limited(ctx: Context, folder: str) -> str:
    return await _run(ctx, folder, 0.03)


async def main(folder: str, pause: float) -> None:
    """Enqueue until the file `stop` appears."""
    acknowledged, refused = Notes(folder, "acknowledged"), Notes(folder, "refused")
    stop = f"{folder}/{STOP}"

    async def enqueue(number: int) -> None:
        key = f"{os.getpid()}-{number}" if number % 3 == 0 else None
        what = "limited" if number % 5 == 0 else "noted"
        try:
            job = await fl.enqueue(what, tenant=TENANT, payload={"folder": folder}, dedupe_key=key)
        except FairleadError as error:
            refused.add(error.code, error.message)
        else:
            acknowledged.add(job.id)

    async def enqueue_until_stopped(first: int) -> None:
        number = first
        while not os.path.exists(stop):  # noqa: PTH110, ASYNC240 - it takes a microsecond
            await enqueue(number)
            number += ENQUEUERS
            await asyncio.sleep(pause)

    async with fl:
        await asyncio.gather(*(enqueue_until_stopped(first) for first in range(ENQUEUERS)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
