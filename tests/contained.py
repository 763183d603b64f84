"""Run a command, and end every process and remove every temporary folder that it leaves behind.

    python tests/contained.py [--grace SECONDS] COMMAND ARGUMENTS ...

This works also after Ctrl-C, and if this program or the `make` that started it is killed: a keeper in a session of its own
adopts all descendants of the command, and ends them when the command or this program has ended. A command that succeeds and
leaves processes behind is a fault: this program names them and exits with 1.
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
ROOM = 2 << 30
# How long other processes have to end by themselves after the command (--grace), and the command after Ctrl-C.
GRACE_SECONDS = 15.0
# PostgreSQL ends its sessions on SIGTERM, and all at once on SIGQUIT; it then leaves no shared memory.
ENDINGS = ((signal.SIGTERM, 5.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 30.0))
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
    try:
        command = subprocess.Popen(argv, env=os.environ | _name_folder(folder))
        ended_early = False
        while command.poll() is None:
            ready, _, _ = select.select([woken, alive], [], [])
            if signals or alive in ready:
                ended_early = True
                break
            os.read(woken, 4096)
            _reap(command.pid)
        status = _end_command(command) if ended_early else command.returncode
        left = end_descendants(0.0 if ended_early else grace)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if left and not ended_early:
        sys.stderr.write(f"These processes were left running, and have been ended: {'; '.join(left)}\n")
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
        time.sleep(0.02)


def list_descendants() -> list[int]:
    """The processes below this one that still run. Orphans among them are children of this process."""
    _reap()
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
