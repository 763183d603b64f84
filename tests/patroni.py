"""A real Patroni cluster on this machine: etcd, PostgreSQL nodes with streaming replication, and HAProxy."""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import httpx2
import psycopg
import yaml

from fairlead.db.binaries import Binaries, ServerUser, choose_server_user, list_binaries
from fairlead.db.scratch import scratch_folder
from fairlead.handlers.supervisor import find_descendants
from tests.processes import until

PROGRAMS = ("patroni", "etcd", "haproxy")
# Patroni starts PostgreSQL with pg_ctl, makes standbys with pg_basebackup and takes old primaries back with pg_rewind.
NEEDED = ("pg_ctl", "pg_basebackup", "pg_rewind", "initdb", "postgres", "pg_controldata")
# Patroni 3.0 knows PostgreSQL up to 15.
NEWEST_MAJOR = 15
SUPERUSER, PASSWORD = "postgres", "super-word"
DATABASE, ROLE, ROLE_PASSWORD = "jobs", "fairlead", "fl-word"

PORTS = range(20_000, 32_000)
EXAMPLES = Path(__file__).parents[1] / "examples" / "patroni"


def choose_port() -> int:
    """A free port below those that the system gives to outgoing connections: a node that was killed needs its own again."""
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no free port")


def find_program(name: str) -> str | None:
    """The program; Debian puts some where an ordinary user's PATH does not lead."""
    folders = [*os.get_exec_path(), "/usr/sbin", "/usr/local/sbin"]
    return shutil.which(name, path=os.pathsep.join(folders))


def find_binaries() -> Binaries | None:
    """The newest PostgreSQL that Patroni can run, with all its programs."""
    for one in list_binaries():
        if one.major <= NEWEST_MAJOR and all((one.bin / program).exists() for program in NEEDED):
            return one
    return None


def why_not() -> str | None:
    """Why no cluster can be started here; None if one can."""
    missing = [name for name in PROGRAMS if find_program(name) is None]
    if missing:
        return f"needs {', '.join(missing)}: make tools TOOLS=thorough"
    if find_binaries() is None:
        return f"needs a PostgreSQL of version {NEWEST_MAJOR} or before with pg_basebackup and pg_rewind: make tools TOOLS=thorough"
    return None


class Node:
    """One machine of the cluster: a Patroni and its PostgreSQL."""

    def __init__(self, name: str, folder: Path, user: ServerUser) -> None:
        self.name = name
        self.folder = folder
        self.port = choose_port()
        self.rest_port = choose_port()
        self._user = user
        self._process: subprocess.Popen[str] | None = None

    @property
    def log(self) -> Path:
        return self.folder / "patroni.log"

    def configure(self, settings: dict[str, Any]) -> None:
        self.folder.mkdir()
        # JSON is YAML, too
        (self.folder / "patroni.yml").write_text(json.dumps(settings, indent=1))
        (self.folder / "patroni.yml").chmod(0o644)
        self._user.give(self.folder)

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = self._user.popen(
                [find_program("patroni") or "patroni", str(self.folder / "patroni.yml")],
                stdout=log.fileno(),
                session=True,
            )

    def role(self) -> str:
        """`master`, `replica` or another role of Patroni's; `away` if it does not answer or its PostgreSQL does not run."""
        try:
            answer = httpx2.get(f"http://127.0.0.1:{self.rest_port}/patroni", timeout=2).json()
        except (httpx2.HTTPError, ValueError):
            return "away"
        return str(answer["role"]) if answer.get("state") == "running" else "away"

    def kill(self) -> None:
        """End everything on this machine at once, as a loss of power does: nothing is said to anybody."""
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
        # a machine that comes back has none of its old processes
        until(lambda: not self._alive(), f"the processes of {self.name} to be gone")

    def signal_walsenders(self, number: signal.Signals) -> None:
        """Stop or continue the processes that send WAL to the standbys."""
        for pid in self._postgres_pids():
            with contextlib.suppress(OSError):
                if b"walsender" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, number)

    def _pids(self) -> set[int]:
        pids = self._postgres_pids()
        if self._process is not None and self._process.poll() is None:
            pids |= {self._process.pid, *find_descendants(self._process.pid)}
        return pids

    def _postgres_pids(self) -> set[int]:
        try:
            postmaster = int((self.folder / "data" / "postmaster.pid").read_text().split("\n")[0])
        except (FileNotFoundError, ValueError):
            return set()
        if str(self.folder) not in _command_of(postmaster):
            return set()
        return {postmaster, *find_descendants(postmaster)}

    def _alive(self) -> bool:
        place = str(self.folder)
        return any(place in _command_of(int(one.name)) for one in Path("/proc").glob("[0-9]*"))


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _accepts_writes(url: str) -> bool:
    with (
        contextlib.suppress(psycopg.OperationalError),
        psycopg.connect(url, autocommit=True, connect_timeout=5) as connection,
    ):
        return connection.execute("select not pg_is_in_recovery()").fetchone() == (True,)
    return False


