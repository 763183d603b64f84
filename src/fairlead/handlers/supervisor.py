"""The supervisor of a worker's commands: a small process that ends with its worker.

A worker starts it once, as a script that imports nothing of Fairlead, and sends it requests over a socket. For each
command it forks a keeper; the keeper becomes the parent of the command's orphans, so that at the end it can find and
kill all of them, also those that have left the session. When the worker is gone (the socket closes), or sends no
keepalive within its own limit (it was stopped), the supervisor kills all commands.

A message is a length and JSON, with file descriptors if it needs them.
"""

import array
import contextlib
import ctypes
import gc
import json
import math
import os
import selectors
import signal
import socket
import struct
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

try:
    import fcntl
    import resource
except ImportError:  # Windows, where the library can be imported too; `check_command` raises for the user
    POSIX = False
else:
    POSIX = True

HEADER = struct.Struct("!I")
# the most descriptors of messages that are sent together
MOST_FDS = 240
# How long a keeper has to end its command before the supervisor kills the keeper.
PATIENCE_SECONDS = 3.0
# How long a keeper waits before it sends: most commands have ended by then, and one message is enough.
TELL_SECONDS = 0.02
# The interval in which a keeper kills remaining processes again; and the most repetitions.
LOOK_SECONDS = 0.02
MOST_SWEEPS = 250
MOST_PASSES = 50
# Idle keepers, since a fork often costs more than the command. After a pause without commands only a few stay.
MOST_IDLE, FEW_IDLE = 256, 16
REST_SECONDS = 2.0
_PR_SET_PDEATHSIG, _PR_GET_DUMPABLE, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 1, 3, 4, 36
# the argument that tells a process to call `keep_private`
PRIVATE = "private"
# signals that a command gets with their default action
HANDLED = tuple(
    number
    for number in signal.Signals
    if number.name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGPIPE", "SIGTERM", "SIGCHLD", "SIGXFSZ")
)
KERNEL_LIMITS = {
    "memory_bytes": "RLIMIT_AS",
    "cpu_seconds": "RLIMIT_CPU",
    "open_files": "RLIMIT_NOFILE",
    "processes": "RLIMIT_NPROC",
    "file_bytes": "RLIMIT_FSIZE",
}
_CLOSED_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode
_libc = ctypes.CDLL(None) if POSIX else None

Message = dict[str, Any]


