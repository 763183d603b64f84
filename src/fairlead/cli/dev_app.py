"""The application of `fairlead dev APP`: a worker process of its own, started again when its source changes.

A process, because only a fresh one is certain to have the new code and none of the old, and because code that crashes
or blocks then takes nothing else down.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from rich.text import Text

from fairlead.cli import output
from fairlead.cli.source_files import Snapshot, changed_files, folders_of, take_snapshot
from fairlead.runtime.service import wait_any
from fairlead.settings import Settings

POLL_SECONDS = 0.3
# Looking for changes takes at most this part of the time, however many files there are.
SHARE = 0.1
RESTART_SECONDS = 1.0
STOP_SECONDS = 10.0
# The worker was refused, as with source that cannot be imported: only a change can help.
REFUSED = 1


class DevApp:
    """Runs the worker of an application until it is told to stop; no error of the application ends it."""

    def __init__(self, app: str, url: str, settings: Settings, *, reload: bool) -> None:
        self._app = app
        self._reload = reload
        self._folders = folders_of(app)
        self._env = _environment(url, settings)
        self._seen: Snapshot = {}
        self._pause = POLL_SECONDS

    async def run(self, stopped: asyncio.Event) -> None:
        """Keep the worker running, with the source as it is on disk."""
        # The worker reads this end. It has no writer but us, so that it ends with us, however we end.
        lifeline, ours = os.pipe()
        try:
            while not stopped.is_set():
                self._seen = await asyncio.to_thread(take_snapshot, self._folders)
                await self._run_once(stopped, lifeline)
        finally:
            os.close(lifeline)
            os.close(ours)

    async def _run_once(self, stopped: asyncio.Event, lifeline: int) -> None:
        """One worker process, until it ends or is to be replaced."""
        child = await self._start(lifeline)
        ended = asyncio.create_task(child.wait())
        changed = asyncio.create_task(self._change())
        stopping = asyncio.create_task(stopped.wait())
        try:
            await asyncio.wait((ended, changed, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await _stop(child, ended)
            elif not stopping.done():
                await self._wait_after_end(ended.result(), changed, stopped)
        finally:
            for task in (changed, stopping):
                task.cancel()
            if not ended.done():
                child.kill()
                await ended

    async def _start(self, lifeline: int) -> asyncio.subprocess.Process:
        # -B: a compiled file is recognised by the second of its source, and two changes may fall into one
        python = [sys.executable, "-B", "-m", "fairlead.cli"]
        return await asyncio.create_subprocess_exec(
            *(*python, "worker", self._app, "--dev", "--lifeline", str(lifeline)),
            env=self._env,
            start_new_session=True,  # Ctrl-C is for us
            stdin=subprocess.DEVNULL,
            pass_fds=[lifeline],
        )

    async def _wait_after_end(self, code: int, changed: "asyncio.Task[None]", stopped: asyncio.Event) -> None:
        """The worker ended by itself: wait for a change if it was refused, else only for a moment."""
        if code == REFUSED and self._reload:
            _say(f"{self._app} does not run; it starts again when a file changes")
            await _first(changed, stopped)
        elif code == REFUSED:
            _say(f"{self._app} does not run; start `fairlead dev` again when it is repaired")
            await stopped.wait()
        else:
            _say(f"the worker of {self._app} ended with {code}; starting it again")
            await wait_any(stopped, seconds=RESTART_SECONDS)

    async def _change(self) -> None:
        """Return when the source has changed, and does not change any more."""
        if not self._reload:
            await asyncio.Event().wait()
        while not (files := await self._changed_files()):
            pass
        while await self._changed_files():
            pass  # an editor or a checkout is still writing
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        _say(f"{_shown(files[0])}{more} changed: reloading {self._app}")

    async def _changed_files(self) -> list[str]:
        """What has changed since the last look, after a pause."""
        await asyncio.sleep(self._pause)
        began = time.monotonic()
        now = await asyncio.to_thread(take_snapshot, self._folders)
        self._pause = max(POLL_SECONDS, (time.monotonic() - began) / SHARE)
        before, self._seen = self._seen, now
        return changed_files(before, now)


async def _stop(child: asyncio.subprocess.Process, ended: "asyncio.Task[int]") -> None:
    """End the worker: it gives its jobs back first, unless code of the application blocks it."""
    child.send_signal(signal.SIGTERM)
    await asyncio.wait((ended,), timeout=STOP_SECONDS)
    if not ended.done():
        _say("the worker did not stop; killing it")
        child.kill()
        await ended


async def _first(changed: "asyncio.Task[None]", stopped: asyncio.Event) -> None:
    stopping = asyncio.create_task(stopped.wait())
    await asyncio.wait((changed, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()


def _environment(url: str, settings: Settings) -> Mapping[str, str]:
    """Ours, in which every Fairlead of the application finds the database of `fairlead dev`."""
    return {
        **os.environ,
        "FAIRLEAD_DATABASE_URL": url,
        "FAIRLEAD_DATA_DIR": str(settings.data_dir.resolve()),
        "FAIRLEAD_SCHEMA": settings.schema,
    }


def _shown(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _say(text: str) -> None:
    output.console(stderr=True).print(Text(text, style="bold"))
