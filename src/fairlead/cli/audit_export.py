"""`fairlead audit export`, `verify` and `key`."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import click
from msgspec.structs import asdict
from rich.text import Text

from fairlead.actions import audit_export as actions
from fairlead.actions.audit import StoredEntry
from fairlead.cli import output
from fairlead.cli.session import CommandSession, command
from fairlead.cli.tokens import limit_to_tenant
from fairlead.errors import AuditExportInvalid, AuditKeyInvalid, Fault, InvalidInput
from fairlead.model import audit_chain
from fairlead.model.audit_chain import ChainWriter, VerifiedExport
from fairlead.settings import AUDIT_KEY_VARIABLE
from fairlead.version import __version__

FILE = click.Path(path_type=Path, dir_okay=False)
_NO_KEY = f"There is no key. Make one with: fairlead audit key FILE, then use --key FILE or set {AUDIT_KEY_VARIABLE}."


@click.command()
@click.option("--tenant", help="Only this tenant's entries: slug or id.")
@click.option("--since", type=output.PastMoment(), help="From this time on: a time, or 15m, 2h, 1d ago.")
@click.option("--until", type=output.PastMoment(), help="Before this time (default: now).")
@click.option("--previous", type=FILE, help="Continue this export: from its end, linked to its last hash.")
@click.option("--key", "key_file", type=FILE, help=f"The private key [{AUDIT_KEY_VARIABLE}: the key itself].")
@click.option("-o", "--output", "target", type=FILE, help="A new file (default: standard output).")
@command
async def export(
    session: CommandSession,
    *,
    tenant: str | None,
    since: datetime | None,
    until: datetime | None,
    previous: Path | None,
    key_file: Path | None,
    target: Path | None,
) -> None:
    """Export the audit log as lines of JSON in a hash chain, oldest first, signed at the end."""
    chain = ChainWriter(audit_chain.read_private_key(_read_key(key_file)))
    last = None if previous is None else _read_previous(previous, key_file, since)
    async with session.open() as fl:
        if session.other_cells:
            raise InvalidInput("An export is of one cell: name a cell (fairlead --cell NAME …) or a tenant.")
        async with fl.transaction() as tx:
            principal = await limit_to_tenant(tx, fl.principal, tenant)
            if last is not None and last.about.get("tenant_id") != _text(principal.tenant_id):
                raise InvalidInput(
                    "previous: it is of another tenant. Continue an export of the same tenant."
                )
            start = since if last is None else datetime.fromisoformat(last.about["until"])
            planned = await actions.plan(tx, principal, since=start, until=until)
        about = {
            "tenant": tenant,
            "tenant_id": principal.tenant_id,
            **asdict(planned),
            "previous": None if last is None else last.last_hash,
            "exported_at": datetime.now(UTC),
            "exported_by": principal.actor,
            "version": __version__,
        }
        with _open_target(target) as out:
            _write_line(out, chain.begin(about))
            async for page in actions.read_entries(fl.transaction, principal, planned):
                for entry in page:
                    _write_line(out, chain.add(_document(entry)))
            _write_line(out, chain.end())
            async with fl.transaction() as tx:
                await actions.record_export(
                    tx, principal, planned, entries=chain.entries, last_hash=chain.hash, key=chain.key_name
                )
    _print_note(f"exported {chain.entries:,} entries, signed with the key {chain.key_name}")


@click.command()
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("--key", "key_file", type=FILE, help=f"The public key [{AUDIT_KEY_VARIABLE}: the key itself].")
@output.json_option
@command
async def verify(_: CommandSession, *, files: tuple[Path, ...], key_file: Path | None, as_json: bool) -> None:
    """Verify exports: that no line was changed, removed or reordered, and the signature. Several FILES must follow each other."""
    key = audit_chain.read_public_key(_read_key(key_file))
    found: list[VerifiedExport] = []
    for path in files:
        one = _verify_file(path, key)
        if found and (why := actions.check_following(found[-1], one)) is not None:
            raise AuditExportInvalid(f"{path}, line 1: {why}.", [Fault("line 1", why)])
        found.append(one)
    if as_json:
        output.print_json({"items": [_describe(path, one) for path, one in zip(files, found, strict=True)]})
        return
    for path, one in zip(files, found, strict=True):
        output.console().print(
            Text(
                f"{path}: {one.entries:,} entries of {one.about.get('tenant') or 'all tenants'} "
                f"until {one.about.get('until')}, unchanged, signed with the key {one.key}"
            )
        )


@click.command()
@click.argument("file", type=FILE)
@output.json_option
@command
async def key(_: CommandSession, *, file: Path, as_json: bool) -> None:
    """Make an Ed25519 key: the private key in FILE, the public key in FILE.pub."""
    made = audit_chain.generate_key()
    public = file.with_name(f"{file.name}.pub")
    _write_new(file, audit_chain.write_private_key(made), 0o600)
    _write_new(public, audit_chain.write_public_key(made.public_key()), 0o644)
    name = audit_chain.fingerprint(made.public_key())
    if as_json:
        output.print_json({"key": name, "private": str(file), "public": str(public)})
        return
    output.print_facts([("key", name), ("private", file), ("public", public)])


# Files


def _read_key(path: Path | None) -> bytes:
    if path is None:
        if text := os.environ.get(AUDIT_KEY_VARIABLE):
            return text.encode("utf-8", "surrogateescape")
        raise AuditKeyInvalid(_NO_KEY, [Fault("key", "missing")])
    try:
        return path.read_bytes()
    except OSError as error:
        raise AuditKeyInvalid(f"The key {path} cannot be read: {error.strerror}.") from None


def _read_previous(path: Path, key_file: Path | None, since: datetime | None) -> VerifiedExport:
    """The export to continue, verified: an export that continues a changed one would attest it."""
    if since is not None:
        raise InvalidInput("since: leave it out: the export begins where the previous one ends.")
    return _verify_file(path, audit_chain.read_public_key(_read_key(key_file)))


def _verify_file(path: Path, public: Any) -> VerifiedExport:
    try:
        with path.open("rb") as lines:
            return audit_chain.verify(lines, public, name=str(path))
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from None


@contextmanager
def _open_target(path: Path | None) -> Iterator[BinaryIO]:
    """The new file, which appears when it is complete; without a path, standard output."""
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if path.exists():
        raise _cannot_write(path, "the file exists; choose another name")
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise _cannot_write(path, error.strerror or "unknown") from None
    try:
        with os.fdopen(file, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        # a link, unlike a rename, never replaces a file
        path.hardlink_to(part)
    except OSError as error:
        raise _cannot_write(path, error.strerror or "unknown") from None
    finally:
        part.unlink(missing_ok=True)


def _write_new(path: Path, content: bytes, mode: int) -> None:
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
            out.write(content)
    except OSError as error:
        raise _cannot_write(path, error.strerror or "unknown") from None


def _cannot_write(path: Path, why: str) -> InvalidInput:
    return InvalidInput(f"{path} cannot be written: {why}.")


def _write_line(out: BinaryIO, line: str) -> None:
    out.write(line.encode() + b"\n")


def _document(entry: StoredEntry) -> dict[str, Any]:
    """An entry as in the REST API."""
    return {name: value for name, value in asdict(entry).items() if name not in ("part", "spot", "n")}


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _describe(path: Path, one: VerifiedExport) -> dict[str, Any]:
    about = {name: one.about.get(name) for name in ("tenant", "tenant_id", "since", "until", "previous")}
    return {"file": str(path), "entries": one.entries, "last_hash": one.last_hash, "key": one.key, **about}


def _print_note(text: str) -> None:
    output.console(stderr=True).print(Text(text))
