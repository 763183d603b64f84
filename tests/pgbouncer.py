"""A real PgBouncer in front of the tests' PostgreSQL."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
from psycopg import conninfo

from fairlead.db.binaries import choose_server_user
from tests.waiting import SECONDS

PORT = 6432

CONFIGURATION = """
[databases]
* = host={socket} port={port} user={user}

[pgbouncer]
listen_addr =
listen_port = {listen_port}
unix_socket_dir = {folder}
auth_type = any
pool_mode = {mode}
default_pool_size = {pool_size}
max_client_conn = 100
logfile = {folder}/pgbouncer.log
"""


def find_pgbouncer() -> str | None:
    """The program; Debian puts it where an ordinary user's PATH does not lead."""
    folders = [*os.get_exec_path(), "/usr/sbin", "/usr/local/sbin"]
    return shutil.which("pgbouncer", path=os.pathsep.join(folders))


@contextmanager
def pgbouncer(url: str, *, pool_size: int = 5, mode: str = "transaction") -> Iterator[str]:
    """Run a PgBouncer before the server that has this unix socket. The URL through it."""
    program = find_pgbouncer()
    if program is None:
        raise FileNotFoundError("pgbouncer is not installed; see scripts/test-tools")
    parts = conninfo.conninfo_to_dict(url)
    socket = Path(str(parts["host"]))
    # the socket's folder is private to its owner, and PgBouncer does not run as root
    user = choose_server_user(socket.stat())
    short = (Path(tempfile.gettempdir()), Path("/tmp"))  # noqa: S108 - mkdtemp makes it private
    folder = Path(tempfile.mkdtemp(prefix="pgbouncer-", dir=next(filter(user.can_enter, short))))
    try:
        settings = folder / "pgbouncer.ini"
        settings.write_text(
            CONFIGURATION.format(
                socket=socket,
                port=parts["port"],
                user=parts["user"],
                folder=folder,
                listen_port=PORT,
                pool_size=pool_size,
                mode=mode,
            )
        )
        settings.chmod(0o644)
        user.give(folder)
        through = conninfo.make_conninfo(url, host=str(folder), port=PORT)
        with user.popen([program, str(settings)], stdout=subprocess.DEVNULL) as process:
            try:
                _await(through, process, folder)
                yield through
            finally:
                process.kill()  # later versions would wait for their clients on any gentler signal
    finally:
        shutil.rmtree(folder)


def _await(url: str, process: subprocess.Popen[str], folder: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            log = folder / "pgbouncer.log"
            raise RuntimeError(
                f"pgbouncer ended with {process.returncode}: {log.read_text() if log.exists() else ''}"
            )
        with suppress(psycopg.OperationalError), psycopg.connect(url, connect_timeout=2):
            return
        time.sleep(0.01)  # between two polls
    raise TimeoutError("pgbouncer did not answer in time")
