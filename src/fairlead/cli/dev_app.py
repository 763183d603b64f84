"""The application of `fairlead dev APP`: a separate worker process, restarted when its source changes.

A process, because only a new one is certain to have no old code, and because code that crashes or blocks then
affects nothing else.
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
# The search for changes takes at most this share of the time, for any number of files.
SHARE = 0.1
RESTART_SECONDS = 1.0
STOP_SECONDS = 10.0
# The worker's exit code if the source cannot be imported, for example: it restarts only after a change.
REFUSED = 1


class DevApp:
    """Runs the worker of an application until it is stopped; errors of the application do not end it."""

    def __init__(self, app: str, url: str, settings: Settings, *, reload: bool) -> None:
        self._app = app
        self._reload = reload
        self._folders = folders_of(app)
        self._env = _build_environment(url, settings)
        self._seen: Snapshot = {}
        self._pause = POLL_SECONDS

    async def run(self, stopped: asyncio.Event) -> None:
        """Keep the worker running with the current source."""
        # The worker reads this end. Only this process can write, so the worker sees our end even if we are killed.
        lifeline, ours = os.pipe()
        try:
            while not stopped.is_set():
                self._seen = await asyncio.to_thread(take_snapshot, self._folders)
                await self._run_once(stopped, lifeline)
        finally:
            os.close(lifeline)
            os.close(ours)

    async def _run_once(self, stopped: asyncio.Event, lifeline: int) -> None:
        """Run one worker process until it ends, the source changes, or `stopped` is set."""
        child = await self._start(lifeline)
        ended = asyncio.create_task(child.wait())
        changed = asyncio.create_task(self._wait_for_change())
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
        # -B: bytecode files are matched by their source's time in seconds, and two changes may have the same
        python = [sys.executable, "-B", "-m", "fairlead.cli"]
        return await asyncio.create_subprocess_exec(
            *(*python, "worker", self._app, "--dev", "--lifeline", str(lifeline)),
            env=self._env,
            start_new_session=True,  # Ctrl-C must reach only this process
            stdin=subprocess.DEVNULL,
            pass_fds=[lifeline],
        )

    async def _wait_after_end(self, code: int, changed: "asyncio.Task[None]", stopped: asyncio.Event) -> None:
        """Wait after the worker ended by itself: for a change if it cannot start, else for a moment."""
        if code == REFUSED and self._reload:
            _print_notice(f"{self._app} cannot start; it restarts when a file changes")
            await _wait_for_first(changed, stopped)
        elif code == REFUSED:
            _print_notice(f"{self._app} cannot start; restart `fairlead dev` after fixing it")
            await stopped.wait()
        else:
            _print_notice(f"the worker of {self._app} ended with {code}; restarting it")
            await wait_any(stopped, seconds=RESTART_SECONDS)

    async def _wait_for_change(self) -> None:
        """Return when the source has changed and the change is complete."""
        if not self._reload:
            await asyncio.Event().wait()
        while not (files := await self._find_changes()):
            pass
        while await self._find_changes():
            pass  # an editor or a checkout is still writing
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        _print_notice(f"{_shorten_path(files[0])}{more} changed: reloading {self._app}")

    async def _find_changes(self) -> list[str]:
        """The files that changed since the last snapshot, after a pause."""
        await asyncio.sleep(self._pause)
        began = time.monotonic()
        now = await asyncio.to_thread(take_snapshot, self._folders)
        self._pause = max(POLL_SECONDS, (time.monotonic() - began) / SHARE)
        before, self._seen = self._seen, now
        return changed_files(before, now)


async def _stop(child: asyncio.subprocess.Process, ended: "asyncio.Task[int]") -> None:
    """Stop the worker; it releases its jobs first, unless the application's code blocks it."""
    child.send_signal(signal.SIGTERM)
    await asyncio.wait((ended,), timeout=STOP_SECONDS)
    if not ended.done():
        _print_notice("the worker did not stop; killing it")
        child.kill()
        await ended


async def _wait_for_first(changed: "asyncio.Task[None]", stopped: asyncio.Event) -> None:
    stopping = asyncio.create_task(stopped.wait())
    await asyncio.wait((changed, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()


def _build_environment(url: str, settings: Settings) -> Mapping[str, str]:
    """Our environment, with the database of `fairlead dev` for every Fairlead of the application."""
    return {
        **os.environ,
        "FAIRLEAD_DATABASE_URL": url,
        "FAIRLEAD_DATA_DIR": str(settings.data_dir.resolve()),
        "FAIRLEAD_SCHEMA": settings.schema,
    }


def _shorten_path(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _print_notice(text: str) -> None:
    output.console(stderr=True).print(Text(text, style="bold"))
