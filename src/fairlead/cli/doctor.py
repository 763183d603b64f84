"""`fairlead doctor`: runs the health checks, advises, and repairs."""

import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

import click
from msgspec.structs import asdict
from rich.text import Text

from fairlead.actions import consistency, repair
from fairlead.actions.doctor import examine
from fairlead.actions.oidc_checks import examine_providers
from fairlead.cli import output
from fairlead.cli.database import open_database_url
from fairlead.cli.session import CommandSession, actor, command
from fairlead.db.database import Database
from fairlead.errors import DatabaseBusy, InvalidInput, SettingInvalid
from fairlead.library.cell_setup import list_other_cells
from fairlead.model.access import Principal, trusted_principal
from fairlead.model.finding import Finding, Verdict
from fairlead.model.inconsistency import Inconsistency, InconsistencyKind
from fairlead.model.oidc.settings import read_oidc_settings
from fairlead.settings import Settings, config_file, read_document, unknown_variables

ORDER = list(InconsistencyKind)


@click.command()
@click.option("--full", is_flag=True, help="Check the consistency of all jobs, not only of the newest.")
@click.option("--repair", "repairs", is_flag=True, help="Repair faults, after asking. Implies --full.")
@click.option("--yes", is_flag=True, help="With --repair: do not ask.")
@output.json_option
@command
async def doctor(session: CommandSession, *, full: bool, repairs: bool, yes: bool, as_json: bool) -> None:
    """Check the database's health and advise how to fix problems."""
    if repairs and as_json and not yes:
        raise InvalidInput("--repair with --json cannot ask for confirmation. Add --yes.")
    settings = session.settings()
    failed: set[str] = set()
    async with open_database_url(settings) as url:
        async for finding in _examine_home(url, settings, full=full or repairs):
            if finding.verdict is Verdict.FAIL:
                failed.add(finding.check)
            _print_finding(finding, as_json=as_json)
        for cell in [] if failed & {"database", "schema"} else await list_other_cells(url, settings):
            if not as_json:
                output.console().print(Text(f"\ncell {cell.name}", style="bold"))
            its = replace(
                settings, database_url=cell.url, direct_url=None, schema=cell.schema, citus=cell.is_citus
            )
            async for finding in examine(cell.url, its, [], full=full or repairs):
                if finding.verdict is Verdict.FAIL:
                    failed.add(f"{cell.name}.{finding.check}")
                _print_finding(finding, as_json=as_json, cell=cell.name)
        if (
            repairs
            and "consistency" in failed
            and await _repair_faults(url, settings, yes=yes, as_json=as_json)
        ):
            failed -= {"consistency", "sleeping_parents", "queued_without_row"}
    if failed:
        sys.exit(1)


async def _examine_home(url: str, settings: Settings, *, full: bool) -> AsyncIterator[Finding]:
    """The findings about the database, or the home cell, and about the identity providers."""
    async for finding in examine(url, settings, unknown_variables(), full=full):
        yield finding
    for finding in await _examine_providers():
        yield finding


async def _examine_providers() -> list[Finding]:
    try:
        providers = read_oidc_settings(read_document(config_file()))
    except SettingInvalid as error:
        return [Finding("oidc", Verdict.FAIL, error.message)]  # the message has the advice
    return await examine_providers(providers.values())


def _print_finding(finding: Finding, *, as_json: bool, cell: str | None = None) -> None:
    if as_json:
        output.print_json(finding if cell is None else {**asdict(finding), "cell": cell})
        return
    line = Text.assemble(
        (f"{finding.verdict:<5}", output.STATUS_STYLES[finding.verdict]),
        (f"{finding.check:<23}", "bold"),
        finding.detail,
    )
    output.console().print(line)
    if finding.advice:
        output.console().print(Text(f"     {'':<23}→ {finding.advice}"))


async def _repair_faults(url: str, settings: Settings, *, yes: bool, as_json: bool) -> bool:
    """Repair the faults that can be repaired; whether none is left."""
    async with Database(url, settings) as database:
        faults = [one async for one in consistency.find_faults(database, full=True)]
        wanted = sorted(filter(repair.can_mend, faults), key=lambda one: ORDER.index(one.kind))
        if not as_json:
            output.console().print(f"\n{len(wanted)} of {len(faults)} faults can be repaired:")
            for fault in wanted:
                output.console().print(Text(f"  {fault}"))
        if not wanted or not (yes or click.confirm("Repair them now?")):
            return not faults
        principal = trusted_principal(actor())
        for fault in wanted:
            _print_repair(fault, await _repair_fault(database, principal, fault), as_json=as_json)
        return not [one async for one in consistency.find_faults(database, full=True)]


async def _repair_fault(database: Database, principal: Principal, fault: Inconsistency) -> str:
    try:
        done = await database.transact(partial(repair.mend, principal=principal, fault=fault))
    except DatabaseBusy:
        return "busy: run it again"
    return "repaired" if done else "skipped: the fault no longer exists, or must be repaired by hand"


def _print_repair(fault: Inconsistency, became: str, *, as_json: bool) -> None:
    if as_json:
        output.print_json(
            {"repair": fault.kind, "id": str(fault.id), "problem": fault.problem, "became": became}
        )
    else:
        output.console().print(Text(f"{became:<10} {fault}"))
