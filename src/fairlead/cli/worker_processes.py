"""The parent process of `fairlead worker`: starts worker processes, replaces them, and stops them.

Each worker process has one end of two pipes. The lifeline tells it that its parent has died. The reports tell the parent
that it claims jobs, and that it must be replaced. A process that must be replaced claims on until its successor does.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable

from fairlead.cli.exits import OUTDATED
from fairlead.runtime.service import wait_any

RESTART_SECONDS = 1.0
# The reports of a worker process, a byte each.
SERVING = b"s"
RECYCLE = b"r"

Announce = Callable[..., None]


class WorkerChild:
    """One worker process, and what it has reported."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reports: int,
        on_end: Callable[["WorkerChild"], object],
    ) -> None:
        self._process = process
        self._on_end = on_end
        self._reports = reports
        self._loop = asyncio.get_running_loop()
        self.pid = process.pid
        self.serving = asyncio.Event()
        self.must_be_replaced = asyncio.Event()
        self.ended = asyncio.Event()
        self.code: int | None = None
        self._signals: set[int] = set()
        os.set_blocking(reports, False)
        self._loop.add_reader(reports, self._read)
        self._waiting = asyncio.create_task(self._wait())

    def signal(self, number: int) -> None:
        """Send a signal, once: a process that drains since it was replaced must not take a stop for the second signal."""
        if number not in self._signals and self._process.returncode is None:
            self._signals.add(number)
            self._process.send_signal(number)

    def _read(self) -> None:
        told = os.read(self._reports, 1024)
        if SERVING in told:
            self.serving.set()
        if RECYCLE in told:
            self.must_be_replaced.set()
        if not told:
            self._loop.remove_reader(self._reports)

    async def _wait(self) -> None:
        self.code = await self._process.wait()
        self._loop.remove_reader(self._reports)
        os.close(self._reports)
        self.ended.set()
        self._on_end(self)


class WorkerProcesses:
    """Keeps a number of worker processes running until `stop` is set; `abandon` makes them stop at once."""

    def __init__(self, announce: Announce, stop: asyncio.Event, abandon: asyncio.Event) -> None:
        self._announce = announce
        self._stop = stop
        self._abandon = abandon
        self._children: set[WorkerChild] = set()
        # one replacement at a time: a new process needs a core while it starts
        self._replacing = asyncio.Lock()
        # only this process has the other end and never writes: the workers see our end even if we are killed
        self._lifeline, self._ours = os.pipe()

    async def run(self, processes: int) -> int:
        """Run this many worker processes; restart each that dies. The exit code of this process."""
        forwarding = asyncio.create_task(self._forward_signals())
        try:
            codes = await asyncio.gather(*(self._keep_one() for _ in range(processes)))
        finally:
            forwarding.cancel()
        return OUTDATED if OUTDATED in codes else 0

    async def _forward_signals(self) -> None:
        # two different signals: of two equal ones, a process that has not run in between sees one
        for event, number in ((self._stop, signal.SIGTERM), (self._abandon, signal.SIGINT)):
            await event.wait()
            for child in list(self._children):
                child.signal(number)

    async def _keep_one(self) -> int:
        """Keep one worker process until `stop` is set: restart it when it dies, replace it when it asks for it."""
        code, before = 0, None
        child = await self._start()
        while not self._stop.is_set():
            await wait_any(child.ended, child.must_be_replaced, self._stop)
            if child.ended.is_set():
                code = await self._note_end(child)
                if not self._stop.is_set():
                    child = await self._start()
            elif not self._stop.is_set():
                if before is not None:  # never more than two for one place
                    await wait_any(before.ended, child.ended, self._stop)
                child, before = await self._replace(child), child
        for one in (child, before):
            if one is not None:
                await one.ended.wait()
                code = OUTDATED if OUTDATED in (code, one.code) else one.code or 0
        return code

    async def _note_end(self, child: WorkerChild) -> int:
        """Announce that a process has died, and wait a moment."""
        code = child.code or 0
        if code == OUTDATED:
            self._stop.set()  # another one would end the same way
        if not self._stop.is_set():
            text = f"a worker process ended with {code}; starting another"
            self._announce("process_ended", text, exit_code=code)
            await wait_any(self._stop, seconds=RESTART_SECONDS)
        return code

    async def _replace(self, child: WorkerChild) -> WorkerChild:
        """Start a successor; when it claims, stop the process. The successor, or the process itself if that has ended."""
        async with self._replacing:
            while not self._stop.is_set() and not child.ended.is_set():
                new = await self._start()
                await wait_any(new.serving, new.ended, self._stop)
                if new.ended.is_set():
                    await self._note_end(new)
                    continue
                if new.serving.is_set():
                    text = f"the worker process {child.pid} is replaced by {new.pid}"
                    self._announce("process_replaced", text, old_pid=child.pid, new_pid=new.pid)
                    child.signal(signal.SIGTERM)
                return new
        return child

    async def _start(self) -> WorkerChild:
        reports, theirs = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "fairlead.cli",
                *sys.argv[1:],
                "--processes",
                "1",
                "--lifeline",
                str(self._lifeline),
                "--reports",
                str(theirs),
                start_new_session=True,  # Ctrl-C must reach only this process, which forwards it
                stdin=subprocess.DEVNULL,
                pass_fds=[self._lifeline, theirs],
            )
        finally:
            os.close(theirs)
        child = WorkerChild(process, reports, self._children.discard)
        self._children.add(child)
        for event, number in ((self._stop, signal.SIGTERM), (self._abandon, signal.SIGINT)):
            if event.is_set():
                child.signal(number)
        return child


class Reports:
    """A worker process's end of the pipe to its parent; without one, reports go nowhere."""

    def __init__(self, pipe: int | None) -> None:
        self._pipe = pipe
        if pipe is not None:
            os.set_inheritable(pipe, False)

    def send(self, report: bytes) -> None:
        """Send a report."""
        if self._pipe is not None:
            try:
                os.write(self._pipe, report)
            except OSError:  # the parent has died: the lifeline says so
                self._pipe = None
