"""A worker whose process is replaced after ten jobs, while jobs go on.

Run it with: python examples/recycling.py

In earnest you would start the worker from a shell, or a service manager:
fairlead worker worker_jobs:fl --max-jobs 10000 --max-rss 512M
"""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from worker_jobs import fl, hello

ARGV = [sys.executable, "-m", "fairlead.cli", "worker", "worker_jobs:fl", "--max-jobs", "10"]


async def find_replacements() -> set[str]:
    """Run jobs until the worker process has been replaced; the worker ids of the attempts."""
    seen: set[str] = set()
    while len(seen) < 2:
        job = await hello.enqueue(tenant="example", name="Ada")
        await job.result(timeout=60)
        seen.add(str((await job.read()).claimed_by_worker))
    return seen


async def report_replacement(log: asyncio.StreamReader) -> None:
    """Print what the worker says of its recycling, until its process is replaced."""
    async for line in log:
        said = line.decode().strip()
        if "recycling" in said or "replaced" in said:
            print(f"worker: {said}")
        if "is replaced by" in said:
            return


async def main() -> None:
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    async with fl:
        await fl.add_tenant("example", exist_ok=True)
        process = await asyncio.create_subprocess_exec(*ARGV, env=env, stderr=subprocess.PIPE)
        log = process.stderr or asyncio.StreamReader()
        try:
            async with asyncio.timeout(120):
                workers, _ = await asyncio.gather(find_replacements(), report_replacement(log))
            print(f"{len(workers)} processes have run jobs")
        finally:
            process.send_signal(signal.SIGTERM)
            await process.communicate()


if __name__ == "__main__":
    asyncio.run(main())
