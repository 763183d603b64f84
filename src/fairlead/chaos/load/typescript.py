"""The worker in TypeScript of a run: where Node and the built client are."""

import shutil
import subprocess
from pathlib import Path

PROGRAM = Path(__file__).with_name("worker.mjs")
# In a source tree; the wheel does not have it.
CLIENT = Path(__file__).parents[4] / "clients" / "typescript" / "dist" / "esm" / "index.js"
OLDEST_NODE = 20


def find_typescript_worker() -> list[str] | None:
    """The argv of the worker; None without Node 20 or the client that `make typescript` builds."""
    node = shutil.which("node")
    if node is None or not CLIENT.exists() or _read_version(node) < OLDEST_NODE:
        return None
    return [node, str(PROGRAM), CLIENT.as_uri()]


def _read_version(node: str) -> int:
    """The major version of Node."""
    told = subprocess.run([node, "--version"], check=True, capture_output=True, text=True).stdout
    return int(told.lstrip("v").partition(".")[0])
