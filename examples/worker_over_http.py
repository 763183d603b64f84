"""A worker without a database: it runs the functions of this module, and reaches only the server.

Run it with: python examples/worker_over_http.py

In earnest: fairlead serve worker_over_http:fl, and on another machine
FAIRLEAD_TOKEN=… fairlead worker worker_over_http:fl --server https://jobs.example.com
"""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from http_worker import COMMAND, new_token, server

from fairlead import Context, Fairlead

fl = Fairlead(actor="worker-over-http")
NO_DATABASE = "postgresql://127.0.0.1:1/none"


@fl.job(key="example.resize")
async def resize(ctx: Context, image: str) -> dict[str, str]:
    await ctx.progress(50, "halfway")
    ctx.log.info("resized", image=image)
    return {"thumbnail": f"small-{image}"}


@contextmanager
def worker(url: str, token: str) -> Iterator[None]:
    """A worker process, running within the block."""
    argv = [*COMMAND, "worker", "worker_over_http:fl", "--server", url]
    env = os.environ | {
        "PYTHONPATH": str(Path(__file__).parent),
        "FAIRLEAD_DATABASE_URL": NO_DATABASE,
        "FAIRLEAD_TOKEN": token,
    }
    with subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True) as process:
        try:
            print("worker:", process.stderr.readline().strip() if process.stderr else "")
            yield
        finally:
            process.terminate()  # it lets its jobs end, and goes
            process.communicate()
    print(f"worker: ended with {process.returncode}")


async def main() -> None:
    async with fl:  # it publishes the definition; a worker over HTTP cannot
        await fl.add_tenant("example", exist_ok=True)
        with server() as url, worker(url, new_token()):
            job = await resize.enqueue(tenant="example", image="a.png")
            print(await job.result(timeout=120))


if __name__ == "__main__":
    asyncio.run(main())
