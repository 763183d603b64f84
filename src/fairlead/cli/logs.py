"""`fairlead jobs logs`: prints the output of attempts."""

import asyncio
import sys
from uuid import UUID

import click
from msgspec.structs import replace

from fairlead.actions import logs as actions
from fairlead.cli import output
from fairlead.cli.session import CommandSession, command
from fairlead.model.ansi import AnsiStripper, ColourFilter, strip_controls
from fairlead.model.log import Chunk

FOLLOW_SECONDS = 0.25


@click.command()
@click.argument("job_id", type=click.UUID)
@click.option("--attempt", "attempt_no", type=click.IntRange(min=1), help="Only this attempt.")
@click.option("-f", "--follow", is_flag=True, help="Continue until the job has ended.")
@click.option("--cursor", help="Continue after this position, ATTEMPT.SEQ.")
@click.option(
    "--strip-ansi/--keep-ansi",
    default=None,
    help="Whether to remove escape sequences such as colours (default: keep them on a terminal).",
)
@output.json_option
@command
async def logs(
    session: CommandSession,
    *,
    job_id: UUID,
    attempt_no: int | None,
    follow: bool,
    cursor: str | None,
    strip_ansi: bool | None,
    as_json: bool,
) -> None:
    """Print the output of a job's attempts; their standard error goes to standard error."""
    printer = _Printer(strip_ansi, as_json=as_json)
    async with session.open() as fl:
        while True:
            async with fl.transaction() as tx:
                page = await actions.read(tx, fl.principal, job_id, attempt_no=attempt_no, cursor=cursor)
            for chunk in page.items:
                printer.print(chunk)
            if page.complete or not (page.items or follow):
                break
            cursor = page.next_cursor
            if not page.items:
                await asyncio.sleep(FOLLOW_SECONDS)
    printer.end()


class _Printer:
    """Prints chunks in order; each attempt begins on a new line."""

    def __init__(self, strip: bool | None, *, as_json: bool) -> None:  # noqa: FBT001
        self._as_json = as_json
        self._strip = strip
        self._attempt_no: int | None = None
        self._plain: dict[str, AnsiStripper] = {}
        # the streams (is it stderr?) whose last line has no newline
        self._open: set[bool] = set()

    def print(self, chunk: Chunk) -> None:
        if chunk.attempt_no != self._attempt_no:
            self.end()
            self._attempt_no = chunk.attempt_no
        err = chunk.stream == "stderr" and not self._as_json
        text = self._render(chunk, err=err)
        if self._as_json:
            output.print_json(replace(chunk, text=text))
        elif text:
            click.echo(text, nl=False, err=err, color=True)
            (self._open.discard if text.endswith("\n") else self._open.add)(err)

    def _render(self, chunk: Chunk, *, err: bool) -> str:
        strip = self._strip
        at_terminal = not self._as_json and (sys.stderr if err else sys.stdout).isatty()
        if strip is None:
            # JSON has the original text by default
            strip = not self._as_json and not at_terminal
        if strip:
            text = self._plain.setdefault(chunk.stream, AnsiStripper()).text(chunk.text)
            return text if self._as_json else strip_controls(text)
        # a job may write control sequences: a terminal gets only its colours
        return (
            self._plain.setdefault(chunk.stream, ColourFilter()).text(chunk.text)
            if at_terminal
            else chunk.text
        )

    def end(self) -> None:
        """Print the missing newlines."""
        for err in sorted(self._open):
            click.echo(err=err)
        self._open.clear()
        self._plain.clear()
