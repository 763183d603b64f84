"""A server, a token, and a worker that talks to it over HTTP only: see http_only.py.

Run it with: python examples/http_worker.py

In earnest: fairlead serve, and once: fairlead tokens create shouter --role worker --tenant example
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from http_only import Worker

from fairlead.sync import Fairlead

COMMAND = [sys.executable, "-m", "fairlead.cli"]


@contextmanager
def server() -> Iterator[str]:
    """`fairlead serve` within the block; where its API is."""
    argv = [*COMMAND, "serve", "--port", "0"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            said = process.stdout.readline() if process.stdout else ""
            yield said.split()[1].rstrip(",")
        finally:
            process.terminate()
            process.communicate()


def new_token() -> str:
    argv = ["tokens", "create", "shouter", "--role", "worker", "--tenant", "example", "--json"]
    made = subprocess.run([*COMMAND, *argv], check=True, capture_output=True)
    return str(json.loads(made.stdout)["secret"])


def main() -> None:
    fl = Fairlead(actor="http-worker")

    @fl.job(key="example.shout")
    def shout(name: str) -> None:
        """Only described here: the worker does the work."""

    with fl:
        fl.add_tenant("example", exist_ok=True)
        jobs = [shout.enqueue(tenant="example", name=name) for name in ("Ada", "")]
        with server() as url:
            worker = Worker(url, new_token())
            while worker.work():
                pass
        for job in [fl.read(one.id) for one in jobs]:
            print(f"{job.status}: {job.output or job.last_error}")


if __name__ == "__main__":
    main()
