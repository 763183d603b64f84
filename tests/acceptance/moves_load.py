"""Load for the acceptance test of moves: the jobs, and a process that enqueues them for all tenants until it is stopped.

python -m tests.acceptance.moves_load DATABASE_URL FILE TENANT …
"""

import asyncio
import itertools
import signal
import sys
from pathlib import Path
from typing import TextIO

import psycopg

from fairlead import Backoff, Fairlead, Settings
from fairlead.errors import FairleadError, TenantMoving

LIMIT = 2
STREAMS = 4
PAUSE_SECONDS = 0.25
SOON = Backoff(base_seconds=0.05, factor=1, cap_seconds=1, jitter=0)

fl = Fairlead()


@fl.job(max_attempts=50, backoff=SOON, max_running_per_tenant=LIMIT)
async def piece(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


async def enqueue_until_stopped(url: str, file: Path, tenants: list[str]) -> None:
    """Enqueue jobs, alone and in joined transactions; writes down the ids of those that were accepted."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with Fairlead(settings=Settings(database_url=url), actor="load") as client:
        with file.open("a", buffering=1) as out:
            # an enqueue for a tenant that is being moved waits: the others must not wait with it
            streams = (enqueue_for(client, tenants[first::STREAMS], stop, out) for first in range(STREAMS))
            await asyncio.gather(*streams)


async def enqueue_for(client: Fairlead, tenants: list[str], stop: asyncio.Event, out: TextIO) -> None:
    for n in itertools.count():
        if stop.is_set() or not tenants:
            return
        tenant, seconds = tenants[n % len(tenants)], (0, 0, 0.02, 0.3)[n // 3 % 4]
        try:
            out.write(f"{await enqueue(client, n, tenant, seconds)}\n")
        except TenantMoving:
            continue  # nothing was stored
        except (FairleadError, psycopg.Error) as error:
            print(type(error).__name__, error, flush=True)  # noqa: T201
        await asyncio.sleep(PAUSE_SECONDS)


async def enqueue(client: Fairlead, n: int, tenant: str, seconds: float) -> str:
    if n % 4:
        return str((await client.enqueue("piece", tenant=tenant, payload={"seconds": seconds})).id)
    where = await client.for_tenant(tenant)
    async with await psycopg.AsyncConnection.connect(where.database_url) as mine:
        job = await client.enqueue("piece", tenant=tenant, payload={"seconds": seconds}, tx=mine)
        await asyncio.sleep(0.05)
    return str(job.id)


if __name__ == "__main__":
    asyncio.run(enqueue_until_stopped(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
