"""A broker and a `fairlead bridge` to it, within a block. Used by nats_engine.py and sqs_engine.py."""

import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

FAIRLEAD = (sys.executable, "-m", "fairlead.cli")
NULL = subprocess.DEVNULL


def find(program: str) -> str | None:
    """Where the broker is: beside this Python, or in the PATH."""
    beside = str(Path(sys.executable).parent)
    return shutil.which(program, path=os.pathsep.join([beside, os.environ.get("PATH", "")]))


def find_port() -> int:
    """A free port that is no outgoing connection's before it is used: the kernel gives those higher ones."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", random.randint(20_000, 32_000)))  # noqa: S311
            return int(probe.getsockname()[1])


@contextmanager
def bridged(broker: list[str], port: int, table: str, queue: str) -> Iterator[None]:
    """The broker at this port, the definition example.resize for this queue, and a bridge with this table of fairlead.toml."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        config = Path(folder, "fairlead.toml")
        config.write_text(f"[engines.example]\n{table}\n", "utf-8")
        env = {**os.environ, "FAIRLEAD_CONFIG": str(config)}
        define = ["definitions", "put", "example.resize", "--kind", "delivered", "--engine", "example"]
        subprocess.run([*FAIRLEAD, *define, "--queue", queue], check=True, stdout=NULL)
        for argv in (broker, [*FAIRLEAD, "bridge"]):
            process = subprocess.Popen(argv, env=env, cwd=folder, stdout=NULL, stderr=NULL)
            stack.enter_context(process)
            stack.callback(process.terminate)
            _wait_for(port)
        yield


def _wait_for(port: int) -> None:
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit("The broker does not answer.")
