"""`fairlead bridge`."""

import click

from fairlead.cli.log import announce
from fairlead.cli.serve import stop_signal
from fairlead.cli.session import CommandSession, command
from fairlead.errors import InvalidInput
from fairlead.integrations.configuration import read_connections
from fairlead.integrations.engine import DRIVERS
from fairlead.runtime.bridge import Bridge, BridgePlan, read_terms
from fairlead.settings import config_file
from fairlead.version import __version__


@click.command()
@click.option("--engine", "only", multiple=True, help="Only this engine; may be repeated.")
@command
async def bridge(session: CommandSession, *, only: tuple[str, ...]) -> None:
    """Hand jobs to the engines of fairlead.toml and take their results, until SIGTERM or Ctrl-C.

    Any number of bridges may run. What the engines carry goes on while no bridge runs, and the next one takes it over.
    """
    file = config_file()
    tables = read_connections(file, "engines", DRIVERS)
    if unknown := [name for name in only if name not in tables]:
        raise InvalidInput(f"There is no [engines.{unknown[0]}] in {file}.")
    chosen = {name: table for name, table in tables.items() if not only or name in only}
    if not chosen:
        raise InvalidInput(
            f"There are no engines in {file}. Describe one as [engines.NAME], or set another file in FAIRLEAD_CONFIG."
        )
    terms = read_terms(chosen)
    stopped = stop_signal()
    async with session.open() as fl:
        plan = BridgePlan(url=fl.database.url, settings=fl.settings, engines=terms, version=__version__)
        names = ", ".join(sorted(chosen))
        announce(session, "bridging", f"delivering through {names}; Ctrl-C stops", engines=sorted(chosen))
        await Bridge(plan).run(stopped)
    announce(session, "stopped", "stopped")
