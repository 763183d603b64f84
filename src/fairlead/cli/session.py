"""The session of one command: its settings and an open Fairlead."""

import asyncio
import getpass
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, TypeVar

import click

from fairlead.cli import exits
from fairlead.db.database_errors import describe_address
from fairlead.errors import FairleadError
from fairlead.library.app import Fairlead
from fairlead.runtime.database_notice import describe_dev, describe_embedded, find_other_devs
from fairlead.settings import Settings, load

T = TypeVar("T")


class CommandSession:
    """One call of the command line, with its global options."""

    def __init__(self, flags: dict[str, Any]) -> None:
        self.flags = flags

    def settings(self, **more: Any) -> Settings:
        return load({**self.flags, **{name: value for name, value in more.items() if value is not None}})

    @property
    def logs_json(self) -> bool:
        """Whether the log is JSON."""
        try:
            return self.settings().log_format == "json"
        except FairleadError:
            return False  # the command itself reports the error in the settings

    def describe_database(self) -> list[str]:
        """Sentences that name this call's database, and each running `fairlead dev` that uses another one."""
        settings = self.settings()
        if settings.database_url is not None:
            return [f"using the database at {describe_address(settings.database_url)}"]
        devs = [describe_dev(dev) for dev in find_other_devs(settings.data_dir)]
        return [describe_embedded(settings.data_dir), *devs]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Fairlead]:
        """An open Fairlead that acts for the current user."""
        async with Fairlead(settings=self.settings(), actor=actor()) as fl:
            yield fl


def actor() -> str:
    """The current user's name, for the audit log."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return f"cli:{os.getuid()}"


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The loop factory of uvloop, if installed (a worker's throughput is about 5 % higher); None for asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415 - an optional dependency
    except ImportError:
        return None
    return uvloop.new_event_loop


def command(function: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., T]:
    """Run an async command; its first argument is the session. Errors become a message and exit code 1.

    A command without --json prints errors in the format of its log.
    """

    @click.pass_context
    @wraps(function)
    def run(context: click.Context, /, *args: Any, **kwargs: Any) -> T:
        session: CommandSession = context.obj
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                return runner.run(function(session, *args, **kwargs))
        except BrokenPipeError:
            exits.exit_on_closed_pipe()
        except FairleadError as error:
            exits.exit_with_error(
                error, context.command, as_json=bool(kwargs.get("as_json", session.logs_json))
            )

    return run
