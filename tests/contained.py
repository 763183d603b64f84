"""Run a command, and end every process and remove every temporary folder that it leaves behind.

    python tests/contained.py [--grace SECONDS] COMMAND ARGUMENTS ...

This works also after Ctrl-C, and if this program or the `make` that started it is killed: a keeper in a session of its own
adopts all descendants of the command, and ends them when the command or this program has ended. A command that succeeds and
leaves processes behind is a fault: this program names them and exits with 1.

With TEST_MEMORY_GIB in the environment it also looks every two seconds how much memory all processes and their files in memory
take together, tells the most at the end, and fails a command that took more. No limit of the system is used: those that an
ordinary user can set count a process alone (RLIMIT_DATA), or also addresses without memory, of which Chromium has terabytes
(RLIMIT_AS).
"""

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

MEMORY = Path("/dev/shm")  # noqa: S108 - mkdtemp makes a private folder there
GIB = 1 << 30
ROOM = 2 * GIB
# How long other processes have to end by themselves after the command (--grace), and the command after Ctrl-C.
GRACE_SECONDS = 15.0
# PostgreSQL ends its sessions on SIGTERM, and all at once on SIGQUIT; it then leaves no shared memory.
ENDINGS = ((signal.SIGTERM, 5.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 30.0))
LIMIT = "TEST_MEMORY_GIB"
LOOK_SECONDS = 2.0
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
FAILED = 1


def main(argv: Sequence[str]) -> int:
    """Run the command and wait for its keeper."""
    grace = GRACE_SECONDS
    if argv[:1] == ["--grace"]:
        grace, argv = float(argv[1]), argv[2:]
    if sys.platform != "linux":  # elsewhere nothing adopts orphans
        return subprocess.call(argv)
    parent = os.getppid()
    alive, held = os.pipe()  # the keeper sees its end if this process ends, for whatever reason
    keeper = os.fork()
    if keeper == 0:
        os.close(held)
        os._exit(keep(argv, alive, grace))
    os.close(alive)

    def pass_on(number: int, _frame: FrameType | None) -> None:
        os.kill(keeper, number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_on)
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(keeper, signal.SIGTERM)
    _, status = os.waitpid(keeper, 0)
    return os.waitstatus_to_exitcode(status)


# The keeper


def keep(argv: Sequence[str], alive: int, grace: float) -> int:
    """Run the command to its end, or until this process is told to end or its parent has ended; then clean up."""
    os.setsid()
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signals: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: signals.append(number))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    folder = Path(tempfile.mkdtemp(prefix="tests-", dir=_choose_memory()))
    folder.chmod(0o711)  # root's PostgreSQL runs as another user
    memory = Memory(folder)
    try:
        command = subprocess.Popen(argv, env=os.environ | _name_folder(folder))
        ended_early = False
        while command.poll() is None:
            memory.look()
            ready, _, _ = select.select([woken, alive], [], [], LOOK_SECONDS if memory.limit else None)
            if signals or alive in ready:
                ended_early = True
                break
            if woken in ready:
                os.read(woken, 4096)
                _reap(command.pid)
        status = _end_command(command) if ended_early else command.returncode
        left = end_descendants(0.0 if ended_early else grace)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if left and not ended_early:
        sys.stderr.write(f"These processes were left running, and have been ended: {'; '.join(left)}\n")
        return status or FAILED
    if memory.limit:
        sys.stderr.write(
            f"At most {memory.most / GIB:.2f} of {memory.limit / GIB:g} GiB of memory were taken.\n"
        )
    if memory.most > memory.limit:
        return status or FAILED
    return status if status >= 0 else 128 - status


def _end_command(command: subprocess.Popen[bytes]) -> int:
    """Interrupt it as Ctrl-C would, and give it time to say so."""
    command.send_signal(signal.SIGINT)
    deadline = time.monotonic() + GRACE_SECONDS
    while command.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    command.kill()
    return command.wait() or FAILED


def end_descendants(grace: float) -> list[str]:
    """End all processes below this one; the command lines of those that did not end by themselves in that time."""
    _wait_for_ends(grace)
    left = [_describe(pid) for pid in list_descendants()]
    for number, seconds in ENDINGS:
        for pid in list_descendants():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        _wait_for_ends(seconds)
    return left


def _wait_for_ends(seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while list_descendants() and time.monotonic() < deadline:
        _reap()
        time.sleep(0.02)


def list_descendants() -> list[int]:
    """The processes below this one that still run. Orphans among them are children of this process."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state, parent, *_ = (entry / "stat").read_text("utf-8", "replace").rpartition(") ")[2].split()
                if state != "Z":
                    parents[int(entry.name)] = int(parent)
    family = {os.getpid()}
    while below := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= below
    return sorted(family - {os.getpid()})


class Memory:
    """What all processes below this one and their files in memory took at most, if there is a limit."""

    def __init__(self, folder: Path) -> None:
        self.limit = float(os.environ.get(LIMIT, "0")) * GIB
        self.most = 0
        self._folder = folder
        self._due_at = 0.0

    def look(self) -> None:
        """Measure, unless that was done a moment ago."""
        if self.limit and time.monotonic() >= self._due_at:
            self.most = max(self.most, measure_memory(self._folder))
            self._due_at = time.monotonic() + LOOK_SECONDS


def measure_memory(folder: Path) -> int:
    """The bytes of memory of all processes below this one, each shared page counted once, and of the files in the folder."""
    files = 0
    if folder.is_relative_to(MEMORY):
        for place, _, names in os.walk(folder):
            for name in names:
                with contextlib.suppress(OSError):
                    files += Path(place, name).stat().st_blocks * 512
    return files + sum(map(_measure_process, list_descendants()))


def _measure_process(pid: int) -> int:
    """Its share of the pages that the system cannot drop: a page that three processes share is a third of a page of each.

    Pages of files, such as programs and libraries, are read again when they are needed.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    except OSError:  # it has ended, or hides its memory
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))


def _reap(but: int = -1) -> None:
    """Let go of the children that have ended: all, or all but the command, for which subprocess waits."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid != but:
            os.waitpid(ended.si_pid, 0)


def _describe(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        words = []
    return f"{pid} {' '.join(words)[:120]}"


def _choose_memory() -> Path | None:
    """Memory if there is enough and programs may run there: dozens of tests make a PostgreSQL cluster."""
    try:
        is_roomy = shutil.disk_usage(MEMORY).free >= ROOM and os.access(MEMORY, os.W_OK)
        is_usable = is_roomy and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
    except OSError:
        return None
    return MEMORY if is_usable and "TMPDIR" not in os.environ else None


def _name_folder(folder: Path) -> dict[str, str]:
    """The environment that makes programs, and pytest, keep their temporary files there."""
    return {"TMPDIR": str(folder), "PYTEST_DEBUG_TEMPROOT": str(folder)}


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
