import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from fairlead.handlers import supervisor
from fairlead.handlers.supervisor import MessageLink, find_descendants, pack
from tests.handlers.attempts import dead
from tests.handlers.commands import MARK, marked
from tests.processes import until
from tests.waiting import SECONDS


class Told:
    """A supervisor, spoken to without a worker."""

    def __init__(self, process: "subprocess.Popen[bytes]", sock: socket.socket) -> None:
        self.process = process
        self.link = MessageLink(sock)
        self.heard: list[dict[str, Any]] = []
        self.null = os.open(os.devnull, os.O_RDWR)

    def run(self, number: int, *argv: str, **env: str) -> None:
        request = {
            "argv": list(argv),
            "env": env,
            "cwd": "/",
            "umask": 0,
            "limits": {},
            "uid": None,
            "gid": None,
        }
        self.link.send({"op": "run", "run": number, "fds": 3, **request}, [self.null] * 3)

    def hears(self, number: int, what: str) -> dict[str, Any]:
        """Wait for a message about a run."""
        while True:
            for message in self.heard:
                if message["run"] == number and what in message:
                    return message
            heard = self.link.receive()
            assert heard is not None
            self.heard += [message for message, _ in heard]


@contextmanager
def supervising(folder: Path) -> Iterator[Told]:
    ours, theirs = socket.socketpair()
    ours.settimeout(SECONDS)
    argv = [sys.executable, "-I", "-S", supervisor.__file__, str(theirs.fileno()), str(folder)]
    process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], start_new_session=True)
    theirs.close()
    told = Told(process, ours)
    try:
        yield told
    finally:
        ours.close()
        os.close(told.null)
        assert process.wait(SECONDS) == 0


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "left.json").touch()
    with supervising(folder) as one:
        yield one
    assert not folder.exists()


def test_a_short_run_is_told_of_at_once_and_a_long_one_as_it_goes(told: Told) -> None:
    told.run(1, "/bin/sh", "-c", "exit 3")
    assert told.hears(1, "gone")["exit"] == 3
    told.heard.clear()
    told.run(2, "/bin/sleep", "300")
    assert "gone" not in told.hears(2, "pid")
    told.link.send({"op": "stop", "run": 2, "grace": 0})

    assert told.hears(2, "gone")["signal"] == 9


def test_a_keeper_is_used_again_and_again(told: Told) -> None:
    for number in range(1, 6):
        told.run(number, "/bin/true")
        told.hears(number, "gone")

    assert len(find_descendants(told.process.pid)) == 1


def test_the_keepers_of_many_are_not_all_kept(told: Told) -> None:
    for number in range(1, 41):
        told.run(number, "/bin/sleep", "300")
    for number in range(1, 41):
        told.hears(number, "pid")  # all at the same time, so each has a keeper
    for number in range(1, 41):
        told.link.send({"op": "stop", "run": number, "grace": 0})
    for number in range(1, 41):
        told.hears(number, "gone")

    until(lambda: len(find_descendants(told.process.pid)) == supervisor.FEW_IDLE, "most keepers to end")


def test_a_supervisor_that_is_not_listened_to_still_kills_in_time(told: Told) -> None:
    """As that of a worker that was stopped."""
    mark = uuid4().hex
    told.link.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    told.run(1, "/bin/sleep", "300", **{MARK: mark})
    told.hears(1, "pid")
    told.link.send({"op": "alive", "seconds": 60})
    for number in range(2, 500):
        told.run(number, "/bin/true")
    told.link.send({"op": "alive", "seconds": 0.5})

    # three times as many messages wait as its socket takes
    until(lambda: not marked(mark), "the command to be killed")
    for number in range(1, 500):
        told.hears(number, "gone")


def test_a_command_is_asked_first_and_killed_when_its_grace_is_over(told: Told) -> None:
    told.run(1, "/bin/sh", "-c", "trap '' TERM; sleep 300; sleep 300")
    pid = told.hears(1, "pid")["pid"]
    until(lambda: len(find_descendants(told.process.pid)) == 3, "its child")

    told.link.send({"op": "stop", "run": 1, "grace": 0.2})

    assert told.hears(1, "signal")["signal"] == 9
    told.hears(1, "gone")
    assert dead(pid)


def test_everything_ends_when_the_worker_is_gone(tmp_path: Path) -> None:
    mark = uuid4().hex
    with supervising(tmp_path / "none") as told:
        told.run(1, "/bin/sh", "-c", "trap '' TERM; setsid sleep 300 & sleep 300; sleep 300", **{MARK: mark})
        told.hears(1, "pid")
        until(lambda: len(marked(mark)) == 3, "its children")

    assert not marked(mark)


def test_what_cannot_be_started_is_told_with_its_reason(told: Told) -> None:
    told.run(1, "/bin/not-there")
    assert "No such file" in told.hears(1, "trouble")["trouble"]
    told.hears(1, "gone")

    told.run(2, "/bin/true")
    assert told.hears(2, "exit")["exit"] == 0


def test_messages_arrive_whole_however_they_come_and_each_with_its_descriptors() -> None:
    ours, theirs = socket.socketpair()
    here, there = MessageLink(ours), MessageLink(theirs)
    large = {"op": "run", "fds": 2, "text": "x" * 100_000}
    read, write = os.pipe()
    with ours, theirs:
        here.send({"op": "a", "fds": 1}, [read])
        here.send(large, [read, write])
        half = pack({"op": "c"})
        ours.sendall(half[:3])
        heard: list[Any] = []
        while len(heard) < 2:
            heard += there.receive() or []
        ours.sendall(half[3:])
        heard += there.receive() or []
        ours.shutdown(socket.SHUT_WR)
        assert there.receive() is None

    assert [message for message, _ in heard] == [{"op": "a", "fds": 1}, large, {"op": "c"}]
    assert [len(fds) for _, fds in heard] == [1, 2, 0]
    os.write(heard[1][1][1], b"through")
    assert os.read(heard[0][1][0], 10) == b"through"
    for fd in (read, write, *(fd for _, fds in heard for fd in fds)):
        assert not os.get_inheritable(fd)
        os.close(fd)
