"""The worker's side of an isolated attempt: a child process for one job, which can be killed."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairlead import tracing
from fairlead.errors import FairleadError
from fairlead.handlers import isolation_protocol
from fairlead.handlers.attempt import HandlerAttempt, failure_outcome
from fairlead.handlers.context import Stopped
from fairlead.handlers.process_tree import describe_exit, kill_tree, signal_group
from fairlead.handlers.registry import Handler
from fairlead.handlers.supervisor import PRIVATE, is_private
from fairlead.model.outcome import Canceled, Failed, Outcome

# -P: the child imports from the worker's sys.path, not from its current folder
_BOOT = "import sys; sys.path.append(sys.argv[1]); from fairlead.handlers.child import main; main()"
_ROOT = str(Path(__file__).parents[2])
_DRAIN_SECONDS = 1.0


class IsolatedAttempt(HandlerAttempt[Handler]):
    """A function in its own process and session.

    To stop it, the worker sends SIGTERM to its group and, after the grace, SIGKILL to it and all its descendants.
    The child ends itself when the worker's end of the socket closes, so it does not outlive a killed worker.
    """

    _process: subprocess.Popen[bytes]
    _reader: asyncio.StreamReader | None = None
    _reaped = False

    def launch(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = _spawn(theirs.fileno())
        except BaseException:
            ours.close()
            raise
        self._gone: asyncio.Future[None] = self.loop.create_future()
        _watch(self._process, self.loop, self._handle_exit)
        self.running()
        self._task = self.loop.create_task(self._supervise(ours))

    def interrupt(self) -> None:
        if self.forsaken:
            self.abandon()
        elif not self._reaped:
            signal_group(self._process.pid, signal.SIGTERM)

    def abandon(self) -> None:
        """Kill the child; the attempt ends when its exit is seen."""
        if not self._reaped:
            kill_tree(self._process.pid)

    def _handle_exit(self) -> None:
        """Kill the child's group: the child is dead but not reaped yet."""
        if not self._gone.done():
            self._gone.set_result(None)
            kill_tree(self._process.pid)
            # a descendant outside the group may still hold the socket: do not wait for it
            self.loop.call_later(_DRAIN_SECONDS, self._hang_up)

    def _hang_up(self) -> None:
        if self._reader is not None:
            self._reader.feed_eof()

    async def _supervise(self, ours: socket.socket) -> None:
        outcome: Outcome | None = None
        try:
            with ours:
                outcome = await self._run_connected(ours)
        except Exception as error:  # noqa: BLE001 - an invalid message fails only this job
            outcome = failure_outcome(error, self.ctx.mask)
        finally:
            self.abandon()
            try:
                await self._gone
            finally:
                # blocks briefly, also while the event loop shuts down: the child was killed
                status = self._process.wait()
                self._reaped = True
        self.end(self._check_outcome(outcome, status))

    async def _run_connected(self, ours: socket.socket) -> Outcome | None:
        self._reader, writer = await asyncio.open_unix_connection(sock=ours)
        try:
            return await self._converse(self._reader, writer)
        finally:
            # killed before the socket closes, or the child would take us for dead
            self.abandon()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _check_outcome(self, outcome: Outcome | None, status: int) -> Outcome:
        if outcome is None:
            ended = describe_exit(status, None) if status >= 0 else describe_exit(None, -status)
            return Failed("ChildDied", f"The child process {ended} before it had a result.")
        if isinstance(outcome, Canceled):
            # if the worker had canceled it, the context's reason would replace this outcome
            return Failed(
                "ChildDied", "The child process was ended by SIGTERM, which the worker did not send."
            )
        return outcome

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Outcome | None:
        with contextlib.suppress(ConnectionError):
            writer.write(isolation_protocol.encode_frame(self._build_begin()))
            await writer.drain()
        asked: set[asyncio.Task[None]] = set()
        try:
            while (message := await isolation_protocol.next_to_worker(reader)) is not None:
                match message:
                    case isolation_protocol.LogLine(level, event, fields):
                        self.ctx.log.write(level, event, fields)
                    case isolation_protocol.ProgressReport(percent, text):
                        self.ctx.progress(percent, text)
                    case isolation_protocol.AddCost(cents):
                        self.ctx.add_cost(cents)
                    case isolation_protocol.EnqueueRequest():
                        task = self.loop.create_task(self._answer(message, writer))
                        asked.add(task)
                        task.add_done_callback(asked.discard)
                    case isolation_protocol.AttemptEnded():
                        return message.outcome()
            return None
        finally:
            if asked:
                await asyncio.wait(asked, timeout=self.bounds.grace)

    async def _answer(self, ask: isolation_protocol.EnqueueRequest, writer: asyncio.StreamWriter) -> None:
        try:
            job = await self.ctx.enqueue_child(ask.new)
            answer = isolation_protocol.EnqueueAnswer(ask.number, job.id, job.deduplicated)
        except (Exception, Stopped) as error:  # noqa: BLE001 - the child raises it
            shown = error.message if isinstance(error, FairleadError) else str(error)
            answer = isolation_protocol.EnqueueAnswer(ask.number, error=type(error).__name__, message=shown)
        with contextlib.suppress(ConnectionError):
            writer.write(isolation_protocol.encode_frame(answer))
            await writer.drain()

    def _build_begin(self) -> isolation_protocol.BeginAttempt:
        function: Any = self.handler.function
        facts = {name: getattr(self.ctx, name) for name in isolation_protocol.ContextFields.__struct_fields__}
        return isolation_protocol.BeginAttempt(
            module=function.__module__,
            qualname=function.__qualname__,
            sys_path=[str(Path(entry).absolute()) if entry == "" else entry for entry in sys.path],
            max_output_bytes=self.bounds.max_output_bytes,
            facts=isolation_protocol.ContextFields(**facts),
            trace=tracing.current_trace(),
            secrets=[] if self.ctx.mask is None else self.ctx.mask.leaves,
            patterns=[] if self.ctx.mask is None else [one.pattern for one in self.ctx.mask.patterns],
        )


def _spawn(link: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _BOOT, _ROOT, str(link), *([PRIVATE] if is_private() else [])],
        stdin=subprocess.DEVNULL,
        pass_fds=[link],
        start_new_session=True,
    )


def _watch(
    process: "subprocess.Popen[bytes]", loop: asyncio.AbstractEventLoop, exited: Callable[[], None]
) -> None:
    """Call `exited` on the loop when the process is dead; does not reap it, so that its pid is not reused."""

    def wait() -> None:
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        else:
            process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(exited)

    threading.Thread(target=wait, name=f"fairlead-child-{process.pid}", daemon=True).start()
