"""`fairlead pause` and `fairlead resume`."""

from collections.abc import Callable
from typing import Any

import click
from rich.text import Text

from fairlead.cli import output
from fairlead.cli.session import Session, command
from fairlead.store.gates import Gate, GateKind


def _which_gate(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--note", help="The reason, shown to other users."),
        click.option("--host", help="Only this host: its id, or its name if that is unique."),
        click.option("--definition", help="Only this definition: its key."),
        click.option("--tenant", help="Only this tenant: slug or id."),
    ):
        function = option(function)
    return function


@click.command()
@_which_gate
@output.json_option
@command
async def pause(session: Session, *, as_json: bool, **named: str | None) -> None:
    """Stop claiming jobs: all, or those of one tenant, definition or host. Running jobs continue."""
    async with session.open() as fl:
        gate = await fl.pause(**named)
    text = f"paused {_name(gate)}" if gate.changed else f"{_name(gate)} was paused already"
    _answer(gate, text, as_json=as_json)


@click.command()
@_which_gate
@output.json_option
@command
async def resume(session: Session, *, as_json: bool, **named: str | None) -> None:
    """Claim jobs again: all, or those of one tenant, definition or host."""
    async with session.open() as fl:
        gate = await fl.resume(**named)
    text = f"resumed {_name(gate)}" if gate.changed else f"{_name(gate)} was not paused"
    _answer(gate, text, as_json=as_json)


def _name(gate: Gate) -> str:
    return "the system" if gate.kind is GateKind.SYSTEM else f"{gate.kind} {gate.name}"


def _answer(gate: Gate, text: str, *, as_json: bool) -> None:
    if as_json:
        output.say_json(gate)
        return
    output.console().print(Text(text))
    if gate.paused_at is not None:
        output.facts([("since", output.ago(gate.paused_at)), ("by", gate.paused_by), ("note", gate.note)])
