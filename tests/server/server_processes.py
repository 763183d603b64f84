"""`fairlead serve` as a process of its own."""

import contextlib
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

import httpx2

from tests.processes import FAIRLEAD, free_port, started, until
from tests.waiting import SECONDS


class ServerProcess(NamedTuple):
    port: int
    process: subprocess.Popen[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextlib.contextmanager
def serving(database_url: str, **env: str) -> Iterator[ServerProcess]:
    """A server that answers; `env` are variables of its environment."""
    port = free_port()
    argv = [FAIRLEAD, "serve", "--port", str(port)]
    # to nowhere: a log that is not read would stop it
    with started(
        argv, env={"FAIRLEAD_DATABASE_URL": database_url, **env}, stdout=subprocess.DEVNULL
    ) as process:
        server = ServerProcess(port, process)
        until(lambda: _is_ready(server), "/readyz")
        yield server


def _is_ready(server: ServerProcess) -> bool:
    try:
        return httpx2.get(f"{server.url}/readyz", timeout=SECONDS).status_code == 200
    except httpx2.TransportError:
        return False
