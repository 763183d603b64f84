"""Publish the definitions of the commands in a fairlead.toml."""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from fairlead.actions import definitions
from fairlead.db.tx import Tx
from fairlead.errors import DefinitionExists, Fault
from fairlead.model.access import Permission, Principal
from fairlead.model.command.spec import CommandSpec, build_command_definition
from fairlead.model.definition import Definition, DefinitionSpec, Kind


class SyncResult(msgspec.Struct, frozen=True):
    """The result for one definition, and the fields that changed."""

    key: str
    result: Literal["created", "changed", "unchanged"]
    version: int
    fields: list[str]


async def sync_commands(
    tx: Tx, principal: Principal, commands: Iterable[CommandSpec], *, force: bool = False
) -> list[SyncResult]:
    """Publish the definitions of commands, all or none; fields that a command does not set stay as they are.

    A definition of kind host keeps its kind: agents run its jobs by their commands. A key of another kind is refused,
    unless `force` turns it into a command.
    """
    principal.require(Permission.MANAGE_DEFINITIONS)
    wanted = {spec.key: build_command_definition(spec) for spec in commands}
    there = await definitions.get_by_keys(tx, principal, list(wanted))
    if not force:
        _check_kinds(there)
    for key, one in there.items():
        if one.kind is Kind.HOST:
            wanted[key]["kind"] = Kind.HOST.value
    return [
        _compare(there.get(key), await definitions.publish(tx, principal, key, wanted[key]))
        for key in sorted(wanted)
    ]


def _check_kinds(there: Mapping[str, Definition]) -> None:
    others = [there[key] for key in sorted(there) if there[key].kind not in (Kind.COMMAND, Kind.HOST)]
    if others:
        raise DefinitionExists(
            f"There is a definition {others[0].key!r} of kind {others[0].kind} already: its jobs are run by something "
            "else. Give the command another key, or make a command of it with --force.",
            [Fault(f"commands.{one.key}", f"is a {one.kind} already") for one in others],
        )


def _compare(before: Definition | None, after: Definition) -> SyncResult:
    if before is None:
        return SyncResult(after.key, "created", after.version, [])
    if before.version == after.version:
        return SyncResult(after.key, "unchanged", after.version, [])
    names = list(DefinitionSpec.__struct_fields__)
    changed = [name for name in names if getattr(before, name) != getattr(after, name)]
    return SyncResult(after.key, "changed", after.version, changed)