class MessageLink:
    """Sends and receives messages with file descriptors over a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._data = b""
        self._fds: list[int] = []
        self.unsent = bytearray()

    def send(self, message: Message, fds: Sequence[int] = ()) -> bool:
        """Send a message; False if the other end does not accept it in time. A closed connection is seen when reading."""
        return self.send_packed(pack(message), fds)

    def send_packed(self, data: bytes, fds: Sequence[int] = ()) -> bool:
        """Send one or more packed messages, with the descriptors of all of them in order."""
        beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            sent = self.sock.sendmsg([data], beside)
            if sent < len(data):
                self.sock.sendall(data[sent:])
        except OSError as error:
            return isinstance(error, ConnectionError)
        return True

    def send_soon(self, message: Message) -> None:
        """Send a message with the next `flush`."""
        self.unsent += pack(message)

    def flush(self) -> None:
        """Send as much of the unsent data as possible without blocking."""
        with contextlib.suppress(OSError):
            while self.unsent:
                del self.unsent[: self.sock.send(self.unsent, socket.MSG_DONTWAIT)]

    def receive(self) -> list[tuple[Message, list[int]]] | None:
        """The received messages; None when the other end is closed."""
        try:
            data, beside, _, _ = self.sock.recvmsg(65_536, socket.CMSG_SPACE(MOST_FDS * 4), _CLOSED_ON_EXEC)
        except ConnectionError:
            return None
        for level, kind, found in beside:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds = array.array("i")
                fds.frombytes(found[: len(found) - len(found) % fds.itemsize])
                self._fds += fds
        if not data:
            return None
        self._data += data
        return list(self._messages())

    def _messages(self) -> Iterator[tuple[Message, list[int]]]:
        while len(self._data) >= HEADER.size:
            (length,) = HEADER.unpack_from(self._data)
            if len(self._data) < HEADER.size + length:
                return
            message = json.loads(self._data[HEADER.size : HEADER.size + length])
            self._data = self._data[HEADER.size + length :]
            count = message.get("fds", 0)
            fds, self._fds = self._fds[:count], self._fds[count:]
            yield message, fds


def pack(message: Message) -> bytes:
    """A message encoded for the socket."""
    text = _ENCODE(message).encode()
    return HEADER.pack(len(text)) + text


class Supervisor:
    """Gives commands to keepers, forwards their messages, and ends them all when the worker is gone."""

    def __init__(self, control: socket.socket) -> None:
        self._link = MessageLink(control)
        self._selector = selectors.DefaultSelector()
        self._pids: dict[MessageLink, int] = {}
        self._busy: dict[int, MessageLink] = {}  # by the run's number
        self._idle: list[MessageLink] = []
        self._doomed: dict[MessageLink, float] = {}  # when to kill a keeper that does not end its run
        self._deadline = math.inf
        self._thin_at = math.inf

    def run(self) -> None:
        """Run until the worker is gone and no process of its commands is left."""
        adopt_orphans()
        resource.setrlimit(
            resource.RLIMIT_CORE, (0, 0)
        )  # also for commands: a core dump contains their secrets
        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(ignored, signal.SIG_IGN)
        woken = watch_children()
        self._selector.register(woken, selectors.EVENT_READ, None)
        self._selector.register(self._link.sock, selectors.EVENT_READ, self._link)
        working = True
        while working or self._busy:
            for key, events in self._selector.select(
                pause_until(min((self._deadline, self._thin_at, *self._doomed.values())))
            ):
                if key.data is None:
                    os.read(woken, 4096)
                    self._reap()
                elif key.data is not self._link:
                    self._receive_from_keeper(key.data)
                elif events & selectors.EVENT_READ:
                    working = self._receive_from_worker()
            if working:
                self._send_to_worker()
            self._check_deadlines()

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        if now >= self._deadline:
            self._deadline = math.inf
            self._kill_all()
        for link in [link for link, moment in self._doomed.items() if now >= moment]:
            del self._doomed[link]
            send_signal(self._pids[link], signal.SIGKILL)
        if now >= self._thin_at:
            self._thin_at = math.inf
            for link in self._idle[FEW_IDLE:]:
                self._discard_keeper(link)

    def _send_to_worker(self) -> None:
        """Send without blocking: the worker may be stopped, and then its commands must end."""
        self._link.flush()
        more = selectors.EVENT_WRITE if self._link.unsent else 0
        if self._selector.get_key(self._link.sock).events != selectors.EVENT_READ | more:
            self._selector.modify(self._link.sock, selectors.EVENT_READ | more, self._link)

    def _receive_from_worker(self) -> bool:
        heard = self._link.receive()
        if heard is None:
            self._selector.unregister(self._link.sock)
            self._deadline = math.inf
            self._kill_all()
            return False
        for message, fds in heard:
            if message["op"] == "run":
                link = self._busy[message["run"]] = self._idle.pop() if self._idle else self._new_keeper()
                link.send(message, fds)
                for fd in fds:
                    os.close(fd)
            elif message["op"] == "alive":
                self._deadline = time.monotonic() + message["seconds"]
            elif message["run"] in self._busy:
                self._stop(message["run"], message["grace"])
        return True

    def _stop(self, run: int, grace: float) -> None:
        link = self._busy[run]
        # the command may have sent SIGSTOP to its keeper
        send_signal(self._pids[link], signal.SIGCONT)
        link.send({"op": "stop", "run": run, "grace": grace})
        self._doomed[link] = min(
            self._doomed.get(link, math.inf), time.monotonic() + grace + PATIENCE_SECONDS
        )

    def _new_keeper(self) -> MessageLink:
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            try:
                for sock in (ours, self._link.sock, *(link.sock for link in self._pids)):
                    sock.close()
                self._selector.close()
                Keeper(MessageLink(theirs)).run()
            finally:
                os._exit(0)
        theirs.close()
        link = MessageLink(ours)
        self._pids[link] = pid
        self._selector.register(ours, selectors.EVENT_READ, link)
        return link

    def _receive_from_keeper(self, link: MessageLink) -> None:
        heard = link.receive()
        for message, _ in heard or ():
            self._link.send_soon(message)
            if message.get("gone"):
                del self._busy[message["run"]]
                self._doomed.pop(link, None)
                self._make_idle(link)
        if heard is None:
            self._handle_keeper_death(link)

    def _handle_keeper_death(self, link: MessageLink) -> None:
        """Handle a keeper's death: kill its orphaned processes, then report its run as lost."""
        pid = self._pids[link]
        self._discard_keeper(link)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)  # its socket closes before the kernel makes us the parent of its children
        self._kill_strays()
        for run in [run for run, busy in self._busy.items() if busy is link]:
            del self._busy[run]
            self._link.send_soon({"run": run, "trouble": "its keeper was killed", "lost": True})
            self._link.send_soon({"run": run, "gone": True})

    def _make_idle(self, link: MessageLink) -> None:
        if len(self._idle) >= MOST_IDLE:
            self._discard_keeper(link)
            return
        self._idle.append(link)
        if len(self._idle) > FEW_IDLE:
            self._thin_at = time.monotonic() + REST_SECONDS

    def _discard_keeper(self, link: MessageLink) -> None:
        if link in self._idle:
            self._idle.remove(link)
        self._doomed.pop(link, None)
        self._selector.unregister(link.sock)
        link.sock.close()
        del self._pids[link]

    def _reap(self) -> None:
        killed = False
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                killed = killed or os.WIFSIGNALED(found[1])
        if killed:
            self._kill_strays()

    def _kill_strays(self) -> None:
        """Kill the orphans of keepers that were killed."""
        for _ in range(MOST_PASSES):
            strays = find_children(os.getpid()) - set(self._pids.values())
            if not strays:
                return
            for pid in strays:
                kill_descendants(pid)
                send_signal(pid, signal.SIGKILL)
            time.sleep(LOOK_SECONDS / 10)

    def _kill_all(self) -> None:
        for run in self._busy:
            self._stop(run, 0)


