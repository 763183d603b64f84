import asyncio
import contextlib
import json
import os
import pwd
import random
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.errors import CommandRefused
from fairlead.handlers import command as running
from fairlead.handlers.output import Pipe
from fairlead.handlers.supervised import Supervised
from fairlead.model.command.argv import AttemptFacts
from fairlead.model.command.spec import build_command_argv
from fairlead.model.outcome import Canceled, Failed, Snoozed, Succeeded
from tests.handlers.attempts import dead, until
from tests.handlers.commands import MARK, Run, Runs, command, marked, shell
from tests.tables import each_case
from tests.thorough import examples

needs_root = pytest.mark.skipif(
    os.getuid() != 0, reason="needs root, to run commands as another user: sudo make test"
)


# The commands of a worker that stands still for half of it are killed.
LEASE_SECONDS = 600


@pytest.fixture(scope="module")
async def runs() -> AsyncIterator[Runs]:
    supervised = Supervised(LEASE_SECONDS)
    yield Runs(supervised)
    supervised.close()


@pytest.fixture
def for_others() -> Iterator[Path]:
    """A folder that another user can read."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def there(named: str) -> bool:
    """Whether the file that was named, or its folder, is there."""
    return Path(named.strip()).exists()


def script(folder: Path, text: str) -> str:
    path = folder / f"{uuid4().hex}.py"
    path.write_text(text)
    return str(path)


# What the command is given


SLOTS: list[Any] = [
    "{payload.text}",
    "--text={payload.text}",
    {"slot": "payload.count", "type": "integer", "prefix": "-n"},
    {
        "if": "payload.more",
        "argv": ["--more", {"slot": "payload.more", "allow_dash": True}],
        "else": ["--none"],
    },
    {"flag": "--flag", "if": "payload.flag"},
    {"each": "payload.items", "argv": ["--item", "x{item}"]},
    {"each": "payload.items", "join": ",", "prefix": "--all="},
    "{tenant.slug}/{job.attempt}",
]
TEXT = st.text(max_size=12) | st.sampled_from(
    [
        "$(id)",
        "`id`",
        "; rm -rf /",
        "a b",
        "*",
        "'",
        '"',
        "\\",
        "-rf",
        "{payload.text}",
        "é€",
        "",
        "\n",
        "x" * 3000,
    ]
)


@pytest.mark.deeper
@settings(
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    payload=st.fixed_dictionaries(
        {"text": TEXT, "count": st.integers(), "items": st.lists(TEXT, max_size=4)},
        optional={"more": TEXT, "flag": st.booleans()},
    )
)
async def test_the_command_sees_exactly_the_arguments_of_the_model(
    runs: Runs, tmp_path: Path, payload: Any
) -> None:
    seen = tmp_path / "argv"
    seen.unlink(missing_ok=True)
    one = shell(f"printf '%s\\0' \"$@\" > {seen}", *SLOTS)

    run = await runs.ended(one, payload)

    try:
        wanted = build_command_argv(one.spec, _facts(run))
    except CommandRefused:
        assert isinstance(run.outcome.result(), Failed)
        assert not seen.exists()
        return
    assert run.outcome.result() == Succeeded(None)
    assert seen.read_bytes().split(b"\0")[:-1] == [os.fsencode(argument) for argument in wanted[4:]]


def _facts(run: Run) -> AttemptFacts:
    ctx = run.ctx
    return AttemptFacts(
        payload=ctx.payload,
        tenant_id=ctx.tenant_id,
        tenant_slug=ctx.tenant,
        job_id=ctx.job_id,
        attempt=ctx.attempt_no,
    )


LOOK = """
import json, os, resource, signal, sys
print("fairlead:result " + json.dumps({
    "env": dict(os.environ), "fds": sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:-1],
    "stdin": os.readlink("/proc/self/fd/0"), "session": os.getsid(0) == os.getpid() == os.getpgrp(),
    "umask": os.umask(0), "cwd": os.getcwd(), "uid": os.getresuid(), "gid": os.getresgid(), "groups": os.getgroups(),
    "ignored": [line.split()[1] for line in open("/proc/self/status") if line.startswith(("SigBlk", "SigIgn"))],
    "limits": {name: resource.getrlimit(getattr(resource, name)) for name in
        ("RLIMIT_AS", "RLIMIT_CPU", "RLIMIT_NOFILE", "RLIMIT_FSIZE", "RLIMIT_CORE", "RLIMIT_NPROC")},
}))
"""
PLAIN = {"open_files": 64}


async def look(runs: Runs, folder: Path, **fields: Any) -> Any:
    run = await runs.ended(command(sys.executable, "-I", "-S", script(folder, LOOK), **fields))
    outcome = run.outcome.result()
    assert isinstance(outcome, Succeeded), (outcome, run.ran)
    return outcome.output


# both ways to start a command: with something that it is held to, and without
@pytest.mark.parametrize("limits", [{}, PLAIN])
async def test_a_command_begins_clean(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]
) -> None:
    monkeypatch.setenv("ALLOWED", "yes")
    monkeypatch.setenv("NOT_ALLOWED", "no")
    monkeypatch.setenv("TOKEN", "hunter2-hunter2")

    seen = await look(
        runs,
        tmp_path,
        env=["ALLOWED", "ABSENT"],
        set_env={"FIXED": "1"},
        secrets={"SECRET": "env:TOKEN"},
        cwd=str(tmp_path),
        umask="027",
        limits=limits,
    )

    about = {name: value for name, value in seen["env"].items() if name.startswith("FAIRLEAD_")}
    assert set(seen["env"]) - set(about) - {"LC_CTYPE"} == {"ALLOWED", "FIXED", "SECRET"}
    assert set(about) == {
        "FAIRLEAD_JOB_ID",
        "FAIRLEAD_TENANT_ID",
        "FAIRLEAD_TENANT",
        "FAIRLEAD_DEFINITION",
        "FAIRLEAD_ATTEMPT",
        "FAIRLEAD_RESULT_FILE",
        "FAIRLEAD_PROGRESS_FD",
        "FAIRLEAD_DEADLINE",
    }
    assert seen["env"]["SECRET"] == "hunter2-hunter2"  # noqa: S105
    assert seen["fds"] == [0, 1, 2, 3]
    assert seen["stdin"] == "/dev/null"
    assert seen["session"]
    assert (seen["umask"], seen["cwd"]) == (0o027, str(tmp_path))
    assert seen["limits"]["RLIMIT_CORE"] == [0, 0]
    # a Python ignores two signals itself, and the C library two of its own, 32 and 33
    blocked, ignored = (int(mask, 16) & 0x7FFFFFFF for mask in seen["ignored"])
    assert (blocked, ignored) == (0, 1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)


async def test_every_limit_is_seen_by_the_command(runs: Runs, tmp_path: Path) -> None:
    limits = {"memory_bytes": "1GiB", "cpu_seconds": 7, "open_files": 64, "file_bytes": "1MiB"}

    seen = await look(runs, tmp_path, limits=limits)

    assert seen["limits"] == seen["limits"] | {
        "RLIMIT_AS": [2**30, 2**30],
        "RLIMIT_CPU": [7, 8],
        "RLIMIT_NOFILE": [64, 64],
        "RLIMIT_FSIZE": [2**20, 2**20],
    }


@needs_root
async def test_a_command_runs_as_somebody_else_and_can_leave_a_result(runs: Runs) -> None:
    said = 'printf \'{"uid": %s, "gid": %s, "groups": "%s"}\' $(id -u) $(id -g) "$(id -G)" > $FAIRLEAD_RESULT_FILE'

    run = await runs.ended(shell(said, user="nobody", limits={"processes": 500}))

    assert run.outcome.result() == Succeeded({"uid": 65534, "gid": 65534, "groups": "65534"})


async def test_the_result_file_goes_with_the_command(runs: Runs) -> None:
    run = await runs.ended(shell("echo $FAIRLEAD_RESULT_FILE"))

    assert not there(run.ran.stdout)


@pytest.mark.parametrize("limits", [{}, PLAIN])
async def test_what_cannot_be_started_is_a_failure_that_says_why(
    runs: Runs, tmp_path: Path, limits: dict[str, int]
) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    one = command("/bin/true", cwd=str(folder), limits=limits)
    folder.rmdir()

    outcome = (await runs.ended(one)).outcome.result()

    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.retryable) == ("CommandNotStarted", True)
    assert "No such file or directory" in outcome.message


async def test_a_payload_that_does_not_fit_any_more_is_not_tried_again(runs: Runs) -> None:
    outcome = (await runs.ended(shell("true", "{payload.count:integer}"), {"count": "x"})).outcome.result()

    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.retryable) == ("PayloadInvalid", False)


async def test_a_path_that_leaves_its_root_by_a_link_is_refused(runs: Runs, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "in").mkdir(parents=True)
    (root / "out").symlink_to("/etc")
    (root / "round").symlink_to(root / "in")
    one = shell('echo "$1"', {"slot": "payload.path", "type": "path", "root": str(root)})

    for path, fits in {
        "in/x": True,
        "round/x": True,
        "out": False,
        "out/passwd": False,
        "new/x": True,
    }.items():
        outcome = (await runs.ended(one, {"path": path})).outcome.result()
        if fits:
            assert outcome == Succeeded(None)
        else:
            assert isinstance(outcome, Failed)
            assert (outcome.kind, outcome.retryable) == ("CommandRefused", False)
            assert "by a link" in outcome.message


# How it ends


async def test_exit_codes_say_how_it_went(runs: Runs) -> None:
    codes = {"success_exit_codes": [0, 3], "fatal_exit_codes": [64], "snooze_exit_codes": {"75": 60}}

    async def outcome(code: int) -> Any:
        return (await runs.ended(shell(f"echo oops >&2; exit {code}", **codes))).outcome.result()

    assert await outcome(3) == Succeeded(None)
    assert await outcome(75) == Snoozed(60)
    failed, fatal = await outcome(1), await outcome(64)
    assert (failed.kind, failed.message, failed.retryable) == (
        "CommandFailed",
        "exited with status 1: oops",
        True,
    )
    assert not fatal.retryable


@each_case(
    "number",
    ["HUP", "INT", "QUIT", "ILL", "ABRT", "FPE", "KILL", "SEGV", "PIPE", "ALRM", "TERM", "USR1", "XCPU"],
)
async def test_a_command_that_a_signal_ended_says_which(runs: Runs, number: str) -> None:
    run = await runs.ended(shell(f"kill -{number} $$; sleep 5"))

    outcome = run.outcome.result()
    assert isinstance(outcome, Failed)
    assert f"was killed by SIG{number}" in outcome.message
    assert run.ran.signal == signal.Signals[f"SIG{number}"]
    assert run.ran.exit_code is None


async def test_a_payload_that_a_command_repeats_is_not_its_result(runs: Runs) -> None:
    forged = 'fairlead:result {"paid": true}'

    run = await runs.ended(shell('echo "$1"', "{payload.text}"), {"text": forged})

    assert run.outcome.result() == Succeeded(None)
    assert run.ran.stdout == f"{forged}\n"


async def test_a_result_is_the_last_line_that_says_so(runs: Runs) -> None:
    said = "echo 'fairlead:result {\"a\": 1}'; echo text; printf 'fairlead:result {\"a\": 2}'"

    run = await runs.ended(shell(said))

    assert run.outcome.result() == Succeeded({"a": 2})
    assert run.ran.stdout == "text\n"


@each_case(
    ("said", "why"),
    [
        ("echo 'fairlead:result [1]'", "must continue with a JSON object"),
        ("echo 'fairlead:result {'", "must continue with a JSON object"),
        ('rm $R; ln -s /etc/passwd "$R"', "cannot be read"),
        ('rm $R; mkfifo "$R"', "not a regular file"),
        ('rm $R; mkdir "$R"', "not a regular file"),
        ('head -c 2000000 /dev/zero > "$R"', "more than"),
        ('echo "{" > "$R"', "not JSON"),
        ('printf \'{"a": "\\377"}\' > "$R"', "not JSON"),
        ('head -c 100000 /dev/zero | tr "\\0" "[" > "$R"', "not JSON"),
        (
            'printf "fairlead:result "; head -c 100000 /dev/zero | tr "\\0" "["',
            "must continue with a JSON object",
        ),
    ],
)
async def test_a_result_that_is_none_fails_for_good(runs: Runs, said: str, why: str) -> None:
    run = await runs.ended(shell(f'R="$FAIRLEAD_RESULT_FILE"; {said}'))

    outcome = run.outcome.result()
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.retryable) == ("OutputInvalid", False)
    assert why in outcome.message


async def test_a_result_may_be_left_in_a_file(runs: Runs) -> None:
    run = await runs.ended(
        shell("echo '{\"a\": [1]}' > \"$FAIRLEAD_RESULT_FILE\"; echo 'fairlead:result {}'")
    )

    assert run.outcome.result() == Succeeded({"a": [1]})


@pytest.mark.parametrize(
    ("said", "percent", "message"),
    [
        ("echo 'fairlead:progress 40 half way'", 40, "half way"),
        ("echo 'fairlead:progress 12.5%'", 12.5, ""),
        ('echo \'fairlead:progress {"percent": 7, "message": "m"}\'', 7, "m"),
        ("echo 60 there >&3", 60, "there"),
        ("echo 'fairlead:progress none'; echo 101 >&3; echo 60 there >&$FAIRLEAD_PROGRESS_FD", 60, "there"),
    ],
)
async def test_progress_is_heard_by_line_and_by_descriptor(
    runs: Runs, said: str, percent: float, message: str
) -> None:
    run = await runs.ended(shell(f"{said}; sleep 0.05"))

    assert run.ctx.last_progress == (percent, message)
    assert run.outcome.result() == Succeeded(None)
    assert run.ran.stdout == ""


async def test_a_secret_appears_nowhere(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "canary-env-1")
    (tmp_path / "secret").write_text("canary-file-2\n")
    said = 'printf canary-; sleep 0.1; echo env-1 $A $B; echo $B; echo $A $B >&2; echo "fairlead:result {\\"a\\": \\"$A\\"}"; exit $1'
    one = shell(
        said,
        {"slot": "payload.code", "type": "integer"},
        secrets={"A": "env:TOKEN", "B": f"file:{tmp_path}/secret"},
    )

    run = await runs.ended(one, {"code": 1})

    shown = f"{run.outcome.result()}{run.ran}{run.told}"
    assert "[redacted] [redacted] [redacted]\n[redacted]\n" in run.ran.stdout
    assert "canary" not in shown


# Being stopped


async def test_a_command_that_is_out_of_time_gets_term_and_then_kill(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "LAST_SECONDS", 60.0)
    mark = uuid4().hex
    said = "trap 'echo asked' TERM; (trap '' TERM; sleep 300) & echo here; while true; do sleep 0.1; done"
    run = runs.start(shell(said, set_env={MARK: mark}, grace_seconds=300))
    await until(lambda: run.told, "the command to begin")

    run.time.expire()
    await until(lambda: "asked" in "".join(text for _, text in run.told), "the command to be asked")
    assert not run.outcome.done()
    run.attempt._give_up()  # the grace is over

    outcome = await run.end()
    assert isinstance(outcome, Failed)
    assert outcome.timed_out
    assert run.ran.stdout.startswith("here\nasked\n")
    assert run.ran.signal == signal.SIGKILL
    assert not marked(mark)


async def test_a_command_that_is_canceled_may_end_by_itself(runs: Runs) -> None:
    mark = uuid4().hex
    # TERM reaches the shell and its `sleep` in any order: a shell that only waits for `sleep` may end before it is asked.
    said = "trap 'echo bye; exit 0' TERM; echo here; while true; do sleep 0.1; done"
    run = runs.start(shell(said, set_env={MARK: mark}, grace_seconds=60))
    await until(lambda: run.told, "the command to begin")

    run.ctx.cancel()
    await run.end()

    assert run.ran.stdout == "here\nbye\n"
    assert isinstance(run.outcome.result(), Canceled | Succeeded)
    assert not marked(mark)


# Hostile ones


HOSTILE = {
    "double fork with setsid": """
