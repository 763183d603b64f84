"""`fairlead agent`."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec
import structlog

from fairlead.cli.log import announce
from fairlead.cli.session import CommandSession, command
from fairlead.cli.worker import describe_served, keep_private_from_commands, load_served_app, signals
from fairlead.errors import FairleadError, InvalidInput
from fairlead.version import __version__

log = structlog.get_logger(__name__)


@click.command()
@click.argument("app", required=False)
@click.option("--server", metavar="URL", help="The server's URL; stored at the enrolment.")
@click.option("--enrol", metavar="CODE", help="The host's enrolment code; needed only once.")
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".fairlead-agent"),
    show_default=True,
    help="The folder for the agent's token and for results that it could not send yet.",
)
@click.option(
    "--rotate", is_flag=True, help="Start with a new token. A token older than 30 days is always renewed."
)
@click.option("--concurrency", default=10, show_default=True, help="The most jobs that run concurrently.")
@command
async def agent(
    session: CommandSession,
    *,
    app: str | None,
    server: str | None,
    enrol: str | None,
    state_dir: Path,
    rotate: bool,
    concurrency: int,
) -> None:
    """Run the jobs of this host, pulled from a server over HTTP, without a database connection.

    The agent runs the commands of fairlead.toml and the functions of APP, such as `jobs:fl`.

    The first SIGTERM or Ctrl-C lets running jobs end and releases the rest; the second stops at once.
    """
    # the HTTP client takes longer to import than most other commands take to run
    from fairlead.cli.http_worker import build_execution  # noqa: PLC0415
    from fairlead.runtime import agent as runtime  # noqa: PLC0415

    if concurrency < 1:
        raise InvalidInput("--concurrency must be 1 or more.")
    fl = load_served_app(session, app)
    keep_private_from_commands(fl)
    enrolment = await _load_or_enrol(state_dir, server, enrol, rotate=rotate)
    plan = runtime.Plan(
        enrolment=enrolment,
        spool=state_dir / "spool",
        start=lambda means: build_execution(fl, means, "An agent"),
        keys=sorted([*fl.functions, *fl.commands]),
        concurrency=concurrency,
        drain_seconds=fl.settings.drain_seconds,
        version=__version__,
    )
    host = enrolment.host

    def note_start() -> None:
        text = f"the agent of {host} serves {describe_served(fl)}; Ctrl-C stops"
        announce(session, "serving", text, stderr=True, host=host, definitions=list(plan.keys))

    stop, abandon = signals()
    await runtime.Agent(plan).run(stop, abandon, note_start)
    announce(session, "stopped", "the agent has stopped", stderr=True, host=host)


async def _load_or_enrol(state_dir: Path, server: str | None, code: str | None, *, rotate: bool) -> Any:
    """The agent's enrolment: a new one with a code, or the stored one."""
    from fairlead.runtime import enrolment  # noqa: PLC0415

    if code is not None:
        if server is None:
            raise InvalidInput("--enrol needs --server: the URL of the server that created the code.")
        made = await enrolment.enrol(server, code)
        enrolment.save_enrolment(state_dir, made)
        return made
    known = enrolment.load_enrolment(state_dir)
    if known is None:
        raise InvalidInput(
            f"No agent is enrolled in {state_dir}. Create a code for the host (fairlead hosts enrol), and start with "
            "--server URL --enrol CODE."
        )
    if server is not None and server != known.server:
        known = msgspec.structs.replace(known, server=server)
        enrolment.save_enrolment(state_dir, known)
    if rotate or known.is_old(datetime.now(UTC)):
        known = await _rotate_token(state_dir, known, insist=rotate)
    return known


async def _rotate_token(state_dir: Path, known: Any, *, insist: bool) -> Any:
    """The enrolment with a new token; with the old one if the rotation fails and `insist` is not set."""
    from fairlead.runtime import enrolment  # noqa: PLC0415

    try:
        made = await enrolment.rotate(known)
    except FairleadError as error:
        if insist:
            raise
        log.warning("token_not_rotated", why=error.message)
        return known
    enrolment.save_enrolment(state_dir, made)
    log.info("token_rotated", host=made.host)
    return made
