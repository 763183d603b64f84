"""`python -m fairlead.chaos.hostile`."""

import argparse
import asyncio
import secrets
import signal
import sys
import tempfile
from pathlib import Path

import click
import msgspec

from fairlead.chaos.hostile.attacks import ATTACKS
from fairlead.chaos.hostile.report import HostileResult, render
from fairlead.chaos.hostile.run import HostileOptions, run_hostile


def tell(text: str) -> None:
    """Show progress."""
    click.echo(text, err=True)


async def _run(options: HostileOptions) -> HostileResult:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return await run_hostile(options, tell, stop)


def main() -> int:
    """Run it, and print what it has shown; 1 if anything exceeds the bounds."""
    parser = argparse.ArgumentParser(prog="python -m fairlead.chaos.hostile", description=__doc__)
    parser.add_argument("--minutes", type=float, default=4.0, help="How long attackers attack (4).")
    parser.add_argument(
        "--alone", type=float, default=20.0, help="How many seconds victims are measured alone before (20)."
    )
    parser.add_argument("--seed", type=int, help="The seed of an earlier run (default: random).")
    parser.add_argument(
        "--only", action="append", choices=list(ATTACKS), help="Only this attack; can be repeated."
    )
    parser.add_argument(
        "--no-fuzz", action="store_true", help="Without requests that are made of the OpenAPI document."
    )
    parser.add_argument("--no-attacks", action="store_true", help="Only these requests.")
    parser.add_argument("--json", action="store_true", help="Print the result as JSON.")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fairlead-hostile-logs-"))
    options = HostileOptions(
        folder=folder,
        seed=secrets.randbelow(2**32) if given.seed is None else given.seed,
        seconds=given.minutes * 60,
        alone_seconds=given.alone,
        attacks=() if given.no_attacks else tuple(given.only or ATTACKS),
        fuzz=not given.no_fuzz,
    )
    tell(f"seed {options.seed}; logs in {folder}")
    result = asyncio.run(_run(options))
    click.echo(msgspec.json.encode(result).decode() if given.json else render(result))
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main())