class Keeper:
    """The parent of one command at a time and of its orphans; takes the next command when no process is left."""

    def __init__(self, link: MessageLink) -> None:
        self._link = link
        self._selector = selectors.DefaultSelector()
        self._alone = False
        self._run = self._main = self._sweeps = 0
        self._ended = False
        self._kill_at = math.inf
        self._untold: Message = {}
        self._tell_at = math.inf

    def run(self) -> None:
        """Run until the supervisor is gone or closes the connection."""
        adopt_orphans()
        woken = watch_children()
        self._selector.register(woken, selectors.EVENT_READ)
        self._selector.register(self._link.sock, selectors.EVENT_READ)
        while not self._alone or self._run:
            until = min(self._kill_at, self._tell_at)
            for key, _ in self._selector.select(LOOK_SECONDS if self._sweeps else pause_until(until)):
                if key.fd == woken:
                    os.read(woken, 4096)
                else:
                    self._receive()
            if self._run:
                self._check_command()
            if time.monotonic() >= self._tell_at:
                self._send_messages()

    def _receive(self) -> None:
        heard = self._link.receive()
        if heard is None:  # the supervisor is gone: kill the command
            self._selector.unregister(self._link.sock)
            self._alone, self._kill_at = True, 0.0
        for message, fds in heard or ():
            if message["op"] == "run":
                self._begin(message, fds)
            elif message["run"] == self._run:
                self._kill_at = min(self._kill_at, time.monotonic() + message["grace"])
                if message["grace"] > 0:
                    for pid in find_descendants(os.getpid()):
                        send_signal(pid, signal.SIGTERM)

    def _begin(self, request: Message, fds: list[int]) -> None:
        self._run, self._sweeps, self._ended, self._kill_at = request["run"], 0, False, math.inf
        self._main = self._launch(request, fds)
        for fd in fds:
            os.close(fd)
        if self._main:
            self._queue_message(pid=self._main)

    def _queue_message(self, **what: Any) -> None:
        self._untold |= what
        self._tell_at = min(self._tell_at, time.monotonic() + TELL_SECONDS)

    def _send_messages(self) -> None:
        self._link.send({"run": self._run, **self._untold})
        self._untold, self._tell_at = {}, math.inf

    def _check_command(self) -> None:
        if not self._reap():
            self._end_run()
        elif self._ended or time.monotonic() >= self._kill_at:
            self._sweeps += 1
            kill_descendants(os.getpid())
            if self._sweeps == MOST_SWEEPS:
                self._queue_message(left=sorted(find_descendants(os.getpid())))
                self._end_run()
                os._exit(1)  # not reusable: it still has children

    def _end_run(self) -> None:
        self._queue_message(gone=True)
        self._send_messages()
        self._run, self._sweeps, self._kill_at = 0, 0, math.inf

    def _reap(self) -> bool:
        """Reap dead children, report the command's exit, and return whether a child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._main:
                self._ended = True
                code = os.waitstatus_to_exitcode(status)
                self._queue_message(exit=code if code >= 0 else None, signal=-code if code < 0 else None)

    def _launch(self, request: Message, fds: list[int]) -> int:
        """The command's pid; 0 if it could not be started, after reporting the cause."""
        if request["limits"] or request["uid"] is not None or request["gid"] is not None:
            return self._fork(request, fds)
        try:
            return spawn(request, fds)
        except (OSError, ValueError) as error:
            self._queue_message(trouble=f"{type(error).__name__}: {error}")
            return 0

    def _fork(self, request: Message, fds: list[int]) -> int:
        """Start with fork, which is slower: limits and the user must be set in the new process."""
        told, tells = os.pipe2(os.O_CLOEXEC)
        keeper = os.getpid()
        pid = os.fork()
        if pid == 0:
            way = ErrorPipe(tells)
            try:
                exec_command(request, fds, way, keeper)
            except BaseException as error:  # noqa: BLE001 - the keeper reads it and reports it
                os.write(way.fd, f"{type(error).__name__}: {error}".encode()[:1000])
            finally:
                os._exit(127)
        os.close(tells)
        trouble = b""
        while chunk := os.read(told, 1000):
            trouble += chunk
        os.close(told)
        if not trouble:
            return pid
        os.waitpid(pid, 0)
        self._queue_message(trouble=trouble.decode(errors="replace"))
        return 0


