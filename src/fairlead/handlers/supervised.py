"""The worker's client of its supervisor: starts it with the first command, sends keepalives, runs and stops commands."""

import asyncio
import os
import secrets
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import structlog

from fairlead.handlers import supervisor
from fairlead.handlers.supervisor import MOST_FDS, Message, pack

log = structlog.get_logger(__name__)

# Parts of a lease: after PATIENCE without a keepalive the supervisor kills the commands; ALIVE is the keepalive interval.
PATIENCE = 0.5
ALIVE = 0.1
# How long the supervisor has to accept a message, and to end; and its keepers to kill the commands if it was killed.
SEND_SECONDS = 5
END_SECONDS = 10.0
LOST_SECONDS = 0.5
# Runs that are requested in one message.
TOGETHER = MOST_FDS // 8


class RunObserver(Protocol):
    """The attempt that requested a run, and receives its messages."""

    def heard(self, message: Message) -> None:
        """Handle a message: `pid`, `exit` and `signal`, `trouble` (and `lost`: it may have started), `left`."""

    def handle_gone(self) -> None:
        """Handle the last message: no process of the run is left."""


class Supervised:
    """Runs all commands of this process through one supervisor."""

    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._runners: dict[int, RunObserver] = {}
        self._number = 0
        self._waiting: list[tuple[bytes, list[int]]] = []
        self._link: supervisor.MessageLink | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path()
        self._lock = threading.Lock()
        self._closing = threading.Event()

    def run(self, runner: RunObserver, request: Message, fds: Sequence[int]) -> int:
        """Run a command with these descriptors as its stdout, stderr and so on, and close them here; the run's number.

        The request has `argv`, `env`, `cwd`, `umask`, `limits`, `uid` and `gid`.
        """
        try:
            self._open()
            message = pack({"op": "run", "run": self._number + 1, "fds": len(fds), **request})
        except BaseException:
            _close(fds)
            raise
        self._number += 1
        self._runners[self._number] = runner
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        self._waiting.append((message, list(fds)))
        return self._number

    def _flush(self) -> None:
        """Send all runs that were requested in one turn of the event loop: single messages would cost a process switch each."""
        waiting, self._waiting = self._waiting, []
        for begin in range(0, len(waiting), TOGETHER):
            some = waiting[begin : begin + TOGETHER]
            fds = [fd for _, beside in some for fd in beside]
            self._send_packed(b"".join(data for data, _ in some), fds)
            _close(fds)

    def new_file(self, uid: int | None, gid: int | None) -> Path:
        """The path of a result file for a command that runs as this user; the caller removes it.

        The file is created here only for another user, who may not create files in our folder.
        """
        self._open()
        path = self._folder / f"{secrets.token_hex(8)}.json"
        if uid is None and gid is None:
            return path
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            os.fchown(fd, -1 if uid is None else uid, -1 if gid is None else gid)
        finally:
            os.close(fd)
        return path

    def stop(self, run: int, grace: float) -> None:
        """Send SIGTERM to a command and its descendants, and SIGKILL after `grace` seconds."""
        self._flush()
        if run in self._runners:
            self._send({"op": "stop", "run": run, "grace": grace})

    def close(self) -> None:
        """End the supervisor, which kills all running commands."""
        self._flush()
        self._closing.set()
        link, self._link = self._link, None
        if link is not None:
            asyncio.get_running_loop().remove_reader(link.sock)
            link.sock.close()
        process, self._process = self._process, None
        if process is not None:
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            shutil.rmtree(self._folder, ignore_errors=True)

    # The connection to the supervisor

    def _open(self) -> None:
        if self._link is not None:
            return
        supervisor.keep_private()
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_SECONDS, 0))
        self._folder = Path(tempfile.mkdtemp(prefix="fairlead-"))
        self._folder.chmod(0o711)  # other users may traverse it, not list it
        script, fd = str(Path(supervisor.__file__)), theirs.fileno()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", script, str(fd), str(self._folder)],
                pass_fds=[fd],
                stdin=subprocess.DEVNULL,
                cwd="/",
                env={},
                start_new_session=True,
            )
        link = self._link = supervisor.MessageLink(ours)
        asyncio.get_running_loop().add_reader(ours, self._readable, link)
        self._closing = threading.Event()
        self._send_keepalive()
        threading.Thread(
            target=self._send_keepalives, args=(link, self._closing), name="fairlead-alive", daemon=True
        ).start()

    def _send_keepalives(self, link: supervisor.MessageLink, closing: threading.Event) -> None:
        """Send keepalives from a thread, so that a blocked event loop does not get commands killed."""
        while not closing.wait(self._lease_seconds * ALIVE):
            if self._link is link:
                self._send_keepalive()

    def _send_keepalive(self) -> None:
        self._send({"op": "alive", "seconds": self._lease_seconds * PATIENCE})

    def _send(self, message: Message) -> None:
        self._send_packed(pack(message))

    def _send_packed(self, data: bytes, fds: Sequence[int] = ()) -> None:
        link = self._link
        if link is None:
            return
        with self._lock:
            taken = link.send_packed(data, fds)
        if not taken and self._process is not None:
            self._process.kill()  # it hangs or was stopped: its keepers kill the commands, and the next command starts a new one

    def _readable(self, link: supervisor.MessageLink) -> None:
        heard = link.receive()
        if heard is None:
            self._handle_loss(link)
            return
        for message, _ in heard:
            run, gone = message.pop("run"), message.pop("gone", False)
            if message and run in self._runners:
                self._runners[run].heard(message)
            if gone:
                self._runners.pop(run).handle_gone()

    def _handle_loss(self, link: supervisor.MessageLink) -> None:
        """Report all runs as lost: the supervisor was killed, and its keepers kill the commands."""
        log.error("supervisor_lost", commands=len(self._runners))
        if self._link is link:
            self.close()
        runners, self._runners = self._runners, {}
        for runner in runners.values():
            runner.heard({"trouble": "the supervisor of commands was killed", "lost": True, "unkept": True})
            asyncio.get_running_loop().call_later(LOST_SECONDS, runner.handle_gone)


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
