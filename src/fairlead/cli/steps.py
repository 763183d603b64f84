"""`fairlead jobs steps`, `fairlead jobs history` and `fairlead jobs signal`: durable functions."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import click
import msgspec

from fairlead.actions import durable
from fairlead.cli import output
from fairlead.cli.json_input import read_json
from fairlead.cli.session import CommandSession, command
from fairlead.model.durable import JobStep

COLUMNS = ("place", "kind", "name", "status", "tries", "started", "ended", "due", "result")


@click.command()
@click.argument("job_id", type=click.UUID)
@click.option(
    "--limit", type=click.IntRange(1, durable.MAX_PAGE), default=durable.MAX_PAGE, show_default=True
)
@click.option("--cursor", help="Continue after the step with this place.")
@output.json_option
@command
async def steps(
    session: CommandSession, *, job_id: UUID, limit: int, cursor: str | None, as_json: bool
) -> None:
    """List the recorded steps and waits of a durable function."""
    async with session.open() as fl:
        page = await fl.steps(job_id, limit=limit, after=cursor)
    following = None if page.last is None else page.last.place
    if as_json:
        output.print_json({"items": page, "next_cursor": following})
        return
    _print_steps(page)
    if following:
        output.console(stderr=True).print(f"more: --cursor {following}", style="dim")


@click.command()
@click.argument("job_id", type=click.UUID)
@output.json_option
@command
async def history(session: CommandSession, *, job_id: UUID, as_json: bool) -> None:
    """Print all that a durable function has recorded; with --json, as the document that `fairlead.testing.replay` takes."""
    async with session.open() as fl:
        found = await fl.history(job_id)
    if as_json:
        output.print_json(found)
    else:
        _print_steps(found.steps)


def _print_steps(found: Sequence[JobStep]) -> None:
    output.print_table(
        COLUMNS,
        [_step_row(step) for step in found],
        empty="No steps. Only functions with @fl.job(durable=True) record steps.",
    )


def _step_row(step: JobStep) -> tuple[Any, ...]:
    """A step as a row of a table."""
    if step.error is not None:
        shown = f"{step.error.type}: {step.error.message}"
    else:
        shown = "" if step.result is None else msgspec.json.encode(step.result).decode()
    return (
        step.place,
        step.kind,
        step.name,
        step.status,
        step.tries,
        step.started_at,
        step.ended_at,
        step.due_at,
        step.child_id if step.child_id is not None and not shown else shown,
    )


@click.command()
@click.argument("job_id", type=click.UUID)
@click.argument("name")
@click.option("--data", help="What the function receives (JSON).")
@output.json_option
@command
async def signal(
    session: CommandSession, *, job_id: UUID, name: str, data: str | None, as_json: bool
) -> None:
    """Send the signal NAME to a durable function: it ends the first wait for it, or is kept for the next one."""
    sent = None if data is None else read_json(data, "data")
    async with session.open() as fl:
        signal_id = await fl.signal(job_id, name, sent)
    if as_json:
        output.print_json({"id": signal_id})
    else:
        output.console().print(f"sent {signal_id}")
