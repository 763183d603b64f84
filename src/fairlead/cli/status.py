"""`fairlead status`: whether everything is fine."""

import sys

import click
from rich.text import Text

from fairlead.actions import overview
from fairlead.cli import output
from fairlead.cli.session import CommandSession, command
from fairlead.library.app import Fairlead
from fairlead.model.finding import Verdict
from fairlead.model.overview import Overview, OverviewProblem, merge_overviews
from fairlead.model.summary import Percentiles


@click.command()
@click.option("--tenant", help="Only this tenant: slug or id.")
@output.json_option
@command
async def status(session: CommandSession, *, tenant: str | None, as_json: bool) -> None:
    """Say whether everything is fine: problems with what to do, what is slow, what is busy.

    Exits with 1 if there is a problem, and with 0 if all is fine or there are only warnings.
    """

    async def read(fl: Fairlead) -> Overview:
        async with fl.transaction() as tx:
            return await overview.get_overview(tx, fl.principal, tenant=tenant)

    cells = await session.ask_cells(read)
    found = cells[0] if len(cells) == 1 else merge_overviews(cells)
    if as_json:
        output.print_json(found)
    else:
        _print_overview(found)
    if found.verdict is Verdict.FAIL:
        sys.exit(1)


def _print_overview(found: Overview) -> None:
    out = output.console()
    out.print(Text(found.summary, output.STATUS_STYLES[found.verdict]))
    for problem in found.problems:
        _print_problem(problem)
    if found.problems_left_out:
        out.print(Text(f"and {found.problems_left_out:,} more of the same kinds", "dim"))
    out.print()
    output.print_facts(_list_facts(found))
    if found.slowest:
        out.print()
        output.print_table(
            ("slowest definitions", "run p50", "run p95", "wait p95"),
            [
                (one.definition_key, _ms(one.run_ms, "p50"), _ms(one.run_ms, "p95"), _ms(one.wait_ms, "p95"))
                for one in found.slowest
            ],
            empty="",
        )
    if found.busiest:
        out.print()
        what = "busiest tenants" if found.tenant is None else "busiest definitions"
        output.print_table(
            (f"{what}, last hour", "ended", "failed"),
            [(one.name, f"{one.ended_count:,}", f"{one.failed:,}") for one in found.busiest],
            empty="",
        )


def _print_problem(one: OverviewProblem) -> None:
    out = output.console()
    parts = [] if one.tenant is None else [one.tenant]
    parts += [] if one.count is None else [f"{one.count:,} {one.count_of}"]
    parts += [] if one.since is None else [f"since {output.format_distance(one.since)}"]
    line = Text.assemble((f"{one.severity:<5}", output.STATUS_STYLES[one.severity]), (one.title, "bold"))
    out.print(line.append(f" ({', '.join(parts)})") if parts else line)
    for text in (one.detail, f"→ {one.advice}" if one.advice else ""):
        if text:
            out.print(Text(f"     {text}"))


def _list_facts(found: Overview) -> list[tuple[str, str]]:
    jobs = ", ".join(f"{number:,} {status.replace('_', ' ')}" for status, number in found.counts.items())
    facts = [("jobs", jobs)]
    if (fleet := found.workers) is not None:
        used = f"{fleet.running:,} of {fleet.capacity:,} slots in use"
        facts.append(("workers", f"{fleet.online:,} online, {fleet.silent:,} not responding, {used}"))
    for name, times in (("waited, last hour", found.wait_ms), ("ran, last hour", found.run_ms)):
        if times is not None:
            facts.append((name, ", ".join(f"{p} {_ms(times, p)}" for p in ("p50", "p95", "p99"))))
    return facts


def _ms(times: Percentiles | None, name: str) -> str | None:
    """A percentile of times, in milliseconds or seconds."""
    if times is None:
        return None
    value: int = getattr(times, name)
    return f"{value} ms" if value < 1000 else f"{value / 1000:.1f} s"
