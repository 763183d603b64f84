"""Export the audit log, signed, and find out that a line of it was changed.

Run it with: python examples/audit_export.py
(In earnest a schedule exports every night, and the key is on the machine that does, with its public half elsewhere.)
"""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from fairlead import Fairlead

fl = Fairlead(actor="audit-example")


def run(*arguments: object, database_url: str) -> str:
    """What `fairlead audit …` says."""
    command = [
        sys.executable,
        "-m",
        "fairlead.cli",
        "--database-url",
        database_url,
        "audit",
        *map(str, arguments),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


async def main(folder: Path) -> None:
    key, log = folder / "audit.pem", folder / "audit.jsonl"
    async with fl:
        await fl.add_tenant("example", exist_ok=True)
        url = fl.database.url
        for arguments in (
            ("key", key),
            ("export", "--tenant", "example", "--key", key, "--output", log),
            ("verify", log, "--key", f"{key}.pub"),
        ):
            print(await asyncio.to_thread(run, *arguments, database_url=url), end="")
        lines = log.read_text().splitlines(keepends=True)
        log.write_text("".join([lines[0], lines[1].replace("audit-example", "another"), *lines[2:]]))
        print(await asyncio.to_thread(run, "verify", log, "--key", f"{key}.pub", database_url=url), end="")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))
