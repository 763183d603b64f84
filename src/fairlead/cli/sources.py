"""`fairlead sources`."""

import asyncio

import click
from rich.text import Text

from fairlead.actions import sources as actions
from fairlead.cli import output
from fairlead.cli.log import announce
from fairlead.cli.serve import stop_signal
from fairlead.cli.session import CommandSession, command
from fairlead.errors import EngineUnavailable, Fault, SettingInvalid, SourceUnknown
from fairlead.integrations.source import ConfiguredSource, read_sources
from fairlead.model.event_source import EventSource, SourceState
from fairlead.runtime.event_sources import run_sources
from fairlead.settings import config_file

MOST = 1000
CHECK_SECONDS = 15.0
_STYLES = {SourceState.RUNNING: "green", SourceState.PAUSED: "yellow", SourceState.FAILING: "bold red"}


@click.group()
def sources() -> None:
    """Sources: messages of NATS, SQS and Kafka become events. [sources.NAME] in fairlead.toml describes each."""


@sources.command("list")
@click.option("--limit", type=click.IntRange(1, MOST), default=100, show_default=True)
@click.option("--after", default="", metavar="NAME", help="Continue after the source with this name.")
@output.json_option
@command
async def list_sources(session: CommandSession, *, limit: int, after: str, as_json: bool) -> None:
    """List the sources that processes run or have run: their state and numbers of messages."""
    async with session.open() as fl, fl.transaction() as tx:
        found = await actions.list_sources(tx, fl.principal, after=after, limit=limit)
    if as_json:
        output.print_json({"items": found})
        return
    output.print_table(
        (
            "name",
            "driver",
            "tenant",
            "event",
            "state",
            "events",
            "duplicates",
            "refused",
            "last message",
            "last error",
        ),
        [_row(one) for one in found],
        empty="There are no sources. Describe one in fairlead.toml, and start it with: fairlead sources run",
    )


@sources.command()
@click.argument("name")
@click.option("--note", help="The reason, shown to other users.")
@output.json_option
@command
async def pause(session: CommandSession, *, name: str, note: str | None, as_json: bool) -> None:
    """Stop consuming from a source. Its messages wait in the broker."""
    async with session.open() as fl, fl.transaction() as tx:
        found = await actions.pause(tx, fl.principal, name, note=note)
    _print_source(found, f"paused {found.name}", as_json=as_json)


@sources.command()
@click.argument("name")
@output.json_option
@command
async def resume(session: CommandSession, *, name: str, as_json: bool) -> None:
    """Consume from a source again."""
    async with session.open() as fl, fl.transaction() as tx:
        found = await actions.resume(tx, fl.principal, name)
    _print_source(found, f"resumed {found.name}", as_json=as_json)


@sources.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@command
async def run(session: CommandSession, *, names: tuple[str, ...]) -> None:
    """Run the sources of fairlead.toml, or some of them, until SIGTERM or Ctrl-C. Several processes share the messages."""
    stopped = stop_signal()
    chosen = _choose(names)
    async with session.open() as fl:
        text = f"consuming from {', '.join(one.name for one in chosen)}; Ctrl-C stops"
        announce(session, "consuming", text, sources=[one.name for one in chosen])
        await run_sources(fl.database, fl.catalog, chosen, stopped)
    announce(session, "stopped", "stopped")


@sources.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@output.json_option
@command
async def check(session: CommandSession, *, names: tuple[str, ...], as_json: bool) -> None:  # noqa: ARG001 - every command has a session
    """Connect to the sources of fairlead.toml, or to some of them, and show what is found. Consumes nothing."""
    chosen = _choose(names)
    found = {one.name: await _describe(one) for one in chosen}
    if as_json:
        output.print_json({"items": [{"name": name, **facts} for name, facts in found.items()]})
    else:
        for name, facts in found.items():
            output.console().print(Text(name, "bold"))
            output.print_facts([(key, str(value)) for key, value in facts.items()])
    if failed := [name for name, facts in found.items() if "error" in facts]:
        raise EngineUnavailable(f"{len(failed)} of {len(found)} sources cannot be used: {', '.join(failed)}.")


async def _describe(source: ConfiguredSource) -> dict[str, object]:
    try:
        async with asyncio.timeout(CHECK_SECONDS), source.connect() as connection:
            return {"driver": source.driver, **await connection.describe()}
    except (EngineUnavailable, SettingInvalid) as error:
        return {"driver": source.driver, "error": error.message}
    except TimeoutError:
        return {"driver": source.driver, "error": f"There is no answer within {CHECK_SECONDS:.0f} s."}


def _choose(names: tuple[str, ...]) -> list[ConfiguredSource]:
    """The sources in fairlead.toml with these names, or all."""
    path = config_file()
    found = read_sources(path)
    if unknown := set(names) - {one.name for one in found}:
        raise SourceUnknown(f"There is no [sources.{min(unknown)}] in {path}.", [Fault("source", "unknown")])
    chosen = [one for one in found if not names or one.name in names]
    if not chosen:
        raise SettingInvalid(f"There are no sources in {path}: describe one in a table [sources.NAME].")
    return chosen


def _print_source(found: EventSource, text: str, *, as_json: bool) -> None:
    if as_json:
        output.print_json(found)
    else:
        output.console().print(Text(text))


def _row(one: EventSource) -> tuple[object, ...]:
    return (
        one.name,
        one.driver,
        one.tenant or "by message",
        one.event,
        Text(one.state, _STYLES.get(one.state, "")),
        one.messages,
        one.duplicates,
        one.refused,
        one.last_message_at,
        one.last_error if one.state is SourceState.FAILING else None,
    )
