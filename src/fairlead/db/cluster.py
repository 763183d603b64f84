"""One PostgreSQL data directory, and the server that runs on it: made, started, found again, stopped."""

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

from fairlead.db.binaries import Binaries, open_private, server_user
from fairlead.errors import EmbeddedFailed

START_SECONDS = 120.0  # a crash recovery may take its time
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
# On the command line, so that no stray configuration file weakens them.
DEFAULTS = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # the role and our schema have one name, and `"$user"` would put an application's own tables among ours
    "search_path": "public",
}


class Postmaster(msgspec.Struct, frozen=True):
    """What a postmaster.pid says."""

    pid: int
    data: Path
    port: int
    socket: Path | None
    status: str

    @classmethod
    def read(cls, file: Path) -> "Postmaster | None":
        """None if there is no such file, or nothing useful in it yet."""
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
        self.user = server_user(self.data.stat() if self.data.is_dir() else None)
        self._place = place
        self._socket = place / "socket"
        self._child: int | None = None

    @property
    def major(self) -> int | None:
        """The version that made this cluster; None while there is none."""
        if not self.data.is_dir():
            return None
        return int((self.data / "PG_VERSION").read_text("ascii"))

    # Making

    def create(self, binaries: Binaries) -> None:
        """Make the cluster with role and database `fairlead`: whole, or not at all."""
        for leftover in self._place.glob("postgres.new-*"):
            # An initdb that outlived its killed parent may still write there; another start clears the rest.
            shutil.rmtree(leftover, ignore_errors=True)
        new = Path(tempfile.mkdtemp(prefix="postgres.new-", dir=self._place))
        try:
            self._fill(new, binaries)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        new.rename(self.data)
        sync_folder(self._place)

    def _fill(self, new: Path, binaries: Binaries) -> None:
        self.user.give(new)
        self._must_run([f"{binaries.bin}/initdb", *INITDB_OPTIONS, "-D", str(new)])
        single = ["--single", "-c", "exit_on_error=on", "-D", str(new), "postgres"]
        self._must_run([f"{binaries.bin}/postgres", *single], "CREATE DATABASE fairlead\n")

    def _must_run(self, argv: list[str], text: str = "") -> None:
        code, said = self.user.run(argv, text)
        if code != 0:
            raise EmbeddedFailed(
                f"{argv[0]} could not make a cluster in {self._place} (exit code {code}). "
                f"Put right what it says, then start again:\n{_last_lines(said)}"
            )

    # Running

    def running(self) -> Postmaster | None:
        """Our server if it runs, in whatever state; verified."""
        server = Postmaster.read(self.data / "postmaster.pid")
        return server if server and self.owns(server.pid) else None

    def owns(self, pid: int) -> bool:
        """Whether the process is a postmaster on this very data directory, run by its owner."""
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
        """Whether it takes connections. One that was killed a moment ago still has its file, and its place among processes."""
        if server is None or server.status != "ready":
            return False
        return PGconn.ping(f"{server.url}&connect_timeout={PING_SECONDS}".encode()) == Ping.OK

    def _owns_by_ps(self, pid: int) -> bool:
        ps = ["/bin/ps", "-ww", "-o", "uid=,command=", "-p", str(pid)]
        said = subprocess.run(ps, capture_output=True, check=False, stdin=subprocess.DEVNULL).stdout
        owner, _, command = os.fsdecode(said).strip().partition(" ")
        return owner == str(self.user.uid) and f"/postgres -D {self.data} -c " in command

    def ensure_running(self, binaries: Binaries, settings: Mapping[str, str], log: Path) -> Postmaster:
        """Have the server ready: started unless it runs, waited for if it is on its way up or down."""
        deadline = time.monotonic() + START_SECONDS
        trouble = "It is still on its way up or down."
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
        """Start the server and wait until it is ready; or what it said, if it only came too early."""
        self._refuse_a_stranger()
        self._disown_stale_pid()
        argv = [f"{binaries.bin}/postgres", "-D", str(self.data), *self._options(settings)]
        fd = _open_log(log)
        try:
            begin = os.fstat(fd).st_size
            process = self.user.popen(argv, stdout=fd, session=True)
            if server := self._await(process, deadline):
                return server, ""
            said = os.pread(fd, LOG_BYTES, begin).decode(errors="replace")
        finally:
            os.close(fd)
        # Children of a killed postmaster linger for a moment, and a killed starter's server may come first.
        if "is still in use" in said or "already exists" in said:
            return None, _last_lines(said)
        self.remove_socket_folder()
        raise EmbeddedFailed(
            f"PostgreSQL did not start in {self.data} (exit code {process.returncode}). "
            f"Put right what its log {log} says, then start again:\n{_last_lines(said)}"
        )

    def _await(self, process: subprocess.Popen[str], deadline: float) -> Postmaster | None:
        """Wait until the server is ready; None if it ended."""
        try:
            while process.poll() is None and time.monotonic() < deadline:
                server = Postmaster.read(self.data / "postmaster.pid")
                if server and server.pid == process.pid and server.status == "ready":
                    # It outlives us from here on; `halt` waits for it by pid, so Popen need not watch over it.
                    process.returncode = 0
                    self._child = process.pid
                    return server
                time.sleep(PAUSE_SECONDS)
        finally:
            if process.poll() is None:
                self._abandon(process)
        return None

    def _abandon(self, process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise EmbeddedFailed(self._unstoppable(process.pid)) from error

    def _options(self, settings: Mapping[str, str]) -> list[str]:
        ours = {
            "listen_addresses": "",
            "unix_socket_directories": str(self._make_socket_folder()),
            "port": str(PORT),
            "log_destination": "stderr",
            "logging_collector": "off",
        }
        return [part for pair in ({**DEFAULTS, **settings} | ours).items() for part in ("-c", "=".join(pair))]

    def _refuse_a_stranger(self) -> None:
        """Start no second server on a folder that one we cannot see, as in another container, still serves."""
        sockets = {self._socket.resolve() / f".s.PGSQL.{PORT}"}
        server = Postmaster.read(self.data / "postmaster.pid")
        if server and server.socket and server.data.resolve() == self.data:  # else copied with its folder
            sockets.add(server.socket / f".s.PGSQL.{server.port}")
        for path in filter(_answers, sockets):
            raise EmbeddedFailed(
                f"A PostgreSQL that was not started here already serves {self.data} (socket {path}). "
                "Stop it, or choose another data folder."
            )

    def _disown_stale_pid(self) -> None:
        """Let a stale postmaster.pid name no process, whoever has that pid now.

        Not removed: PostgreSQL finds in it the shared memory that children of a dead postmaster may still use.
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
        """Fast shutdown of our server, to its end. False if that pid is not our server's."""
        if not self.owns(pid):
            return False
        os.kill(pid, signal.SIGINT)
        deadline = time.monotonic() + STOP_SECONDS
        while self.owns(pid):
            if time.monotonic() > deadline:
                raise EmbeddedFailed(self._unstoppable(pid))
            time.sleep(PAUSE_SECONDS)
        self._child = pid
        self.reap(0)
        return True

    def _unstoppable(self, pid: int) -> str:
        return (
            f"PostgreSQL (pid {pid}) in {self.data} did not stop within {STOP_SECONDS:.0f} s. "
            f"See its log; `kill -QUIT {pid}` ends it without harm to the data."
        )

    def reap(self, options: int = os.WNOHANG) -> None:
        """Take the exit status of our server if it has ended and is a child of this very process."""
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
        if _fits(self._socket):
            self._socket.mkdir()
            self.user.give(self._socket)
            return self._socket
        folder = self._make_short_folder()
        self.user.give(folder)
        self._socket.symlink_to(folder)
        return folder

    def _make_short_folder(self) -> Path:
        """One with the same name at every start, so that addresses stay good; with another if that is a stranger's."""
        above = self._short_folder()
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

    def _short_folder(self) -> Path:
        for folder in (Path(tempfile.gettempdir()).resolve(), Path("/tmp")):  # noqa: S108 (mkdtemp makes it private)
            if _fits(folder / "fairlead-01234567") and self.user.can_enter(folder):
                return folder
        raise EmbeddedFailed(
            f"The path {self._socket} cannot hold a socket, and neither can {tempfile.gettempdir()}. "
            "Choose a shorter data folder, or set TMPDIR to a shorter one."
        )

    def remove_socket_folder(self) -> None:
        folder = self._socket.resolve()
        linked = self._socket.is_symlink()
        # Root must not be led astray by somebody's link: then only a folder of the server's user goes.
        if folder.is_dir() and (not linked or folder.stat().st_uid == self.user.uid):
            shutil.rmtree(folder)
        if linked:
            self._socket.unlink()


def _fits(folder: Path) -> bool:
    """Whether server and clients can use a socket in the folder; a comma would make two folders of it."""
    path = os.fsencode(folder / f".s.PGSQL.{PORT}")
    return len(path) <= LONGEST_SOCKET and not re.search(rb'[,"\n]', path)


def _answers(path: Path) -> bool:
    if len(os.fsencode(path)) > LONGEST_SOCKET:
        return False
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(os.fsencode(path)) == 0


def _open_log(log: Path) -> int:
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.replace(log.with_name(f"{log.name}.1"))
    return open_private(log, os.O_APPEND)


def _last_lines(said: str) -> str:
    return "\n".join(said.splitlines()[-LOG_LINES:])


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
