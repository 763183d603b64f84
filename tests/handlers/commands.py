"""Commands for tests: an allowlist entry, one attempt of it, and what is left of its processes."""

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead.handlers.attempt import AttemptContext, Bounds
from fairlead.handlers.command import CommandAttempt, CommandServices
from fairlead.handlers.commands import Command, check_command
from fairlead.handlers.context import ProcessResult, Progress
from fairlead.handlers.supervised import Supervised
from fairlead.model.command.reader import read_commands
from fairlead.model.outcome import Outcome
from fairlead.model.secrets.redact import Mask
from tests.handlers.attempts import ManualDeadlines, context
from tests.waiting import SECONDS

MARK = "FAIRLEAD_TEST_MARK"


def command(*argv: Any, **fields: Any) -> Command:
    """A command that may be run here, as a file would say it."""
    return check_command(read_commands({"commands": {"work": {"argv": list(argv), **fields}}})["work"])


def shell(script: str, *arguments: Any, **fields: Any) -> Command:
    """A script of a shell, which has braces only as the script means them."""
    fields = {"env": ["PATH"], **fields}
    return command("/bin/sh", "-c", script.replace("{", "{{").replace("}", "}}"), "sh", *arguments, **fields)


@dataclass
class Run:
    """One attempt that has begun."""

    ctx: AttemptContext
    outcome: asyncio.Future[Outcome]
    time: ManualDeadlines
    told: list[tuple[str, str]] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)
    attempt: CommandAttempt = field(init=False)

    async def end(self) -> Outcome:
        """Wait for its end."""
        return await asyncio.wait_for(asyncio.shield(self.outcome), SECONDS)

    @property
    def ran(self) -> ProcessResult:
        assert self.ctx.ran is not None
        return self.ctx.ran


class Runs:
    """Attempts under one supervisor."""

    def __init__(self, supervised: Supervised) -> None:
        self.supervised = supervised

    def start(self, one: Command, payload: Any = None, **more: Any) -> Run:
        """An attempt that has begun; its time is over when the test says so."""
        env, secrets = one.environment()
        ctx = context(payload, **more)
        run = Run(ctx, asyncio.get_running_loop().create_future(), ManualDeadlines())
        ctx.mask = Mask(secrets) if secrets else None
        ctx._on_progress = run.progress.append
        bounds = Bounds(30.0, run.time, one.spec.grace_seconds)
        way = CommandServices(self.supervised, lambda stream, text: run.told.append((stream, text)))
        run.attempt = CommandAttempt(one, ctx, bounds, run.outcome.set_result, env=env, way=way)
        run.attempt.start()
        return run

    async def ended(self, one: Command, payload: Any = None, **more: Any) -> Run:
        """An attempt that has ended."""
        run = self.start(one, payload, **more)
        await run.end()
        return run


def marked(mark: str) -> set[int]:
    """The living processes that have the mark in their environment."""
    wanted = f"{MARK}={mark}".encode()
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                state = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
                if state not in "ZX":
                    found.add(int(folder.name))
        except (OSError, IndexError):
            continue
    return found - {os.getpid()}