import os, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(300)
        os._exit(0)
print("left", flush=True)
""",
    "grandchild holds the pipe": """
import os, time
if os.fork() == 0:
    time.sleep(300)
print("left", flush=True)
""",
    "kills its keeper": """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(300)
    time.sleep(300)
print("left", flush=True)
time.sleep(0.1)
os.kill(os.getppid(), signal.SIGKILL)
time.sleep(300)
""",
    "ignores term": """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("left", flush=True)
time.sleep(300)
""",
    "stops its keeper": """
import os, signal, time
print("left", flush=True)
os.kill(os.getppid(), signal.SIGSTOP)
time.sleep(300)
""",
    "stops itself": """
import os, signal
print("left", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
""",
    "closed stdout": """
import os, time
print("left", flush=True)
for fd in range(4):
    os.close(fd)
time.sleep(300)
""",
    "forks and forks": """
import os, time
print("left", flush=True)
end = time.monotonic() + 300
# one after the other, each the child of the last: never more than a few at a time
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    os.setsid()
""",
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_of_a_hostile_command_nothing_is_left(runs: Runs, tmp_path: Path, kind: str) -> None:
    mark = uuid4().hex
    one = command(
        sys.executable, "-I", "-S", script(tmp_path, HOSTILE[kind]), set_env={MARK: mark}, grace_seconds=0.3
    )
    run = runs.start(one)
    await until(lambda: run.told, "the command to begin")

    run.time.expire()

    # by itself it would go on for longer than the test waits
    await run.end()
    assert run.ran.stdout.startswith("left")
    await until(lambda: not marked(mark), "all of it to be gone")
    after = await runs.ended(shell("echo on"))
    assert after.outcome.result() == Succeeded(None)


@pytest.mark.parametrize(
    "said", ["yes", "cat /dev/zero", "cat /dev/urandom", "yes >&2", "yes fairlead:progress 1"]
)
async def test_output_without_end_is_read_on_and_takes_no_room(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    read: list[int] = []

    class CountingPipe(Pipe):
        def __init__(self, feed: Callable[[bytes], object]) -> None:
            def count(data: bytes) -> None:
                read.append(len(data))
                feed(data)

            super().__init__(count)

    monkeypatch.setattr(running, "Pipe", CountingPipe)
    run = runs.start(shell(f"exec {said}", grace_seconds=0.2))
    await until(lambda: sum(read) > 4 * 1_048_576, "more output than is kept")

    run.time.expire()
    await run.end()

    assert len(run.ran.stdout.encode()) + len(run.ran.stderr.encode()) < 70_000 * 3
    assert sum(len(text) for _, text in run.told) <= 4 * 1_048_576 + 70_000


@needs_root
async def test_a_fork_bomb_stays_within_its_limit_and_nothing_of_it_is_left(
    runs: Runs, for_others: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "LAST_SECONDS", 60.0)
    mark = uuid4().hex
    user = find_idle_user()
    # never without the limit, and with an end of its own, which is later than the test waits
    bomb = f"""
import os, resource, time
assert os.getuid() == {user.pw_uid}
assert resource.getrlimit(resource.RLIMIT_NPROC)[1] < 400
end = time.monotonic() + 150
born = 0
while time.monotonic() < end and born < 300:
    try:
        born += 1
        if os.fork() == 0:
            os.setsid()
    except OSError:
        time.sleep(0.01)
"""
    (for_others / "bomb.py").write_text(bomb)
    one = command(
        "/usr/bin/python3",
        "-I",
        "-S",
        str(for_others / "bomb.py"),
        user=user.pw_name,
        limits={"processes": 60},
        set_env={MARK: mark},
        grace_seconds=0.3,
    )
    run = runs.start(one)
    await until(lambda: len(marked(mark)) > 20, "the bomb to go off")

    run.time.expire()
    await run.end()

    assert not marked(mark), run.ran
    assert (await runs.ended(shell("echo on"))).outcome.result() == Succeeded(None)


def find_idle_user() -> pwd.struct_passwd:
    """A user of this machine who runs nothing: the kernel counts all processes of a user, also those of other tests."""
    busy = {0}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            busy.add(folder.stat().st_uid)
    return random.choice([one for one in pwd.getpwall() if one.pw_uid not in busy])  # noqa: S311


# The supervisor


async def test_the_supervisor_is_killed_and_its_commands_with_it() -> None:
    supervised = Supervised(LEASE_SECONDS)
    runs = Runs(supervised)
    mark = uuid4().hex
    run = runs.start(shell("(setsid sleep 300 &) ; echo here; sleep 300", set_env={MARK: mark}))
    await until(lambda: run.told, "the command to begin")
    assert supervised._process is not None

    supervised._process.kill()
    outcome = await run.end()

    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.retryable) == ("CommandLost", True)
    await until(lambda: not marked(mark), "its processes to end")
    assert (await runs.ended(shell("echo on"))).outcome.result() == Succeeded(None)
    supervised.close()


async def test_closing_ends_what_runs_and_leaves_nothing() -> None:
    supervised = Supervised(LEASE_SECONDS)
    mark = uuid4().hex
    run = Runs(supervised).start(
        shell(
            "trap '' TERM; (setsid sleep 300 &); echo $FAIRLEAD_RESULT_FILE; sleep 300", set_env={MARK: mark}
        )
    )
    await until(lambda: run.told, "the command to begin")
    assert supervised._process is not None
    pid = supervised._process.pid

    supervised.close()

    assert dead(pid)
    assert not marked(mark)
    assert not there(run.told[0][1])
    run.ctx.close()


async def test_many_commands_at_once_each_get_their_own(runs: Runs) -> None:
    one = shell('sleep 0.05; echo "$1"', "{payload.n:integer}")

    ended = await asyncio.gather(*(runs.ended(one, {"n": n}) for n in range(60)))

    assert [run.ran.stdout for run in ended] == [f"{n}\n" for n in range(60)]
    assert json.dumps([run.ran.exit_code for run in ended]) == json.dumps([0] * 60)
