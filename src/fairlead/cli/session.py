"""What a command works with: the settings of this call and an open Fairlead."""

import asyncio
import getpass
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, TypeVar

import click

from fairlead.app import Fairlead
from fairlead.cli import output
from fairlead.db.refusals import describe
from fairlead.errors import FairleadError
from fairlead.runtime.database_notice import describe_dev, describe_embedded, devs_elsewhere
from fairlead.settings import Settings, load

T = TypeVar("T")


class Session:
    """One call of the command line."""

    def __init__(self, flags: dict[str, Any]) -> None:
        self.flags = flags

    def settings(self, **more: Any) -> Settings:
        return load({**self.flags, **{name: value for name, value in more.items() if value is not None}})

    @property
    def logs_json(self) -> bool:
        """Whether machines read the log."""
        try:
            return self.settings().log_format == "json"
        except FairleadError:
            return False  # the command itself will say what is wrong with the settings

    def describe_database(self) -> list[str]:
        """Which database this call uses, and where a running `fairlead dev` has another one."""
        settings = self.settings()
        if settings.database_url is not None:
            return [f"using the database at {describe(settings.database_url)}"]
        devs = [describe_dev(dev) for dev in devs_elsewhere(settings.data_dir)]
        return [describe_embedded(settings.data_dir), *devs]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Fairlead]:
        """An open Fairlead that acts in the name of whoever calls."""
        async with Fairlead(settings=self.settings(), actor=actor()) as fl:
            yield fl


def actor() -> str:
    """Who is at the keyboard, for the audit log."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return f"cli:{os.getuid()}"


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Use uvloop where it is installed: a worker does a twentieth more with it. None: asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415 - not everywhere
    except ImportError:
        return None
    return uvloop.new_event_loop


def command(function: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., T]:
    """Run an async command; its first argument is the session, and refusals become a message and exit 1.

    A command that has no --json refuses in the form of its log.
    """

    @click.pass_context
    @wraps(function)
    def run(context: click.Context, /, *args: Any, **kwargs: Any) -> T:
        session: Session = context.obj
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                return runner.run(function(session, *args, **kwargs))
        except BrokenPipeError:
            output.nobody_reads()
        except FairleadError as error:
            output.stop(error, context.command, as_json=bool(kwargs.get("as_json", session.logs_json)))

    return run
