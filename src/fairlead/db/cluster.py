"""Create one PostgreSQL data directory; start, find and stop the server that runs on it."""

import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Mapping
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import msgspec
from psycopg.pq import PGconn, Ping

from fairlead.db.binaries import Binaries, choose_server_user, open_private
from fairlead.errors import EmbeddedFailed

START_SECONDS = 120.0  # a crash recovery may be slow
STOP_SECONDS = 60.0
PAUSE_SECONDS = 0.02
PING_SECONDS = 10
LOG_BYTES = 16 * 1024 * 1024
LOG_LINES = 20
PORT = 5432
LONGEST_SOCKET = 103  # bytes; the smallest sun_path in use, less its end mark
NO_PROCESS = b"2147483647"  # beyond every system's highest pid
PROC = Path("/proc")

INITDB_OPTIONS = (
    "--username=fairlead",
    "--encoding=UTF8",
    "--locale=C",
    "--auth-local=trust",  # the socket folder is private
    "--auth-host=reject",
    "--no-instructions",
)
# On the command line, so that no configuration file overrides them.
DEFAULTS = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # the role is named like our schema, so `"$user"` would create an application's tables in our schema
    "search_path": "public",
}


class Postmaster(msgspec.Struct, frozen=True):
    """The contents of a postmaster.pid file."""

    pid: int
    data: Path
    port: int
    socket: Path | None
    status: str

    @classmethod
    def read(cls, file: Path) -> "Postmaster | None":
        """None if the file is missing or has no pid yet."""
        try:
            lines = os.fsdecode(file.read_bytes()).split("\n") + [""] * 8
        except FileNotFoundError:
            return None
        if not lines[0].strip().isdecimal():
            return None
        folder = Path(lines[4]) if lines[4] else None
        port = int(lines[3]) if lines[3].isdecimal() else PORT
        return cls(int(lines[0]), Path(lines[1]), port, folder, lines[7].strip())

    @property
    def url(self) -> str:
        host = quote(os.fsencode(self.socket or ""), safe="")
        return f"postgresql://fairlead@/fairlead?host={host}&port={self.port}"


