"""`fairlead keys`: encryption of secrets at rest, and the rotation of its keys."""

import asyncio
import base64
import os

import click
from rich.text import Text

from fairlead.actions import encryption
from fairlead.cli import output
from fairlead.cli.session import CommandSession, command
from fairlead.library.app import Fairlead

_tenant_option = click.option("--tenant", help="Only this tenant: slug or id.")


@click.group()
def keys() -> None:
    """Encrypt secrets in the database, and rotate the keys."""


@keys.command()
def generate() -> None:
    """Print a new master key: 32 random bytes as base64."""
    click.echo(base64.b64encode(os.urandom(32)).decode())


@keys.command()
@output.json_option
@command
async def enable(session: CommandSession, *, as_json: bool) -> None:
    """Seal secrets that are stored from now on. Every process needs the master key first; this cannot be undone."""
    async with session.open() as fl:
        changed = await fl.database.transact(lambda tx: encryption.enable(tx, fl.principal))
    if as_json:
        output.print_json({"enabled": True, "changed": changed})
        return
    _print("secrets are sealed from now on" if changed else "secrets were sealed already")
    if changed:
        _print("seal those that are stored already with: fairlead keys seal")


@keys.command()
@_tenant_option
@output.json_option
@command
async def status(session: CommandSession, *, tenant: str | None, as_json: bool) -> None:
    """Show whether secrets are encrypted, and the data keys with their master keys."""
    async with session.open() as fl:
        found = await fl.database.transact(lambda tx: encryption.list_keys(tx, fl.principal, tenant=tenant))
    if as_json:
        output.print_json(found)
        return
    output.print_facts(
        [
            ("secrets", "encrypted" if found.enabled else "in plain form: run `fairlead keys enable`"),
            ("master key", found.master_key or "none: set encryption_key"),
        ]
    )
    output.print_table(
        ["TENANT", "KEY", "STATUS", "MASTER KEY", "CREATED"],
        [
            [
                one.tenant or "(platform)",
                str(one.id),
                one.status,
                one.master_key if one.is_readable else f"{one.master_key} (missing here)",
                output.format_distance(one.created_at),
            ]
            for one in found.keys
        ],
        empty="no data keys",
    )


@keys.command()
@_tenant_option
@click.option("--data", is_flag=True, help="Make new data keys too, and seal all stored secrets with them.")
@output.json_option
@command
async def rotate(session: CommandSession, *, tenant: str | None, data: bool, as_json: bool) -> None:
    """Wrap the data keys with the current master key.

    It can be stopped at any time, and goes on where it was when it is run again.
    """
    async with session.open() as fl:
        rewrapped = await _rewrap(fl, quiet=as_json)
        result = {"rewrapped": rewrapped}
        if data:
            result |= await _rotate_data(fl, tenant, quiet=as_json)
    if as_json:
        output.print_json(result)


@keys.command()
@_tenant_option
@output.json_option
@command
async def seal(session: CommandSession, *, tenant: str | None, as_json: bool) -> None:
    """Seal secrets that are stored in plain form: from before encryption was on."""
    async with session.open() as fl:
        wait = await fl.database.transact(lambda tx: encryption.find_wait_for_processes(tx, fl.principal))
        if wait > 0:
            _print(f"waiting {wait:.0f} seconds, until every process seals", quiet=as_json)
            await asyncio.sleep(wait)
        sealed = await _reseal(fl, tenant, quiet=as_json)
    if as_json:
        output.print_json({"sealed": sealed})


async def _rewrap(fl: Fairlead, *, quiet: bool) -> int:
    done, left = 0, 1
    while left:
        more, left = await fl.database.transact(lambda tx: encryption.rewrap_keys(tx, fl.principal))
        done += more
        _print(f"wrapped {done:,} data keys with the current master key, {left:,} left", quiet=quiet)
    return done


async def _rotate_data(fl: Fairlead, tenant: str | None, *, quiet: bool) -> dict[str, int]:
    made, unfinished = await fl.database.transact(
        lambda tx: encryption.renew_keys(tx, fl.principal, tenant=tenant)
    )
    if unfinished:
        _print(f"continuing the rotation of {unfinished:,} data keys", quiet=quiet)
    _print(f"made {made:,} new data keys", quiet=quiet)
    sealed = await _reseal(fl, tenant, quiet=quiet)
    wait = await fl.database.transact(lambda tx: encryption.find_wait(tx, fl.principal, tenant=tenant))
    if wait > 0:
        _print(f"waiting {wait:.0f} seconds, until no process seals with an earlier key", quiet=quiet)
        await asyncio.sleep(wait)
        sealed += await _reseal(fl, tenant, quiet=quiet)
    retired, used = await fl.database.transact(
        lambda tx: encryption.retire_keys(tx, fl.principal, tenant=tenant)
    )
    _print(f"retired {retired:,} data keys", quiet=quiet)
    if used:
        _print(f"{used:,} earlier data keys are still used: run this command again", quiet=quiet)
    return {"made": made, "sealed": sealed, "retired": retired, "used": used}


async def _reseal(fl: Fairlead, tenant: str | None, *, quiet: bool) -> int:
    """Seal stored secrets in batches, each in its own transaction. How many rows were changed."""
    fl.database.keyring.forget_current()
    changed = await fl.database.transact(lambda tx: encryption.reseal_texts(tx, fl.principal, tenant=tenant))
    steps, broken = await _reseal_steps(fl, tenant)
    changed += steps
    for documents in encryption.DOCUMENTS:
        more, unreadable = await _reseal_documents(fl, tenant, documents, quiet=quiet)
        changed, broken = changed + more, broken + unreadable
    read, after = 0, None
    while True:
        begin = after
        batch = await fl.database.transact(
            lambda tx, begin=begin: encryption.reseal_jobs(tx, fl.principal, after=begin, tenant=tenant)  # type: ignore[misc]
        )
        read, changed, broken = read + batch.read, changed + batch.changed, broken + batch.broken
        _print(f"{read:,} payloads read, {changed:,} values sealed", quiet=quiet)
        after = batch.after
        if after is None:
            break
    if broken:
        _print(f"{broken:,} sealed values cannot be opened: they were changed", quiet=quiet)
    return changed


async def _reseal_steps(fl: Fairlead, tenant: str | None) -> tuple[int, int]:
    """Seal results of steps in batches. How many were changed, and how many cannot be opened."""
    changed, broken, after = 0, 0, None
    while True:
        begin = after
        batch = await fl.database.transact(
            lambda tx, begin=begin: encryption.reseal_steps(tx, fl.principal, after=begin, tenant=tenant)  # type: ignore[misc]
        )
        changed, broken, after = changed + batch.changed, broken + batch.broken, batch.after
        if after is None:
            return changed, broken


async def _reseal_documents(
    fl: Fairlead, tenant: str | None, documents: str, *, quiet: bool
) -> tuple[int, int]:
    """Seal parts of documents in batches. How many were changed, and how many cannot be opened."""
    read, changed, broken, after = 0, 0, 0, None
    while True:
        begin = after
        batch = await fl.database.transact(
            lambda tx, begin=begin: encryption.reseal_documents(  # type: ignore[misc]
                tx, fl.principal, documents, after=begin, tenant=tenant
            )
        )
        read, changed, broken = read + batch.read, changed + batch.changed, broken + batch.broken
        after = batch.after
        if after is None:
            break
    if read:
        _print(f"{read:,} {documents} read, {changed:,} sealed", quiet=quiet)
    return changed, broken


def _print(text: str, *, quiet: bool = False) -> None:
    if not quiet:
        output.console().print(Text(text))
