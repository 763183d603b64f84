"""Short commands through a worker, compared with a bare loop that starts the same program."""

import asyncio
import sys
import tempfile
from pathlib import Path
from uuid import uuid4

from fairlead.actions import definitions
from fairlead.bench.drain_tools import poll_until
from fairlead.bench.run import TENANT, Measure, Progress, compare
from fairlead.db.tx import Tx
from fairlead.library.app import Fairlead
from fairlead.model.command.spec import build_command_definition
from fairlead.model.job import NewJob
from fairlead.settings import Settings

ROUNDS = 5
JOBS = 1000
AT_ONCE = 50
KEY = "bench-true"
_TOML = f"""
[commands.{KEY}]
argv = ["/bin/true"]
"""

_LOOP = """
import asyncio, sys, time

async def one_by_one(left):
    for _ in left:
        process = await asyncio.create_subprocess_exec("/bin/true")
        await process.wait()

async def main(count, at_once):
    left = iter(range(count))
    begun = time.perf_counter()
    await asyncio.gather(*(one_by_one(left) for _ in range(at_once)))
    print(count / (time.perf_counter() - begun))

asyncio.run(main(*map(int, sys.argv[1:])))
"""

# From the first claim to the last finish, by the database's clock.
_RATE = """
select count(*) / extract(epoch from max(a.finished_at) - min(a.started_at))
from fairlead.attempts a join fairlead.jobs j on j.id = a.job_id where j.correlation_id = %s
"""

_ENDED = """
select count(*) from fairlead.attempts a join fairlead.jobs j on j.id = a.job_id
where j.correlation_id = %s and a.status = 'succeeded'
"""


async def measure(url: str, settings: Settings, progress: Progress) -> Measure:
    """Commands per second with one worker."""
    del url  # the settings have it
    values, limits = [], []
    async with Fairlead(settings=settings, actor="bench") as fl:
        await _publish_command(fl)
        await fl.add_tenant(TENANT, exist_ok=True)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(fl.work(stop, concurrency=AT_ONCE))
            try:
                await _measure_rate(fl, AT_ONCE)
                for number in range(1, ROUNDS + 1):
                    progress(f"round {number} of {ROUNDS}")
                    limits.append(await _measure_bare(JOBS))
                    values.append(await _measure_rate(fl, JOBS))
            finally:
                stop.set()
    note = (
        f"{AT_ONCE} concurrent; limit: bare asyncio.create_subprocess_exec of /bin/true, equally concurrent"
    )
    return compare("commands", values, limits, unit="jobs/s", note=note)


async def _publish_command(fl: Fairlead) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fairlead.toml"
        file.write_text(_TOML)
        fl.allow_commands(file)

    async def publish(tx: Tx) -> None:
        says = build_command_definition(fl.commands[KEY].spec)
        await definitions.patch(tx, fl.principal, says.pop("key"), says)

    await fl.database.transact(publish)


async def _measure_rate(fl: Fairlead, count: int) -> float:
    mark = uuid4().hex
    await fl.enqueue_many([NewJob(definition=KEY, tenant=TENANT, correlation_id=mark) for _ in range(count)])

    async def is_done() -> bool:
        [(ended,)] = await fl.database.transact(lambda tx: tx.values(_ENDED, [mark]))
        return bool(ended == count)

    await poll_until(is_done)
    [(rate,)] = await fl.database.transact(lambda tx: tx.values(_RATE, [mark]))
    return float(rate)


async def _measure_bare(count: int) -> float:
    """The rate of a bare loop, in a separate process: in this one, beside a worker, it has a tenth of the rate."""
    loop = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-c", _LOOP, str(count), str(AT_ONCE), stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await loop.communicate()
    return float(printed)
