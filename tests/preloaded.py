"""Processes that are forked from one that has imported Fairlead: that takes longer than most of what they then do.

Each test process has one such parent, started when it is first needed. Such a process differs from one that was
started by its path only in how it began: `/proc/PID/cmdline` shows the parent's, and so does its environment there.
"""

import atexit
import gc
import importlib
import json
import os
import resource
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

FAIRLEAD = str(Path(sys.executable).parent / "fairlead")
NUMBER = struct.Struct("q")
ENDING = threading.Lock()
LARGEST_REQUEST = 1 << 17
PRELOADED = (
    "fairlead.cli.agent",
    "fairlead.cli.dev",
    "fairlead.cli.jobs",
    "fairlead.cli.scheduler",
    "fairlead.cli.serve",
    "fairlead.cli.tokens",
    "fairlead.cli.worker",
    "fairlead.handlers.built_in_email",
    "fairlead.handlers.built_in_http",
    "fairlead.server.app",
    "fairlead.testing",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.httptools_impl",
    "uvicorn.protocols.websockets.auto",
    "uvloop",
)
# What a command imports beside these: by the parent, too, but only when it is first asked for that command.
PRELOADED_FOR = {"mcp": ("fairlead.cli.mcp", "fairlead.server.mcp.http", "fairlead.server.mcp.stdio")}


class Process(subprocess.Popen[str]):
    """A `fairlead` command, or Python with a script, `-c` or `-m`, in a process that is forked from the parent."""

    _descriptors: int | None = None
    _status = -1
    _ended: int | None = None

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | Path | None = None,
        descriptors: int | None = None,
        **options: Any,
    ) -> None:
        """It may have as many descriptors as are given, or as this process."""
        self._descriptors = descriptors
        super().__init__(argv, env=env, cwd=cwd, text=True, **options)

    def _execute_child(  # type: ignore[no-untyped-def]
        self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env,  # noqa: ANN001, ARG002
        startupinfo, creationflags, shell, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, *others,  # noqa: ANN001, ANN002, ARG002
    ) -> None:  # fmt: skip
        request = Request(
            [str(one) for one in args],
            str(cwd or Path.cwd()),
            dict(os.environ if env is None else env),
            self._descriptors,
            own_session=others[5],  # what subprocess calls start_new_session
        )
        streams = [given if given >= 0 else own for own, given in enumerate((p2cread, c2pwrite, errwrite))]
        self._status, told = os.pipe()
        try:
            socket.send_fds(_parent(), [json.dumps(request._asdict()).encode()], [*streams, told])
        finally:
            os.close(told)
        self.pid = self._read_number()
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None and self._status >= 0:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)  # type: ignore[attr-defined]
        return self.returncode

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if self._ended is None:
            ready = select.poll()
            ready.register(self._status, select.POLLIN)
            if not ready.poll(0 if flags == os.WNOHANG else None):
                return 0, 0
            with ENDING:  # two threads may wait for it
                self._read_end()
        assert self._ended is not None
        return self.pid, self._ended

    def _read_end(self) -> None:
        if self._ended is None:
            self._ended = self._read_number()
            os.close(self._status)

    def _read_number(self) -> int:
        if not (read := os.read(self._status, NUMBER.size)):
            raise RuntimeError("the parent of preloaded processes has died; see its error above")
        return int(NUMBER.unpack(read)[0])


@cache
def _parent() -> socket.socket:
    """The way to the parent."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


class Request(NamedTuple):
    """What a test wants to be run."""

    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    descriptors: int | None
    own_session: bool


def serve(way: socket.socket) -> Request | None:
    """Fork a process for each request. In such a process: the request. In the parent: None, when the test process ends."""
    told, wakes = socket.socketpair()
    told.setblocking(False)
    wakes.setblocking(False)
    before = {one: signal.getsignal(one) for one in (signal.SIGCHLD, signal.SIGINT)}
    signal.set_wakeup_fd(wakes.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, and they end this process
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([way, told], [], [])
        if told in ready:
            told.recv(1 << 16)
            _tell_ends(running)
        if way not in ready:
            continue
        message, descriptors, *_ = socket.recv_fds(way, LARGEST_REQUEST, 4)
        if not descriptors:
            return None
        *streams, status = descriptors
        request = Request(**json.loads(message))
        _preload_for(request)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)
            for standard, stream in enumerate(streams):
                os.dup2(stream, standard)
            os.closerange(3, 1024)
            for end in (way, told, wakes):
                end.detach()
            return request
        os.write(status, NUMBER.pack(pid))
        running[pid] = status
        for stream in streams:
            os.close(stream)


def _preload_for(request: Request) -> None:
    program, command, *_ = (*request.argv, "")
    if program == FAIRLEAD and (modules := PRELOADED_FOR.pop(command, ())):
        for module in modules:
            importlib.import_module(module)
        gc.collect()
        gc.freeze()


def _tell_ends(running: dict[int, int]) -> None:
    for pid, way in list(running.items()):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with suppress(BrokenPipeError):  # its test did not wait for it
                os.write(way, NUMBER.pack(status))
            os.close(way)
            del running[pid]


def become(request: Request) -> None:
    """Run the request as if this process had been started for it."""
    os.environ.clear()
    os.environ.update(request.env)
    time.tzset()
    os.chdir(request.cwd)
    if request.own_session:
        os.setsid()
    if request.descriptors is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (request.descriptors, request.descriptors))
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8")  # type: ignore[misc] # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", buffering=1 if os.isatty(1) else -1)  # type: ignore[misc] # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)  # type: ignore[misc] # noqa: SIM115
    sys.path[1:1] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    program, *argv = request.argv
    if argv[:1] == ["-B"]:
        sys.dont_write_bytecode = True
        del argv[0]
    if program == FAIRLEAD:
        sys.path[0], sys.argv = str(Path(program).parent), [program, *argv]
        sys.exit(importlib.import_module("fairlead.cli.start").main())
    if argv[:2] == ["-W", "error"]:
        warnings.simplefilter("error")
        del argv[:2]
    if argv[0] == "-c":
        sys.path[0], sys.argv = "", ["-c", *argv[2:]]
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(argv[1], "<string>", "exec"), main.__dict__)  # noqa: S102
    elif argv[0] == "-m":
        sys.path[0], sys.argv = request.cwd, argv[1:]
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    else:
        sys.path[0], sys.argv = str(Path(argv[0]).resolve().parent), argv
        runpy.run_path(argv[0], run_name="__main__")


def run_to_end(request: Request) -> None:
    """Run the request, and end this process without freeing what was imported: that takes longer than most commands.

    What Python would say about how it ended, or about warnings, it says: then it ends as always.
    """
    status: Any = 0
    try:
        become(request)
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        status = ended.code or 0
    with suppress(OSError):  # its reader has gone
        sys.stderr.flush()
        sys.stdout.flush()
        if "-W" not in request.argv:
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
            sys.stderr.flush()
            sys.stdout.flush()
            os._exit(status & 0xFF)
    sys.exit(status)


if __name__ == "__main__":
    for module in PRELOADED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    wanted = serve(socket.socket(fileno=int(sys.argv[1])))
    if wanted is not None:
        run_to_end(wanted)
