"""The embedded PostgreSQL, with real servers and real processes."""

import gc
import os
import pwd
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
import pytest

from fairlead.db import binaries as ground
from fairlead.db import cluster as engine
from fairlead.db.binaries import choose_server_user
from fairlead.db.cluster import Cluster
from fairlead.db.embedded import Binaries, EmbeddedPostgres, find_binaries
from fairlead.errors import EmbeddedFailed, EmbeddedUnavailable
from tests.preloaded import Process
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root, which gives its rights away: sudo make test"
)
needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc: Linux only")
needs_wheel = pytest.mark.skipif(
    not ground._wheel_folders(), reason="needs the extra fairlead[embedded]: make setup"
)
OTHER = Path("/usr/lib/postgresql/15/bin")

USER = """
import sys
from pathlib import Path
from fairlead.db.embedded import Binaries, EmbeddedPostgres

binaries = Binaries(Path(sys.argv[2]), 18, "system") if len(sys.argv) > 2 else None
server = EmbeddedPostgres(Path(sys.argv[1]), binaries=binaries)
server.start()
print(server.pid, flush=True)
sys.stdin.readline()
print(server.stop(), flush=True)
"""


class User:
    """Another process that uses the same data folder."""

    def __init__(self, data_dir: Path, *more: str | Path, script: str = USER) -> None:
        self.process = Process(
            [sys.executable, "-c", script, str(data_dir), *map(str, more)],
            env=os.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def reads(self) -> str:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], 120)
        assert ready, "the other process said nothing"
        return self.process.stdout.readline().strip()

    def leaves(self) -> bool:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.reads() == "True"

    def is_killed(self) -> None:
        self.process.kill()
        self.process.wait(SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.is_killed()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


def wait_until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that only waits for its parent to notice does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, check=False).stdout
    return bool(state.strip()) and not state.startswith(b"Z")


@contextmanager
def sleeper() -> Iterator[subprocess.Popen[str]]:
    """A process of the server's own user that has nothing to do with us."""
    with choose_server_user().popen(["sleep", "3600"]) as process:
        try:
            yield process
        finally:
            process.kill()


def kill_hard(server: EmbeddedPostgres) -> None:
    pid = server.pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid))


def ask(url: str, query: str) -> Any:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(query.encode())
        return cursor.fetchall() if cursor.description else None


def setting(url: str, name: str) -> Any:
    return ask(url, f"show {name}")[0][0]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def files_of(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def stop_all(folder: Path) -> None:
    for file in folder.rglob("postgres/postmaster.pid"):
        cluster = Cluster(file.parents[1])
        if server := cluster.running():
            cluster.halt(server.pid)


def scratch() -> Iterator[Path]:
    """A folder that everybody may enter, as pytest's own is not; in memory where pytest's own is."""
    folder = Path(tempfile.mkdtemp(prefix="fl-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"))).resolve()
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        stop_all(folder)
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def session_folder() -> Iterator[Path]:
    yield from scratch()


@pytest.fixture
def folder() -> Iterator[Path]:
    yield from scratch()


