"""A real worker for a moment: it is started, runs the jobs of worker_jobs.py, and is told to stop.

Run it with: python examples/run_worker.py

In earnest you would start the worker from a shell, or a service manager:
fairlead worker worker_jobs:fl --concurrency 20
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from worker_jobs import fl, flaky, hello, hopeless, in_a_process, in_a_thread, patient

from fairlead.errors import JobFailed


@contextmanager
def worker() -> Iterator[None]:
    """A worker process, running within the block."""
    argv = [sys.executable, "-m", "fairlead.cli", "worker", "worker_jobs:fl", "--concurrency", "20"]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    with subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True) as process:
        try:
            if process.stderr is not None:
                print(f"worker: {process.stderr.readline().strip()}")
            yield
        finally:
            process.send_signal(signal.SIGTERM)  # it lets its jobs end, and goes
            process.communicate()
    print(f"worker: ended with {process.returncode}")


async def main() -> None:
    async with fl:
        await fl.add_tenant("example", exist_ok=True)
        with worker():
            job = await hello.enqueue(tenant="example", name="Ada")
            print(await job.result(timeout=120))
            jobs = [await one.enqueue(tenant="example") for one in (in_a_thread, flaky, patient)]
            jobs.append(await in_a_process.enqueue(tenant="example", worker_pid=os.getpid()))
            print(await asyncio.gather(*(job.result(timeout=120) for job in jobs)))
            try:
                await (await hopeless.enqueue(tenant="example")).result(timeout=120)
            except JobFailed as error:
                print(f"{error.code}: {error}")


if __name__ == "__main__":
    asyncio.run(main())