class PatroniCluster:
    """Three nodes behind one etcd, and optionally a HAProxy that leads to the primary."""

    def __init__(self, folder: Path, user: ServerUser, *, synchronous: bool, ttl: int) -> None:
        self.folder = folder
        self.synchronous = synchronous
        self.haproxy_port = choose_port()
        self._user = user
        self._ttl = ttl
        self._etcd_port, self._etcd_peer_port = choose_port(), choose_port()
        self._others: list[subprocess.Popen[str]] = []
        self.nodes = [Node(f"node{number}", folder / f"node{number}", user) for number in (1, 2, 3)]

    # Addresses

    @property
    def url(self) -> str:
        """All nodes, as a team would write it; Fairlead adds which of them it needs."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"postgresql://{ROLE}:{ROLE_PASSWORD}@{hosts}/{DATABASE}"

    @property
    def haproxy_url(self) -> str:
        return f"postgresql://{ROLE}:{ROLE_PASSWORD}@127.0.0.1:{self.haproxy_port}/{DATABASE}"

    def superuser_url(self, node: Node, database: str = "postgres") -> str:
        return f"postgresql://{SUPERUSER}:{PASSWORD}@127.0.0.1:{node.port}/{database}?connect_timeout=5"

    # Life

    def __enter__(self) -> Self:
        self._spawn(
            "etcd",
            "--name=one",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{self._etcd_port}",
            f"--advertise-client-urls=http://127.0.0.1:{self._etcd_port}",
            f"--listen-peer-urls=http://127.0.0.1:{self._etcd_peer_port}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{self._etcd_peer_port}",
            f"--initial-cluster=one=http://127.0.0.1:{self._etcd_peer_port}",
        )
        for node in self.nodes:
            node.configure(self._build_settings(node))
        until(self._etcd_answers, "etcd")
        self.nodes[0].start()  # the others would only race it to the bootstrap
        first = self.wait_for_primary()
        for node in self.nodes[1:]:
            node.start()
        with psycopg.connect(self.superuser_url(first), autocommit=True) as connection:
            # not with the standbys' help: in strict synchronous mode there are none yet
            connection.execute("set synchronous_commit = local")
            connection.execute(f"create role {ROLE} login createrole password '{ROLE_PASSWORD}'".encode())
            connection.execute(f"create database {DATABASE} owner {ROLE}".encode())
        settings = self.folder / "haproxy.cfg"
        settings.write_text(self._build_haproxy_settings())
        settings.chmod(0o644)
        self._spawn("haproxy", "-db", "-f", str(settings))
        self.wait_until_whole()
        until(lambda: _accepts_writes(self.haproxy_url), "HAProxy")
        return self

    def __exit__(self, *exc: object) -> None:
        for node in self.nodes:
            node.kill()
        for process in self._others:
            process.kill()
            process.wait()

    def _spawn(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            argv = [find_program(name) or name, *arguments]
            self._others.append(self._user.popen(argv, stdout=log.fileno(), session=True))

    def _etcd_answers(self) -> bool:
        try:
            return httpx2.get(f"http://127.0.0.1:{self._etcd_port}/health", timeout=2).is_success
        except httpx2.HTTPError:
            return False

    # State

    def primary(self) -> Node | None:
        return next((node for node in self.nodes if node.role() in ("master", "primary")), None)

    def wait_for_primary(self, *, other_than: Node | None = None) -> Node:
        def look() -> Node | None:
            found = self.primary()
            return found if found is not other_than else None

        return until(look, "a primary")

    def wait_until_whole(self) -> Node:
        """Wait until two standbys stream from the primary, one of them synchronously where that is asked for."""
        return until(self._whole, "both standbys to stream", longest_pause=0.2)

    def _whole(self) -> Node | None:
        node = self.primary()
        if node is None:
            return None
        with (
            contextlib.suppress(psycopg.OperationalError),
            psycopg.connect(self.superuser_url(node), autocommit=True) as connection,
        ):
            states = connection.execute("select state, sync_state from pg_stat_replication").fetchall()
            streaming = [sync for state, sync in states if state == "streaming"]
            if len(streaming) == len(self.nodes) - 1 and (not self.synchronous or "sync" in streaming):
                return node if self._has_candidate(node) else None
        return None

    def _has_candidate(self, node: Node) -> bool:
        """Whether Patroni has recorded a standby that it would promote: in synchronous mode only a synchronous one."""
        answer = httpx2.get(f"http://127.0.0.1:{node.rest_port}/cluster", timeout=2).json()
        roles = {member["role"] for member in answer["members"]}
        return "sync_standby" in roles if self.synchronous else "replica" in roles

    def fail_over(self, *, lag_seconds: float = 0.0) -> tuple[Node, Node, float]:
        """Kill the primary, after its standbys heard nothing for so long. (old, new, seconds until the new one accepts writes)"""
        old = self.wait_until_whole()
        if lag_seconds:
            old.signal_walsenders(signal.SIGSTOP)
            over = time.monotonic() + lag_seconds
            until(lambda: time.monotonic() > over, "the lag", longest_pause=0.02)
        begun = time.monotonic()
        old.kill()
        new = self.wait_for_primary(other_than=old)
        until(
            lambda: _accepts_writes(self.superuser_url(new)),
            f"{new.name} to accept writes",
        )
        return old, new, time.monotonic() - begun

    def last_words(self) -> str:
        """The ends of all logs, for a test that failed."""
        logs = [*self.folder.glob("*.log"), *self.folder.glob("*/patroni.log")]
        return "\n".join(f"--- {log}\n{log.read_text(errors='replace')[-2000:]}" for log in logs)

    # Settings

    def _build_settings(self, node: Node) -> dict[str, Any]:
        """The example's settings with addresses, folders and times of this test."""
        settings: dict[str, Any] = yaml.safe_load((EXAMPLES / "patroni.yml").read_text())
        settings["name"] = node.name
        settings["restapi"] = dict.fromkeys(("listen", "connect_address"), f"127.0.0.1:{node.rest_port}")
        settings["etcd3"]["hosts"] = [f"127.0.0.1:{self._etcd_port}"]
        settings["bootstrap"]["dcs"] |= {
            "ttl": self._ttl,
            "loop_wait": (loop_wait := max(1, self._ttl // 3)),
            "retry_timeout": (self._ttl - loop_wait) // 2,
            "synchronous_mode": self.synchronous,
            "synchronous_mode_strict": self.synchronous,
        }
        ours = settings["postgresql"]
        ours |= dict.fromkeys(("listen", "connect_address"), f"127.0.0.1:{node.port}")
        ours |= {
            "data_dir": str(node.folder / "data"),
            "bin_dir": str(_required_binaries().bin),
            "pgpass": str(node.folder / "pgpass"),
            "parameters": {"unix_socket_directories": str(node.folder)},
            "pg_hba": [line.replace("10.0.0.0/24", "127.0.0.1/32") for line in ours["pg_hba"]],
        }
        ours["authentication"]["superuser"]["password"] = PASSWORD
        return settings

    def _build_haproxy_settings(self) -> str:
        """The example's settings with the addresses of this test."""
        text = (
            (EXAMPLES / "haproxy.cfg").read_text().replace("10.0.0.10:5000", f"127.0.0.1:{self.haproxy_port}")
        )
        for number, node in enumerate(self.nodes, 1):
            address = f"10.0.0.1{number}:5432 check port 8008"
            assert address in text
            text = text.replace(address, f"127.0.0.1:{node.port} check port {node.rest_port}")
        return text


def _required_binaries() -> Binaries:
    found = find_binaries()
    if found is None:
        raise FileNotFoundError(why_not())
    return found


@contextmanager
def patroni_cluster(*, synchronous: bool, ttl: int = 5) -> Iterator[PatroniCluster]:
    """Run a cluster until the end of the block."""
    user = choose_server_user()
    with scratch_folder() as above, ExitStack() as stack:
        folder = above / "patroni"
        folder.mkdir()
        user.give(folder)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        cluster = PatroniCluster(folder, user, synchronous=synchronous, ttl=ttl)
        stack.callback(cluster.__exit__)
        try:
            cluster.__enter__()
            yield cluster
        except BaseException as error:
            error.add_note(cluster.last_words())
            raise