def spawn(request: Message, fds: list[int]) -> int:
    """Start the command with posix_spawn: a fork costs more than most commands."""
    places = 1 + len(fds)
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    # move descriptors out of the target range first, so that none is overwritten
    low = [fd for fd in (nothing, *fds) if fd < places]
    moved = {fd: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, places) for fd in low}
    umask = os.umask(request["umask"])
    try:
        os.chdir(request["cwd"])
        return os.posix_spawn(
            request["argv"][0],
            request["argv"],
            request["env"],
            file_actions=[
                (os.POSIX_SPAWN_DUP2, moved.get(fd, fd), at) for at, fd in enumerate((nothing, *fds))
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=HANDLED,
        )
    finally:
        os.umask(umask)
        os.chdir("/")
        for fd in (nothing, *moved.values()):
            os.close(fd)


class ErrorPipe:
    """The descriptor for reporting that a process could not become the command."""

    def __init__(self, fd: int) -> None:
        self.fd = fd


def exec_command(request: Message, fds: list[int], way: ErrorPipe, keeper: int) -> None:
    """Turn this process into the command; raises if that fails."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in HANDLED:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    arrange_descriptors([os.open(os.devnull, os.O_RDONLY), *fds], way)
    os.umask(request["umask"])
    for name, value in request["limits"].items():
        if (kind := getattr(resource, KERNEL_LIMITS[name], None)) is not None:
            resource.setrlimit(kind, (value, value + 1 if name == "cpu_seconds" else value))
    if request["gid"] is not None:
        os.setgroups([])
        os.setgid(request["gid"])
    if request["uid"] is not None:
        os.setuid(request["uid"])
    os.chdir(request["cwd"])
    if sys.platform == "linux" and _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != keeper:
        raise RuntimeError("the keeper has died")
    os.execve(request["argv"][0], request["argv"], request["env"])  # noqa: S606 - intentionally without a shell


def arrange_descriptors(fds: list[int], way: ErrorPipe) -> None:
    """Make these the descriptors 0, 1, 2 …; all others close when the command begins."""
    # first copy all of them above the target range, so that none is overwritten
    top = max(*fds, way.fd, len(fds)) + 1
    for at, fd in enumerate([*fds, way.fd]):
        os.dup2(fd, top + at, inheritable=False)
    way.fd = top + len(fds)
    for at in range(len(fds)):
        os.dup2(top + at, at, inheritable=True)


# Processes


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends (Linux; elsewhere only a command's own group can be found)."""
    if sys.platform == "linux" and _libc is not None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def keep_private() -> None:
    """Hide our environment and memory from other processes of the same user, such as commands (Linux).

    Root can still read them. A program that we execute is readable again.
    """
    if sys.platform == "linux" and _libc is not None:
        _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def is_private() -> bool:
    """Whether `keep_private` was called here, or in the process that forked us."""
    return sys.platform == "linux" and _libc is not None and _libc.prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0) == 0


