"""A worker imports what it uses: each of these modules takes memory in every worker process."""

import asyncio
import signal
import subprocess
from pathlib import Path

import pytest

from fairlead import Fairlead
from tests import given
from tests.processes import FAIRLEAD, environment
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough

# what each is for, and why a worker that runs plain functions can do without it
UNUSED = {
    "httpx2": "http.request and EMAIL_SEND, if they are configured",
    "urllib.request": "comes with httpx2",
    "fastapi": "the server",
    "pydantic": "the server, and applications that have models",
    "prometheus_client": "the metrics port, if it is configured",
    "fairlead.server": "the server",
    "fairlead.bench": "the benchmarks",
    "fairlead.testing": "tests",
}

APP = """
import sys
from fairlead import Context, Fairlead
fl = Fairlead()

@fl.job(key="imports.list")
async def list_imports(ctx: Context, prefix: str = "", limits: list[int] | None = None) -> list[str]:
    ctx.log.info("listing", prefix=prefix)
    return sorted(sys.modules)
"""


async def test_a_worker_imports_only_what_it_uses(fl: Fairlead, database_url: str, tmp_path: Path) -> None:
    (tmp_path / "listing.py").write_text(APP)
    # not a preloaded process: those have imported everything
    worker = await asyncio.create_subprocess_exec(
        FAIRLEAD,
        "worker",
        "listing:fl",
        env=environment(FAIRLEAD_DATABASE_URL=database_url),
        cwd=tmp_path,
        stderr=subprocess.PIPE,
    )
    try:
        assert worker.stderr is not None
        assert b"serving imports.list" in await worker.stderr.readline()
        job = await fl.enqueue("imports.list", tenant=given.TENANT)
        loaded = set(await job.result(timeout=SECONDS))
    finally:
        worker.send_signal(signal.SIGTERM)
        await worker.communicate()
    assert {"psycopg", "fairlead.runtime.worker"} <= loaded, "it is the list of a worker"
    assert sorted(loaded & UNUSED.keys()) == []
