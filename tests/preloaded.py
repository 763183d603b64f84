"""Processes that are forked from one that has imported Fairlead: that takes longer than most of what they then do.

Each test process has one such parent, started when it is first needed. Such a process differs from one that was
started by its path only in how it began: `/proc/PID/cmdline` shows the parent's, and so does its environment there.

The worker processes of `fairlead worker --processes` and `fairlead dev` are forked, too, from a copy of the process as it was
before it began. That copy is a child of the process, and so are the workers: they are forked from a process between, and
adopted when that ends.
"""

import asyncio
import atexit
import ctypes
import fcntl
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
from typing import Any, ClassVar, NamedTuple

FAIRLEAD = str(Path(sys.executable).parent / "fairlead")
NUMBER = struct.Struct("q")
REAL, WAIT = subprocess.Popen, os.waitpid
ENDING = threading.Lock()
LARGEST_REQUEST = 1 << 17
PR_SET_CHILD_SUBREAPER = 36
# In the environment of a command: it starts its workers by their path.
EXEC_WORKERS = {"EXEC_WORKERS": "1"}
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


class Forked(subprocess.Popen[str]):
    """A `fairlead` command, or Python with a script, `-c` or `-m`, in a process that is forked from the parent."""

    _descriptors: int | None = None
    _forks_commands = False
    _status = -1
    _ended: int | None = None

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
            forks_commands=self._forks_commands,
        )
        streams = [given if given >= 0 else own for own, given in enumerate((p2cread, c2pwrite, errwrite))]
        self._status, told = os.pipe()
        try:
            self._send(json.dumps(request._asdict()).encode(), [*streams, told])
        finally:
            os.close(told)
        self.pid = self._read_number()
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]

    def _send(self, request: bytes, descriptors: list[int]) -> None:
        socket.send_fds(_parent(), [request], descriptors)

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


