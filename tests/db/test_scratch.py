"""Where a server of tests has its files."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import make_url

from fairlead.db import scratch
from fairlead.db.scratch import replace_database, scratch_folder
from tests.preloaded import Process
from tests.tables import each_case

HOLD = """
import sys
from pathlib import Path
from fairlead.db import scratch
scratch.MEMORY, scratch.ROOM = Path(sys.argv[1]), 0
with scratch.scratch_folder() as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is taken for memory, with room enough."""
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(scratch, "MEMORY", tmp_path)
    monkeypatch.setattr(scratch, "ROOM", 0)
    return tmp_path


def test_it_is_in_memory_where_there_is_room(memory: Path) -> None:
    with scratch_folder() as folder:
        assert folder.parent == memory
    assert list(memory.iterdir()) == []


@pytest.mark.parametrize("why", ["no room", "no memory", "TMPDIR"])
def test_else_it_is_where_temporary_folders_are(
    memory: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    if why == "no room":
        monkeypatch.setattr(scratch, "ROOM", 1 << 60)
    elif why == "no memory":
        monkeypatch.setattr(scratch, "MEMORY", memory / "nowhere")
    else:
        monkeypatch.setenv("TMPDIR", "/tmp")  # noqa: S108
    with scratch_folder() as folder:
        assert folder.parent != memory


@pytest.mark.thorough
def test_what_a_killed_process_left_is_taken_away_and_what_is_in_use_stays(memory: Path) -> None:
    processes = [
        Process(
            [sys.executable, "-c", HOLD, str(memory)],
            env=os.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    dead, alive = processes
    try:
        left, used = (Path(process.stdout.readline().strip()) for process in processes if process.stdout)
        dead.kill()
        dead.wait()
        new = memory / f"{scratch.PREFIX}new"
        new.mkdir()
        long_ago = time.time() - 2 * scratch.NEW_SECONDS
        for folder in (left, used):
            os.utime(folder, (long_ago, long_ago))
        with scratch_folder():
            assert [one.is_dir() for one in (left, used, new)] == [False, True, True]
    finally:
        alive.communicate()
        dead.communicate()
    assert not used.exists()


@each_case(
    "server",
    [
        "postgresql://a%40b:p%2Fw%20x@db.example:5433/production?sslmode=require",
        "host=/tmp/a port=5433 user=me",
        "dbname=production password=secret",
        "postgresql:///production",
        "postgresql://one.example,two.example:5433/production?options=-c%20a%3Db",
    ],
)
def test_another_database_of_a_server_has_a_url_that_says_the_same(server: str) -> None:
    url = replace_database(server, "shop 1")

    # of several servers, the primary: see db/addresses.py
    primary = {"target_session_attrs": "read-write"} if "," in server else {}
    assert conninfo_to_dict(url) == {**conninfo_to_dict(server), "dbname": "shop 1", **primary}
    assert make_url(url).database == "shop 1"