def watch_children() -> int:
    """A descriptor that becomes readable when a child has died."""
    woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    return woken


def pause_until(moment: float) -> float | None:
    """Seconds until a moment; None for never."""
    return None if moment == math.inf else max(0.0, moment - time.monotonic())


def remove_folder(folder: Path) -> None:
    """Remove the folder of result files."""
    with contextlib.suppress(OSError):
        for file in folder.iterdir():
            with contextlib.suppress(OSError):
                file.unlink()
        folder.rmdir()


def send_signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def kill_descendants(ancestor: int) -> None:
    """Kill all descendants. Stops them first, since a stopped process cannot fork."""
    known: set[int] = set()
    for _ in range(MOST_PASSES):
        new = find_descendants(ancestor) - known
        if not new:
            break
        for pid in new:
            send_signal(pid, signal.SIGSTOP)
        known |= new
    for pid in known:
        send_signal(pid, signal.SIGKILL)


def find_descendants(ancestor: int) -> set[int]:
    """The living descendants of a process."""
    if not Path(f"/proc/self/task/{os.getpid()}/children").exists():
        return _find_descendants_by_parent(ancestor)
    found: set[int] = set()
    left = [ancestor]
    while left:
        new = find_children(left.pop()) - found
        found |= new
        left += new
    return found


def find_children(pid: int) -> set[int]:
    """The children of a process that are not dead."""
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found.update(map(int, (task / "children").read_text().split()))
    return {one for one in found if _read_state(one)[0] not in "ZX"}


def _find_descendants_by_parent(ancestor: int) -> set[int]:
    of: dict[int, list[int]] = defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        state, parent = _read_state(int(folder.name))
        if state not in "ZX":
            of[parent].append(int(folder.name))
    found: set[int] = set()
    left = [ancestor]
    while left:
        new = set(of[left.pop()]) - found
        found |= new
        left += new
    return found


def _read_state(pid: int) -> tuple[str, int]:
    """A process's state and parent; dead if there is no such process."""
    try:
        # the name is in brackets and may contain any character
        state, parent = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
        return state, int(parent)
    except (OSError, ValueError):
        return "X", 0


if __name__ == "__main__":
    # the secrets of all commands pass through here
    keep_private()
    # without garbage collection fewer pages are copied: a fork costs half
    gc.disable()
    gc.freeze()
    try:
        Supervisor(socket.socket(fileno=int(sys.argv[1]))).run()
    finally:
        remove_folder(Path(sys.argv[2]))
