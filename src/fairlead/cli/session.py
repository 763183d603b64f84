"""The session of one command: its settings and an open Fairlead."""

import asyncio
import getpass
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, TypeVar

import click

from fairlead.cli import exits
from fairlead.db.addresses import describe_address
from fairlead.errors import FairleadError, InvalidInput, TenantMoved
from fairlead.library.app import Fairlead
from fairlead.runtime.database_notice import describe_dev, describe_embedded, find_other_devs
from fairlead.settings import Settings, load

T = TypeVar("T")

# Commands about a tenant that act in the home cell, which has the directory.
DIRECTORY_COMMANDS = frozenset({"move"})


class CommandSession:
    """One call of the command line, with its global options."""

    def __init__(self, flags: dict[str, Any], cell: str | None = None) -> None:
        self.flags = flags
        # the cell that --cell names
        self.cell = cell
        # the tenant that the command names: it acts in the tenant's cell
        self.tenant: str | None = None
        # the other cells, if the command acts in the home cell because it names neither
        self.other_cells: list[str] = []
        self.home_cell = ""

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
        """An open Fairlead that acts for the current user, in the cell that the command is about."""
        async with Fairlead(settings=self.settings(), actor=actor()) as fl:
            if self.cell is not None:
                yield await fl.cells.member(self.cell)
            elif self.tenant is not None and fl.cells:
                yield await fl.cells.find(self.tenant)
            else:
                for name, one in sorted(fl.cells.by_name.items()):
                    if one.is_home:
                        self.home_cell = name
                    elif name not in self.other_cells:
                        self.other_cells.append(name)
                yield fl

    async def ask_cells(self, work: Callable[[Fairlead], Awaitable[T]]) -> list[T]:
        """The answers of the cell that the command is about, or of all cells; names those that are missing."""
        async with self.open() as fl:
            if not self.other_cells:
                return [await work(fl)]
            found = await fl.cells.gather(work)
        for one in found:
            if one.error is not None:
                click.echo(f"the cell {one.cell} is missing: {one.error.message}", err=True)
        answers = [one.value for one in found if one.value is not None]
        if not answers:
            raise next(one.error for one in found if one.error is not None)
        return answers


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
    return _make_command(_search_cells(function))


def list_command(function: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A command that prints a list: of a tenant, of the cell that --cell names, or of all cells."""
    return _make_command(_merge_cells(function))


def _search_cells(function: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., Coroutine[Any, Any, T]]:
    """Run a command in the other cells if the home cell does not know what it is about."""

    @wraps(function)
    async def search(session: CommandSession, *args: Any, **kwargs: Any) -> T:
        try:
            return await function(session, *args, **kwargs)
        except FairleadError as error:
            if not _is_unknown(error) or not session.other_cells:
                raise
            for name in session.other_cells:
                session.cell = name
                try:
                    return await function(session, *args, **kwargs)
                except FairleadError as other:
                    if not _is_unknown(other):
                        raise
            raise

    return search


def _merge_cells(
    function: Callable[..., Coroutine[Any, Any, None]],
) -> Callable[..., Coroutine[Any, Any, None]]:
    """Run a command in all cells, and print their lists as one."""

    @wraps(function)
    async def merge(session: CommandSession, *args: Any, **kwargs: Any) -> None:
        if session.cell is not None or kwargs.get("tenant") or kwargs.get("follow"):
            await function(session, *args, **kwargs)
            return
        from fairlead.cli import output  # noqa: PLC0415 - a worker prints nothing that needs rich

        lists = output.CollectedLists()
        with output.collect(lists, ""):
            await function(session, *args, **kwargs)
        if session.other_cells and (kwargs.get("cursor") or kwargs.get("after") or kwargs.get("offset")):
            raise InvalidInput(
                "A list of several cells has no next page: name a cell (fairlead --cell NAME …) or a tenant."
            )
        for name in session.other_cells:
            session.cell = name
            try:
                with output.collect(lists, name):
                    await function(session, *args, **kwargs)
            except FairleadError as error:
                click.echo(f"the cell {name} is missing: {error.message}", err=True)
        lists.print_all(session.home_cell if session.other_cells else None)

    return merge


def _is_unknown(error: FairleadError) -> bool:
    return error.http_status == 404 or isinstance(error, TenantMoved)


def _make_command(function: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., T]:
    @click.pass_context
    @wraps(function)
    def run(context: click.Context, /, *args: Any, **kwargs: Any) -> T:
        session: CommandSession = context.obj
        if context.command.name not in DIRECTORY_COMMANDS:
            session.tenant = kwargs.get("tenant")
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