class Process(Forked):
    """A process that a test starts."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | Path | None = None,
        descriptors: int | None = None,
        forks_commands: bool = False,
        **options: Any,
    ) -> None:
        """It may have as many descriptors as are given, or as this process. If it should, the commands that it starts are forked, too."""
        self._descriptors = descriptors
        self._forks_commands = forks_commands
        super().__init__(argv, env=env, cwd=cwd, text=True, **options)


class Command(Forked):
    """What a process starts whose commands are forked: those of Fairlead by the parent, all others as ever."""

    door = b""  # where the parent accepts requests of those that it forked
    forked: ClassVar[dict[int, "Command"]] = {}

    def _execute_child(self, args: Any, *others: Any) -> None:
        if not is_command(args):
            REAL._execute_child(self, args, *others)  # type: ignore[attr-defined]
            return
        super()._execute_child(args, *others)
        self.forked[self.pid] = self

    def _send(self, request: bytes, descriptors: list[int]) -> None:
        if not self.door:
            super()._send(request, descriptors)
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as way:
            way.connect(self.door)
            socket.send_fds(way, [request], descriptors)

    def _internal_poll(self, *others: Any, **more: Any) -> int | None:
        poll = Forked._internal_poll if self._status >= 0 else REAL._internal_poll  # type: ignore[attr-defined]
        return poll(self, *others, **more)

    def _try_wait(self, flags: int) -> tuple[int, int]:
        wait = Forked._try_wait if self._status >= 0 else REAL._try_wait  # type: ignore[attr-defined]
        return wait(self, flags)

    @classmethod
    def wait_for(cls, pid: int, flags: int) -> tuple[int, int]:
        """What `os.waitpid` is in such a process: the parent is told how a forked command ends."""
        command = cls.forked.get(pid)
        return WAIT(pid, flags) if command is None else command._try_wait(flags)


def is_command(argv: object) -> bool:
    """Whether it starts Fairlead, the command line of a Django project, or pytest."""
    if not isinstance(argv, list | tuple):
        return False
    program, *more = map(str, argv)
    starts = more[:1] == ["manage.py"] or more[:2] in (["-m", "fairlead.cli"], ["-m", "pytest"])
    return program == FAIRLEAD or (program == sys.executable and starts)


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
    forks_commands: bool


def serve(way: socket.socket) -> Request | None:
    """Fork a process for each request. In such a process: the request. In the parent: None, when the test process ends."""
    told, wakes = socket.socketpair()
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    door.bind("")  # Linux finds a name that is no file
    door.listen()
    Command.door = door.getsockname()
    told.setblocking(False)
    wakes.setblocking(False)
    before = {one: signal.getsignal(one) for one in (signal.SIGCHLD, signal.SIGINT)}
    signal.set_wakeup_fd(wakes.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, and they end this process
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([way, told, door], [], [])
        if told in ready:
            told.recv(1 << 16)
            _tell_ends(running)
        message, descriptors = _receive(way, door, ready)
        if not descriptors:
            if way in ready:
                return None
            continue
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
            for one in (way, told, wakes, door):
                one.detach()
            return request
        os.write(status, NUMBER.pack(pid))
        running[pid] = status
        for stream in streams:
            os.close(stream)


def _receive(way: socket.socket, door: socket.socket, ready: list[socket.socket]) -> tuple[bytes, list[int]]:
    """A request of the test process, or of a process that was forked; nothing if there is none, or its sender has ended."""
    if way in ready:
        message, descriptors, *_ = socket.recv_fds(way, LARGEST_REQUEST, 4)
        return message, descriptors
    if door in ready:
        with door.accept()[0] as other:
            message, descriptors, *_ = socket.recv_fds(other, LARGEST_REQUEST, 4)
            return message, descriptors
    return b"", []


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
    if request.forks_commands:
        subprocess.Popen, os.waitpid = Command, Command.wait_for  # type: ignore[misc, assignment]
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


# Children of preloaded processes


def has_children(request: Request) -> bool:
    """Whether it is a command that starts worker processes, and they may be preloaded."""
    argv = {one.partition("=")[0] for one in request.argv}
    preload = request.argv[0] == FAIRLEAD and not EXEC_WORKERS.keys() <= request.env.keys()
    return preload and (
        "dev" in argv
        or ("worker" in argv and not argv.isdisjoint({"--processes", "--max-jobs", "--max-rss"}))
    )


def preload_children() -> Request | None:
    """Let the workers that this process starts be forked from a copy of what it is now. In such a worker: its request."""
    way, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        way.close()
        return _fork_children(theirs)
    theirs.close()
    start_in_full = asyncio.create_subprocess_exec

    async def start(*argv: str, **options: Any) -> Any:
        if argv[0] != sys.executable or "fairlead.cli" not in argv:
            return await start_in_full(*argv, **options)
        return Child(_ask_for_child(way, argv, **options))

    asyncio.create_subprocess_exec = start  # type: ignore[assignment]
    return None


def _ask_for_child(
    way: socket.socket,
    argv: Sequence[str],
    *,
    stdin: int,
    pass_fds: Sequence[int],
    start_new_session: bool,
    env: Mapping[str, str] | None = None,
) -> int:
    """Have a child of this process forked; its pid."""
    assert stdin == subprocess.DEVNULL
    request = Request(
        argv, str(Path.cwd()), dict(env or os.environ), None, start_new_session, forks_commands=False
    )
    message = json.dumps([request._asdict(), list(pass_fds)]).encode()
    _adopt_orphans(adopt=True)
    try:
        with Path(os.devnull).open("rb") as nothing:
            socket.send_fds(way, [message], [nothing.fileno(), 1, 2, *pass_fds])
        return int(NUMBER.unpack(way.recv(NUMBER.size))[0])
    finally:
        _adopt_orphans(adopt=False)


def _adopt_orphans(*, adopt: bool) -> None:
    """Whether grandchildren whose parent ends become children of this process."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def _fork_children(way: socket.socket) -> Request:
    """Fork a process for each request, and leave it to the parent of this one. In such a process: its request."""
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    while True:
        message, descriptors, *_ = socket.recv_fds(way, LARGEST_REQUEST, 16)
        if not message:
            os._exit(0)
        reading, writing = os.pipe()
        middle = os.fork()
        if middle == 0:
            if pid := os.fork():
                os.write(writing, NUMBER.pack(pid))
                os._exit(0)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            request, passed = json.loads(message)
            _take_descriptors(descriptors, [0, 1, 2, *passed])
            way.detach()
            return Request(**request)
        os.waitpid(middle, 0)
        way.send(os.read(reading, NUMBER.size))
        for descriptor in (reading, writing, *descriptors):
            os.close(descriptor)


def _take_descriptors(given: Sequence[int], numbers: Sequence[int]) -> None:
    """Give the descriptors these numbers, and close all others."""
    above = [fcntl.fcntl(one, fcntl.F_DUPFD, 1024) for one in given]
    os.closerange(3, 1024)
    for one, number in zip(above, numbers, strict=True):
        os.dup2(one, number)
        os.close(one)


class Child:
    """A child of this process, as asyncio describes one."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = asyncio.Event()
        self._descriptor = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._descriptor, self._end)

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


if __name__ == "__main__":
    for module in PRELOADED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    wanted = serve(socket.socket(fileno=int(sys.argv[1])))
    if wanted is not None and has_children(wanted):
        wanted = preload_children() or wanted
    if wanted is not None:
        run_to_end(wanted)
