"""Node programs of the tests, in folders of tests/node, with the packages that they need."""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.waiting import SECONDS

SOURCE = Path(__file__).parent / "node"
OLDEST_NODE = 20


@cache
def why_not(name: str) -> str | None:
    """Why the programs of a folder cannot run here, or None."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return "needs node and npm"
    told = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if int(told.removeprefix("v").split(".")[0]) < OLDEST_NODE:
        return f"needs node {OLDEST_NODE} or later, not {told.strip()}"
    try:
        node_folder(name)
    except subprocess.SubprocessError as error:
        return f"npm could not install the packages of tests/node/{name}: {error}"
    return None


@cache
def node_folder(name: str) -> Path:
    """The programs of a folder with what they need, installed once for each version of them."""
    files = sorted(path for path in (SOURCE / name).iterdir() if path.is_file())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
    folder = Path(sys.prefix) / "node" / f"{name}-{digest}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".installed").exists():
            for path in files:
                shutil.copy(path, folder)
            npm = ["npm", "ci", "--no-progress", "--prefer-offline"]
            subprocess.run(npm, cwd=folder, check=True, capture_output=True, timeout=SECONDS)
            (folder / ".installed").touch()
    return folder
