"""A client and a worker in TypeScript: a server and tokens for examples/typescript/resize.mjs.

Run it with: python examples/typescript.py (once before: make typescript, which needs Node 20)

In earnest: fairlead serve, and once: fairlead tokens create resizer --role worker --tenant example
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from http_worker import COMMAND, server

from fairlead.sync import Fairlead

PROGRAM = Path(__file__).parent / "typescript" / "resize.mjs"
NODE = os.environ.get("NODE", "node")


def new_token(role: str) -> str:
    argv = ["tokens", "create", f"example-{role}", "--role", role, "--tenant", "example", "--json"]
    made = subprocess.run([*COMMAND, *argv], check=True, capture_output=True)
    return str(json.loads(made.stdout)["secret"])


def main() -> None:
    fl = Fairlead(actor="typescript")

    @fl.job(key="example.resize")
    def resize(image: str = "") -> None:
        """Only described here: the worker does the work."""

    with fl:
        fl.add_tenant("example", exist_ok=True)
        with server() as url:
            tokens = {
                "APPLICATION_TOKEN": new_token("application"),
                "WORKER_TOKEN": new_token("worker"),
            }
            env = {**os.environ, **tokens, "FAIRLEAD_URL": url}
            done = subprocess.run([NODE, str(PROGRAM)], env=env, check=False)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
