"""`fairlead pause` and `fairlead resume`."""

from collections.abc import Callable
from typing import Any

import click
from rich.text import Text

from fairlead.cli import output
from fairlead.cli.session import CommandSession, command
from fairlead.model.gate import Gate, GateKind


def _gate_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--note", help="The reason, shown to other users."),
        click.option("--host", help="Only this host: its id, or its name if that is unique."),
        click.option("--definition", help="Only this definition: its key."),
        click.option("--tenant", help="Only this tenant: slug or id."),
    ):
        function = option(function)
    return function


@click.command()
@_gate_options
@output.json_option
@command
async def pause(session: CommandSession, *, as_json: bool, **named: str | None) -> None:
    """Stop claiming jobs: all, or those of one tenant, definition or host. Running jobs continue."""
    async with session.open() as fl:
        gate = await fl.pause(**named)
    text = f"paused {_describe_gate(gate)}" if gate.changed else f"{_describe_gate(gate)} was paused already"
    _print_gate(gate, text, as_json=as_json)


@click.command()
@_gate_options
@output.json_option
@command
async def resume(session: CommandSession, *, as_json: bool, **named: str | None) -> None:
    """Claim jobs again: all, or those of one tenant, definition or host."""
    async with session.open() as fl:
        gate = await fl.resume(**named)
    text = f"resumed {_describe_gate(gate)}" if gate.changed else f"{_describe_gate(gate)} was not paused"
    _print_gate(gate, text, as_json=as_json)


def _describe_gate(gate: Gate) -> str:
    return "the system" if gate.kind is GateKind.SYSTEM else f"{gate.kind} {gate.name}"


def _print_gate(gate: Gate, text: str, *, as_json: bool) -> None:
    if as_json:
        output.print_json(gate)
        return
    output.console().print(Text(text))
    if gate.paused_at is not None:
        output.print_facts(
            [("since", output.format_distance(gate.paused_at)), ("by", gate.paused_by), ("note", gate.note)]
        )
