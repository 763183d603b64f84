"""A redis-server of its own, a BullMQ worker in Node and a bridge. Used by bullmq_bridge.py."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bridged import find_port

NODE = Path(__file__).parent / "node"
FAIRLEAD = str(Path(sys.executable).with_name("fairlead"))
CONFIG = '[engines.bullmq]\ndriver = "bullmq"\nurl = "env:REDIS_URL"\n'


def is_installed() -> bool:
    """Whether redis-server, node and the npm packages are there."""
    if not shutil.which("redis-server") or not shutil.which("node"):
        return False
    look = ["node", "-e", "require('bullmq'), require('ioredis')"]
    return subprocess.run(look, cwd=NODE, check=False, capture_output=True).returncode == 0


@contextmanager
def running() -> Iterator[None]:
    """Run all three until the block ends."""
    port = str(find_port())
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        config = Path(folder, "fairlead.toml")
        config.write_text(CONFIG)
        env = {**os.environ, "REDIS_URL": f"redis://127.0.0.1:{port}", "FAIRLEAD_CONFIG": str(config)}
        redis = [
            "redis-server",
            "--port",
            port,
            "--appendonly",
            "yes",
            "--dir",
            folder,
            "--loglevel",
            "warning",
        ]
        for argv in (redis, ["node", str(NODE / "worker.cjs")], [FAIRLEAD, "bridge"]):
            process = stack.enter_context(subprocess.Popen(argv, env=env, stderr=subprocess.DEVNULL))
            stack.callback(process.terminate)
        yield
