"""`fairlead usage`."""

import sys
from datetime import datetime

import click
from msgspec.structs import asdict

from fairlead.actions.usage import UsageReport, add_reports
from fairlead.cli import output
from fairlead.cli.session import CommandSession, command
from fairlead.model.ansi import strip_controls
from fairlead.model.usage import By, Per, UsageFigures


@click.command()
@click.option("--tenant", help="Only this tenant's usage: slug or id.")
@click.option(
    "--by",
    type=output.enum_choice(By),
    default=By.DAY.value,
    show_default=True,
    help="The length of a period.",
)
@click.option(
    "--per",
    type=output.enum_choice(Per),
    default=Per.DEFINITION.value,
    show_default=True,
    help="How to group the usage within a period.",
)
@click.option("--from", "since", type=output.Moment(), help="Only hours that begin at or after this time.")
@click.option(
    "--to", "until", type=output.Moment(), help="Only hours that begin before this time (default: now)."
)
@click.option("--timezone", help="The time zone of days and months (default: the tenant's, else UTC).")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@output.json_option
@command
async def usage(
    session: CommandSession,
    *,
    tenant: str | None,
    by: str,
    per: str,
    since: datetime | None,
    until: datetime | None,
    timezone: str | None,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Show usage: the number of runs, their run and wait times, and their cost.

    Every ended attempt is a run. Default periods: the last day by hour, 30 days by day, a year by month.
    """
    reports = await session.ask_cells(
        lambda fl: fl.usage(tenant=tenant, by=by, per=per, since=since, until=until, timezone=timezone)
    )
    report = add_reports(reports)
    if as_json:
        output.print_json(
            {
                "items": [asdict(one) for one in report.items],
                "totals": asdict(report.totals),
                "since": report.period.since,
                "until": report.period.until,
                "by": report.period.by,
                "timezone": report.timezone,
            }
        )
    elif as_csv:
        text = report.as_csv()
        click.echo(strip_controls(text) if sys.stdout.isatty() else text, nl=False)
    else:
        _print_report(report, Per(per))


def _print_report(report: UsageReport, per: Per) -> None:
    names = (
        "runs",
        "succeeded",
        "failed",
        "dead letter",
        "canceled",
        "retried",
        "released",
        "ran",
        "waited",
        "cost",
    )
    apart = () if per is Per.NOTHING else (per.value,)
    pattern = "%Y-%m-%d %H:%M" if report.period.by is By.HOUR else "%Y-%m-%d"
    rows = [
        (
            one.starts_at.strftime(pattern),
            *([one.definition_key or one.tenant] if apart else []),
            *_usage_cells(one),
        )
        for one in report.items
    ]
    if rows:
        rows.append(("all", *([""] if apart else []), *_usage_cells(report.totals)))
    output.print_table(
        (f"{report.period.by} ({report.timezone})", *apart, *names),
        rows,
        empty="No runs in this period. Choose another one: fairlead usage --from 2026-01-01 --to 2026-02-01",
    )


def _usage_cells(used: UsageFigures) -> tuple[object, ...]:
    return (
        used.runs,
        used.succeeded,
        used.failed,
        used.dead_letter,
        used.canceled,
        used.retried,
        used.released,
        _format_duration(used.run_ms),
        _format_duration(used.queue_ms),
        f"{used.cost_cents / 100:.2f}",
    )


def _format_duration(ms: int) -> str:
    """A duration in hours, minutes or seconds."""
    seconds = ms / 1000
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