@pytest.fixture(autouse=True)
def shared_system_folder(session_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_SYSTEM_DIR", str(session_folder / "system"))


@pytest.fixture
def system(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Our own folder for this test alone."""
    monkeypatch.setenv("FAIRLEAD_SYSTEM_DIR", str(folder / "system"))
    return folder / "system"


@pytest.fixture
def data_dir(session_folder: Path, shared_system_folder: None) -> Iterator[Path]:
    """A data folder with a cluster in it, made once; for tests that leave it as it was."""
    made = session_folder / "data"
    if not made.exists():
        with EmbeddedPostgres(made) as server:
            ask(server.url, "create table kept (what text)")
    yield made
    stop_all(made)


@pytest.fixture
def own_dir(data_dir: Path, folder: Path) -> Path:
    """A copy of that data folder, to be spoiled."""
    subprocess.run(["cp", "-a", data_dir, folder / "data"], check=True)
    return folder / "data"


@pytest.fixture
def server(data_dir: Path) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(data_dir) as running:
        yield running


@pytest.fixture
def closed(folder: Path) -> Path:
    """A folder that only its owner can enter."""
    (folder / "closed").mkdir(mode=0o700)
    return folder / "closed"


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def fake_binaries(folder: Path, initdb: str) -> Path:
    program(folder, "initdb", f'test "$1" = --version || {{\n{initdb}\n}}')
    program(folder, "postgres", "exit 0")
    return folder


# Making a cluster


def test_a_start_killed_during_initdb_leaves_nothing_half_done(folder: Path) -> None:
    data_dir = folder / "data"
    slow = fake_binaries(
        folder / "bin",
        'for new; do :; done; echo $$ > "$new/part"; mv "$new/part" "$new/half"; exec sleep 3600',
    )
    with User(data_dir, slow) as user:
        wait_until(lambda: [*data_dir.glob("*/half")])
        initdb = int(next(data_dir.glob("*/half")).read_text())
        user.is_killed()
    os.kill(initdb, signal.SIGKILL)
    assert not (data_dir / "postgres").exists()

    with EmbeddedPostgres(data_dir) as server:
        assert ask(server.url, "select 1") == [(1,)]
    assert files_of(data_dir) == {"postgres", "postgres.lock", "postgres.users", "postgres.log"}


def test_a_failing_initdb_says_why_and_leaves_nothing(folder: Path) -> None:
    failing = fake_binaries(folder / "bin", "echo the disk is on fire >&2; exit 3")

    with pytest.raises(EmbeddedFailed, match="the disk is on fire"):
        EmbeddedPostgres(folder / "data", binaries=Binaries(failing, 18, "system")).start()

    assert files_of(folder / "data") == {"postgres.lock", "postgres.users"}


def test_the_database_is_utf8_in_the_c_locale_and_ours(server: EmbeddedPostgres) -> None:
    assert ask(
        server.url,
        "select current_user::text, datname::text, pg_encoding_to_char(encoding)::text, datcollate, datctype, rolsuper"
        " from pg_database, pg_roles where datname = current_database() and rolname = current_user",
    ) == [("fairlead", "fairlead", "UTF8", "C", "C", True)]


def test_only_the_private_socket_lets_anybody_in(server: EmbeddedPostgres, data_dir: Path) -> None:
    rules = ask(server.url, "select distinct type, auth_method from pg_hba_file_rules")

    assert set(rules) == {("local", "trust"), ("host", "reject")}
    assert setting(server.url, "listen_addresses") == ""
    assert mode(data_dir / "socket") == 0o700
    assert mode(data_dir / "postgres") == 0o700


def test_a_stray_configuration_does_not_weaken_the_server(own_dir: Path) -> None:
    stray = (
        "fsync=off\nfull_page_writes=off\nsynchronous_commit=off\nlisten_addresses='*'\nmax_connections=7\n"
    )
    with (own_dir / "postgres" / "postgresql.auto.conf").open("a") as file:
        file.write(stray)

    with EmbeddedPostgres(own_dir) as server:
        names = ["fsync", "full_page_writes", "synchronous_commit", "listen_addresses", "max_connections"]
        assert [setting(server.url, name) for name in names] == ["on", "on", "on", "", "200"]


def test_settings_go_to_the_server(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir, settings={"work_mem": "5MB", "fsync": "off"}) as server:
        assert [setting(server.url, name) for name in ("work_mem", "fsync")] == ["5MB", "off"]


# The log


def test_a_failed_start_shows_its_part_of_the_log_and_the_next_one_works(data_dir: Path) -> None:
    (data_dir / "postgres.log").write_text("an old story\n")

    with pytest.raises(
        EmbeddedFailed, match=r"invalid value for parameter \"work_mem\": \"plenty\""
    ) as failed:
        EmbeddedPostgres(data_dir, settings={"work_mem": "plenty"}).start()

    assert "an old story" not in failed.value.message
    with EmbeddedPostgres(data_dir) as server:
        assert ask(server.url, "select 1") == [(1,)]


def test_a_log_that_grew_too_large_is_put_aside(own_dir: Path) -> None:
    with (own_dir / "postgres.log").open("wb") as log:
        log.truncate(engine.LOG_BYTES + 1)

    with EmbeddedPostgres(own_dir):
        assert (own_dir / "postgres.log").stat().st_size < 1_000_000
        assert (own_dir / "postgres.log.1").stat().st_size == engine.LOG_BYTES + 1


# Users


def test_the_last_to_leave_stops_the_server(data_dir: Path) -> None:
    first, second = EmbeddedPostgres(data_dir), EmbeddedPostgres(data_dir)
    assert first.start() == second.start()
    pid = second.pid

    assert first.stop() is False
    del first
    gc.collect()  # a forgotten Popen of a running server would warn here
    assert ask(second.url, "select 1") == [(1,)]
    assert second.stop() is True
    assert not is_alive(pid)


def test_processes_that_race_to_start_share_one_server(folder: Path) -> None:
    with ExitStack() as stack:
        users = [stack.enter_context(User(folder / "data")) for _ in range(4)]
        pids = {user.reads() for user in users}
        left = [user.leaves() for user in users]

    assert len(pids) == 1
    assert left == [False, False, False, True]
    assert not is_alive(int(pids.pop()))


def test_a_killed_user_counts_no_longer(data_dir: Path) -> None:
    # Its own child must not keep the share for it: that tells inheritable lock files.
    script = USER.replace(
        "print(server.pid",
        "import subprocess; print(subprocess.Popen(['sleep', '3600'], close_fds=False).pid, server.pid",
    )
    with User(data_dir, script=script) as user:
        child, pid = map(int, user.reads().split())
        server = EmbeddedPostgres(data_dir)
        server.start()
        user.is_killed()
        try:
            assert server.pid == pid
            assert server.stop() is True
        finally:
            os.kill(child, signal.SIGKILL)
    assert not is_alive(pid)


def test_a_killed_starter_leaves_the_server_to_the_next(data_dir: Path) -> None:
    with User(data_dir) as user:
        pid = int(user.reads())
        assert os.getsid(pid) == pid
        user.is_killed()

    with EmbeddedPostgres(data_dir) as server:
        assert server.pid == pid
        assert ask(server.url, "select 1") == [(1,)]
    assert not is_alive(pid)


# Starting and stopping


def test_starting_twice_and_stopping_twice_is_harmless(data_dir: Path) -> None:
    server = EmbeddedPostgres(data_dir)

    assert server.start() == server.start()
    assert [server.stop(), server.stop()] == [True, False]
    first = server.start()
    assert ask(first, "select 1") == [(1,)]
    assert server.stop() is True


def test_a_stop_waits_for_no_connection_and_leaves_neither_a_process_nor_a_socket(data_dir: Path) -> None:
    server = EmbeddedPostgres(data_dir)
    with psycopg.connect(server.start()):
        pid = server.pid
        assert server.stop() is True

    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    assert not (data_dir / "socket").exists()
    assert not (data_dir / "postgres" / "postmaster.pid").exists()


def test_a_server_that_does_not_stop_is_reported(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "STOP_SECONDS", 0.1)
    server = EmbeddedPostgres(data_dir)
    server.start()
    pid = server.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(EmbeddedFailed, match=f"kill -QUIT {pid}"):
            server.stop()
    finally:
        os.kill(pid, signal.SIGCONT)
    os.waitpid(pid, 0)


def test_a_start_during_a_stop_waits_and_starts_anew(data_dir: Path) -> None:
    file = data_dir / "postgres" / "postmaster.pid"
    with User(data_dir) as user, ThreadPoolExecutor() as threads:
        pid = int(user.reads())
        server = EmbeddedPostgres(data_dir)
        with psycopg.connect(server.start()):
            os.kill(pid, signal.SIGTERM)  # waits for the connection to close
            wait_until(lambda: "stopping" in _read(file))
            again = threads.submit(server.start)
        assert ask(again.result(SECONDS), "select 1") == [(1,)]
        assert server.pid != pid
        server.stop()


def test_url_and_pid_need_a_start(data_dir: Path) -> None:
    with pytest.raises(EmbeddedFailed, match="start"):
        _ = EmbeddedPostgres(data_dir).url


# Stale and foreign processes


def test_a_server_that_is_about_to_die_is_not_joined(own_dir: Path) -> None:
    """As one that was killed on a busy machine: its file says that it is ready, and it is among the processes."""
    with EmbeddedPostgres(own_dir) as server, ThreadPoolExecutor(1) as pool:
        dying = server.pid
        os.kill(dying, signal.SIGSTOP)
        again = pool.submit(server.start)
        with pytest.raises(TimeoutError):
            again.result(timeout=0.5)
        os.kill(dying, signal.SIGKILL)
        assert ask(again.result(timeout=SECONDS), "select 1") == [(1,)]
        assert server.pid != dying


@needs_proc
def test_a_killed_server_whose_socket_still_listens_is_waited_for(
    own_dir: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is ending has lost its command line, and has not closed its sockets yet."""
    place = own_dir / "socket"
    place.mkdir(exist_ok=True)
    choose_server_user().give(place)
    server = EmbeddedPostgres(own_dir)
    with sleeper() as dying, socket.socket(socket.AF_UNIX) as listening, ThreadPoolExecutor(1) as pool:
        listening.bind(str(place / ".s.PGSQL.5432"))
        listening.listen()
        lock = f"{dying.pid}\n{own_dir / 'postgres'}\n1700000000\n5432\n{place}\n\n"
        (own_dir / "postgres" / "postmaster.pid").write_text(lock)
        for name in ("self", str(dying.pid)):
            (folder / "proc" / name).mkdir(parents=True)
            (folder / "proc" / name / "cmdline").touch()
            (folder / "proc" / name / "status").touch()
        with monkeypatch.context() as patch:
            patch.setattr(engine, "PROC", folder / "proc")
            started = pool.submit(server.start)
            with pytest.raises(TimeoutError):
                started.result(timeout=0.5)
            listening.close()
        assert ask(started.result(timeout=SECONDS), "select 1") == [(1,)]
        assert server.stop() is True


def test_a_killed_server_recovers(own_dir: Path) -> None:
    with EmbeddedPostgres(own_dir) as server:
        pid = server.pid
        ask(server.url, "insert into kept values ('this')")
        kill_hard(server)

        server.start()

        assert server.pid != pid
        assert ask(server.url, "select * from kept") == [("this",)]
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def test_a_stale_pid_of_a_foreign_process_is_never_signalled(own_dir: Path) -> None:
    with sleeper() as foreign:
        lock = f"{foreign.pid}\n{own_dir / 'postgres'}\n1700000000\n5432\n{own_dir / 'socket'}\n\n"
        (own_dir / "postgres" / "postmaster.pid").write_text(lock)
        (own_dir / "socket").mkdir(exist_ok=True)
        choose_server_user().give(own_dir / "socket")
        (own_dir / "socket" / ".s.PGSQL.5432.lock").write_text(lock)

        with EmbeddedPostgres(own_dir) as server:
            assert ask(server.url, "select 1") == [(1,)]
            assert server.pid != foreign.pid
        assert foreign.poll() is None


def test_a_pid_that_changed_hands_while_we_ran_is_never_signalled(own_dir: Path) -> None:
    server = EmbeddedPostgres(own_dir)
    server.start()
    kill_hard(server)
    file = own_dir / "postgres" / "postmaster.pid"
    with sleeper() as foreign:
        file.write_text(file.read_text().replace(str(server.pid), str(foreign.pid)))

        assert server.stop() is False

        assert foreign.poll() is None


def test_a_copy_of_a_running_folder_is_a_folder_of_its_own(own_dir: Path, folder: Path) -> None:
    with EmbeddedPostgres(own_dir) as server:
        subprocess.run(["cp", "-a", own_dir, folder / "copy"], check=True)
        with EmbeddedPostgres(folder / "copy") as copy:
            assert copy.pid != server.pid
            assert ask(copy.url, "select 1") == [(1,)]
        assert ask(server.url, "select 1") == [(1,)]


def disguised(data: Path, *, as_user: bool) -> subprocess.Popen[bytes]:
    """A process with the command line of a postmaster, and of its user or of ourselves."""
    user = choose_server_user()
    argv = ["postgres", "-c", "read _", "-D", str(data)]
    uid = user.uid if as_user and user.dropped else None
    return subprocess.Popen(argv, executable="/bin/sh", stdin=subprocess.PIPE, user=uid)


@needs_proc
@pytest.mark.parametrize(("other", "as_user", "ours"), [("", True, True), ("-other", True, False)])
def test_only_a_postmaster_on_this_very_folder_is_ours(
    data_dir: Path, other: str, *, as_user: bool, ours: bool
) -> None:
    with disguised(Path(f"{data_dir / 'postgres'}{other}"), as_user=as_user) as process:
        assert Cluster(data_dir).owns(process.pid) is ours
        process.kill()


@needs_proc
@needs_root
def test_a_process_of_another_user_is_not_ours(data_dir: Path) -> None:
    with disguised(data_dir / "postgres", as_user=False) as process:
        assert not Cluster(data_dir).owns(process.pid)
        process.kill()


@pytest.mark.skipif(not Path("/bin/ps").exists(), reason="needs ps: install procps")
def test_without_proc_the_process_is_verified_with_ps(
    folder: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "other" / "postgres").mkdir(parents=True)
    choose_server_user().give(folder / "other" / "postgres")
    monkeypatch.setattr(engine, "PROC", folder / "no proc")
    with EmbeddedPostgres(data_dir) as server:
        pid = server.pid
        assert Cluster(data_dir).owns(pid)
        assert not Cluster(folder / "other").owns(pid)
        assert not Cluster(data_dir).owns(os.getpid())
    assert not is_alive(pid)


def test_a_server_we_did_not_start_is_neither_doubled_nor_stopped(own_dir: Path) -> None:
    link = own_dir.with_name("link")
    link.symlink_to(own_dir)
    (own_dir / "mine").mkdir()
    user = choose_server_user()
    user.give(own_dir / "mine")
    argv: list[str | Path] = [find_binaries().bin / "postgres", "-D", link / "postgres", "-h", ""]
    with user.popen([*argv, "-k", own_dir / "mine"], stdout=subprocess.DEVNULL) as stranger:
        wait_until(lambda: "ready" in _read(own_dir / "postgres" / "postmaster.pid"))

        with pytest.raises(EmbeddedFailed, match="already serves"):
            EmbeddedPostgres(own_dir).start()

        assert stranger.poll() is None
        stranger.send_signal(signal.SIGINT)


def _read(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def test_a_server_whose_folder_is_gone_is_stopped_all_the_same(own_dir: Path) -> None:
    server = EmbeddedPostgres(own_dir)
    server.start()
    pid = server.pid
    own_dir.rename(own_dir.with_name("gone"))

    assert server.stop() is True
    assert not is_alive(pid)


def test_a_replaced_folder_s_old_user_leaves_the_new_server_alone(own_dir: Path, data_dir: Path) -> None:
    old = EmbeddedPostgres(own_dir)
    old.start()
    own_dir.rename(own_dir.with_name("away"))
    subprocess.run(["cp", "-a", data_dir, own_dir], check=True)

    with EmbeddedPostgres(own_dir) as new:
        assert new.pid != old.pid
        old.stop()
        assert is_alive(new.pid)


# Paths


def test_a_path_with_odd_characters_works(folder: Path, own_dir: Path) -> None:
    odd = own_dir.rename(folder / "a b%20&c=ü'?")

    with EmbeddedPostgres(odd) as server:
        assert ask(server.url, "select 1") == [(1,)]
        assert server.url.endswith("socket&port=5432")


@pytest.mark.parametrize("name", ["long" * 40, "com,ma"])
def test_a_path_that_cannot_hold_a_socket_gets_a_temporary_one(
    folder: Path, own_dir: Path, name: str
) -> None:
    awkward = own_dir.rename(folder / name)
    first, second = EmbeddedPostgres(awkward), EmbeddedPostgres(awkward)

    assert first.start() == second.start()
    assert ask(first.url, "select 1") == [(1,)]
    place = (awkward / "socket").resolve()
    assert place.parent == Path(tempfile.gettempdir()).resolve()
    assert mode(place) == 0o700
    assert place.stat().st_uid == choose_server_user().uid
    first.stop()
    second.stop()
    assert not place.exists()


def test_the_address_of_a_temporary_socket_is_the_same_at_every_start(folder: Path, own_dir: Path) -> None:
    awkward = own_dir.rename(folder / ("long" * 40))
    with EmbeddedPostgres(awkward) as server:
        first, place = server.url, (awkward / "socket").resolve()
        kill_hard(server)
        assert server.start() == first
        server.stop()
        assert not place.exists()
        assert server.start() == first
        assert ask(first, "select 1") == [(1,)]
    assert not place.exists()


def test_a_strangers_folder_is_not_taken_for_a_temporary_socket(folder: Path, own_dir: Path) -> None:
    awkward = own_dir.rename(folder / ("long" * 40))
    with EmbeddedPostgres(awkward) as server:
        first, place = server.url, (awkward / "socket").resolve()
    place.symlink_to(folder)
    try:
        with EmbeddedPostgres(awkward) as server:
            assert server.url != first
            assert ask(server.url, "select 1") == [(1,)]
        assert place.is_symlink()
    finally:
        place.unlink()


def test_a_path_with_a_line_break_is_refused(folder: Path) -> None:
    with pytest.raises(EmbeddedFailed, match="line break"):
        EmbeddedPostgres(folder / "a\nb").start()


def test_a_folder_that_cannot_be_made_is_refused_with_advice(folder: Path) -> None:
    (folder / "file").touch()

    with pytest.raises(EmbeddedFailed, match="Choose"):
        EmbeddedPostgres(folder / "file" / "data").start()


# Binaries


@needs_wheel
def test_the_wheel_comes_first() -> None:
    found = find_binaries()

    assert (found.source, found.major) == ("wheel", 18)


def test_no_binaries_at_all_tells_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ground, "_iterate_folders", lambda: iter(()))

    with pytest.raises(EmbeddedUnavailable) as refused:
        find_binaries()

    for way in ("pip install 'fairlead[embedded]'", "PostgreSQL 15 or newer", "FAIRLEAD_DATABASE_URL"):
        assert way in refused.value.message


def test_too_old_binaries_do_not_count(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(folder / "old", "initdb", "exit 0")
    program(folder / "old", "postgres", "echo 'postgres (PostgreSQL) 14.23'")
    monkeypatch.setattr(ground, "_wheel_folders", list)
    monkeypatch.setattr(ground, "SYSTEM_FOLDERS", ())
    monkeypatch.setenv("PATH", str(folder / "old"))

    with pytest.raises(EmbeddedUnavailable):
        find_binaries()


def test_a_cluster_of_a_version_we_lack_is_refused_with_both_versions(own_dir: Path) -> None:
    (own_dir / "postgres" / "PG_VERSION").write_text("99\n")

    with pytest.raises(
        EmbeddedUnavailable, match=rf"needs PostgreSQL 99; .*PostgreSQL {find_binaries().major} "
    ):
        EmbeddedPostgres(own_dir).start()


def test_a_cluster_of_a_version_that_is_too_old_is_refused_without_the_advice_to_install_it(
    own_dir: Path,
) -> None:
    (own_dir / "postgres" / "PG_VERSION").write_text("14\n")

    with pytest.raises(EmbeddedUnavailable, match="Fairlead needs PostgreSQL 15 or later") as refused:
        EmbeddedPostgres(own_dir).start()

    assert "Install" not in refused.value.message


def test_given_binaries_that_do_not_fit_are_refused_with_both_versions(data_dir: Path, folder: Path) -> None:
    given = Binaries(folder, 99, "system")

    with pytest.raises(
        EmbeddedUnavailable, match=rf"PostgreSQL {find_binaries().major}, but .* PostgreSQL 99"
    ):
        EmbeddedPostgres(data_dir, binaries=given).start()


@pytest.mark.skipif(not OTHER.exists(), reason=f"needs {OTHER}: install postgresql-15")
def test_a_cluster_is_reopened_with_the_version_that_made_it(folder: Path) -> None:
    with EmbeddedPostgres(folder / "data", binaries=Binaries(OTHER, 15, "system")) as server:
        ask(server.url, "create table kept ()")

    with EmbeddedPostgres(folder / "data") as server:
        assert setting(server.url, "server_version").startswith("15.")
        assert ask(server.url, "select count(*) from kept") == [(0,)]


def test_a_system_without_flock_is_refused_with_advice(folder: Path) -> None:
    script = """
import sys
sys.modules["fcntl"] = None
from pathlib import Path
from fairlead.db.embedded import EmbeddedPostgres, find_binaries
from fairlead.errors import EmbeddedUnavailable
for attempt in (find_binaries, EmbeddedPostgres(Path(sys.argv[1])).start):
    try:
        attempt()
    except EmbeddedUnavailable as error:
        print(error.message)
"""
    said = subprocess.run(
        [sys.executable, "-c", script, folder / "data"], capture_output=True, text=True, check=True
    ).stdout.splitlines()

    assert ["FAIRLEAD_DATABASE_URL" in line for line in said] == [True, True]
    assert not (folder / "data").exists()


# Surroundings


@needs_proc
def test_the_server_has_nothing_of_our_environment_and_none_of_our_lock_files(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PGPORT", "PGDATA", "PGOPTIONS", "SECRET"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("LC_ALL", "tr_TR.UTF-8")

    with EmbeddedPostgres(data_dir) as server:
        environment = Path(f"/proc/{server.pid}/environ").read_bytes().split(b"\0")
        assert {pair.partition(b"=")[0] for pair in environment} <= {
            b"PATH",
            b"LC_ALL",
            b"",
            b"PG_GRANDPARENT_PID",
        }
        assert b"LC_ALL=C" in environment
        assert choose_server_user().run(["/bin/sh", "-c", "umask"]) == (0, "0077\n")
        assert Path(f"/proc/{server.pid}/fd/0").resolve() == Path("/dev/null")
        held = {file.resolve() for file in Path(f"/proc/{server.pid}/fd").iterdir()}
        assert data_dir / "postgres.log" in held
        assert not held & {data_dir / "postgres.lock", data_dir / "postgres.users"}


# Root


def owner_of(pid: int) -> int:
    return int(subprocess.run(["ps", "-o", "uid=", "-p", str(pid)], capture_output=True, check=True).stdout)


@needs_root
def test_root_s_server_runs_as_somebody_else_and_only_our_subfolders_are_theirs(folder: Path) -> None:
    data_dir = folder / "data"
    data_dir.mkdir(mode=0o755)
    (data_dir / "yours").touch(0o640)

    with EmbeddedPostgres(data_dir) as server:
        uid = owner_of(server.pid)
        owners = {path.name: path.stat().st_uid for path in data_dir.iterdir()}

    assert uid == choose_server_user().uid != 0
    assert {name for name, owner in owners.items() if owner == uid} == {"postgres", "socket"}
    assert (data_dir.stat().st_uid, mode(data_dir), mode(data_dir / "yours")) == (0, 0o755, 0o640)


@needs_root
def test_root_without_a_user_postgres_takes_nobody(own_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = pwd.getpwnam("nobody")
    subprocess.run(["chown", "-R", f"{nobody.pw_uid}:{nobody.pw_gid}", own_dir / "postgres"], check=True)

    with EmbeddedPostgres(own_dir) as server:
        assert owner_of(server.pid) == nobody.pw_uid

    missing = {"postgres"}
    known = pwd.getpwnam

    def getpwnam(name: str) -> Any:
        if name in missing:
            raise KeyError(name)
        return known(name)

    monkeypatch.setattr(pwd, "getpwnam", getpwnam)
    assert choose_server_user().name == "nobody"
    missing.add("nobody")
    with pytest.raises(EmbeddedUnavailable, match="root"):
        choose_server_user()


@needs_root
def test_a_folder_the_server_s_user_cannot_enter_has_its_cluster_elsewhere(
    closed: Path, system: Path
) -> None:
    data_dir = closed / "data"
    with EmbeddedPostgres(data_dir) as server:
        ask(server.url, "create table kept ()")
        assert owner_of(server.pid) == choose_server_user().uid
    place = system / "clusters" / (data_dir / "postgres.cluster").read_text()

    with EmbeddedPostgres(data_dir) as server:
        assert ask(server.url, "select count(*) from kept") == [(0,)]

    assert mode(closed) == 0o700
    assert closed.stat().st_uid == 0
    assert files_of(place) == {"origin", "postgres"}
    assert (place.stat().st_uid, (place / "postgres").stat().st_uid) == (0, choose_server_user().uid)


@needs_root
def test_deleting_the_data_folder_means_a_fresh_cluster_and_prunes_the_old(
    closed: Path, system: Path
) -> None:
    data_dir = closed / "data"
    with EmbeddedPostgres(data_dir) as server:
        ask(server.url, "create table kept ()")
    old = (data_dir / "postgres.cluster").read_text()
    shutil.rmtree(data_dir)

    with EmbeddedPostgres(data_dir) as server:
        new = (data_dir / "postgres.cluster").read_text()
        assert ask(server.url, "select count(*) from pg_tables where tablename = 'kept'") == [(0,)]
        assert files_of(system / "clusters") == {".lock", new}

    assert old != new


@needs_root
def test_a_running_cluster_is_not_pruned_though_its_folder_is_gone(
    closed: Path, system: Path, data_dir: Path
) -> None:
    orphan = EmbeddedPostgres(closed / "data")
    url = orphan.start()
    shutil.rmtree(closed / "data")

    with EmbeddedPostgres(data_dir):
        assert ask(url, "select 1") == [(1,)]
    assert orphan.stop() is True
    with EmbeddedPostgres(data_dir):
        assert files_of(system / "clusters") == {".lock"}


@needs_root
def test_a_moved_data_folder_takes_its_cluster_along_and_a_copied_one_does_not(
    closed: Path, system: Path
) -> None:
    with EmbeddedPostgres(closed / "data") as server:
        ask(server.url, "create table kept ()")
    moved = (closed / "data").rename(closed / "moved")

    with EmbeddedPostgres(moved) as server:
        assert ask(server.url, "select count(*) from kept") == [(0,)]
        shutil.copytree(moved, closed / "copy")
        with pytest.raises(EmbeddedFailed, match="copy of"):
            EmbeddedPostgres(closed / "copy").start()
        assert ask(server.url, "select count(*) from kept") == [(0,)]


@needs_root
def test_a_lost_cluster_is_not_silently_replaced_by_an_empty_one(closed: Path, system: Path) -> None:
    closed.joinpath("postgres.cluster").write_text("0123456789abcdef")

    with pytest.raises(EmbeddedFailed, match="is missing"):
        EmbeddedPostgres(closed).start()


@needs_root
@needs_wheel
@pytest.mark.parametrize("option", ["-a", "-rs"], ids=["files", "symlinks"])
def test_binaries_the_server_s_user_cannot_reach_are_copied_once(
    closed: Path, system: Path, data_dir: Path, option: str
) -> None:
    found = find_binaries()
    site, package = found.bin.parents[2], found.bin.parents[1].name
    (closed / package).mkdir()
    subprocess.run(["cp", option, found.bin.parent, closed / package], check=True)
    subprocess.run(["cp", option, site / f"{package}.libs", closed], check=True)
    unreachable = Binaries(closed / found.bin.relative_to(site), found.major, "wheel")

    for _ in range(2):
        with EmbeddedPostgres(data_dir, binaries=unreachable) as server:
            ran = Path(f"/proc/{server.pid}/exe").readlink()
            assert ask(server.url, "select 1") == [(1,)]

    [copy] = (system / "binaries").glob("postgresql-*")
    assert ran == copy / found.bin.relative_to(site) / "postgres"
    assert files_of(system / "binaries") == {".lock", copy.name}
    everything = [copy, *copy.rglob("*")]
    assert {(path.lstat().st_uid, mode(path) & 0o022) for path in everything} == {(0, 0)}
    assert not any(path.is_symlink() for path in everything)
    assert {mode(path) for path in everything if path.is_dir()} == {0o755}
    assert mode(closed) == 0o700


@needs_root
@needs_wheel
def test_a_strict_umask_of_ours_does_not_lock_the_server_out(closed: Path, system: Path) -> None:
    before = os.umask(0o077)
    try:
        with EmbeddedPostgres(closed / "data") as server:
            assert ask(server.url, "select 1") == [(1,)]
    finally:
        os.umask(before)
