"""`fairlead definitions`."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import msgspec

from fairlead.actions import commands
from fairlead.actions import definitions as actions
from fairlead.actions.commands import Synced
from fairlead.app import Fairlead
from fairlead.cli import output
from fairlead.cli.session import Session, command
from fairlead.db.tx import Tx
from fairlead.errors import InvalidInput
from fairlead.handlers.commands import specs_from
from fairlead.model.command import CommandSpec
from fairlead.model.definition import Definition, Kind
from fairlead.model.presets import PRESETS
from fairlead.settings import config_file


@click.group()
def definitions() -> None:
    """The kinds of work that may be enqueued."""


@definitions.command("list")
@output.json_option
@command
async def listed(session: Session, *, as_json: bool) -> None:
    """List all definitions."""
    async with session.open() as fl, fl.transaction() as tx:
        found = await actions.every(tx, fl.principal)
    _show(found, as_json=as_json)


@definitions.command()
@click.argument("key")
@click.option("--arg-schema", help="The payload's JSON Schema: a file, or the JSON itself.")
@click.option("--description")
@click.option("--kind", type=output.choice(Kind))
@click.option("--timeout-seconds", type=int)
@click.option("--max-attempts", type=int)
@click.option("--default-priority", type=int, help="Lower runs first (default 100).")
@click.option("--max-running", type=int, help="The most of these running at once.")
@click.option("--max-running-per-tenant", type=int)
@click.option("--retention-days", type=int, help="How long finished jobs are kept.")
@click.option("--active/--inactive", "is_active", default=None, help="Whether it may be enqueued.")
@click.option(
    "--only-tenant",
    "only_tenants",
    multiple=True,
    help="A tenant, slug or id, that it is for, and no other; may be repeated.",
)
@click.option("--all-tenants", is_flag=True, help="It is for every tenant.")
@output.json_option
@command
async def put(
    session: Session,
    *,
    key: str,
    arg_schema: str | None,
    only_tenants: tuple[str, ...],
    all_tenants: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Create a definition, or change what is given of it."""
    changes = {name: value for name, value in options.items() if value is not None}
    if only_tenants and all_tenants:
        raise InvalidInput("Give --only-tenant or --all-tenants, not both.")
    if only_tenants or all_tenants:
        changes["only_tenants"] = only_tenants
    if arg_schema is not None:
        changes["arg_schema"] = _read_json(arg_schema, "arg_schema")
    async with session.open() as fl, fl.transaction() as tx:
        changed = await actions.patch(tx, fl.principal, key, changes)
    _show([changed], as_json=as_json, one=True)


@definitions.command()
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--force", is_flag=True, help="Also make commands of definitions that are something else.")
@output.json_option
@command
async def sync(session: Session, *, dry_run: bool, force: bool, as_json: bool) -> None:
    """Publish the definitions of the commands in fairlead.toml; the programs need not be on this machine."""
    file = config_file()
    specs = specs_from(file)
    if not specs:
        raise InvalidInput(
            f"There are no commands in {file}. Describe one as [commands.KEY], or name another file in FAIRLEAD_CONFIG."
        )
    async with session.open() as fl:
        did = await _synced(fl, list(specs.values()), force=force, dry_run=dry_run)
    if as_json:
        output.say_json({"items": did, "dry_run": dry_run})
        return
    output.table(
        ("definition", "would be" if dry_run else "is", "version", "what changed"),
        [(one.key, one.result, one.version, ", ".join(one.fields) or None) for one in did],
        empty="",
    )


@definitions.command()
@click.argument("preset", type=click.Choice(sorted(PRESETS)))
@output.json_option
@command
async def install(session: Session, *, preset: str, as_json: bool) -> None:
    """Make the definitions of a PRESET; those that are there already stay as they are."""
    wanted = {str(one["key"]): one for one in PRESETS[preset]}
    async with session.open() as fl, fl.transaction() as tx:
        there = await actions.by_keys(tx, fl.principal, list(wanted))
        for key, values in wanted.items():
            if key not in there:
                await actions.patch(tx, fl.principal, key, values)
        found = await actions.by_keys(tx, fl.principal, list(wanted))
    _show([found[key] for key in wanted], as_json=as_json)


async def _synced(fl: Fairlead, specs: list[CommandSpec], *, force: bool, dry_run: bool) -> list[Synced]:
    did: list[Synced] = []

    async def work(tx: Tx) -> None:
        did[:] = await commands.sync(tx, fl.principal, specs, force=force)
        if dry_run:
            raise _DryRun  # takes back what was done

    with suppress(_DryRun):
        await fl.database.transact(work)
    return did


class _DryRun(Exception):
    """Nothing is to stay."""


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


def _show(found: list[Definition], *, as_json: bool, one: bool = False) -> None:
    if as_json:
        output.say_json(found[0] if one else {"items": found})
        return
    output.table(
        ("key", "kind", "version", "timeout", "attempts", "priority", "max running", "active", "description"),
        [
            (
                d.key,
                d.kind,
                d.version,
                f"{d.timeout_seconds} s",
                d.max_attempts,
                d.default_priority,
                d.max_running,
                "yes" if d.is_active else "no",
                d.description,
            )
            for d in found
        ],
        empty="There are no definitions yet. Register a function with @fl.job, or: fairlead definitions put KEY",
    )
