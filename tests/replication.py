"""A primary and a standby with streaming replication, for tests that need no failover by themselves."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg

from fairlead.db.binaries import Binaries, ServerUser, choose_server_user, list_binaries
from fairlead.db.scratch import scratch_folder
from fairlead.handlers.supervisor import find_descendants
from tests.processes import until

PRIMARY_PORT, STANDBY_PORT = 5432, 5433
NEEDED = ("pg_basebackup", "initdb", "postgres")
SYSTEM_CHANGE = "alter system set {} = '{}'"


def find_binaries() -> Binaries | None:
    """A PostgreSQL of this system with `pg_basebackup`; the wheel's cannot be run by another user."""
    for one in list_binaries():
        if one.source == "system" and all((one.bin / program).exists() for program in NEEDED):
            return one
    return None


class Pair:
    """The two servers. Both have their sockets in one folder."""

    def __init__(self, folder: Path, user: ServerUser, binaries: Binaries) -> None:
        self.folder = folder
        self._user = user
        self._bin = binaries.bin
        self._servers: dict[int, subprocess.Popen[str]] = {}

    @property
    def primary_url(self) -> str:
        return self._url(PRIMARY_PORT)

    @property
    def standby_url(self) -> str:
        return self._url(STANDBY_PORT)

    @property
    def url(self) -> str:
        """Both servers, the standby first."""
        return f"postgresql://fairlead:not-shown@/postgres?host={self.folder},{self.folder}&port={STANDBY_PORT},{PRIMARY_PORT}"

    def _url(self, port: int) -> str:
        return f"postgresql://fairlead@/postgres?host={self.folder}&port={port}"

    def create_primary(self) -> None:
        self._run(
            "initdb", "-D", self._data(PRIMARY_PORT), "-U", "fairlead", "-A", "trust", "-E", "UTF8", "-N"
        )
        self.start(PRIMARY_PORT)

    def create_standby(self) -> None:
        where = ("-h", str(self.folder), "-p", str(PRIMARY_PORT), "-U", "fairlead")
        self._run("pg_basebackup", "-D", self._data(STANDBY_PORT), *where, "-R", "-c", "fast", "-N")
        self.start(STANDBY_PORT)
        self.wait_for_standby()

    def start(self, port: int) -> None:
        options = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            "port": str(port),
            "fsync": "on",
            "wal_receiver_status_interval": "1",
        }
        argv = [f"{self._bin}/postgres", "-D", self._data(port)]
        argv += [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / f"{port}.log").open("ab") as log:
            self._servers[port] = self._user.popen(argv, stdout=log.fileno(), session=True)
        until(lambda: self._answers(port), f"the server at port {port}")

    def wait_for_standby(self) -> None:
        query = "select from pg_stat_replication where state = 'streaming'"
        with psycopg.connect(self.primary_url, autocommit=True) as connection:
            until(lambda: connection.execute(query).fetchall(), "the standby to stream")

    def set_on_primary(self, **settings: str) -> None:
        """Change settings of the whole server."""
        with psycopg.connect(self.primary_url, autocommit=True) as connection:
            # this change must not wait for what it changes
            connection.execute("set synchronous_commit = local")
            for name, value in settings.items():
                connection.execute(SYSTEM_CHANGE.format(name, value).encode())
            connection.execute("select pg_reload_conf()")
        for name, value in settings.items():
            until(lambda name=name, value=value: self._shows(name, value), f"{name} = {value}")  # type: ignore[misc]
        with psycopg.connect(self.primary_url, autocommit=True) as connection:
            # the checkpointer, which reads new settings first, decides whether commits wait for a standby
            connection.execute("checkpoint")

    def _shows(self, name: str, value: str) -> bool:
        with psycopg.connect(self.primary_url, autocommit=True) as connection:
            return connection.execute("select current_setting(%s)", [name]).fetchone() == (value,)

    def kill(self, port: int) -> None:
        """End a server and all its processes at once."""
        process = self._servers.pop(port)
        for pid in {process.pid, *find_descendants(process.pid)}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def promote_standby(self) -> None:
        with psycopg.connect(self.standby_url, autocommit=True) as connection:
            connection.execute("select pg_promote(true, 60)")

    def close(self) -> None:
        for port in list(self._servers):
            self.kill(port)

    def _data(self, port: int) -> str:
        return str(self.folder / f"data-{port}")

    def _answers(self, port: int) -> bool:
        try:
            psycopg.connect(self._url(port)).close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, program: str, *arguments: str) -> None:
        code, output = self._user.run([f"{self._bin}/{program}", *arguments])
        assert code == 0, output


@contextmanager
def replicating_pair() -> Iterator[Pair]:
    """Run a primary and its standby until the end of the block."""
    binaries = find_binaries()
    if binaries is None:
        raise FileNotFoundError("pg_basebackup is not installed: make tools TOOLS=thorough")
    user = choose_server_user()
    with scratch_folder() as above, ExitStack() as stack:
        folder = above / "pair"
        folder.mkdir()
        user.give(folder)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        pair = Pair(folder, user, binaries)
        stack.callback(pair.close)
        pair.create_primary()
        pair.create_standby()
        yield pair
