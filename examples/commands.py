"""Programs as jobs: a list of what may be run, in examples/commands/fairlead.toml, and jobs that run exactly that.

Run it with: python examples/commands.py
(In earnest the list is on the worker's machine, and it takes: fairlead definitions sync; fairlead worker)
"""

import asyncio
import tarfile
import tempfile
from pathlib import Path

from fairlead import Fairlead
from fairlead.actions import commands, jobs
from fairlead.errors import JobFailed, PayloadInvalid

HERE = Path(__file__).parent / "commands"
fl = Fairlead(actor="commands")


def allow(folder: Path) -> None:
    """Allow the file's commands, with paths that are there on every machine."""
    text = (HERE / "fairlead.toml").read_text().replace("/usr/local/bin/zoltag", str(HERE / "zoltag"))
    (file := folder / "fairlead.toml").write_text(text.replace("/srv/data", str(folder)))
    fl.allow_commands(file)


async def run(key: str, **payload: object) -> None:
    job = await fl.enqueue(key, tenant="example", payload=payload)
    await fl.tick()  # a worker would do that
    try:
        print(f"{key}: {await job.result(timeout=120)}")
    except JobFailed as error:
        print(error)
    async with fl.transaction() as tx:
        _, [attempt] = await jobs.show_job(tx, fl.principal, job.id)
    print(f"  exit code {attempt.exit_code}, said: {(attempt.stdout_tail or '').strip()}")


async def main(folder: Path) -> None:
    allow(folder)
    (folder / "photos").mkdir()
    async with fl:
        await fl.add_tenant("example", exist_ok=True)
        async with fl.transaction() as tx:  # as `fairlead definitions sync` does
            await commands.sync_commands(tx, fl.principal, [one.spec for one in fl.commands.values()])
        await run("archive", to="photos.tar.gz", folder="photos", verbose=True)
        with tarfile.open(folder / "photos.tar.gz") as packed:
            print(f"  packed: {packed.getnames()}")
        try:
            await fl.enqueue("archive", tenant="example", payload={"to": "x", "folder": "y", "then": "rm"})
        except PayloadInvalid as error:
            print(f"refused with {error.code}")
        for key in sorted(fl.commands.keys() - {"archive"}):
            await run(key)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder).resolve()))
