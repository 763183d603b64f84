"""`fairlead bench`."""

import click
from msgspec.structs import asdict

from fairlead.bench import WORKLOADS, run
from fairlead.cli import output
from fairlead.cli.database import open_database_url
from fairlead.cli.session import CommandSession, command


@click.command()
@click.argument("workloads", nargs=-1, type=click.Choice(list(WORKLOADS)))
@output.json_option
@command
async def bench(session: CommandSession, *, workloads: tuple[str, ...], as_json: bool) -> None:
    """Measure Fairlead on this machine; most figures are compared with a limit measured in the same run.

    Creates a scratch database on the configured server and drops it afterwards.
    """
    settings = session.settings()
    measures = []
    async with open_database_url(settings) as url:
        for name in workloads or WORKLOADS:
            with output.console(stderr=True).status(f"{name} …") as status:
                measure = await run(
                    WORKLOADS[name],
                    settings.direct_url or url,
                    settings,
                    lambda text, name=name, status=status: status.update(f"{name}: {text}"),  # type: ignore[misc]
                )
            measures.append(measure)
            if as_json:
                output.print_json({key: value for key, value in asdict(measure).items() if value is not None})
    if not as_json:
        output.print_table(
            ("workload", "value", "unit", "limit", "ratio"),
            [(m.workload, _figure(m.value), m.unit, m.limit and _figure(m.limit), m.ratio) for m in measures],
            empty="",
        )
        for one in measures:
            output.console().print(f"{one.workload}: {one.note}")


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