class Cluster:
    """One PostgreSQL data directory with its socket folder, and the server that runs on it."""

    def __init__(self, place: Path) -> None:
        self.data = place / "postgres"
        self.user = choose_server_user(self.data.stat() if self.data.is_dir() else None)
        self._place = place
        self._socket = place / "socket"
        self._child: int | None = None

    @property
    def major(self) -> int | None:
        """The version that created this cluster; None if it does not exist yet."""
        if not self.data.is_dir():
            return None
        return int((self.data / "PG_VERSION").read_text("ascii"))

    # Making

    def create(self, binaries: Binaries) -> None:
        """Create the cluster with role and database `fairlead`, completely or not at all."""
        for leftover in self._place.glob("postgres.new-*"):
            # An initdb that outlived its killed parent may still write there; the next start removes the rest.
            shutil.rmtree(leftover, ignore_errors=True)
        new = Path(tempfile.mkdtemp(prefix="postgres.new-", dir=self._place))
        try:
            self._initialize(new, binaries)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        new.rename(self.data)
        sync_folder(self._place)

    def _initialize(self, new: Path, binaries: Binaries) -> None:
        self.user.give(new)
        self._must_run([f"{binaries.bin}/initdb", *INITDB_OPTIONS, "-D", str(new)])
        single = ["--single", "-c", "exit_on_error=on", "-D", str(new), "postgres"]
        self._must_run([f"{binaries.bin}/postgres", *single], "CREATE DATABASE fairlead\n")

    def _must_run(self, argv: list[str], text: str = "") -> None:
        code, output = self.user.run(argv, text)
        if code != 0:
            raise EmbeddedFailed(
                f"{argv[0]} could not create a cluster in {self._place} (exit code {code}). "
                f"Fix what it reports, then start again:\n{_last_lines(output)}"
            )

    # Running

    def running(self) -> Postmaster | None:
        """Our server if its process runs, in any state."""
        server = Postmaster.read(self.data / "postmaster.pid")
        return server if server and self.owns(server.pid) else None

    def owns(self, pid: int) -> bool:
        """Whether the process is a postmaster on this data directory, run by its owner."""
        if not (PROC / "self" / "cmdline").exists():
            return self._owns_by_ps(pid)
        try:
            argv = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
            status = (PROC / str(pid) / "status").read_text()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return False
        owner = re.search(r"^Uid:\s+(\d+)", status, re.MULTILINE)
        folders = [folder for flag, folder in pairwise(argv) if flag == b"-D"]
        return (
            Path(os.fsdecode(argv[0])).name in ("postgres", "postmaster")
            and os.fsencode(self.data) in folders
            and owner is not None
            and int(owner[1]) == self.user.uid
        )

    def is_ready(self, server: Postmaster | None) -> bool:
        """Whether the server accepts connections: a server that was just killed still has its pid file and its process."""
        if server is None or server.status != "ready":
            return False
        return PGconn.ping(f"{server.url}&connect_timeout={PING_SECONDS}".encode()) == Ping.OK

    def _owns_by_ps(self, pid: int) -> bool:
        ps = ["/bin/ps", "-ww", "-o", "uid=,command=", "-p", str(pid)]
        output = subprocess.run(ps, capture_output=True, check=False, stdin=subprocess.DEVNULL).stdout
        owner, _, command = os.fsdecode(output).strip().partition(" ")
        return owner == str(self.user.uid) and f"/postgres -D {self.data} -c " in command

    def ensure_running(self, binaries: Binaries, settings: Mapping[str, str], log: Path) -> Postmaster:
        """Start the server unless it runs, and wait until it is ready."""
        deadline = time.monotonic() + START_SECONDS
        trouble = "It is still starting or stopping."
        while time.monotonic() < deadline:
            server = self.running()
            if server is None:
                server, trouble = self._launch(binaries, settings, log, deadline)
            if server and self.is_ready(server):
                return server
            time.sleep(PAUSE_SECONDS)
        raise EmbeddedFailed(
            f"PostgreSQL in {self.data} was not ready within {START_SECONDS:.0f} s. "
            f"Start again if it is recovering, else see {log}:\n{trouble}"
        )

    def _launch(
        self, binaries: Binaries, settings: Mapping[str, str], log: Path, deadline: float
    ) -> tuple[Postmaster | None, str]:
        """Start the server and wait until it is ready; or return its output, if the start can be tried again."""
        if self._is_still_ending():
            return None, "It is still ending."
        self._disown_stale_pid()
        argv = [f"{binaries.bin}/postgres", "-D", str(self.data), *self._build_options(settings)]
        fd = _open_log(log)
        try:
            begin = os.fstat(fd).st_size
            process = self.user.popen(argv, stdout=fd, session=True)
            if server := self._wait_until_ready(process, deadline):
                return server, ""
            output = os.pread(fd, LOG_BYTES, begin).decode(errors="replace")
        finally:
            os.close(fd)
        # Children of a killed postmaster live on for a moment, and the server of a killed starter may start first.
        if "is still in use" in output or "already exists" in output:
            return None, _last_lines(output)
        self.remove_socket_folder()
        raise EmbeddedFailed(
            f"PostgreSQL did not start in {self.data} (exit code {process.returncode}). "
            f"Fix what its log {log} reports, then start again:\n{_last_lines(output)}"
        )

    def _wait_until_ready(self, process: subprocess.Popen[str], deadline: float) -> Postmaster | None:
        """Wait until the server is ready; None if it ended."""
        try:
            while process.poll() is None and time.monotonic() < deadline:
                server = Postmaster.read(self.data / "postmaster.pid")
                if server and server.pid == process.pid and server.status == "ready":
                    # The server may outlive this process; `halt` waits for it by pid, so Popen need not.
                    process.returncode = 0
                    self._child = process.pid
                    return server
                time.sleep(PAUSE_SECONDS)
        finally:
            if process.poll() is None:
                self._stop_process(process)
        return None

    def _stop_process(self, process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise EmbeddedFailed(self._describe_unstoppable(process.pid)) from error

    def _build_options(self, settings: Mapping[str, str]) -> list[str]:
        ours = {
            "listen_addresses": "",
            "unix_socket_directories": str(self._make_socket_folder()),
            "port": str(PORT),
            "log_destination": "stderr",
            "logging_collector": "off",
        }
        return [part for pair in ({**DEFAULTS, **settings} | ours).items() for part in ("-c", "=".join(pair))]

    def _is_still_ending(self) -> bool:
        """Whether the server was killed a moment ago, and its socket still listens.

        Refuses a server whose process we cannot see, such as one in another container, that serves the folder.
        """
        sockets = {self._socket.resolve() / f".s.PGSQL.{PORT}"}
        server = Postmaster.read(self.data / "postmaster.pid")
        if server and server.socket and server.data.resolve() == self.data:  # else copied with its folder
            sockets.add(server.socket / f".s.PGSQL.{server.port}")
        for path in filter(_is_listening, sockets):
            if server and _is_ending(server.pid):
                return True
            if _is_listening(path):  # else its process has ended just now
                raise EmbeddedFailed(
                    f"A PostgreSQL that was not started here already serves {self.data} (socket {path}). "
                    "Stop it, or choose another data folder."
                )
        return False

    def _disown_stale_pid(self) -> None:
        """Make a stale postmaster.pid name no process: another process may have that pid now.

        The file stays: PostgreSQL finds in it the shared memory that children of a dead postmaster may still use.
        """
        file = self.data / "postmaster.pid"
        if not file.exists():
            return
        _, _, rest = file.read_bytes().partition(b"\n")
        fd, new = tempfile.mkstemp(prefix="postmaster.pid-", dir=self._place)
        with os.fdopen(fd, "wb") as stream:
            stream.write(NO_PROCESS + b"\n" + rest)
            if self.user.dropped:
                os.fchown(fd, self.user.uid, self.user.gid)
        Path(new).replace(file)

    def halt(self, pid: int) -> bool:
        """Shut our server down (fast mode) and wait until it has ended. False if that pid is not our server's."""
        if not self.owns(pid):
            return False
        os.kill(pid, signal.SIGINT)
        deadline = time.monotonic() + STOP_SECONDS
        while self.owns(pid):
            if time.monotonic() > deadline:
                raise EmbeddedFailed(self._describe_unstoppable(pid))
            time.sleep(PAUSE_SECONDS)
        self._child = pid
        self.reap(0)
        return True

    def _describe_unstoppable(self, pid: int) -> str:
        return (
            f"PostgreSQL (pid {pid}) in {self.data} did not stop within {STOP_SECONDS:.0f} s. "
            f"See its log; `kill -QUIT {pid}` ends it without harm to the data."
        )

    def reap(self, options: int = os.WNOHANG) -> None:
        """Collect the exit status of our server if it has ended and is a child of this process."""
        if self._child is None:
            return
        try:
            ended, _ = os.waitpid(self._child, options)
        except ChildProcessError:
            ended = self._child
        if ended:
            self._child = None

    # The socket folder: beside the data, or where that path is too long, a link to a temporary folder

    def _make_socket_folder(self) -> Path:
        self.remove_socket_folder()
        if _fits_socket(self._socket):
            self._socket.mkdir()
            self.user.give(self._socket)
            return self._socket
        folder = self._make_short_folder()
        self.user.give(folder)
        self._socket.symlink_to(folder)
        return folder

    def _make_short_folder(self) -> Path:
        """Create a folder with the same name at every start, so that URLs stay valid; with a random name if another user has it."""
        above = self._find_short_folder()
        name = sha256(os.fsencode(self.data)).hexdigest()[:8]
        folder = above / f"fairlead-{name}"
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            found = folder.lstat()
            is_ours = (
                stat.S_ISDIR(found.st_mode) and found.st_uid == self.user.uid and not found.st_mode & 0o077
            )
            if not is_ours:
                return Path(tempfile.mkdtemp(prefix="fairlead-", dir=above))
        return folder

    def _find_short_folder(self) -> Path:
        for folder in (Path(tempfile.gettempdir()).resolve(), Path("/tmp")):  # noqa: S108 (mkdtemp makes it private)
            if _fits_socket(folder / "fairlead-01234567") and self.user.can_enter(folder):
                return folder
        raise EmbeddedFailed(
            f"The path {self._socket} cannot hold a socket, and neither can {tempfile.gettempdir()}. "
            "Choose a shorter data folder, or set TMPDIR to a shorter one."
        )

    def remove_socket_folder(self) -> None:
        folder = self._socket.resolve()
        linked = self._socket.is_symlink()
        # A symlink may lead root anywhere: through one, remove only a folder of the server's user.
        if folder.is_dir() and (not linked or folder.stat().st_uid == self.user.uid):
            shutil.rmtree(folder)
        if linked:
            self._socket.unlink()


def _fits_socket(folder: Path) -> bool:
    """Whether server and clients can use a socket in the folder; PostgreSQL splits the setting at a comma."""
    path = os.fsencode(folder / f".s.PGSQL.{PORT}")
    return len(path) <= LONGEST_SOCKET and not re.search(rb'[,"\n]', path)


def _is_listening(path: Path) -> bool:
    if len(os.fsencode(path)) > LONGEST_SOCKET:
        return False
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(os.fsencode(path)) == 0


def _is_ending(pid: int) -> bool:
    """Whether the process is ending: the kernel takes its memory, and so its command line, before it closes its sockets."""
    try:
        return not (PROC / str(pid) / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False


def _open_log(log: Path) -> int:
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.replace(log.with_name(f"{log.name}.1"))
    return open_private(log, os.O_APPEND)


def _last_lines(output: str) -> str:
    return "\n".join(output.splitlines()[-LOG_LINES:])


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
