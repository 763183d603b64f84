"""The program of the command definitions: it writes records and output, starts a process, and ends as its arguments say.

Workers run this file itself, not the module: it uses the standard library only, so that it starts at once.
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

FILE = "commands.history"
FATAL_EXIT = 64
SNOOZE_EXIT = 75
CHILD_SECONDS = 60
LINE = "a line of output, as any command prints it: " + "0123456789" * 5 + "\n"


def main() -> NoReturn:
    """Run one attempt. The worker has to end the process that it leaves behind."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=0.0)
    for name in ("fail", "snooze", "text"):
        parser.add_argument(f"--{name}", type=int, default=0)
    plan = parser.parse_args()
    signal.signal(signal.SIGTERM, _end_canceled)
    _record("start", definition=os.environ["CHAOS_DEFINITION"], pid=os.getpid())
    _use_secret()
    if plan.seconds:
        _leave_child()
    _print_much(plan.text)
    time.sleep(plan.seconds)
    attempt = int(os.environ["FAIRLEAD_ATTEMPT"])
    if attempt <= plan.snooze:
        _end("snoozed", SNOOZE_EXIT)
    if attempt <= plan.snooze + plan.fail:
        _end("failed", 1)
    sys.stdout.write(f'fairlead:result {{"attempt": {attempt}}}\n')
    _end("succeeded", 0)


def _record(tag: str, **fields: Any) -> None:
    """Append a record as HistoryWriter does."""
    attempt = int(os.environ["FAIRLEAD_ATTEMPT"])
    job = {"at": time.monotonic(), "job_id": os.environ["FAIRLEAD_JOB_ID"], "attempt_no": attempt}
    line = json.dumps({"type": tag, **job, **fields}).encode() + b"\n"
    file = Path(os.environ["FAIRLEAD_CHAOS_HISTORY"], FILE)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(descriptor, line)
    os.close(descriptor)


def _use_secret() -> None:
    """Record which secret it got, and print it: the worker masks what is printed."""
    secret = os.environ["CHAOS_SECRET"]
    _, owner, number, _ = secret.split(":")
    _record("secret", owner=owner, number=int(number))
    sys.stdout.write(f"uses {secret}\n")


def _leave_child() -> None:
    """Start a process in a session of its own that outlives this one, unless the worker ends it."""
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(CHILD_SECONDS)
        os._exit(0)


def _print_much(letters: int) -> None:
    sys.stdout.write(f"attempt {os.environ['FAIRLEAD_ATTEMPT']}\n")
    for _ in range(letters // len(LINE)):
        sys.stdout.write(LINE)
    sys.stdout.flush()


def _end(outcome: str, code: int) -> NoReturn:
    _record("end", outcome=outcome)
    sys.stdout.flush()
    os._exit(code)


def _end_canceled(*_: Any) -> NoReturn:
    _record("end", outcome="canceled")
    os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    main()
