"""`fairlead definitions`."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import msgspec

from fairlead.actions import commands
from fairlead.actions import definitions as actions
from fairlead.actions.commands import SyncResult
from fairlead.cli import output
from fairlead.cli.session import CommandSession, command
from fairlead.db.tx import Tx
from fairlead.errors import InvalidInput
from fairlead.handlers.commands import load_command_specs
from fairlead.library.app import Fairlead
from fairlead.model.command.spec import CommandSpec
from fairlead.model.definition import Definition, Kind
from fairlead.model.definition_presets import PRESETS
from fairlead.model.flow import KeyStrategy, format_rate, parse_rate
from fairlead.model.labels import parse_labels
from fairlead.settings import config_file


@click.group()
def definitions() -> None:
    """The definitions: kinds of jobs that may be enqueued."""


@definitions.command("list")
@output.json_option
@command
async def list_definitions(session: CommandSession, *, as_json: bool) -> None:
    """List all definitions."""
    async with session.open() as fl, fl.transaction() as tx:
        found = await actions.list_all(tx, fl.principal)
    _print_definitions(found, as_json=as_json)


_OPTIONS = (
    click.option("--arg-schema", help="The payload's JSON Schema: a file, or the JSON itself."),
    click.option("--description"),
    click.option("--kind", type=output.enum_choice(Kind)),
    click.option("--timeout-seconds", type=int),
    click.option("--max-attempts", type=int),
    click.option("--default-priority", type=int, help="Lower runs first (default 100)."),
    click.option("--max-running", type=int, help="The most of its jobs that run concurrently."),
    click.option("--max-running-per-tenant", type=int),
    click.option("--rate", metavar="RATE", help="How many of its jobs may start: 100/min, or 100/min+20."),
    click.option("--no-rate", is_flag=True, help="Remove the limit of starts."),
    click.option("--rate-per-tenant", metavar="RATE", help="How many may start for each tenant."),
    click.option("--no-rate-per-tenant", is_flag=True, help="Remove the limit of starts for each tenant."),
    click.option(
        "--by-key",
        metavar="POINTER",
        help="Limit the jobs that have the same value there in their payloads, such as /customerId.",
    ),
    click.option("--key-max-running", type=int, help="The most jobs of one key that run concurrently."),
    click.option("--no-key-max-running", is_flag=True, help="Remove the limit of running jobs of a key."),
    click.option("--key-rate", metavar="RATE", help="How many jobs of one key may start."),
    click.option("--no-key-rate", is_flag=True, help="Remove the limit of starts of a key."),
    click.option(
        "--key-strategy",
        type=output.enum_choice(KeyStrategy),
        help="What an enqueue does if its key is at its limit.",
    ),
    click.option(
        "--key-fifo/--no-key-fifo",
        default=None,
        help="Start the jobs of a key in the order of their enqueues.",
    ),
    click.option("--no-by-key", is_flag=True, help="Remove the limit by key."),
    click.option("--slots", type=int, help="How many of its worker's slots an attempt takes (default 1)."),
    click.option(
        "--requires",
        multiple=True,
        metavar="NAME=VALUE",
        help="A label that a worker must have, such as gpu=true; may be repeated. An empty text removes all.",
    ),
    click.option(
        "--prefers",
        multiple=True,
        metavar="NAME=VALUE",
        help="A label of the workers that come first; may be repeated. An empty text removes all.",
    ),
    click.option("--retention-days", type=int, help="How long finished jobs are kept."),
    click.option(
        "--engine", help="Of the kinds delivered and bullmq: a table [engines.NAME] of fairlead.toml."
    ),
    click.option(
        "--queue", help="The queue there; {tenant}, {tenant_id}, {definition} and {host} are filled in."
    ),
    click.option("--active/--inactive", "is_active", default=None, help="Whether it may be enqueued."),
    click.option(
        "--only-tenant",
        "only_tenants",
        multiple=True,
        help="Only this tenant may use it: slug or id; may be repeated.",
    ),
    click.option("--all-tenants", is_flag=True, help="Every tenant may use it."),
)


def definition_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that set the fields of a definition."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@definitions.command()
@click.argument("key")
@definition_options
@output.json_option
@command
async def put(session: CommandSession, *, key: str, as_json: bool, **options: Any) -> None:
    """Create a definition, or change the given fields of an existing one."""
    changes = _read_changes(options)
    async with session.open() as fl, fl.transaction() as tx:
        await _read_key_limit(tx, fl, key, changes)
        changed = await actions.patch(tx, fl.principal, key, changes)
    _print_definitions([changed], as_json=as_json, one=True)


@definitions.command()
@click.argument("key")
@definition_options
@output.json_option
@command
async def add(session: CommandSession, *, key: str, as_json: bool, **options: Any) -> None:
    """Create a definition; an existing one is not changed."""
    values = {**_read_changes(options), "key": key}
    async with session.open() as fl, fl.transaction() as tx:
        await _read_key_limit(tx, fl, None, values)
        made = await actions.create(tx, fl.principal, values)
    _print_definitions([made], as_json=as_json, one=True)


def _read_changes(options: dict[str, Any]) -> dict[str, Any]:
    """The fields that the options set."""
    changes = {name: value for name, value in options.items() if value is not None}
    only_tenants, all_tenants = changes.pop("only_tenants"), changes.pop("all_tenants")
    if only_tenants and all_tenants:
        raise InvalidInput("Give --only-tenant or --all-tenants, not both.")
    if only_tenants or all_tenants:
        changes["only_tenants"] = only_tenants
    for name in ("requires", "prefers"):
        if texts := changes.pop(name):
            changes[name] = parse_labels([text for text in texts if text], name) or None
    if "arg_schema" in changes:
        changes["arg_schema"] = _read_json(changes["arg_schema"], "arg_schema")
    for name in ("rate", "rate_per_tenant"):
        _read_rate(changes, name)
    return changes


def _read_rate(changes: dict[str, Any], name: str) -> None:
    """Replace the options --NAME and --no-NAME by the rate that they mean."""
    removes = changes.pop(f"no_{name}")
    if removes and name in changes:
        option = name.replace("_", "-")
        raise InvalidInput(f"Give --{option} or --no-{option}, not both.")
    if removes or name in changes:
        changes[name] = None if removes else parse_rate(changes[name])


async def _read_key_limit(tx: Tx, fl: Fairlead, key: str | None, changes: dict[str, Any]) -> None:
    """Replace the options of the limit by key by the limit, which keeps what they do not name."""
    _read_rate(changes, "key_rate")
    if changes.pop("no_key_max_running"):
        if "key_max_running" in changes:
            raise InvalidInput("Give --key-max-running or --no-key-max-running, not both.")
        changes["key_max_running"] = None
    names = ("max_running", "rate", "strategy", "fifo")
    given = {name: changes.pop(f"key_{name}") for name in names if f"key_{name}" in changes}
    if (pointer := changes.pop("by_key", None)) is not None:
        given["pointer"] = pointer
    if changes.pop("no_by_key"):
        if given:
            raise InvalidInput("Give --no-by-key or the options of a limit by key, not both.")
        changes["by_key"] = None
    elif given:
        found = None if key is None else await actions.find(tx, fl.principal, key)
        there = None if found is None else found.by_key
        if there is None and "pointer" not in given:
            raise InvalidInput("Say where the key is in the payload: --by-key POINTER, such as /customerId.")
        wanted = {**({} if there is None else msgspec.structs.asdict(there)), **given}
        if wanted.get("max_running") is None and wanted.get("rate") is None:
            raise InvalidInput("Give --key-max-running or --key-rate, or remove the limit with --no-by-key.")
        changes["by_key"] = wanted


@definitions.command()
@click.option("--dry-run", is_flag=True, help="Only print the changes.")
@click.option("--force", is_flag=True, help="Also convert definitions of another kind to commands.")
@output.json_option
@command
async def sync(session: CommandSession, *, dry_run: bool, force: bool, as_json: bool) -> None:
    """Publish the definitions of the commands in fairlead.toml; their programs need not exist on this machine."""
    file = config_file()
    specs = load_command_specs(file)
    if not specs:
        raise InvalidInput(
            f"There are no commands in {file}. Define one as [commands.KEY], or set another file in FAIRLEAD_CONFIG."
        )
    async with session.open() as fl:
        synced = await _sync_commands(fl, list(specs.values()), force=force, dry_run=dry_run)
    if as_json:
        output.print_json({"items": synced, "dry_run": dry_run})
        return
    output.print_table(
        ("definition", "would be" if dry_run else "is", "version", "changed fields"),
        [(one.key, one.result, one.version, ", ".join(one.fields) or None) for one in synced],
        empty="",
    )


@definitions.command()
@click.argument("preset", type=click.Choice(sorted(PRESETS)))
@output.json_option
@command
async def install(session: CommandSession, *, preset: str, as_json: bool) -> None:
    """Create the definitions of a PRESET; existing ones are not changed."""
    wanted = {str(one["key"]): one for one in PRESETS[preset]}
    async with session.open() as fl, fl.transaction() as tx:
        there = await actions.get_by_keys(tx, fl.principal, list(wanted))
        for key, values in wanted.items():
            if key not in there:
                await actions.patch(tx, fl.principal, key, values)
        found = await actions.get_by_keys(tx, fl.principal, list(wanted))
    _print_definitions([found[key] for key in wanted], as_json=as_json)


async def _sync_commands(
    fl: Fairlead, specs: list[CommandSpec], *, force: bool, dry_run: bool
) -> list[SyncResult]:
    synced: list[SyncResult] = []

    async def work(tx: Tx) -> None:
        synced[:] = await commands.sync_commands(tx, fl.principal, specs, force=force)
        if dry_run:
            raise _DryRun  # rolls back

    with suppress(_DryRun):
        await fl.database.transact(work)
    return synced


class _DryRun(Exception):
    """Rolls back a dry run."""


def _read_json(given: str, name: str) -> Any:
    text = given if given.lstrip().startswith(("{", "[", "true", "false")) else _read_file(given, name)
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"{name} is not JSON: {error}.") from error


def _read_file(path: str, name: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"{name}: cannot read {path}: {error}. Give a file, or the JSON itself."
        ) from error


def _print_definitions(found: list[Definition], *, as_json: bool, one: bool = False) -> None:
    if as_json:
        output.print_json(found[0] if one else {"items": found})
        return
    output.print_table(
        (
            "key",
            "kind",
            "version",
            "timeout",
            "attempts",
            "priority",
            "max running",
            "rate",
            "active",
            "description",
        ),
        [
            (
                d.key,
                d.kind,
                d.version,
                f"{d.timeout_seconds} s",
                d.max_attempts,
                d.default_priority,
                d.max_running,
                None if d.rate is None else format_rate(d.rate),
                "yes" if d.is_active else "no",
                d.description,
            )
            for d in found
        ],
        empty="There are no definitions yet. Register a function with @fl.job, or: fairlead definitions put KEY",
    )
