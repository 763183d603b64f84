"""A real Citus cluster for tests: a coordinator and two workers on loopback."""

import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import msgspec
import psycopg

from fairlead.db.binaries import Binaries, ServerUser, choose_server_user, list_binaries
from fairlead.db.scratch import scratch_folder
from tests.waiting import SECONDS

ROLE = "fairlead"
APPLICATION = "application"
DATABASE = "fairlead"
WORKERS = 2
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "shared_preload_libraries": "citus",
    "wal_level": "logical",
    "max_wal_senders": "10",
    "max_replication_slots": "10",
    "max_connections": "300",
    # one maintenance process for each database
    "max_worker_processes": "64",
    "max_prepared_transactions": "200",
    # the nodes are on this machine, and have no certificates
    "citus.node_conninfo": "sslmode=disable",
    # the tests' own cluster: nothing has to survive the machine
    "fsync": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "search_path": "public",
    "logging_collector": "off",
}


class CitusCluster(msgspec.Struct, frozen=True):
    """The URLs of the coordinator and of the workers."""

    coordinator: str
    workers: tuple[str, ...]
    # the coordinator, as a role that is not a superuser
    for_application: str

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.coordinator, *self.workers


def find_citus() -> Binaries | None:
    """A PostgreSQL in which Citus is installed."""
    for one in list_binaries():
        if one.source != "system":
            continue
        answer = subprocess.run(
            [one.bin / "pg_config", "--sharedir"], capture_output=True, text=True, check=False
        )
        if (Path(answer.stdout.strip()) / "extension" / "citus.control").exists():
            return one
    return None


@contextmanager
def citus_cluster(
    binaries: Binaries, *, workers: int = WORKERS, settings: Mapping[str, str] | None = None
) -> Iterator[CitusCluster]:
    """Run a coordinator and workers; stopped and removed at the end."""
    user = choose_server_user()
    password = secrets.token_urlsafe(16)
    with scratch_folder() as folder, ExitStack() as stack:
        urls = [
            stack.enter_context(_run_node(binaries, user, folder / f"node{number}", password, settings or {}))
            for number in range(1 + workers)
        ]
        join_nodes(urls)
        with psycopg.connect(urls[0], autocommit=True) as connection:
            connection.execute(f"create role {APPLICATION} login createrole password '{password}'")
            connection.execute(f"grant create on database {DATABASE} to {APPLICATION}")
        for_application = urls[0].replace(f"//{ROLE}:", f"//{APPLICATION}:")
        yield CitusCluster(urls[0], tuple(urls[1:]), for_application)


@contextmanager
def _run_node(
    binaries: Binaries, user: ServerUser, folder: Path, password: str, settings: Mapping[str, str]
) -> Iterator[str]:
    data = _create_data(binaries, user, folder, password)
    port = _free_port()
    options = {**SETTINGS, **settings, "port": str(port), "unix_socket_directories": str(data.parent)}
    argv = [f"{binaries.bin}/postgres", "-D", str(data)]
    argv += [part for pair in options.items() for part in ("-c", "=".join(pair))]
    log = folder / "log"
    # Citus connects from node to node as the same role: libpq finds the password in this file.
    with log.open("w") as output:
        process = user.popen(
            ["/usr/bin/env", f"PGPASSFILE={folder}/pgpass", *argv], stdout=output.fileno(), session=True
        )
    url = f"postgresql://{ROLE}:{password}@127.0.0.1:{port}/"
    try:
        _await(f"{url}postgres", process, log)
        with psycopg.connect(f"{url}postgres", autocommit=True) as connection:
            connection.execute(f"create database {DATABASE}")
        yield f"{url}{DATABASE}"
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait(SECONDS)


def _create_data(binaries: Binaries, user: ServerUser, folder: Path, password: str) -> Path:
    folder.mkdir()
    for name, text in (("password", password), ("pgpass", f"*:*:*:*:{password}\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
        if user.dropped:
            shutil.chown(folder / name, user.uid, user.gid)
    user.give(folder)
    data = folder / "data"
    code, output = user.run(
        [
            f"{binaries.bin}/initdb",
            f"--username={ROLE}",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
            "--auth=scram-sha-256",
            f"--pwfile={folder}/password",
            "-D",
            str(data),
        ]
    )
    if code != 0:
        raise RuntimeError(f"initdb ended with {code}: {output}")
    return data


def join_nodes(urls: Sequence[str]) -> None:
    """Make the databases at these URLs one Citus cluster; the first is the coordinator."""
    for url in urls:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("create extension if not exists citus")
    ports = [psycopg.conninfo.conninfo_to_dict(url)["port"] for url in urls]
    with psycopg.connect(urls[0], autocommit=True) as connection:
        connection.execute("select citus_set_coordinator_host('127.0.0.1', %s)", [ports[0]])
        for port in ports[1:]:
            connection.execute("select citus_add_node('127.0.0.1', %s)", [port])


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _await(url: str, process: subprocess.Popen[str], log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"PostgreSQL with Citus ended with {process.returncode}: {log.read_text()}")
        with suppress(psycopg.OperationalError), psycopg.connect(url, connect_timeout=2):
            return
        time.sleep(0.02)  # between two polls
    raise TimeoutError("PostgreSQL with Citus did not answer in time")
