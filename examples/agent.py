"""A host, its agent, and jobs that start and stop a real process there. What the agent may do: agent/fairlead.toml.

Run it with: python examples/agent.py
In earnest: fairlead serve, and on the host the one command that `fairlead hosts enrol` prints.
"""

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from fairlead import Fairlead

COMMAND = [sys.executable, "-m", "fairlead.cli"]


def cli(*argv: str) -> dict[str, str]:
    done = subprocess.run([*COMMAND, *argv, "--json"], check=True, stdout=subprocess.PIPE)
    return dict(json.loads(done.stdout))


@contextmanager
def running(*argv: str, at: Path, says: str = "") -> Iterator[str]:
    """A process within the block; the first line of its that has these words."""
    with subprocess.Popen(argv, cwd=at, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            yield next(line for line in map(bytes.decode, process.stdout or ()) if says in line).strip()
        finally:
            process.terminate()
            process.communicate()


async def main(host: str, at: Path) -> None:
    shutil.copytree(Path(__file__).parent / "agent", at, dirs_exist_ok=True)
    (at / "fairlead.toml").write_text((at / "fairlead.toml").read_text().replace("/usr/local/bin", str(at)))
    serve = running(*COMMAND, "serve", "--port", "0", at=Path.cwd(), says="serving http")
    async with Fairlead(actor="agent") as fl:
        await fl.add_tenant("example", exist_ok=True)
        cli("definitions", "install", "servers")
        cli("hosts", "add", host, "--tenant", "example")
        lobby = cli("resources", "add", f"lobby-of-{host}", "--kind", "server", "--host", host)
        with running(str(at / "keeper"), at=at), serve as said:
            command = cli("hosts", "enrol", host, "--server", said.split()[1].rstrip(","))["command"]
            with running(*COMMAND, *command.split()[1:], at=at, says=" serves ") as began:
                print(began)
                for key in ("SERVER_START", "SERVER_RESTART", "SERVER_STOP"):
                    job = await fl.enqueue(key, tenant="example", payload={"serverInstanceId": lobby["id"]})
                    print(f"{key}: {await job.result(timeout=120)}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(f"host-{uuid4().hex[:8]}", Path(folder).resolve()))
